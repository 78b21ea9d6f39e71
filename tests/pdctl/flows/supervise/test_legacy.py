"""Every wedge of a legacy-bootstrap pair: found, ended by the supervisor or by itself, and how long it took.

A row each is printed, from the fault until nothing of it is left and a request is served, beside what the
engine alone needs to start: `pytest -m slow -s tests/pdctl/flows/supervise/test_legacy.py`.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.pdctl.flows.supervise.live import HEAL, START, Ward, wait, ward

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
Strike = Callable[[Ward], None]


@pytest.fixture(scope="module")
def legacy(smollm: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ward]:
    with ward(tmp_path_factory.mktemp("ward"), smollm, env={"PD_STEP_TIMEOUT": "30"}) as made:
        assert made.serves()
        yield made


def killed(name: str) -> Strike:
    """Its unit brings it back alone, and nobody tells its peer."""
    return lambda pair: pair.kill(name)


def restarted(name: str) -> Strike:
    """By somebody who does not know of pairs."""

    def strike(pair: Ward) -> None:
        was, pair.fault = pair.lives()[name], time.time()
        pair.ctx.units("local").restart(name)
        wait(f"{name} to live again", lambda: pair.lives()[name] not in (was, "None"), START)

    return strike


def freeze(name: str) -> Strike:
    return lambda pair: pair.strike(pair.rank(name, 0), signal.SIGSTOP)


def arm(fault: str) -> Strike:
    return lambda pair: pair.arm("prefill-0", fault, count=1)


def over(pair: Ward) -> bool:
    """No request is left on either side, and another one is served."""
    held = [pair.state(e.name).get("requests") for e in pair.ctx.fleet.engines()]
    return all(requests == [] for requests in held) and pair.serves()


@pytest.mark.parametrize(
    ("name", "strike", "acts"),
    [
        pytest.param("prefill-0", arm("stall-transfer"), True, id="a stalled transfer"),
        pytest.param("prefill-0", arm("lose-want"), True, id="a lost Want"),
        pytest.param("prefill-0", arm("lose-done"), True, id="a lost Done"),
        pytest.param("decode-0", killed("decode-0"), True, id="decode killed"),
        pytest.param("decode-0", restarted("decode-0"), True, id="decode restarted alone"),
        pytest.param("prefill-0", killed("prefill-0"), False, id="prefill killed"),
        pytest.param("prefill-0", restarted("prefill-0"), False, id="prefill restarted alone"),
        pytest.param("decode-0", freeze("decode-0"), True, id="a frozen rank of decode"),
    ],
)
def test_a_wedge_is_found_and_ended(
    legacy: Ward, name: str, strike: Strike, acts: bool, request: pytest.FixtureRequest
) -> None:
    """What heals by itself (`acts` false) is not acted on."""
    with legacy.supervised():
        before = legacy.newest()
        strike(legacy)
        legacy.send(2)
        if acts:
            wait("the incident", lambda: legacy.incidents(before), HEAL)
        wait("nothing of it to be left", lambda: over(legacy), HEAL)
        seconds = time.time() - legacy.fault
        wait("no incident to be open", lambda: not any(i.open for i in legacy.incidents(before)), HEAL)
        found = legacy.incidents(before)
        done = [a for i in found for a in legacy.actions(i.id) if a.outcome == "done"]
        said = ", ".join(dict.fromkeys(a.action for a in done)) or "nothing"
        first = f"{found[-1].opened - legacy.fault:.1f} s" if found else "-"
        alone = legacy.alone(name)
        case = request.node.callspec.id
        print(f"\n| {case} | {first} | {said} | {seconds:.1f} s | {alone:.1f} s |", flush=True)
        assert acts or not done, legacy.log
