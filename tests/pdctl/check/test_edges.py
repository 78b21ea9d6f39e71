"""Preflight of what two sides must share, and the exit code of the whole."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pdctl import contracts
from pdctl.adapters.bundled import engine_sample
from pdctl.adapters.picture import Reach
from pdctl.adapters.probe import Answer
from pdctl.exits import Exit
from pdctl.facts.machine import Python
from pdctl.facts.missing import Missing
from pdctl.facts.reach import Path, Reached
from pdctl.flows.check import transfer
from pdctl.flows.check.edges import addresses, advertised, agreement, loopback, packets, unnamed_ports
from pdctl.flows.check.reach import Ear, Way, Ways
from pdctl.flows.check.report import CheckReport, Level, Line, fail, ok, skip, warn
from pdctl.flows.check.run import _said
from tests.pdctl.diagnose.conftest import Scene

OFF = Missing("refused")


class Pair:
    """A prefill on h1, a decode on h2, and what was found of the way between them."""

    def __init__(self, made: Any) -> None:
        self.made = made
        self.prefill = made.engine("prefill-0", "h1")
        self.decode = made.engine("decode-0", "h2", port=8002)
        self.states = {"h1": made.state(self.prefill, host="h1"), "h2": made.state(self.decode, host="h2")}
        self.fleet: Any = SimpleNamespace(edges=lambda: ((self.prefill, self.decode),))
        self.ear = Ear("h1", "10.0.0.1", "n", [9001, 40001], 40001, {"h2"})
        self.found = {
            "10.0.0.1:9001": Reached("", 0.001),
            "10.0.0.1:40001": Reached("", 0.001, Path(True, True, True)),
        }
        self.pictures: dict[str, Any] = {"prefill-0": OFF, "decode-0": OFF}

    def change(self, name: str, /, **over: Any) -> None:
        self.states[name] = self.made.replace(self.states[name], **over)

    def run(self) -> None:
        scene = Scene()
        for name, doc in scene.docs.items():
            sample = engine_sample(Answer(Reach.OK, doc, "", 0.0))
            self.pictures[name] = sample.picture
            host = "h1" if name == "prefill-0" else "h2"
            self.change(host, facts={name: self.made.running(100)})

    @property
    def ways(self) -> Ways:
        return Ways({"h2": self.found}, {"h1": self.ear})

    def address(self) -> Any:
        (line,) = addresses(self.states, self.ways, [Way("h2", self.prefill, 9001)])
        return line

    def mtu(self) -> Any:
        (line,) = packets(self.fleet, self.states, self.ways)
        return line

    def agree(self, check: str) -> Any:
        (line,) = [li for li in agreement(self.fleet, self.states, self.pictures) if li.check == check]
        return line


@pytest.fixture
def pair(made: Any) -> Pair:
    return Pair(made)


def test_equal_versions_and_what_differs(pair: Pair) -> None:
    assert pair.agree("versions").level is Level.OK
    assert pair.agree("fingerprint").level is Level.SKIP
    python = next(iter(pair.states["h2"].pythons.values()))
    assert isinstance(python, Python)
    for name, version, level in (("torch", "2.12.1", Level.WARN), ("nixl", "1.4.0", Level.FAIL)):
        other = Python(python.path, python.version, {**python.dists, name: version})
        pair.change("h2", pythons={python.path: other})
        line = pair.agree("versions")
        assert line.level is level and f"{name} {python.dists[name]} on h1, {version} on h2" in line.found


def test_running_engines_speak_for_themselves(pair: Pair) -> None:
    pair.run()
    assert "engine 0.1" in pair.agree("versions").found
    assert pair.agree("fingerprint").level is Level.OK
    pair.pictures["decode-0"].fingerprint["page_size"] = "64"
    assert pair.agree("fingerprint").level is Level.OK, "a whole factor between page sizes is no difference"
    pair.pictures["decode-0"].fingerprint["page_size"] = "24"
    line = pair.agree("fingerprint")
    assert line.level is Level.FAIL and line.found == "page_size: prefill-0 16, decode-0 24"
    pair.pictures["decode-0"].fingerprint.update(page_size="16", dtype="bfloat16")
    line = pair.agree("fingerprint")
    assert line.level is Level.FAIL and line.found == "dtype: prefill-0 float32, decode-0 bfloat16"
    pair.pictures["decode-0"].versions["engine"] = "0.2"
    assert pair.agree("versions").level is Level.FAIL


def test_a_host_on_which_nothing_is_installed_has_no_versions_yet(pair: Pair) -> None:
    host = pair.states["h2"].host
    spec = host.spec.model_copy(update={"runtime": "index"})
    pair.change("h2", host=pair.made.replace(host, spec=spec))
    line = pair.agree("versions")
    assert line.level is Level.SKIP and "nothing is installed on h2" in line.found


def test_a_python_without_the_engines_libraries_is_one_fault_and_not_three(pair: Pair) -> None:
    """The path between the hosts is not known then, and nobody is sent to compare UCX variables."""
    python = next(iter(pair.states["h2"].pythons.values()))
    assert isinstance(python, Python)
    pair.change("h2", pythons={python.path: Python(python.path, python.version, dict.fromkeys(python.dists))})
    line = pair.agree("versions")
    assert line.level is Level.SKIP and line.found == f"not known: {python.path} on h2 has none of them"
    ctx: Any = SimpleNamespace(fleet=pair.fleet)
    (path,) = transfer.lines(ctx, pair.states, pair.ways, 1.0)
    assert path.level is Level.SKIP and "on h2 lacks torch, nixl" in path.found and not path.fix


def test_a_firewall_that_knows_the_fleets_own_ports_alone_keeps_kv_back(pair: Pair) -> None:
    def found() -> list[Line]:
        return list(unnamed_ports(pair.fleet, pair.states, pair.ways))

    assert not found()
    for error in ("no answer", "No route to host"):
        pair.found["10.0.0.1:40001"] = Reached(error, 4.0)
        (line,) = found()
        assert (line.subject, line.level) == ("h2 -> h1", Level.FAIL) and "UCX_TCP_PORT_RANGE" in line.fix
        assert line.found == f"port 9001 of h1 is reached and another is not: {error}"
    env = {"UCX_TCP_PORT_RANGE": "20000-20100"}
    pair.change("h1", env={"prefill-0": env})
    assert found()[0].level is Level.WARN, "which ports are open is not known"
    pair.found["10.0.0.1:9001"] = Reached("no answer", 4.0)
    assert not found(), "the address itself is not reached, which is said already"
    pair.found |= {"10.0.0.1:9001": Reached("", 0.1), "10.0.0.1:40001": Reached("refused", 0.1)}
    assert not found()


def test_an_address_that_is_reached_and_ways_in_which_it_is_not(pair: Pair) -> None:
    assert "10.0.0.1:9001 reached in 1.0 ms, a listener of pdctl's answered" in pair.address().found
    for error in ("no answer", "refused", "somebody else answers there", "No route to host"):
        # refused although a listener of pdctl's should be there
        pair.found["10.0.0.1:9001"] = Reached(error, 4.0)
        line = pair.address()
        assert line.level is Level.FAIL and line.found == f"10.0.0.1:9001: {error}" and line.fix
    pair.ear.ports.remove(9001)
    pair.found["10.0.0.1:9001"] = Reached("refused", 0.1)
    assert "does not listen now" in pair.address().found, "nobody runs, and nobody was let listen"
    del pair.found["10.0.0.1:9001"]
    assert pair.address().level is Level.SKIP


def test_what_an_engine_that_ends_first_does_not_answer_is_no_verdict(pair: Pair) -> None:
    """A frozen one does not either, and the deploy that is being checked may be its cure."""
    pair.ear.ports.remove(9001)
    pair.run()
    pair.found["10.0.0.1:9001"] = Reached("no answer", 4.0)
    assert pair.address().level is Level.FAIL
    pair.change("h1", ending=frozenset({"prefill-0"}))
    assert pair.address().level is Level.WARN
    pair.found["10.0.0.1:9001"] = Reached("refused", 0.1)
    assert pair.address().level is Level.SKIP, "it will listen on another port than it does"


def test_the_running_engine_itself_answers(pair: Pair) -> None:
    pair.run()
    pair.ear.ports.remove(9001)
    assert "prefill-0 answered" in pair.address().found
    pair.found["10.0.0.1:9001"] = Reached("refused", 0.1)
    assert pair.address().fix == "`pdctl logs prefill-0`"


def test_loopback_between_machines_is_caught_even_where_it_answers(pair: Pair, made: Any) -> None:
    pair.change("h1", addresses=("127.0.1.1",))
    line = pair.address()
    assert line.level is Level.FAIL and "10.0.0.1 is 127.0.1.1 on h1 itself" in line.found
    pair.change("h2", boot=pair.states["h1"].boot)
    assert pair.address().level is Level.OK, "two names of one machine"
    assert loopback("127.0.0.1") and loopback("[::1]") and loopback("localhost") and not loopback("h1")


def test_an_engine_that_advertises_loopback_across_machines_is_caught(pair: Pair) -> None:
    pair.run()
    (line,) = advertised(pair.fleet, pair.states, pair.pictures)
    assert line.level is Level.FAIL and "prefill-0 advertises 127.0.0.1:" in line.found
    pair.change("h2", boot=pair.states["h1"].boot)
    assert list(advertised(pair.fleet, pair.states, pair.pictures)) == []


def test_a_running_engine_that_does_not_answer_is_said_to_be_silent(pair: Pair) -> None:
    pair.run()
    late = engine_sample(Answer(Reach.TIMED_OUT, None, "the port is open and nothing answered", 2.0))
    pair.pictures["prefill-0"] = _said("prefill-0", late)
    (line,) = advertised(pair.fleet, pair.states, pair.pictures)
    assert (line.level, line.check) == (Level.SKIP, "advertised")
    words = "not known: prefill-0 did not answer within 2 s"
    assert line.found == words == pair.agree("fingerprint").found
    odd = engine_sample(Answer(Reach.BAD_ANSWER, None, "HTTP 503", 0.1))
    pair.pictures["decode-0"] = _said("decode-0", odd)
    assert pair.agree("fingerprint").found == f"{words}; decode-0 did not answer: HTTP 503"


def test_an_engine_that_does_not_run_has_nothing_to_say(pair: Pair) -> None:
    assert list(advertised(pair.fleet, pair.states, pair.pictures)) == []
    assert "both engines must run for it" in pair.agree("fingerprint").found
    pair.run()
    pair.change("h1", ending=frozenset({"prefill-0"}))
    pair.pictures["prefill-0"] = Missing("it is about to be stopped")
    assert list(advertised(pair.fleet, pair.states, pair.pictures)) == []


def test_packet_sizes(pair: Pair) -> None:
    line = pair.mtu()
    assert line.level is Level.OK and "full packets pass both ways" in line.found
    pair.found["10.0.0.1:40001"] = Reached("", 0.1, Path(True, True, False))
    assert "full packets of 1500 bytes vanish h1 -> h2" in pair.mtu().found
    assert pair.mtu().level is Level.FAIL
    pair.found["10.0.0.1:40001"] = Reached("", 0.1, Path(False, False, False))
    line = pair.mtu()
    assert line.level is Level.OK and "was not tried" in line.found, (
        "no UDP at all says nothing of large ones"
    )
    pair.change("h2", interfaces=(pair.made.eth("10.0.0.2", mtu=9000),))
    assert pair.mtu().level is Level.WARN and "h2 eth0 9000, h1 eth0 1500" in pair.mtu().found


def test_packets_of_one_machine_need_no_path(pair: Pair) -> None:
    pair.change("h2", boot=pair.states["h1"].boot)
    assert list(packets(pair.fleet, pair.states, pair.ways)) == []


GOOD = ok("h1", "disk", "f", "w")
AWAY = fail("h2", "host", "away", "it answers", "ssh h2 true")


@pytest.mark.parametrize(
    ("lines", "away", "exit"),
    [
        ([GOOD], [], Exit.OK),
        ([GOOD, skip("h1", "gpu", "not known", "w")], [], Exit.OK),
        ([GOOD, warn("h1", "mtu", "f", "w", "x")], [], Exit.FINDINGS),
        ([GOOD, fail("h1", "mtu", "f", "w", "x")], [], Exit.FINDINGS),
        ([GOOD, AWAY], ["h2"], Exit.UNREACHABLE),
        ([fail("h1", "mtu", "f", "w", "x"), AWAY], ["h2"], Exit.PARTIAL),
        ([GOOD, AWAY], [], Exit.FINDINGS),  # it answers, and will not let pdctl in
    ],
)
def test_exit_codes_and_the_document(lines: list[Any], away: list[str], exit: Exit) -> None:
    report = CheckReport("demo", 1.0, 2.0, tuple(lines), tuple(away))
    assert report.exit() is exit
    document = report.document()
    assert contracts.faults("check", document) == [] and document["exit"] == exit


def test_doubts_can_be_let_pass() -> None:
    report = CheckReport("demo", 1.0, 2.0, (warn("h1", "mtu", "f", "w", "x"),))
    assert report.exit(Level.FAIL) is Exit.OK
