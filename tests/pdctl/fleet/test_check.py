"""`profile check`: each kind of problem is found where it stands, and what is right is not found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pdctl.errors import ConfigError
from pdctl.fleet.catalogue.find import like_argument
from pdctl.fleet.chain import INFLIGHT
from pdctl.fleet.check.finding import Finding
from pdctl.fleet.check.run import check_profiles
from pdctl.fleet.edit import set_value, set_verified
from pdctl.fleet.load import load_fleet
from pdctl.fleet.profile import engine_env, load_profile
from pdctl.fleet.schema import Verified

PAIR = """schema = 1

[fleet]
name = "agents"
profile = "mine"

[model]
path = "/models/v4"
name = "v4"

[hosts.a]
address = "10.0.0.1"
transport = "ssh"

[hosts.b]
address = "10.0.0.2"
transport = "ssh"

[cells.c.engines.prefill-0]
kind = "sglang"
role = "prefill"
host = "a"
port = 30000
bootstrap_port = 8998
command = ["python", "-m", "sglang.launch_server", "--model-path", "/models/v4", "--served-model-name", "v4",
  "--disaggregation-mode", "prefill", "--disaggregation-transfer-backend", "nixl", "--page-size", "64"]
env = { UCX_NET_DEVICES = "mlx5_0:1" }

[cells.c.engines.decode-0]
kind = "sglang"
role = "decode"
host = "b"
port = 30000
command = ["python", "-m", "sglang.launch_server", "--model-path", "/models/v4", "--served-model-name", "v4",
  "--disaggregation-mode", "decode", "--disaggregation-transfer-backend", "nixl", "--page-size", "64"]
env = { UCX_NET_DEVICES = "mlx5_1:1" }

[router]
kind = "sglang-router"
host = "a"
port = 31000
command = ["python", "-m", "sglang_router.launch_router", "--pd-disaggregation", "--port", "31000"]
"""
MINE = """schema = 1
name = "mine"
extends = "dsv4-sm120"

