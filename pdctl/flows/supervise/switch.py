"""The supervisor's switches on the control host: its pause, and the lease that lets one of several act."""

from __future__ import annotations

import secrets
import threading

from pdctl.errors import LockedError, PdctlError
from pdctl.flows.context import Context, Say
from pdctl.remote.lock import FleetLock, HeldError, Holder, holder_for, lock_on
from pdctl.remote.lock_lease import Lease
from pdctl.remote.operator import me
from pdctl.remote.pause import PauseSwitch

# The lock's file on the control host. Not the fleet's own: a run of an operator does not end a supervisor.
# Nor the folder of its unit, which lies beside it.
LEASE = "supervisor.lease"
COMMAND = "pdctl supervise"


def pause_of(ctx: Context) -> PauseSwitch:
    control = ctx.fleet.control
    return PauseSwitch(ctx.fleet.hosts[control], lambda: ctx.unrecorded(control))


def lease_of(ctx: Context) -> FleetLock:
    """One that is frozen has lost it: whoever holds it proves it before each act."""
    control = ctx.fleet.control
    return lock_on(ctx.fleet.hosts[control], lambda: ctx.unrecorded(control), LEASE, expires=True)


class Standby:
    """The lease of one supervisor, taken when it is free and tried again until then; kept by a heartbeat.

    Its expiry is counted on the control host's clock. One that could not prove for a minute that the lease is
    its own does not act, whatever its own clock says.
    """

    def __init__(self, ctx: Context, say: Say) -> None:
        self._ctx, self._say = ctx, say
        self._lease: Lease | None = None
        self._other: Holder | None = None
        self._trouble = ""

    @property
    def ours(self) -> bool:
        return self._lease is not None and not self._lease.lost

    def acquire(self) -> bool:
        """Whether it is ours now; says once who else has it."""
        if self.ours:
            return True
        lock = lease_of(self._ctx)
        mine = holder_for(me(), secrets.token_hex(8), COMMAND)
        try:
            over = lock.take(mine)
        except HeldError as error:
            if self._other is None or self._other.id != error.holder.id:
                self._other = error.holder
                self._say(f"another supervisor acts: {error.holder.words()}; this one stands by")
            return False
        except PdctlError as error:
            if error.message != self._trouble:
                self._trouble = error.message
                self._say(error.message)
            return False
        if over is not None:
            self._say(f"took over from a supervisor that is dead: {over.words()}")
        self._other, self._trouble = None, ""
        self._lease = Lease(lock, mine, over, self._say)
        threading.Thread(target=self._lease.keep, daemon=True, name="lease-heartbeat").start()
        return True

    def check(self) -> None:
        """LockedError when this supervisor must not act."""
        if self._lease is None:
            raise LockedError("no_lease", "Another supervisor holds the lease.")
        self._lease.check()

    @property
    def other(self) -> str:
        """Who acts instead, or why nobody knows; "" for nobody."""
        return self._trouble if self._other is None else self._other.words()

    def end(self) -> None:
        if self._lease is not None:
            self._lease.end()
