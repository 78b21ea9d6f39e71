"""The command line as an operator gets it wrong: one sentence that names the flag, and exit 2."""

from __future__ import annotations

import pytest

from engine import args as arguments
from engine.__main__ import main
from engine.core.errors import ConfigError

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
