"""Kinds, roles, addresses and who gets which variable: how services become a fleet."""

from __future__ import annotations

import pytest

from pdctl.adopt.assemble import Address, Found, assemble
from pdctl.adopt.service import Service, Setting
from pdctl.errors import ConfigError
from pdctl.exits import Exit
from pdctl.fleet.command import served
from tests.pdctl.adopt.conftest import ENGINE

NIXL = """'{"kv_connector":"NixlConnector","kv_role":"%s"}'"""


@pytest.mark.parametrize(
    ("command", "facts"),
    [
        ("python -m sglang.launch_server --model m", ("sglang", "both", 30000, None, 1, "m", "m")),
        (
            "python -m sglang.launch_server --model-path=/m --served-model-name n "
            "--disaggregation-mode prefill --tp 8",
            ("sglang", "prefill", 30000, 8998, 8, "/m", "n"),
        ),
        ("numactl -m 0 x/sglang serve --model m --port 1 --port 2", ("sglang", "both", 2, None, 1, "m", "m")),
        ("vllm serve org/m --port=8100 -tp 4", ("vllm", "both", 8100, None, 4, "org/m", "org/m")),
        (
            'v/vllm serve m --kv_transfer_config {"kv_role":"kv_producer"}',
            ("vllm", "prefill", 8000, None, 1, "m", "m"),
        ),
        ('vllm serve m --kv-transfer-config {"kv_role":"kv_both"}', ("vllm", None, 8000, None, 1, "m", "m")),
        ("python -m vllm.entrypoints.openai.api_server --model m", ("vllm", "both", 8000, None, 1, "m", "m")),
        ("python -m sglang_router.launch_router --port 1", ("sglang-router", "router", 1, None, 1, "", "")),
        (
            "docker run -e A=1 img python3 -m sglang.launch_server --model m",
            ("sglang", "both", 30000, None, 1, "m", "m"),
        ),
    ],
)
def test_what_a_command_serves_is_read_from_its_flags(command: str, facts: tuple[object, ...]) -> None:
    found = served(command.split())
    assert found is not None
    assert (
        found.kind,
        found.role,
        found.port,
        found.bootstrap_port,
        found.tp,
        found.model,
        found.name,
    ) == facts


@pytest.mark.parametrize("command", ["python -m http.server", "echo sglang", "vllm bench", "python serve.py"])
def test_anything_else_serves_nothing(command: str) -> None:
    assert served(command.split()) is None


def test_a_role_that_no_flag_tells_is_asked_for_or_taken_from_the_sources_name(bench, said) -> None:
    line = f"exec vllm serve m --kv-transfer-config {NIXL % 'kv_both'}\n"
    code, document = bench.script(line)
    assert (code, document["error"]["code"]) == (Exit.USAGE, "which_role")
    code, document = bench.script(line, "--role", "decode", "--name", "a")
    assert code == Exit.OK and document["units"][0]["role"] == "decode"
    bench.out.rename(bench.folder / "a")
    code, document = bench.script(line, name="serve_prefill.sh")
    assert code == Exit.FINDINGS and document["units"][0]["role"] == "prefill"
    assert "source's name" in said(document, "assumed")[0]


def test_a_role_that_the_flags_deny_is_an_error(bench) -> None:
    code, document = bench.script(f"exec {ENGINE} --disaggregation-mode decode\n", "--role", "prefill")
    assert (code, document["error"]["code"]) == (Exit.USAGE, "bad_role")


def found(host: str, role: str, port: int, bind: str = "0.0.0.0", **env: str) -> Found:
    argv = (*ENGINE.split(), "--disaggregation-mode", role, "--host", bind, "--port", str(port))
    settings = {n: Setting(v, f"{role}.sh", 1) for n, v in env.items()}
    return Found(Service(argv, settings, None, None, f"{role}.sh", 9), host, f"{role}.sh")


def router(*words: str) -> Found:
    argv = ("python", "-m", "sglang_router.launch_router", *words)
    return Found(Service(argv, {}, None, None, "router.sh", 1), "p", "router.sh")


