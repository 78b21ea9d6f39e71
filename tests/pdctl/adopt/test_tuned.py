"""tune-timeout on doubles of SGLang, over real sockets and processes: what fires and what cannot be shown."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from pdctl.errors import ConfigError
from pdctl.exits import Exit
from pdctl.fleet.load import load_fleet
from pdctl.fleet.profile import load_profile
from pdctl.flows.context import Context
from pdctl.flows.recovery.record import path
from pdctl.flows.recovery.restore import restore
from pdctl.flows.tune.foreign import run as foreign
from pdctl.flows.tune.foreign.watchdogs import watchdogs
from tests.pdctl.adopt.test_deploy_adopted import Rack, rack  # noqa: F401 - the fixture

# Fleets of their own, for minutes: `make test-slow`.
pytestmark = pytest.mark.slow

BOOTSTRAP, WAITING = "SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT", "SGLANG_DISAGGREGATION_WAITING_TIMEOUT"
FORK = "SGLANG_DSV4_PREFILL_INFLIGHT_TIMEOUT"


@pytest.fixture
def tuned(rack: Rack) -> Rack:  # noqa: F811
    rack.adopt("prefill.sh", "decode.sh", "router.sh")
    return rack


def profile(rack: Rack) -> str:  # noqa: F811
    return load_fleet(rack.out).engine("prefill-0").profile


def deployed(rack: Rack, **values: str) -> None:  # noqa: F811
    for name, value in values.items():
        words = ("profile", "set", profile(rack), f"{name}={value}", "--reason", "the test wants it so")
        code, said = rack.call(*words)
        assert code == Exit.OK, said
    code, said = rack.call("deploy", "--yes")
    assert code == Exit.OK, said


def ran(rack: Rack, *words: str) -> tuple[int, dict[str, Any], dict[str, Any]]:  # noqa: F811
    """(exit, the document, watchdog -> check -> ok of the first proof of each)."""
    code, said = rack.call("--json", "tune-timeout", "--yes", *words)
    document = json.loads(said[said.index("{") : said.rindex("}") + 1])
    proofs = document["after_apply"] or document["proofs"]
    return code, document, {p["watchdog"]: {c["name"]: c["ok"] for c in p["checks"]} for p in proofs}


def details(document: dict[str, Any], watchdog: str, check: str) -> str:
    proof = next(p for p in document["proofs"] if p["watchdog"] == watchdog)
    return str(next(c["detail"] for c in proof["checks"] if c["name"] == check))


def test_a_room_that_no_decode_asks_for_is_ended_in_time_and_the_rest_is_seen(tuned: Rack) -> None:
    deployed(tuned, **{BOOTSTRAP: "3"})
    code, document, checks = ran(tuned, "--verify")
    assert code == Exit.OK, document
    assert set(checks) == {BOOTSTRAP} and all(checks[BOOTSTRAP].values()), document["proofs"]
    assert "HTTP 500" in details(document, BOOTSTRAP, "error at the client")
    assert "KVPoll.Bootstrapping" in details(document, BOOTSTRAP, "a line in the log")
    assert "Public SGLang has none" in document["notes"][0]
    stated = load_profile(tuned.out / "profiles", profile(tuned)).values[BOOTSTRAP]
    assert document["verified"] and stated.is_verified


def test_a_watchdog_that_such_a_request_cannot_meet_is_not_proved_and_says_why(tuned: Rack) -> None:
    deployed(tuned, **{BOOTSTRAP: "4", FORK: "2"})
    code, document, checks = ran(tuned, "--verify")
    assert code == Exit.OK and checks[BOOTSTRAP]["fired in time"] is True, document
    assert set(checks[FORK].values()) == {None}
    assert "it never came into its inflight queue" in details(document, FORK, "fired in time")
    tuned.behave(tuned.ports[0], "fork")
    code, document, checks = ran(tuned, "--verify")
    assert code == Exit.OK and checks[FORK]["fired in time"] is True, document
    assert checks[BOOTSTRAP]["fired in time"] is None


def test_what_its_numbers_do_not_show_is_not_proved_and_a_wait_without_end_is_wrong(tuned: Rack) -> None:
    deployed(tuned, **{BOOTSTRAP: "2"})
    tuned.behave(tuned.ports[0], "blind")
    _, document, checks = ran(tuned, "--verify")
    assert checks[BOOTSTRAP]["pages are back"] is None and checks[BOOTSTRAP]["counter moved by one"] is True
    assert "did not show the request" in details(document, BOOTSTRAP, "pages are back")
    tuned.behave(tuned.ports[0], "deaf")
    code, document, checks = ran(tuned, "--verify")
    assert code == Exit.FINDINGS and checks[BOOTSTRAP]["fired in time"] is False
    assert checks[BOOTSTRAP]["error at the client"] is False


def test_a_deadline_that_is_no_number_is_told_with_its_place(tuned: Rack) -> None:
    words = ("profile", "set", profile(tuned), f"{BOOTSTRAP}=soon", "--reason", "a slip")
    assert tuned.call(*words)[0] == Exit.OK
    with pytest.raises(ConfigError, match=r"\.toml:\d+: SGLANG_\w+=soon is no number of seconds"):
        watchdogs(load_fleet(tuned.out), load_fleet(tuned.out).engine("prefill-0"))


def environ(rack: Rack, port: int, name: str) -> str | None:  # noqa: F811
    return rack.started(port)[1].get(name)


def test_a_value_is_applied_by_a_deploy_and_seen_to_fire_behind_it(tuned: Rack) -> None:
    deployed(tuned, **{BOOTSTRAP: "3"})
    words = ("--apply", "--seconds", "2", "--floor", "4", "--target", "0.06", "--limit", "30")
    code, document, checks = ran(tuned, *words)
    assert code == Exit.OK and document["applied"], document
    value = document["proposal"]["value"]
    assert value >= 5.0 and value % 5.0 == 0.0, "the floor of 4 s or the longest wait, rounded up"
    assert "upper bound" in str(document["proposal"]["cautions"])
    assert checks[BOOTSTRAP]["fired in time"] is True
    assert (
        environ(tuned, tuned.ports[0], BOOTSTRAP) == environ(tuned, tuned.ports[1], WAITING) == f"{value:g}"
    )
    code, said = tuned.call("deploy", "--plan")
    assert code == Exit.OK and "0 changes" in said, said
    assert not path(load_fleet(tuned.out)).exists()


def test_a_forks_watchdog_and_the_handshake_are_told_apart_at_every_value(tuned: Rack) -> None:
    """They would end one request at the same moment, and nothing would be proved of either."""
    tuned.behave(tuned.ports[0], "fork")
    deployed(tuned, **{BOOTSTRAP: "4", FORK: "4"})
    code, document, checks = ran(tuned, "--verify")
    assert code == Exit.OK and [checks[n]["fired in time"] for n in (FORK, BOOTSTRAP)].count(None) == 1
    assert "which of the two ended it cannot be told" in str(document["proofs"])
    words = ("--apply", "--seconds", "2", "--floor", "4", "--target", "0.06", "--limit", "30")
    code, document, checks = ran(tuned, *words)
    value = document["proposal"]["value"]
    new = {c["env"]: c["new"] for c in document["changes"]}
    assert code == Exit.OK and new[FORK] == value and new[BOOTSTRAP] >= 1.5 * value > new[WAITING]
    assert checks[FORK]["fired in time"] is True and document["verified"]
    assert load_profile(tuned.out / "profiles", profile(tuned)).values[FORK].is_verified
    code, said = tuned.call("profile", "check")
    assert "after the last deploy" not in said, said


def test_ctrl_c_behind_the_measuring_and_behind_the_deploy_tells_what_stands(
    tuned: Rack,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stops(*_: object) -> None:
        raise KeyboardInterrupt

    deployed(tuned, **{BOOTSTRAP: "3"})
    words = ("--apply", "--seconds", "2", "--floor", "4", "--target", "0.06", "--limit", "30")
    with monkeypatch.context() as at:
        at.setattr(foreign, "_proofs", stops)
        code, document, _ = ran(tuned, *words)
    assert code == document["exit"] == Exit.INTERRUPTED and document["proposal"]["value"]
    assert document["stopped"] == f"engines and profile {profile(tuned)} have the values that they had before"
    assert environ(tuned, tuned.ports[0], BOOTSTRAP) == "3"
    with monkeypatch.context() as at:
        at.setattr(foreign, "_vouch", stops)
        code, document, _ = ran(tuned, *words)
    assert code == document["exit"] == Exit.INTERRUPTED and document["applied"]
    assert "have all of the new values" in document["stopped"]
    value = document["proposal"]["value"]
    assert environ(tuned, tuned.ports[0], BOOTSTRAP) == f"{value:g}"
    assert not path(load_fleet(tuned.out)).exists()


def test_a_run_that_died_behind_its_deploy_is_undone_by_the_next(tuned: Rack) -> None:
    deployed(tuned, **{BOOTSTRAP: "3"})
    before = Path(tuned.out, "profiles", f"{profile(tuned)}.toml").read_text()
    with Context(load_fleet(tuned.out)) as ctx:
        foreign._set(ctx, {BOOTSTRAP: 30.0}, "a drill")
        pid = tuned.lives()["prefill-0"]
        assert environ(tuned, tuned.ports[0], BOOTSTRAP) == "30" and path(ctx.fleet).exists()
        done = restore(ctx).done
    assert any("deployed as before" in line for line in done)
    assert environ(tuned, tuned.ports[0], BOOTSTRAP) == "3" and tuned.lives()["prefill-0"] != pid
    assert Path(tuned.out, "profiles", f"{profile(tuned)}.toml").read_text() == before
    assert pid is not None and not os.path.exists(f"/proc/{pid}")
