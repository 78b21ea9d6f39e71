"""The command line as an operator gets it wrong: one sentence that names the flag, and exit 2."""

from __future__ import annotations

import os

import pytest

from engine import args as arguments
from engine.__main__ import main
from engine.core.errors import ConfigError
from engine.core.settings import BY_NAME, Settings

GOOD = {"--instance": "d", "--role": "decode", "--model": "m", "--port": "8000"}


def check(change: dict[str, str]) -> None:
    argv = [word for pair in (GOOD | change).items() for word in pair]
    arguments.check(arguments.parser().parse_args(argv), drill=False)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"--port": "70000"}, "--port is 70000"),
        ({"--port": "0"}, "--port is 0"),
        ({"--role": "prefill", "--bootstrap-port": "-5"}, "--bootstrap-port is -5"),
        ({"--role": "prefill", "--bootstrap-port": "65536"}, "--bootstrap-port is 65536"),
        ({"--role": "prefill", "--bootstrap-port": "8000"}, "--port and --bootstrap-port are both 8000"),
        ({"--role": "prefill"}, "--bootstrap-port"),
        ({"--peer": "h:70000"}, "--peer h:70000"),
        ({"--peer": "h"}, "--peer h "),
        ({"--peer": "p=h"}, "--peer p=h "),
        ({"--peer": "p="}, "--peer p= "),
        ({"--instance": " "}, "--instance"),
        ({"--pages": "3"}, "--pages is 3"),
    ],
)
def test_a_wrong_flag_is_named(change: dict[str, str], named: str) -> None:
    check({"--peer": "h:65535"})
    check({"--peer": "prefill-0=h:65535"})
    with pytest.raises(ConfigError) as caught:
        check(change)
    assert named in str(caught.value) and caught.value.exit == 2


def test_a_wrong_log_level_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PD_LOG_LEVEL", "loud")
    assert main(["serve"]) == 2
    assert capsys.readouterr().err.startswith("engine: PD_LOG_LEVEL: LOUD is none of DEBUG, INFO")


ROUTER = [
    "--instance",
    "r",
    "--port",
    "8000",
    "--prefill",
    "p=http://h:1,h:2,a",
    "--decode",
    "d=http://h:3,a",
]


@pytest.mark.parametrize(
    ("role", "env", "named"),
    [
        ("prefill", {"inflight": "60", "transfer": "60"}, ("DECODE_TRANSFER=60", "PREFILL_INFLIGHT=60")),
        ("decode", {"inflight": "60"}, ("DECODE_TRANSFER=100", "PREFILL_INFLIGHT=60")),
        ("decode", {"prealloc": "110", "inflight": "105"}, ("DECODE_PREALLOC=110", "PREFILL_INFLIGHT=105")),
        ("decode", {"queue": "90"}, ("DECODE_PREALLOC=100", "QUEUE=90")),
        ("prefill", {"queue": "90"}, None),
        ("prefill", {"inflight": "8"}, None),
        ("both", {"inflight": "8"}, None),
        ("router", {"inflight": "200"}, ("PREFILL_INFLIGHT=200", "ROUTER_IDLE=150")),
        ("router", {"router_idle": "600"}, ("ROUTER_IDLE=600", "ROUTER_TOTAL=600")),
        ("router", {"router_idle": "599"}, None),
    ],
)
def test_a_start_with_deadlines_out_of_order_is_refused(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    role: str,
    env: dict[str, str],
    named: tuple[str, str] | None,
) -> None:
    """As far as one process can know: what its environment says, and the defaults of what it reads."""
    for name, value in env.items():
        monkeypatch.setenv(BY_NAME[name].env, value)
    if named is None:
        Settings.from_env(os.environ).check_order(role)
        return
    serve = [word for pair in (GOOD | {"--role": role}).items() for word in pair]
    serve += ["--bootstrap-port", "8001"] if role == "prefill" else []
    assert main(["router", *ROUTER] if role == "router" else ["serve", *serve]) == 2
    (inner, less), (outer, more) = (n.split("=") for n in named)
    said = capsys.readouterr().err
    assert f"engine: PD_{inner}_TIMEOUT={less} must be below PD_{outer}_TIMEOUT={more}: " in said


def test_a_running_engine_may_be_put_out_of_order_on_purpose() -> None:
    settings = Settings.from_env({})
    settings.check_order("prefill")
    settings.set("inflight", 2.0, 0.0)
    assert settings["inflight"] < settings["transfer"]
