"""`profile diff` between profiles, what a deployment recorded, and processes that really run."""

from __future__ import annotations

import pytest

from pdctl.__main__ import main
from pdctl.errors import ConfigError, PdctlError
from pdctl.exits import Exit
from pdctl.flows import admin
from pdctl.flows.compare.differences import Difference, compare
from tests.pdctl.flows.conftest import Bench

INFLIGHT = "PD_PREFILL_INFLIGHT_TIMEOUT"
# One that sounds like a secret and one that does not.
ODD = '\n[values.UCX_ODD]\nsecret = "a.env"\nside = "both"\nreason = "nobody may know"\n'
SECRET = '\n[values.VLLM_API_KEY]\nsecret = "{}"\nside = "both"\nreason = "clients know it"\n'


def rows(bench: Bench, one: str, other: str) -> list[Difference]:
    with bench.context() as ctx:
        return list(compare(ctx, one, other).rows)


def hide(bench: Bench, file: str, text: str) -> None:
    path = bench.folder / file
    path.touch(mode=0o600)
    path.write_text(f"VLLM_API_KEY={text}\nUCX_ODD={text}\n")
    path.chmod(0o600)


def test_between_profiles_a_secret_is_told_by_its_file(bench: Bench) -> None:
    assert rows(bench, "default", "default") == []
    assert Difference("", INFLIGHT, "120", "60") in rows(bench, "default", "production")
    path = bench.folder / "profiles" / "production.toml"
    path.write_text(path.read_text() + SECRET.format("a.env"))
    found = [d for d in rows(bench, "default", "production") if d.name == "VLLM_API_KEY"]
    assert found == [Difference("", "VLLM_API_KEY", None, "*** of a.env")]


def test_a_secret_in_plain_text_is_not_shown_either(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    """`profile check` calls it a mistake; until it is mended nothing repeats it."""
    plain = '\n[values.VLLM_API_KEY]\nvalue = "{}"\nside = "both"\nreason = "clients know it"\n'
    for name, key in (("default", "first-key-of-ours"), ("production", "other-key-of-ours")):
        path = bench.folder / "profiles" / f"{name}.toml"
        path.write_text(path.read_text() + plain.format(key))
    found = [d for d in rows(bench, "default", "production") if d.name == "VLLM_API_KEY"]
    assert found == [Difference("", "VLLM_API_KEY", "***", "***")]
    for words in (["profile", "show"], ["--json", "profile", "show", "production"]):
        assert main(["--fleet", str(bench.path), *words]) == 0
        said = capsys.readouterr().out
        assert "VLLM_API_KEY" in said and "***" in said and "key-of-ours" not in said


@pytest.mark.parametrize(
    ("operand", "code", "hint"),
    [
        ("defualt", "no_profile", "Did you mean default?"),
        ("deploy:1", "bad_operand", "release:ID"),
        ("running:prefill-9", "unknown_unit", "Did you mean prefill-0?"),
        ("running:", "bad_operand", "running:UNIT"),
        ("release:current", "no_deployment", "Nothing has been deployed yet."),
        ("release:", "no_deployment", "Nothing has been deployed yet."),
    ],
)
def test_an_operand_that_names_nothing_is_a_sentence(
    bench: Bench, operand: str, code: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        rows(bench, "default", operand)
    assert caught.value.code == code and hint in caught.value.hint


def test_a_profile_a_deployment_and_what_runs(bench: Bench) -> None:
    """One real deploy: then the profile changes, a secret changes, and each pair of sides tells it."""
    hide(bench, "a.env", "sesame")
    default = bench.folder / "profiles" / "default.toml"
    default.write_text(default.read_text() + SECRET.format("a.env") + ODD)
    bench.edit("[cells.a.engines.decode-0]", '[cells.a.engines.decode-0]\nenv = { UCX_TLS = "tcp" }')
    with pytest.raises(PdctlError) as caught:
        rows(bench, "default", "running")
    assert caught.value.exit == Exit.UNREACHABLE and "prefill-0 is left out" in caught.value.details[0]
    bench.deploy()

    own = Difference("decode-0", "UCX_TLS", None, "tcp")
    assert rows(bench, "default", "running") == rows(bench, "default", "release:current") == [own]
    assert rows(bench, "release:current", "running") == []
    assert rows(bench, "default", "running:prefill-0") == []
    between = rows(bench, "running:prefill-0", "running:decode-0")
    assert (
        Difference("", INFLIGHT, "120", None) in between and Difference("", "UCX_TLS", None, "tcp") in between
    )

    with bench.context() as ctx:
        admin.post(ctx, ctx.fleet.unit("prefill-0").url, "timeouts", {"inflight": 90.0})
        found = compare(ctx, "default", "running")
        assert Difference("prefill-0", INFLIGHT, "120", "90") in found.rows, "what is in force counts"
        assert found.notes == (f"prefill-0 has values that were set live since its start: {INFLIGHT}=90.",)
        admin.post(ctx, ctx.fleet.unit("prefill-0").url, "timeouts", {"inflight": 120.0})
        assert compare(ctx, "default", "running").rows == (own,)

    hide(bench, "a.env", "open sesame")
    bench.edit('value = "120"\nside = "prefill"', 'value = "110"\nside = "prefill"', "profiles/default.toml")
    now = rows(bench, "default", "running")
    assert Difference("prefill-0", INFLIGHT, "110", "120") in now
    assert Difference("decode-0", "VLLM_API_KEY", "***", "***") in now
    assert Difference("decode-0", "UCX_ODD", "***", "***") in now
    recorded = rows(bench, "production", "release:current")
    assert Difference("decode-0", "UCX_ODD", "***", "***") in recorded
    assert not any("sesame" in str(d) for d in (*now, *recorded))

    with bench.context() as ctx:
        bench.fleet()
        ctx.units("local").stop("decode-0")
        found = compare(ctx, "release:current", "running")
    assert found.rows == (Difference("decode-0", "(the unit)", "there", "not there"),)
    assert found.notes == ("decode-0 is left out: no process runs.",)
