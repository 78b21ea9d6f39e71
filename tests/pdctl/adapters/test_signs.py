"""How a log is searched for signs: which lines are kept, and when each was written."""

from __future__ import annotations

import pytest

from pdctl.adapters.readings.logs import KEPT, from_log
from pdctl.adapters.signs import TABLE
from pdctl.adapters.signs.sign import REPEATS, Sign, Table
from pdctl.adapters.traces import Event, Traces

STEP = "2026-08-20 10:{:02d}:{:02d} step {} failed: code {}\n"


def steps(count: int) -> str:
    return "".join(STEP.format(n // 60 % 60, n % 60, n, n) for n in range(count))


@pytest.mark.parametrize("count", [0, 1, REPEATS // 2, REPEATS // 2 + 1, REPEATS, REPEATS + 1, 3 * REPEATS])
def test_the_first_and_the_last_lines_of_a_sign_are_kept(count: int) -> None:
    table = Table([Sign("a.failed", "failed", r"code (?P<code>\d+)"), Sign("a.failed", "never")])
    kept = [int(e.values["code"]) for e in table.scan(steps(count), "p", "p.log")]
    half = REPEATS // 2
    want = list(range(count)) if count <= REPEATS else [*range(half), *range(count - half, count)]
    assert kept == want


def test_what_only_holds_the_literal_takes_no_place() -> None:
    table = Table([Sign("a.odd", "failed", r"code (?P<code>\d*[13579])$")])
    kept = [int(e.values["code"]) for e in table.scan(steps(3 * REPEATS), "p", "p.log")]
    odd = list(range(1, 3 * REPEATS, 2))
    assert kept == [*odd[: REPEATS // 2], *odd[-REPEATS // 2 :]]


def test_a_line_has_its_number_its_stamp_or_that_of_the_line_before() -> None:
    text = "boot\x0cfailed early\n2026-08-20 10:00:00 one\n  failed here\r\n2026-08-20 10:00:05 failed\n"
    events = Table([Sign("a.failed", "failed")]).scan(text, "p", "p.log", before=10)
    assert [(e.at, e.order, e.where, e.line) for e in events] == [
        (None, 12, "p.log:2", "failed early"),
        (1_787_220_000.0, 14, "p.log:4", "failed here"),
        (1_787_220_005.0, 15, "p.log:5", "2026-08-20 10:00:05 failed"),
    ]


def test_literals_with_digits_and_other_letters_are_found() -> None:
    table = Table([Sign("a.errno", "Errno 111"), Sign("a.word", "zwölf 12 — x")])
    text = "[Errno 111] refused\nzwölf 12 — x\nErrno 11\n"
    assert [e.sign for e in table.scan(text, "p", "p.log")] == ["a.errno", "a.word"]


def test_events_of_several_signs_come_in_the_order_of_the_log() -> None:
    events = tuple(Event(sign, "p", None, n, f"p.log:{n}", "") for n, sign in enumerate("abacab"))
    traces = Traces(events=events)
    assert [e.order for e in traces.of("b", "a")] == [0, 1, 2, 4, 5]
    family = Traces(events=(Event("x.a", "p", None, 1, "", ""), Event("xy.b", "p", None, 2, "", "")))
    assert [e.sign for e in family.of("x.")] == ["x.a"]


def test_the_newest_statistics_lines_are_kept() -> None:
    line = (
        "[2026-08-20 10:00:00] Decode batch #running-req: {}, full token usage: 0.5, swa token usage: 0.1\n"
    )
    found = from_log("".join(line.format(n) for n in range(KEPT + 5)), None)
    assert [r.numbers["running"] for r in found] == list(range(5, KEPT + 5))
    assert found[0].numbers["kv_usage"] == 0.5


@pytest.mark.parametrize(
    ("line", "sign", "values"),
    [
        (
            "[h:1:0] ib_mlx5_log.c:143  Transport retry count exceeded on mlx5_0:1/RoCE (synd 0x15)",
            "verbs.completion",
            {"what": "Transport retry count exceeded", "fabric": "RoCE"},
        ),
        (
            "[h:6274 :0] ib_mlx5_log.c:179  UCX  ERROR Local protection error on mlx5_0:1/IB (synd 0x4)",
            "verbs.completion",
            {"what": "Local protection error", "fabric": "IB"},
        ),
        (
            "nixl._bindings.nixlNotFoundError: NIXL_ERR_NOT_FOUND",
            "nixl.refused",
            {"status": "NOT_FOUND"},
        ),
        (
            "PermissionError: [Errno 13] Permission denied: '/.cache'",
            "files.not_allowed",
            {"path": "/.cache"},
        ),
        ("GSM8K: pair: 0.02; alone: 0.41", "answer.accuracy", {"value": "0.02", "other": "0.41"}),
    ],
)
def test_a_line_is_what_it_says(line: str, sign: str, values: dict[str, str]) -> None:
    (event,) = [e for e in TABLE.scan(line, "p", "p.log") if e.sign == sign]
    assert event.values == values


@pytest.mark.parametrize(
    "head",
    [
        "",
        "[2026-08-20 10:00:00 TP0] ",
        "ERROR 08-20 10:00:00 [core.py:12] ",
        "(EngineCore pid=4) ERROR 08-20 10:00:00 [core.py:12] ",
        "Aug 20 10:00:00 node-1 engine[4]: ",
        "2026-08-20T10:00:00.123+08:00 stderr F ",
        "decode-1  | ",
        "[pod/decode-0/vllm] ",
    ],
)
def test_an_exception_is_known_behind_whatever_stands_before_it(head: str) -> None:
    text = f"{head}Traceback (most recent call last):\n{head}    assert a <= b\n{head}x.y.someError: NO\n"
    values = {e.sign: dict(e.values) for e in TABLE.scan(text, "p", "p.log")}
    assert values["process.raised"] == {"type": "x.y.someError", "message": "NO"}
    assert "process.traceback" in values and values["process.asserted"] == {"what": "a <= b"}


@pytest.mark.parametrize(
    ("line", "sign"),
    [
        ("UCX ERROR ibv_create_qp failed on mlx5_5: Cannot assign requested address", "net.not_assignable"),
        ("ERROR 08-13 06:13:44 [core.py:1332]     engine_core.run_busy_loop()", "log.error"),
        ('ERROR 08-13 06:13:44 [core.py:1332]   File "/opt/vllm/core.py", line 1323, in run', "log.error"),
    ],
)  # fmt: skip
def test_a_line_is_not_what_it_looks_like(line: str, sign: str) -> None:
    assert sign not in {e.sign for e in TABLE.scan(line, "p", "p.log")}