def test_hosts_have_the_address_that_is_said_bound_or_routed_to() -> None:
    urls = ("--prefill", "http://10.0.0.1:30000", "8998", "--decode", "http://10.0.0.2:30001")
    pair = [found("p", "prefill", 30000), found("d", "decode", 30001)]
    assert assemble([*pair, router(*urls)], None, {}).addresses == {"p": "10.0.0.1", "d": "10.0.0.2"}
    bound = [found("p", "prefill", 30000, "10.9.0.1"), found("d", "decode", 30001, "10.9.0.2")]
    assert assemble(bound, None, {}).addresses == {"p": "10.9.0.1", "d": "10.9.0.2"}
    places = {"p": Address("gpu1", False), "d": Address("10.8.0.2", True)}
    draft = assemble(pair, None, places)
    assert draft.addresses == {"p": "gpu1", "d": "10.8.0.2"}
    assert [n.answer for n in draft.notes] == ["--ssh gpu1=ADDRESS"]


def test_one_host_with_two_addresses_is_an_error() -> None:
    two = [found("h", "prefill", 30000, "10.0.0.1"), found("h", "decode", 30001, "10.0.0.2")]
    with pytest.raises(ConfigError) as caught:
        assemble(two, None, {})
    assert caught.value.code == "two_addresses"


@pytest.mark.parametrize(
    ("prefills", "decodes", "side"),
    [
        (["1", "1"], ["1"], "both"),
        (["1", "1"], [None], "prefill"),
        ([None, None], ["1"], "decode"),
        (["1", "2"], ["1"], None),
        (["1", None], ["1"], None),
        (["1", "1"], ["2"], None),
    ],
)
def test_a_value_is_shared_only_by_those_that_all_have_it(
    prefills: list[str | None], decodes: list[str | None], side: str | None
) -> None:
    units = [("prefill", v, 30000 + n) for n, v in enumerate(prefills)]
    units += [("decode", v, 31000 + n) for n, v in enumerate(decodes)]
    draft = assemble([found("h", r, port, **({"A": v} if v else {})) for r, v, port in units], None, {})
    if side is None:
        assert "A" not in draft.shared
        held = {u.name: u.env["A"].value for u in draft.engines if "A" in u.env}
        assert {n: own["A"].value for n, own in draft.own.items()} == held
    else:
        assert (draft.shared["A"].side, draft.own) == (side, {})


@pytest.mark.parametrize(
    ("sources", "code"),
    [
        ([found("h", "prefill", 1), found("h", "decode", 2), router(), router()], "two_routers"),
        ([router()], "no_engine"),
    ],
)
def test_what_makes_no_fleet_gets_a_sentence(sources: list[Found], code: str) -> None:
    with pytest.raises(ConfigError) as caught:
        assemble(sources, None, {})
    assert caught.value.code == code


def test_two_models_are_no_fleet(bench) -> None:
    bench.write("a.sh", f"exec {ENGINE} --port 1\n")
    bench.write("b.sh", f"exec {ENGINE.replace('/m', '/n')} --port 2\n")
    code, document = bench.adopt("a.sh", "b.sh")
    assert (code, document["error"]["code"]) == (Exit.USAGE, "two_models")
    assert "a.sh:1" in document["error"]["message"] and "b.sh:1" in document["error"]["message"]


def test_ports_that_collide_are_said_as_the_fleet_file_would_say_it(bench) -> None:
    bench.write("a.sh", f"exec {ENGINE}\n")
    code, document = bench.adopt("a.sh", "a.sh")
    assert code == Exit.USAGE and "is already" in document["error"]["details"][0]
    assert not (bench.out / "fleet.toml").exists()


def test_a_source_is_placed_on_its_host(bench) -> None:
    bench.write("a.sh", f"exec {ENGINE}\n")
    code, _ = bench.adopt("gpu1=a.sh", "--host", "gpu1")
    assert code == Exit.OK and bench.fleet().engine("engine-0").host == "gpu1"
    code, document = bench.adopt("gpu7=a.sh", "--ssh", "gpu1", "--ssh", "gpu2", "--name", "b", "--out", "b")
    assert (code, document["error"]["code"]) == (Exit.USAGE, "which_host")
