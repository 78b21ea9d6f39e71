"""What was not judged is told as far as somebody could do something about it; the rest is a number."""

from __future__ import annotations

from typing import Any

from pdctl.adapters.picture import Reach
from pdctl.bundle.documents import Documents
from pdctl.bundle.read import facts_of
from pdctl.diagnose.report import make
from pdctl.diagnose.unjudged import unjudged


def test_a_bundle_says_what_would_let_it_judge_more() -> None:
    text = "[2026-08-20 10:00:00 TP0] Decode batch. #running-req: 3, #queue-req: 0\n"
    told = '[parties.prefill-0]\nkind = "vllm"\n[parties.decode-0]\nkind = "vllm"\nenv = { A = "b" }\n'
    facts = facts_of(Documents("b", {"bundle.toml": told, "decode-0.log": text}), 1.0)
    (line,) = unjudged(make(facts, 1.0))
    assert "rules could not look at everything; more with" in line
    assert "log of prefill-0" in line and "environment of prefill-0" in line
    assert "command line of prefill-0 and decode-0" in line
    assert "nobody told" not in line and "stacks" not in line and "environment of prefill-0 and" not in line


def test_what_failed_is_told_with_its_reason(scene: Any) -> None:
    scene.reach["decode-0"] = Reach.REFUSED
    lines = unjudged(make(scene.facts(), 1.0))
    assert any(line.startswith("decode-0: refused: no (") for line in lines), lines
