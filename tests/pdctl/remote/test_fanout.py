"""Many are asked at once and every outcome is kept."""

from __future__ import annotations

import subprocess
import sys
import threading

from pdctl.errors import PdctlError
from pdctl.remote.fanout import CONCURRENT, fan_out


def test_a_hung_ask_does_not_hold_up_an_interrupt_or_the_exit() -> None:
    code = "import signal, time\nfrom pdctl.remote.fanout import fan_out\n"
    code += "signal.setitimer(signal.ITIMER_REAL, 0.3)\n"
    code += "signal.signal(signal.SIGALRM, signal.default_int_handler)\n"
    code += "try: fan_out([1, 2], lambda key: time.sleep(60))\nexcept KeyboardInterrupt: print('left')"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20)
    assert (found.stdout, found.stderr) == ("left\n", "")


def test_fan_out_keeps_every_outcome() -> None:
    def ask(key: int) -> int:
        if key % 2:
            raise PdctlError("odd", f"{key} is odd.")
        return key * 10

    found = fan_out(range(25), ask)
    assert list(found) == list(range(25))
    assert [v for v in found.values() if isinstance(v, int)] == [k * 10 for k in range(0, 25, 2)]
    assert sum(isinstance(v, PdctlError) for v in found.values()) == 12
    assert fan_out([], ask) == {}


def test_at_most_so_many_are_asked_at_once() -> None:
    """As many as sshd lets log in at a time; all of the places are used."""
    inside, most = 0, 0
    counting, full, over = threading.Lock(), threading.Event(), threading.Event()

    def ask(key: int) -> None:
        nonlocal inside, most
        with counting:
            inside += 1
            most = max(most, inside)
        if most >= CONCURRENT:
            full.set()
        if most > CONCURRENT:
            over.set()
        assert full.wait(20), "not all places were used"
        over.wait(0.2)  # for whoever comes in all the same
        with counting:
            inside -= 1

    assert len(fan_out(range(2 * CONCURRENT), ask)) == 2 * CONCURRENT
    assert most == CONCURRENT == 10