[values.SGLANG_DISAGGREGATION_WAITING_TIMEOUT]
value = "50"
side = "decode"
reason = "Below the prefill's watchdog."
"""
PREFILL, DECODE = 'UCX_NET_DEVICES = "mlx5_0:1"', 'UCX_NET_DEVICES = "mlx5_1:1"'
Look = Callable[..., list[Finding]]


@pytest.fixture
def look(tmp_path: Path, profiles: Path) -> Look:
    """Findings of the good fleet with each pair of texts replaced; `file` is which of the two."""

    def check(*changes: tuple[str, str], name: str | None = None, deployed: str = "") -> list[Finding]:
        texts = {"fleet.toml": PAIR, "profiles/mine.toml": MINE}
        for old, new in changes:
            file = next(f for f, text in texts.items() if old in text)
            texts[file] = texts[file].replace(old, new, 1)
        for file, text in texts.items():
            (tmp_path / file).write_text(text)
        return check_profiles(load_fleet(tmp_path / "fleet.toml", secrets=False), name, deployed)

    return check


def line(path: Path, text: str) -> int:
    return next(n for n, row in enumerate(path.read_text().splitlines(), 1) if text in row)


def test_what_is_right_is_not_found(look: Look) -> None:
    assert look() == []


@pytest.mark.parametrize(
    ("kind", "argument", "near"),
    [
        ("vllm", "--block-sise", "--block-size"),
        ("vllm", "--block-size", ""),
        ("vllm", "--kv-transfer-config.kv_rol", "--kv-transfer-config.kv_role"),
        ("vllm", "--kv-transfer-config.kv_port", ""),
        ("sglang", "--max-running-requests", ""),
        ("sglang", "--disaggregation-decode-enable-offload-kvcache", ""),
        ("sglang-router", "--retry-max-retrys", "--retry-max-retries"),
    ],
)
def test_an_argument_that_is_like_one_of_its_kind(kind: str, argument: str, near: str) -> None:
    """Not everything that an engine takes is in the catalogue: what is merely unknown is not named."""
    assert like_argument(argument, kind) == near


@pytest.mark.parametrize(
    ("old", "new", "level", "kind", "name", "words"),
    [
        (
            *(DECODE, f'{DECODE}, SGLANG_DISAGREGATION_WAITING_TIMEOUT = "5"', "warning", "unknown"),
            *("SGLANG_DISAGREGATION_WAITING_TIMEOUT", "Did you mean SGLANG_DISAGGREGATION_WAITING_TIMEOUT?"),
        ),
        (DECODE, f'{DECODE}, UCX_TSL = "tcp"', "warning", "unknown", "UCX_TSL", "Did you mean UCX_TLS?"),
        (DECODE, f'{DECODE}, NCCL_IB_HCAS = "x"', "warning", "unknown", "NCCL_IB_HCAS", "NCCL_IB_HCA?"),
        (DECODE, f'{DECODE}, NIXL_LOGLEVEL = "x"', "warning", "unknown", "NIXL_LOGLEVEL", "NIXL_LOG_LEVEL?"),
        (DECODE, f'{DECODE}, SGLANG_OWN_KNOB = "1"', "info", "unknown", "SGLANG_OWN_KNOB", "the build"),
        (
            DECODE,
            f'{DECODE}, SGLANG_OWN_KNOB = "1"',
            "info",
            "unknown",
            "OWN_KNOB",
            "at 0bda0b168 (2026-08-20)",
        ),
        (DECODE, f'{DECODE}, UCX_TSL = "tcp"', "warning", "unknown", "UCX_TSL", "no variable of UCX 1.23.0"),
        (DECODE, f'{DECODE}, VLLM_RPC_TIMEOUT = "9"', "info", "unknown", "VLLM_RPC_TIMEOUT", "of vLLM"),
        ('"31000"]', '"31000", "--polcy", "random"]', "warning", "unknown", "--polcy", "mean --policy?"),
        ('"--page-size", "64"]', '"--page-sise", "64"]', "warning", "unknown", "--page-sise", "--page-size?"),
        ('value = "50"', 'value = "50.5"', "error", "values", "WAITING_TIMEOUT", "whole number"),
        ('value = "50"', 'value = "soon"', "error", "values", "WAITING_TIMEOUT", "a number of seconds"),
        (PREFILL, f'{PREFILL}, UCX_RC_TIMEOUT = "5"', "error", "values", "UCX_RC_TIMEOUT", "with m, s, ms"),
        (PREFILL, f'{PREFILL}, HF_TOKEN = "hf_abcdefghijklmnopqrst"', "error", "values", "HF_TOKEN", "0600"),
        (
            '"--port", "31000"',
            '"--port", "31000", "--policy", "best"',
            "error",
            "values",
            "--policy",
            "one of",
        ),
        (DECODE, f'{DECODE}, SGLANG_DSV4_BF16_INDEX_K = "0"', "error", "sides", "BF16_INDEX_K", "is 1 for"),
        (
            *('"64"]\nenv = { UCX_NET_DEVICES = "mlx5_1', '"128"]\nenv = { UCX_NET_DEVICES = "mlx5_1'),
            *("error", "sides", "--page-size", "is 64 for prefill-0 and 128 for decode-0"),
        ),
        (
            *(DECODE, f'{DECODE}, SGLANG_DSV4_PREFILL_INFLIGHT_TIMEOUT = "9"', "warning", "sides"),
            *("SGLANG_DSV4_PREFILL_INFLIGHT_TIMEOUT", "is read by prefill, and decode-0 is decode"),
        ),
        (
            'value = "50"',
            'value = "60"',
            "warning",
            "chain",
            "WAITING_TIMEOUT=60 of decode-0",
            "must be below",
        ),
        (
            *('"--port", "31000"', '"--port", "31000", "--request-timeout-secs", "55"', "warning", "chain"),
            *("INFLIGHT_TIMEOUT=60 of prefill-0", "--request-timeout-secs=55 of router"),
        ),
        (DECODE, f'{DECODE}, SGLANG_SM120_MMA_TARGET_CTAS = "512"', "error", "risky", "CTAS=512", "Revert"),
        (DECODE, f'{DECODE}, SGLANG_SM120_MMA_TARGET_CTAS = "188"', "warning", "risky", "CTAS=188", "160"),
        (
            *(DECODE, f'{DECODE}, SGLANG_OPT_USE_MULTI_STREAM_OVERLAP = "1"', "warning", "risky"),
            *("SGLANG_OPT_USE_MULTI_STREAM_OVERLAP=1", "co-restart"),
        ),
        (DECODE, 'X = "1"', "info", "risky", "UCX_NET_DEVICES", "on two hosts"),
        (
            *('"nixl", "--page-size"', '"nixl", "--disaggregation-ib-device", "mlx5_0", "--page-size"'),
            *("warning", "risky", "--disaggregation-ib-device=mlx5_0", "UCX_NET_DEVICES"),
        ),
    ],
    ids=lambda value: value[:34] if isinstance(value, str) else None,
)
def test_a_problem_is_found_where_it_stands(
    look: Look, tmp_path: Path, old: str, new: str, level: str, kind: str, name: str, words: str
) -> None:
    (found,) = [f for f in look((old, new)) if f.kind == kind and name in f.name]
    assert (found.level, words in f"{found.says} {found.do}") == (level, True)
    file, _, number = found.place.rpartition(":")
    if found.name != "UCX_NET_DEVICES":
        assert (tmp_path / file).exists() and int(number) > 0


def test_what_builds_of_the_deployment_read_is_not_called_unknown(look: Look) -> None:
    """The profile's own names, and their cousins that earlier builds for SM120 read."""
    own = [f'{name} = "1"' for name in ("SGLANG_SM120_TRITON_FLASHMLA", "SGLANG_SM120_MMA_FLASHMLA")]
    assert look((DECODE, ", ".join([DECODE, *own])), (PREFILL, ", ".join([PREFILL, *own]))) == []


