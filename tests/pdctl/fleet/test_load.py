"""A wrong fleet file is told with file:line, the path of the key and a sentence, all problems at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pdctl.errors import ConfigError
from pdctl.exits import Exit
from pdctl.fleet.load import fleet_path, load_fleet
from pdctl.fleet.tokens import make_token, read_token

Write = Callable[..., Path]


def problems(path: Path) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_fleet(path)
    assert caught.value.exit is Exit.USAGE
    return [line.removeprefix(f"{path}:") for line in caught.value.details]


def test_the_good_file_resolves(write_fleet: Write) -> None:
    path = write_fleet()
    fleet = load_fleet(path)
    assert [u.name for u in fleet.units()] == ["prefill-0", "decode-0", "router"]
    assert [(p.name, d.name) for p, d in fleet.edges()] == [("prefill-0", "decode-0")]
    prefill = fleet.engine("prefill-0")
    assert (prefill.url, prefill.bootstrap) == ("http://127.0.0.1:8101", "127.0.0.1:8102")
    assert prefill.profile == "default"
    assert fleet.model.path == str(path.parent / "model")
    assert fleet.host_paths("local").root == str(path.parent / ".pdctl/host/local")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('name = "demo"', 'nam = "demo"', "4: fleet.nam: unknown key. Did you mean name?"),
        ('name = "demo"', 'name = "Demo!"', "4: fleet.name: is not a valid name"),
        ("[router]", "[rooter]", "24: rooter: unknown key. Did you mean router?"),
        (
            'role = "prefill"',
            'role = "prefil"',
            "14: cells.a.engines.prefill-0.role: must be one of prefill, decode, both. Did you mean prefill?",
        ),
        ("port = 8103", 'port = "8103"', "22: cells.a.engines.decode-0.port: must be a whole number"),
        ("port = 8103", "port = 70000", "22: cells.a.engines.decode-0.port: must be at most 65535."),
        (
            "port = 8103",
            "port = 8102",
            "22: cells.a.engines.decode-0.port: 8102 on this host is already "
            "cells.a.engines.prefill-0.bootstrap_port, line 17.",
        ),
        ("port = 8103", "port = 8103\ntp = 0", "23: cells.a.engines.decode-0.tp: must be at least 1."),
        (
            "bootstrap_port = 8102\n",
            "",
            "13: cells.a.engines.prefill-0.bootstrap_port: is missing; a prefill listens there",
        ),
        (
            "port = 8103",
            "port = 8103\nbootstrap_port = 8104",
            "23: cells.a.engines.decode-0.bootstrap_port: only a prefill has one; this is decode.",
        ),
        ("port = 8103", "port = 8103\npages = 3", "23: cells.a.engines.decode-0.pages: must be at least 4."),
        (
            "port = 8103",
            "port = 8103\nmax_running = 600",
            "23: cells.a.engines.decode-0.max_running: a step computes token_budget = 512 tokens",
        ),
        (
            "port = 8103",
            "port = 8103\ntoken_budget = 8",
            "token_budget: a step computes token_budget = 8 tokens, which is below max_running = 16",
        ),
        (
            "port = 8103",
            "port = 8103\nlegacy_bootstrap = true",
            "23: cells.a.engines.decode-0.legacy_bootstrap: is a drill: it needs drill = true",
        ),
        (
            "port = 8103",
            "port = 8103\npage_size = 24",
            "23: cells.a.engines.decode-0.page_size: is 24, but prefill-0 of this cell has 16; one must be",
        ),
        (
            "port = 8103",
            'port = 8103\ndtype = "bfloat16"',
            "23: cells.a.engines.decode-0.dtype: is bfloat16, but prefill-0 of this cell has float32;",
        ),
        (
            'host = "local"\nport = 8103',
            'host = "locl"\nport = 8103',
            "21: cells.a.engines.decode-0.host: there is no such host. Did you mean local?",
        ),
        ('name = "demo"', 'name = "demo"\nprofile = "prod"', "5: fleet.profile: there is no profile prod in"),
        (
            "port = 8103",
            'port = 8103\nenv = { PD_HEARTBEAT_TIMOUT = "3" }',
            "23: cells.a.engines.decode-0.env.PD_HEARTBEAT_TIMOUT: unknown variable. "
            "Did you mean PD_HEARTBEAT_TIMEOUT?",
        ),
        (
            "port = 8103",
            'port = 8103\nenv = { PD_HEARTBEAT_TIMEOUT = "soon" }',
            "23: cells.a.engines.decode-0.env.PD_HEARTBEAT_TIMEOUT: must be a number of seconds.",
        ),
        (
            "port = 8103",
            'port = 8103\nenv = { PD_LOG_LEVEL = "loud" }',
            "23: cells.a.engines.decode-0.env.PD_LOG_LEVEL: must be one of debug, info, warning, error,",
        ),
        (
            "port = 8103",
            'port = 8103\nenv = { PD_FLEET_TOKEN_FILE = "/t" }',
            "23: cells.a.engines.decode-0.env.PD_FLEET_TOKEN_FILE: is written by pdctl for each unit",
        ),
        (
            'transport = "local"',
            'transport = "local"\nuser = "me"',
            '12: hosts.local.user: is for transport = "ssh"; this host is local.',
        ),
        (
            "port = 8103",
            'port = 8103\nenv = { BAZ = "a\\nb" }',
            "23: cells.a.engines.decode-0.env.BAZ: holds a line break or another control character.",
        ),
        ('path = "model"', 'path = "mod\\tel"', "7: model.path: holds a line break or another control"),
        *(
            (
                'transport = "local"',
                f'transport = "local"\n{key} = "{value}"',
                f"12: hosts.local.{key}: {why}",
            )
            for key, value, why in (
                ("root", "/", "/ belongs to the system; name a folder below it that is pdctl's own."),
                ("root", "/usr/local/", "/usr/local/ belongs to the system;"),
                ("root", "/opt/../etc/x", "/opt/../etc/x must be a plain path, without . and .. in it."),
                ("root", "here", "here is no absolute path."),
                ("address", "10.77. 0.11", "is neither a host name nor an IP address."),
            )
        ),
        *(
            ('transport = "local"', f'transport = "ssh"\naddress = "10.0.0.1"\n{key} = "{value}"', why)
            for key, value, why in (
                ("user", "ops; rm -rf", "13: hosts.local.user: is no login name."),
                ("ssh", "-oProxyCommand=x", "13: hosts.local.ssh: is neither a host name nor an alias;"),
                ("ssh", "-x", "13: hosts.local.ssh: starts with a dash;"),
                ("scope", "system", "7: model.path: is relative to this file; local needs an absolute path."),
            )
        ),
        ('transport = "local"', 'transport = "ssh"', "10: hosts.local.address: is missing: where peers"),
        ("schema = 1", "schema = 2", "1: schema: must be one of 1."),
        ("port = 8100", "", "24: router.port: is missing."),
        *(
            (
                "port = 8100",
                f'port = 8100\n[[suppress]]\ncode = "PD602"\nreason = "x"\nuntil = {day}\n',
                "suppress.0.until: must be a day as 2027-01-31, without quotes.",
            )
            for day in ('"2027-01-31"', "2027-01-31T10:00:00", "7")
        ),
        (
            "port = 8100",
            'port = 8100\n[[suppress]]\ncode = "PD80"\nreason = "x"\nuntil = 2030-01-01',
            "suppress.0.code: is no rule's code",
        ),
        (
            "port = 8100",
            'port = 8100\n[[suppress]]\ncode = "PD609"\nreason = "x"\nuntil = 2030-01-01',
            "27: suppress.0.code: there is no rule PD609. Did you mean PD",
        ),
        ("prefill-0", "decode-0", "Cannot declare"),
        ("port = 8103", "port = ", "22: Invalid value."),
    ],
)
def test_a_wrong_file_is_told_by_line(write_fleet: Write, old: str, new: str, problem: str) -> None:
    found = problems(write_fleet((old, new)))
    assert any(problem in line for line in found), found


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"schema = 1\n\nname = '\xff'\n", "3: byte 0xff is not UTF-8."),
        (b"\xef\xbb\xbfschema = 1\n", "1: a byte order mark; save the file as UTF-8 without one."),
    ],
)
def test_a_file_in_another_encoding_is_told_by_line(tmp_path: Path, text: bytes, problem: str) -> None:
    (tmp_path / "fleet.toml").write_bytes(text)
    (found,) = problems(tmp_path / "fleet.toml")
    assert found.endswith(problem)


def test_a_decode_alone_has_no_prefill(write_fleet: Write) -> None:
    path = write_fleet(('role = "prefill"', 'role = "decode"'), ("bootstrap_port = 8102\n", ""))
    assert problems(path) == ["13: cells.a: has a decode and no prefill to hand it KV."]


def test_all_problems_are_told_at_once_in_order(write_fleet: Write) -> None:
    found = problems(write_fleet(('name = "demo"', 'nam = "demo"'), ("port = 8103", "prt = 8103")))
    assert [line.split(":")[0] for line in found] == ["3", "4", "19", "22"]


def test_values_are_never_repeated(write_fleet: Write) -> None:
    secret = "hunter2-very-secret"
    found = problems(
        write_fleet(("port = 8103", f'port = "{secret}"\nenv = {{ PD_QUEUE_TIMEOUT = "{secret}" }}'))
    )
    assert len(found) == 1 or secret not in "\n".join(found)
    assert secret not in "\n".join(found)


def test_a_missing_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_fleet(tmp_path / "fleet.toml")
    assert caught.value.code == "no_fleet"
    assert "pdctl init" in caught.value.hint


def test_a_folder_and_the_environment_name_a_fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fleet_path(str(tmp_path)) == tmp_path / "fleet.toml"
    monkeypatch.setenv("PDCTL_FLEET", str(tmp_path))
    assert fleet_path() == tmp_path / "fleet.toml"
    assert fleet_path("other.toml") == Path.cwd() / "other.toml"


def test_a_fleet_is_the_same_by_whatever_way_it_was_reached(
    write_fleet: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_fleet().parent
    (folder.parent / "link").symlink_to(folder)
    (folder / "below").mkdir()
    by_name = load_fleet(folder)
    monkeypatch.chdir(folder / "below")
    ways = ("..", "../fleet.toml", folder / "below" / "..", folder.parent / "link", "../below/../fleet.toml")
    for way in ways:
        assert load_fleet(way) == by_name, way
    (folder / "below" / "fleet.toml").symlink_to("../fleet.toml")
    assert fleet_path() == folder / "below" / "fleet.toml", "the file may be a link"


def test_an_unknown_unit_has_a_nearest_name(write_fleet: Write) -> None:
    with pytest.raises(ConfigError) as caught:
        load_fleet(write_fleet()).unit("decode-1")
    assert caught.value.hint == "Did you mean decode-0?"


def test_the_token_is_private_and_kept(write_fleet: Write) -> None:
    fleet = load_fleet(write_fleet())
    make_token(fleet.paths.token)
    token = read_token(fleet)
    assert len(token) >= 32
    assert fleet.paths.token.stat().st_mode & 0o777 == 0o600
    make_token(fleet.paths.token)
    assert read_token(fleet) == token
