"""What was configured is told with its file and line, and remedies name the cell that there is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pdctl.diagnose.facts import Facts
from pdctl.diagnose.named import named
from pdctl.diagnose.report import make
from pdctl.diagnose.rule import Hypothesis
from pdctl.diagnose.rules import BY_CODE

TIMER = "PD_PREFILL_INFLIGHT_TIMEOUT"


def with_places(facts: Facts, name: str, **places: str) -> Facts:
    engines = tuple(
        replace(e, member=replace(e.member, places=places)) if e.name == name else e for e in facts.engines
    )
    return replace(facts, engines=engines)


def test_another_value_than_the_profile_names_the_line_that_holds_it(scene: Any) -> None:
    scene.expected["prefill-0"] = {TIMER: "60"}
    facts = with_places(scene.facts(), "prefill-0", **{TIMER: "profiles/default.toml:31"})
    (said,) = [p.finding for p in make(facts, 1.0).verdict.findings if p.finding.code == "PD101"]
    assert said.summary == (
        f"prefill-0 runs with other values than its profile: {TIMER} (profiles/default.toml:31)."
    )
    assert any(line.startswith(f"{TIMER}: profile 60 (profiles/default.toml:31), ") for line in said.evidence)


def test_a_profile_that_deploy_refuses_is_to_be_corrected_and_not_deployed(scene: Any) -> None:
    decode = "PD_DECODE_TRANSFER_TIMEOUT"
    scene.expected = {"decode-0": {decode: "130"}, "prefill-0": {TIMER: "120"}, "router": {}}
    facts = with_places(scene.facts(), "decode-0", **{decode: "profiles/default.toml:23"})
    said = make(facts, 1.0).verdict.findings[0].finding
    assert said.code == "PD101" and said.remedy.startswith(f"correct {decode} (profiles/default.toml:23), ")
    assert any(f"{decode}=130 must be below {TIMER}=120" in line for line in said.evidence)
    scene.expected["decode-0"] = {decode: "90"}
    assert make(scene.facts(), 1.0).verdict.findings[0].finding.remedy == "pdctl deploy"


def test_timeouts_out_of_order_are_followed_by_the_lines_that_hold_them(scene: Any) -> None:
    env = scene.docs["prefill-0"]["timeouts"]["inflight"]["env"]
    scene.docs["prefill-0"]["timeouts"]["inflight"]["value"] = 3.0
    facts = with_places(scene.facts(), "prefill-0", **{env: "fleet.toml:12"})
    (said,) = [p.finding for p in make(facts, 1.0).verdict.findings if p.finding.code == "PD105"]
    assert f"{env} of prefill-0: fleet.toml:12" in said.evidence


def test_what_names_no_variable_says_where_its_units_are_declared(scene: Any) -> None:
    facts = with_places(scene.facts(), "prefill-0", **{"": "fleet.toml:20"})
    config = BY_CODE["PD110"].finding("prefill-0", "differs", ["64 and 16"], "do")
    assert named(config, facts).evidence == ("64 and 16", "prefill-0 is declared in fleet.toml:20")
    other = BY_CODE["PD201"].finding("prefill-0", "is down", ["x"], "do")
    assert named(other, facts).evidence == ("x",)


def test_the_only_cell_stands_in_a_remedy_and_its_tests(scene: Any) -> None:
    facts = scene.facts()
    doubt = Hypothesis("stale", "pdctl restart --co CELL, then one request")
    vague = BY_CODE["PD320"].finding("p", "s", [], "pdctl restart --co CELL", touches=[], hypotheses=[doubt])
    said = named(vague, facts)
    assert (said.remedy, said.hypotheses[0].test) == (
        "pdctl restart --co a",
        "pdctl restart --co a, then one request",
    )
    (first, *rest) = facts.engines
    two = replace(facts, engines=(replace(first, member=replace(first.member, cell="b")), *rest))
    assert named(vague, two).remedy == "pdctl restart --co CELL", "nobody knows which"
