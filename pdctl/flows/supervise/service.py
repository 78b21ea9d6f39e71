"""The supervisor as a service: started, told to read its files again, told to stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from pdctl.errors import PdctlError
from pdctl.fleet.model import Fleet
from pdctl.flows.changing import inputs
from pdctl.flows.context import Context, Say
from pdctl.flows.supervise.daemon import Daemon, summary, words
from pdctl.flows.supervise.eyes import Eyes
from pdctl.flows.supervise.notices import Teller
from pdctl.flows.supervise.switch import Standby
from pdctl.supervisor.outbox import Outbox
from pdctl.supervisor.policy import PolicyFile, load_policy
from pdctl.supervisor.record import Record

# The service manager gives so much more time for an act that is under way when it wants us to stop.
LONGER = "WATCHDOG=1\nEXTEND_TIMEOUT_USEC=30000000"
# Between two tries of one that stands by, seconds.
AGAIN = 5.0


class Service:
    """`load` reads the fleet file; `tell` speaks to the service manager, `say` is the log.

    `again` is set for the files to be read again; one with problems changes nothing. `page` makes a kept
    bundle an HTML document.
    """

    def __init__(
        self,
        load: Callable[[], Fleet],
        say: Say,
        tell: Callable[[str], None],
        page: Callable[[Path], str] | None = None,
    ) -> None:
        self._load, self._say, self._tell, self._page = load, say, tell, page
        self.stop, self.again = threading.Event(), threading.Event()
        self._trouble = ""

    def run(self) -> None:
        """Until `stop`. ConfigError for files that are wrong at the start."""
        fleet = self._load()
        policy = load_policy(fleet.paths.policy)
        while not self.stop.is_set():
            fleet, policy = self._with(fleet, policy)

    def _with(self, fleet: Fleet, policy: PolicyFile) -> tuple[Fleet, PolicyFile]:
        """Supervise until the end, or until there is another fleet file; what to go on with."""
        p = policy.supervisor
        with ExitStack() as stack:
            ctx = stack.enter_context(Context(fleet, say=self._say))
            lease = Standby(ctx, self._say)
            stack.callback(lease.end)
            if not self._turn_has_come(lease):
                return fleet, policy
            looking = stack.enter_context(Context(fleet, say=self._say))
            record = stack.enter_context(Record(fleet, self._say, p.look_every, p.page, self._page))
            eyes = stack.enter_context(Eyes(looking, p.hosts_every))
            outbox = Outbox(fleet.paths.supervisor)
            stack.callback(outbox.close)
            teller = Teller(fleet.name, fleet.dir, policy.notify, self._say, outbox)
            stack.callback(teller.close)
            daemon = Daemon(ctx, policy, lease, lambda: record.keep(eyes.look()), teller.tell)
            stack.callback(daemon.close, lambda: self._tell(LONGER))
            count = len(list(fleet.engines()))
            self._say(f"looks after {fleet.name}: {count} engines, mode {p.mode}")
            self._tell("READY=1")
            stamp = inputs(fleet)
            held = False
            while not self.stop.is_set():
                began = time.monotonic()
                self._turn(daemon, record, daemon.tick)
                if daemon.switches.standby and daemon.running is None:
                    self._say("has lost its lease: stands by")
                    return fleet, daemon.policy
                # Whoever held the fleet may have deployed another one.
                freed, held = held and not daemon.switches.held, bool(daemon.switches.held)
                if (self.again.is_set() or freed) and daemon.running is None:
                    asked = self.again.is_set()
                    self.again.clear()
                    fresh = self._read()
                    if fresh is not None:
                        if inputs(fresh[0]) != stamp or _fixed(fresh[1]) != _fixed(policy):
                            self._say("the fleet's files have changed: begins again with them")
                            return fresh
                        if asked or fresh[1] != daemon.policy:
                            self._say("read its policy again")
                        daemon.ward.reform(fresh[1])
                        teller.channels = fresh[1].notify
                self._pause(daemon, record, began + daemon.policy.supervisor.look_every)
            self._tell("STOPPING=1")
        return fleet, policy

    def _turn_has_come(self, lease: Standby) -> bool:
        """Wait for the lease; False when this supervisor is told to stop meanwhile.

        One that stands by neither looks nor writes: the file and the notices are those of the one that acts.
        """
        while not self.stop.is_set():
            if lease.acquire():
                return True
            self._tell(f"READY=1\nWATCHDOG=1\nSTATUS=stands by: {lease.other}")
            self.stop.wait(AGAIN)
        return False

    def _turn(self, daemon: Daemon, record: Record, turn: Callable[[], None]) -> None:
        """A look, or what follows from a verdict. The watchdog is fed by one that went to its end; what
        broke is said once.
        """
        trouble = ""
        try:
            turn()
        except PdctlError as error:
            trouble = f"this turn broke off: {error.message}"
        if trouble and trouble != self._trouble:
            self._say(trouble)
        self._trouble = trouble
        record.live.standing = summary(daemon)
        if not trouble:
            self._tell(f"WATCHDOG=1\nSTATUS={words(record.live.standing)}")

    def _read(self) -> tuple[Fleet, PolicyFile] | None:
        """Both files anew; None where they have problems, which are said."""
        try:
            fresh = self._load()
            return fresh, load_policy(fresh.paths.policy)
        except PdctlError as error:
            self._say(f"goes on with what it had: {error.message}")
            for line in error.details:
                self._say(f"  {line}")
            return None

    def _pause(self, daemon: Daemon, record: Record, end: float) -> None:
        """Until the next look, or until there is something to do; a verdict does not wait for a look."""
        while not (self.stop.is_set() or self.again.is_set()) and (left := end - time.monotonic()) > 0:
            if daemon.judging.done:
                self._turn(daemon, record, daemon.follow)
            self.stop.wait(min(left, 0.2))


def _fixed(policy: PolicyFile) -> tuple[object, ...]:
    """What of a policy the observer and the pages were begun with."""
    p = policy.supervisor
    return p.page, p.look_every, p.hosts_every
