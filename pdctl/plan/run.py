"""Steps carried out in order; those of one wave on all their hosts at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, wait
from functools import partial
from itertools import groupby

from pdctl.errors import PdctlError
from pdctl.plan.step import Pending, Plan, apply_step
from pdctl.remote.fanout import CONCURRENT, begin
from pdctl.remote.journal import Journal

Say = Callable[[str], None]
# For steps under way when a run is interrupted, seconds.
GRACE = 20.0


def run_plan(plan: Plan, journal: Journal, say: Say) -> None:
    """Everything; the first error is raised once the steps beside it have ended."""
    for error in run_steps(plan.pending, journal, say).values():
        raise error


def run_steps(pending: Sequence[Pending], journal: Journal, say: Say) -> dict[str, PdctlError]:
    """host -> its first error; nothing behind a wave with an error is begun."""
    for lanes in _waves(pending):
        failed = _run_lanes(lanes, journal, say)
        if failed:
            return failed
    return {}


def _waves(pending: Sequence[Pending]) -> Iterator[dict[str, list[Pending]]]:
    """host -> steps, wave after wave; a step without one is a wave by itself."""
    numbered = groupby(enumerate(pending), key=lambda item: item[1].step.wave or item[0])
    for _, items in numbered:
        lanes: dict[str, list[Pending]] = {}
        for _, each in items:
            lanes.setdefault(each.step.host, []).append(each)
        yield lanes


def _run_lanes(lanes: dict[str, list[Pending]], journal: Journal, say: Say) -> dict[str, PdctlError]:
    """Each host's steps in order. Ctrl-C ends the wave: what is under way ends, nothing else begins."""
    stop = threading.Event()
    places = threading.BoundedSemaphore(CONCURRENT)

    def lane(steps: list[Pending]) -> PdctlError | None:
        with places:
            for each in steps:
                if stop.is_set():
                    return None
                try:
                    apply_step(each, journal, say)
                except PdctlError as error:
                    return error
        return None

    if len(lanes) == 1:
        # On this thread, so that Ctrl-C reaches the step itself.
        ((host, steps),) = lanes.items()
        error = lane(steps)
        return {host: error} if error else {}
    running = {host: begin(partial(lane, steps)) for host, steps in lanes.items()}
    try:
        wait(running.values(), return_when=FIRST_EXCEPTION)
        ended = {host: future.result() for host, future in running.items()}
    except BaseException:
        stop.set()
        say(f"stopping; what is under way on {', '.join(running)} may take a moment to end")
        wait(running.values(), GRACE)
        raise
    return {host: error for host, error in ended.items() if error}