def test_the_place_of_a_profiles_value_is_its_line(look: Look, tmp_path: Path) -> None:
    (found,) = look(('value = "50"', 'value = "soon"'))
    path = tmp_path / "profiles" / "mine.toml"
    assert found.place == f"{path}:{line(path, 'WAITING_TIMEOUT')}"
    assert found.units == ("decode-0",)


def test_what_is_said_of_several_units_is_said_once(look: Look) -> None:
    (found,) = look(
        ('reason = "Below', 'reason = "Below'),
        (
            "[values.SGLANG_DIS",
            '[values.UCX_TSL]\nvalue = "tcp"\nside = "both"\nreason = "x"\n\n[values.SGLANG_DIS',
        ),
    )
    assert found.name == "UCX_TSL" and found.units == ("prefill-0", "decode-0")


def test_a_value_changed_since_the_deploy_is_told_when_it_is_read_at_start(look: Look) -> None:
    dated = 'value = "50"\nauthor = "me@here"\ndate = "2026-11-02T10:00:00Z"'
    assert look(('value = "50"', dated)) == []
    assert look(('value = "50"', dated), deployed="2026-11-03T00:00:00Z") == []
    (found,) = look(('value = "50"', dated), deployed="2026-11-01T00:00:00Z")
    assert (found.kind, found.level, found.units) == ("live", "warning", ("decode-0",))
    assert "--live cannot reach it" in found.do


def test_a_profile_that_no_unit_uses_is_checked_as_a_pair_would_start_it(look: Look) -> None:
    (found,) = look(name="dsv4-sm120")
    assert found.kind == "chain" and found.units == ()
    assert found.name == "SGLANG_DISAGGREGATION_WAITING_TIMEOUT=300 (default)"
    assert look(name="production") == look(name="default") == look(name="drill") == []
    with pytest.raises(ConfigError, match="There is no profile productoin"):
        look(name="productoin")


def test_a_profile_for_engines_of_two_kinds_is_checked_as_a_pair_of_each(look: Look, profiles: Path) -> None:
    """One name of another engine hides no order of deadlines, and is no reason to doubt all others."""
    both = """schema = 1
name = "both"
extends = "default"
[values.PD_DECODE_TRANSFER_TIMEOUT]
value = "130"
side = "decode"
reason = "x"
[values.SGLANG_SM120_MMA_TARGET_CTAS]
value = "512"
side = "both"
reason = "x"
"""
    (profiles / "both.toml").write_text(both)
    order, risk = look(name="both")
    assert (order.level, order.name) == ("error", "PD_DECODE_TRANSFER_TIMEOUT=130")
    assert order.place.endswith("both.toml:4") and risk.place.endswith("both.toml:8")
    assert (risk.kind, risk.name) == ("risky", "SGLANG_SM120_MMA_TARGET_CTAS=512")


