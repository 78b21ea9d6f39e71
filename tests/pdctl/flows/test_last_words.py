"""What an operator is told of a process that ended is its own last sentence, not its supervisor's."""

from __future__ import annotations

from pdctl.flows.last_words import last_life, last_words

KEPT = """\
2026-11-30 09:10:41 [keeper] prefill-0 started as pid 23323
2026-11-30 09:10:44,529 ERROR pdctl.engine: an error of the life before
2026-11-30 09:11:27 [keeper] prefill-0 started as pid 25963
2026-11-30 09:11:30,947 INFO pdctl.engine: prefill-0 (prefill) incarnation ab732b0987ebd220
2026-11-30 09:11:46,630 ERROR pdctl.engine: prefill-0 ends: The model has 3 heads. Start less (exit 74 MODEL)
2026-11-30 09:11:48 [keeper] prefill-0: ended with exit code 74
2026-11-30 09:11:48 [keeper] prefill-0: failed: ended with exit code 74, which a restart cannot cure
""".splitlines()


def test_the_error_of_the_last_life_is_taken_out_of_its_frame() -> None:
    assert last_words(KEPT) == "The model has 3 heads. Start less"
    assert last_words(KEPT[:2]) == "an error of the life before"
    assert len(last_life(KEPT)) == 5
    assert last_words(KEPT[:3]) == "an error of the life before"


def test_a_process_that_ended_before_it_had_a_logger() -> None:
    lines = [KEPT[2], "engine: --token-budget is below --max-running.", KEPT[5]]
    assert last_words(lines) == "--token-budget is below --max-running"


def test_systemd_s_own_lines_are_not_the_engine_s() -> None:
    lines = [
        "Starting pdctl-f-prefill@prefill-0.service - pdctl prefill engine prefill-0...",
        "2026-11-30 09:11:46,630 ERROR pdctl.engine: prefill-0 ends: /m does not exist (exit 74 MODEL)",
        "pdctl-f-prefill@prefill-0.service: Main process exited, code=exited, status=74/n/a",
        "pdctl-f-prefill@prefill-0.service: Failed with result 'exit-code'.",
        "Failed to start pdctl-f-prefill@prefill-0.service - pdctl prefill engine prefill-0.",
    ]
    assert last_words(lines) == "/m does not exist"
    assert last_words(lines[2:]) == "", "nothing of it is within sight"


def test_another_kind_s_last_line_is_all_that_is_known() -> None:
    lines = [KEPT[2], "Traceback (most recent call last):", "ValueError: no such model", "", KEPT[5]]
    assert last_words(lines) == "ValueError: no such model"
    assert last_words([]) == ""
