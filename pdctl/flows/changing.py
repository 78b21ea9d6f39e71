"""What every verb that changes the fleet runs in: the fleet's lock, a run in the journal, audit records."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from pdctl.errors import PdctlError
from pdctl.exits import Exit
from pdctl.fleet.model import Fleet
from pdctl.flows.context import Context
from pdctl.remote.audit import Audit
from pdctl.remote.journal import Call, Doing, Journal, Links, new_run
from pdctl.remote.lock import FleetLock, lock_on
from pdctl.remote.lock_lease import hold
from pdctl.remote.operator import me


@contextmanager
def changing(ctx: Context, call: Call, lock_wait: float = 0.0) -> Iterator[Journal]:
    """Hold the fleet and write a run until the block ends; every command of `ctx` meanwhile belongs to it.

    `lock_wait` seconds for another run to end; LockedError when the lock cannot be had, UnreachableError
    when its host cannot be asked. Nothing was changed in both cases.
    """
    run = new_run()
    with (
        hold(fleet_lock(ctx), f"pdctl {call.command}", run, ctx.say, lock_wait) as lease,
        _written(ctx, call, run, lease.check) as journal,
    ):
        if lease.over is not None:
            taken = f"took over the lock of a run that is dead: {lease.over.words()}"
            journal.step("lock", ctx.fleet.control, taken, "done", 0.0)
        yield journal


def beside(ctx: Context, call: Call) -> AbstractContextManager[Journal]:
    """A run without the lock: for what must be possible while another run holds the fleet."""
    return _written(ctx, call, new_run(), lambda: None)


@contextmanager
def _written(ctx: Context, call: Call, run: str, check: Callable[[], None]) -> Iterator[Journal]:
    audit = audit_of(ctx, call.command, run)
    links = Links(inputs(ctx.fleet), ctx.resumes, check, audit, ctx.say)
    begun = whole = False
    try:
        with Journal(ctx.fleet.paths.journal, call, run, links) as journal:
            ctx.journal = journal
            try:
                yield journal
                whole = True
            finally:
                begun = journal.begun
    except KeyboardInterrupt:
        left = ctx.fleet.paths.recovery.exists()
        raise _interrupted(call, run, left, whole, begun) from None
    finally:
        ctx.journal = None
        audit.close()


def _interrupted(call: Call, run: str, left: bool, whole: bool, begun: bool) -> PdctlError:
    """What an operator needs to know behind a Ctrl-C: how far it was, and what goes on with it.

    `left`: a recovery record is there, of what was changed for the moment; `whole`: the verb had ended.
    """
    verb = f"`pdctl {call.command}`"
    if left:
        where = f"Interrupted in the middle of {verb}; what was changed for the moment is not all put back."
        hint = f"`pdctl resume` puts it back; `pdctl history {run}` has the steps."
        return PdctlError("interrupted", where, hint, Exit.INTERRUPTED)
    if whole:
        where = f"Interrupted behind the end of {verb}: all of it is done."
        return PdctlError("interrupted", where, f"`pdctl history {run}` has the steps.", Exit.INTERRUPTED)
    if not begun:
        return PdctlError("interrupted", f"Interrupted; {verb} has changed nothing.", exit=Exit.INTERRUPTED)
    further = f"`pdctl resume {run}` goes on from what is true then; " if call.again else ""
    hint = f"{further}`pdctl history {run}` has the steps."
    where = f"Interrupted in the middle of {verb}."
    return PdctlError("interrupted", where, hint[0].upper() + hint[1:], Exit.INTERRUPTED)


def doing(
    ctx: Context, id: str, hosts: str, what: str, changes: bool = True
) -> AbstractContextManager[Doing | None]:
    """A step of the run under way, if there is one. `hosts` as in Journal."""
    return nullcontext() if ctx.journal is None else ctx.journal.doing(id, hosts, what, changes)


def fleet_lock(ctx: Context) -> FleetLock:
    """The lock of the fleet, on its control host."""
    control = ctx.fleet.control
    return lock_on(ctx.fleet.hosts[control], lambda: ctx.unrecorded(control))


def audit_of(ctx: Context, command: str, run: str) -> Audit:
    who = me()
    verb = command.split()[0]
    line = {"by": who.owner, "from": who.host, "run": run, "verb": verb}
    return Audit(ctx.fleet.hosts, ctx.unrecorded, line, ctx.say)


def inputs(fleet: Fleet) -> dict[str, str]:
    """Digest of each file that says what the fleet should be, by its name beside the fleet file."""
    files = [fleet.path, *sorted(fleet.paths.profiles.glob("*.toml"))]
    return {
        str(f.relative_to(fleet.dir)): hashlib.sha256(f.read_bytes()).hexdigest()[:16]
        for f in files
        if f.is_file()
    }
