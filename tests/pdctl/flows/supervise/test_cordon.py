"""An engine is cordoned at the router, by a run that the history shows, until a person resumes."""

from __future__ import annotations

from pdctl.__main__ import main
from pdctl.exits import Exit
from pdctl.flows.changing import fleet_lock
from pdctl.flows.supervise.act import act
from pdctl.remote.journal_read import list_runs
from pdctl.supervisor.decide import Decision
from pdctl.supervisor.policy import Act
from tests.pdctl.flows.conftest import Bench
from tests.pdctl.flows.supervise.test_daemon import terms
from tests.pdctl.flows.test_new_cell import told


def test_a_cordoned_engine_gets_nothing_until_a_person_resumes(two: Bench) -> None:
    two.deploy()
    lives = two.lives()
    decision = Decision(Act.CORDON, "decode-a", "a", "PD203", "decode-a", "it ends in every life")
    done = act(two.fleet(), decision, terms(), print)
    assert (done.outcome, done.detail) == ("done", "the router sends nothing to decode-a")
    assert [name for name, cordoned in told(two).items() if cordoned] == ["decode-a"]
    assert two.lives() == lives, "no process ended"
    run = list_runs(two.fleet().paths.journal)[0]
    assert (run.id, run.command, run.state) == (done.run, "cordon decode-a", "done")
    assert fleet_lock(two.context()).look() is None
    assert main(["--fleet", str(two.path), "resume"]) == Exit.OK
    assert not any(told(two).values())