def test_a_profile_that_cannot_be_read_is_findings_and_the_rest_is_checked(look: Look) -> None:
    broken = look(
        ('side = "decode"', 'side = "decod"'),
        (PREFILL, f'{PREFILL}, SGLANG_X_Y = "1"'),
    )
    (found,) = broken
    assert (found.kind, found.level) == ("file", "error")
    assert "mine.toml:7" in found.place and "must be one of" in found.says


def test_the_order_that_a_deploy_insists_on_is_found_too(
    write_fleet: Callable[..., Path], profiles: Path
) -> None:
    path = write_fleet()
    assert check_profiles(load_fleet(path)) == []
    text = (profiles / "default.toml").read_text()
    (profiles / "default.toml").write_text(text.replace('"150"', '"700"'))
    (found,) = check_profiles(load_fleet(path))
    assert (found.kind, found.level) == ("chain", "error")
    assert found.name == "PD_ROUTER_IDLE_TIMEOUT=700 of router"


def test_evidence_counts_for_the_value_and_the_unit_that_it_names_and_for_no_date(
    write_fleet: Callable[..., Path], profiles: Path
) -> None:
    path, file = write_fleet(), profiles / "default.toml"
    fleet = load_fleet(path)
    seen = {"at": "2026-01-01T00:00:00Z", "by": "a@b", "fleet": fleet.name}
    set_verified(profiles, "default", INFLIGHT, Verified(value="120", units=["prefill-0"], **seen))
    assert check_profiles(fleet) == []
    file.write_text(file.read_text().replace('value = "120"', 'value = "110"', 1))  # its date stays
    (found,) = check_profiles(fleet, None, "2026-06-01T00:00:00Z")
    assert (found.kind, found.name, found.units) == ("proof", f"{INFLIGHT}=110", ("prefill-0",))
    assert "which is 120" in found.says and "tune-timeout --verify" in found.do
    assert found.place == f"{file}:{line(file, f'[values.{INFLIGHT}]')}" and found.bad
    for record in (
        Verified(value="110", units=["prefill-9"], **seen),
        Verified(value="110", units=["prefill-0"], **{**seen, "fleet": "another"}),
        Verified(value="110", **{**seen, "fleet": ""}),
    ):
        set_verified(profiles, "default", INFLIGHT, record)
        (found,) = check_profiles(fleet)
        assert found.kind == "proof" and f"not on prefill-0 of {fleet.name}" in found.says
    set_verified(profiles, "default", INFLIGHT, Verified(value="110", units=["prefill-0"], **seen))
    assert check_profiles(fleet) == []


def test_a_secret_is_named_by_its_file_and_seen_nowhere(
    write_fleet: Callable[..., Path], profiles: Path, tmp_path: Path
) -> None:
    text = (profiles / "default.toml").read_text()
    row = '\n[values.HF_TOKEN]\nsecret = "{}"\nside = "both"\nreason = "weights are private"\n'
    (profiles / "default.toml").write_text(text + row.format("hf.env"))
    fleet = load_fleet(write_fleet())
    value = load_profile(profiles, "default").values["HF_TOKEN"]
    assert (value.value, value.secret, value.file) == ("***", True, "hf.env")
    with pytest.raises(ConfigError, match=r"hf\.env cannot be read"):
        engine_env(fleet, fleet.engine("prefill-0"))
    (tmp_path / "hf.env").write_text("OTHER=1\n")
    (tmp_path / "hf.env").chmod(0o600)
    with pytest.raises(ConfigError, match=r"default\.toml:\d+: HF_TOKEN is not in the secrets"):
        engine_env(fleet, fleet.engine("prefill-0"))
    (tmp_path / "hf.env").write_text("HF_TOKEN=hf_abcdefghijklmnopqrst\n")
    env = engine_env(fleet, fleet.engine("prefill-0"))
    assert (env["HF_TOKEN"].value, env["HF_TOKEN"].secret) == ("hf_abcdefghijklmnopqrst", True)
    assert check_profiles(fleet) == []
    set_value(profiles, "default", "PD_QUEUE_TIMEOUT", "200", "shorter", "me@here")
    assert 'secret = "hf.env"' in (profiles / "default.toml").read_text()


