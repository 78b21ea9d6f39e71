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


UCX = """\
2026-11-30 14:10:00,115 INFO pdctl.engine: p0 (prefill) incarnation ab328102c53065c8
[1796047803.100] [vm:19718:0]          parser.c:2044 UCX  WARN  unused environment variable: UCX_FOO
[1796047803.362363] [vm:19718:0]     ucp_context.c:1508 UCX  WARN  network device 'nosuch0' is not available, please use one or more of: 'eth0'(tcp), 'lo'(tcp)
[1796047803.379016] [vm:19718:0]          select.c:722  UCX  ERROR   no active messages transport to <no debug data>: self/memory - no peer failure handler
E1130 14:10:03.379116   19732 nixl_agent.cpp:371] createBackend: backend 'UCX' encountered error with status NIXL_ERR_BACKEND
2026-11-30 14:10:03,383 ERROR pdctl.engine: rank 0 failed
nixl_cu13._bindings.nixlBackendError: NIXL_ERR_BACKEND
2026-11-30 14:10:03,573 ERROR pdctl.engine: p0 ends: rank 0 failed by the engine's own fault, nixlBackendError (exit 70 INTERNAL)
""".splitlines()  # noqa: E501 - as UCX and NIXL wrote it
FAILED = "rank 0 failed by the engine's own fault, nixlBackendError"
NO_DEVICE = "network device 'nosuch0' is not available, please use one or more of: 'eth0'(tcp), 'lo'(tcp)"
NO_TRANSPORT = "no active messages transport to <no debug data>: self/memory - no peer failure handler"


def test_what_ucx_said_goes_before_the_bare_code_of_nixl() -> None:
    assert last_words(UCX) == f"UCX: {NO_DEVICE}; then {FAILED}"
    assert last_words([*UCX[:2], *UCX[3:]]) == f"UCX: {NO_TRANSPORT}; then {FAILED}"
    assert last_words([*UCX[:2], *UCX[4:]]) == FAILED, "an unused variable is no reason"
    other = "2026-11-30 14:10:03,573 ERROR pdctl.engine: p0 ends: /m does not exist (exit 74 MODEL)"
    assert last_words([*UCX[:-1], other]) == "/m does not exist"
    assert last_words(["[keeper] p0 started as pid 1 ", *UCX[2:6], KEPT[2], *UCX[5:]]) == FAILED, (
        "a life before"
    )