def test_a_units_secrets_that_cannot_be_had_hide_nothing_else(look: Look, tmp_path: Path) -> None:
    """No file, one that is open to others, a name that is not in it: each with the line that asks for it."""
    own = ('"--page-size", "64"]', '"--page-size", "64", "--api-key", "{secret:KEY}"]\nsecrets = "own.env"')
    other = (DECODE, f'{DECODE}, UCX_TSL = "tcp"')
    keys = tmp_path / "own.env"
    for text, mode, key, says in (
        (None, 0o600, "secrets", "cannot be read: No such file"),
        ("KEY=1\n", 0o644, "secrets", f"{keys} is open to others"),
        ("OTHER=1\n", 0o600, "command", "needs the secret KEY"),
    ):
        if text is not None:
            keys.write_text(text)
            keys.chmod(mode)
        found, unknown = look(own, other)
        assert (found.kind, found.level, found.name, found.units) == ("secrets", "error", key, ("prefill-0",))
        assert says in found.says and unknown.name == "UCX_TSL"
        asks = 'secrets = "own.env"' if key == "secrets" else "command = "
        assert found.place == f"{tmp_path / 'fleet.toml'}:{line(tmp_path / 'fleet.toml', asks)}"
        with pytest.raises(ConfigError):
            load_fleet(tmp_path / "fleet.toml")
    keys.write_text("KEY=1\n")
    assert [found.name for found in look(own, other)] == ["UCX_TSL"]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ('side = "both"\nreason = "x"', "must have value, or secret"),
        ('value = "1"\nsecret = "a"\nside = "both"\nreason = "x"', "must have value, or secret"),
    ],
)
def test_a_value_stands_here_or_in_a_file(profiles: Path, row: str, problem: str) -> None:
    path = profiles / "default.toml"
    path.write_text(f"{path.read_text()}\n[values.HF_HOME]\n{row}\n")
    with pytest.raises(ConfigError) as caught:
        load_profile(profiles, "default")
    assert problem in caught.value.details[0]


VLLM = """schema = 1

[fleet]
name = "v"
profile = "default"

[model]
path = "/models/small"
name = "small"

[hosts.a]
address = "10.0.0.1"
transport = "ssh"

[hosts.b]
address = "10.0.0.2"
transport = "ssh"

[cells.c.engines.prefill-0]
kind = "vllm"
role = "prefill"
host = "a"
port = 8100
command = ["vllm", "serve", "/models/small", "--served-model-name", "small", "--port", "8100",
  "--kv-transfer-config", '{"kv_connector":"NixlConnector","kv_role":"kv_producer"}']

[cells.c.engines.decode-0]
kind = "vllm"
role = "decode"
host = "a"
port = 8200
command = ["vllm", "serve", "/models/small", "--served-model-name", "small", "--port", "8200",
  "--kv-transfer-config", '{"kv_connector":"NixlConnector","kv_role":"kv_consumer"}']
"""


def test_two_vllm_engines_of_one_host_need_a_port_each_and_of_two_an_address(
    tmp_path: Path, profiles: Path
) -> None:
    """Both are defaults: nothing in the file is wrong, and the pair does not work."""
    path = tmp_path / "fleet.toml"
    path.write_text(VLLM)
    (found,) = check_profiles(load_fleet(path))
    assert (found.kind, found.name, found.level) == ("sides", "VLLM_NIXL_SIDE_CHANNEL_PORT", "error")
    assert found.says == "is 5600 for prefill-0 and for decode-0 on the same host"
    path.write_text(
        VLLM.replace("port = 8200", 'port = 8200\nenv = { VLLM_NIXL_SIDE_CHANNEL_PORT = "5700" }')
    )
    assert check_profiles(load_fleet(path)) == []
    path.write_text(VLLM.replace('"decode"\nhost = "a"', '"decode"\nhost = "b"'))
    errors = [f for f in check_profiles(load_fleet(path)) if f.bad]
    assert [f.name for f in errors] == ["VLLM_NIXL_SIDE_CHANNEL_HOST=localhost (default)"]
    policy = '"kv_role":"kv_consumer","kv_load_failure_policy":"recompute"'
    path.write_text(VLLM.replace('"kv_role":"kv_consumer"', policy))
    names = [f.name for f in check_profiles(load_fleet(path))]
    assert "--kv-transfer-config.kv_load_failure_policy=recompute" in names
