"""Units of systemd: drop-ins, environment files, specifiers, the scripts that they start."""

from __future__ import annotations

import pytest

from pdctl.adopt.unitfile import EnvFile, directives, words
from pdctl.exits import Exit
from tests.pdctl.adopt.conftest import ENGINE

UNIT = f"""[Unit]
Description=SGLang prefill
After=network-online.target

[Service]
Type=simple
User=serve
WorkingDirectory=/srv/sglang
Environment=NCCL_DEBUG=WARN "UCX_TLS=rc,cuda copy"
EnvironmentFile={{folder}}/prefill.env
EnvironmentFile=-/nonexistent/more.env
ExecStartPre=/usr/bin/nvidia-smi -pm 1
ExecStart={ENGINE} --disaggregation-mode prefill \\
    # a comment in between
    --port ${{PORT}} $EXTRA \\
    --host 10.0.0.7
LimitMEMLOCK=infinity
Restart=always
NUMAPolicy=bind
NUMAMask=1
CPUAffinity=numa

[Install]
WantedBy=multi-user.target
"""
ENV = "PORT=31000\nEXTRA=--a 'b c'\n; comment\nNCCL_DEBUG=INFO\nCUDA_VISIBLE_DEVICES=0,1\n"
TOOK = {"NCCL_DEBUG": "INFO", "UCX_TLS": "rc,cuda copy", "PORT": "31000", "EXTRA": "--a 'b c'"}
ARGV = [
    *ENGINE.split(),
    "--disaggregation-mode",
    "prefill",
    "--port",
    "31000",
    "--a",
    "b c",
    "--host",
    "10.0.0.7",
]


@pytest.fixture
def unit(bench):
    bench.write("prefill.env", ENV)
    bench.write("sglang.service", UNIT.replace("{folder}", str(bench.folder)))
    return bench


def test_a_unit_is_taken_with_its_environment_files(unit, said) -> None:
    code, document = unit.adopt("sglang.service")
    assert code == Exit.FINDINGS, document
    assert ["User=serve" in line for line in said(document, "assumed")] == [True]
    engine = unit.fleet().engine("prefill-0")
    assert engine.spec.command == ARGV
    assert unit.env("prefill-0") == TOOK
    assert (engine.spec.cwd, engine.spec.numa, engine.spec.gpus) == ("/srv/sglang", 1, [0, 1])
    assert engine.address == "10.0.0.7"
    left = said(document, "left out")
    assert any("sglang.service:12: ExecStartPre=" in line for line in left)


def test_drop_ins_win_and_reset_lists(unit) -> None:
    unit.write("sglang.service.d/10-first.conf", "[Service]\nEnvironment=A=1 NCCL_X=2\n")
    unit.write("sglang.service.d/20-last.conf", "[Service]\nExecStart=\nExecStart=" + ENGINE + " --x ${A}\n")
    unit.adopt("sglang.service")
    assert unit.fleet().engine("engine-0").spec.command == [*ENGINE.split(), "--x", "1"]
    assert unit.env("engine-0") == {**TOOK, "A": "1", "NCCL_X": "2"}


def test_a_unit_that_starts_a_script_is_followed_into_it(bench) -> None:
    script = bench.write("serve.sh", f"#!/bin/bash\nexport B=$A C=${{D:-none}}\nexec {ENGINE} --tp $1\n")
    bench.write(
        "a.service", f"[Service]\nEnvironment=A=1\nWorkingDirectory=/srv\nExecStart=/bin/bash {script} 4\n"
    )
    code, document = bench.adopt("a.service")
    assert code == Exit.OK, "a unit's environment is all that its script has"
    assert document["units"][0]["env"] == {"A": "1", "B": "1", "C": "none"}
    assert bench.fleet().engine("engine-0").spec.command == [*ENGINE.split(), "--tp", "4"]
    assert bench.fleet().engine("engine-0").spec.cwd == "/srv"


def test_a_shell_line_in_a_unit_is_followed(bench) -> None:
    bench.write("a.service", f"[Service]\nExecStart=/bin/bash -c 'export A=1; exec {ENGINE}'\n")
    assert bench.adopt("a.service")[0] == Exit.OK
    assert bench.env("engine-0") == {"A": "1"}


@pytest.mark.parametrize(
    ("line", "words_said"),
    [
        ("PassEnvironment=A B", "variables of the service manager"),
        ("CPUAffinity=0-7", "a placement"),
        ("RootDirectory=/x", "folder that pdctl's units do not make"),
        ("Frobnicate=yes", "does not know"),
        ("Type=forking", "a child of what this starts"),
    ],
)
def test_every_directive_is_taken_or_said(bench, line: str, words_said: str) -> None:
    bench.write("a.service", f"[Service]\n{line}\nExecStart={ENGINE}\n")
    _, document = bench.adopt("a.service")
    said = [
        n["said"]
        for n in document["notes"]
        if n["grade"] in ("not understood", "left out") and n["first"] == 2
    ]
    assert said and words_said in said[0]


@pytest.mark.parametrize(
    ("line", "flag"),
    [
        ("ExecStart=" + ENGINE + " --x $HOME", "--set HOME=VALUE"),
        ("EnvironmentFile=/no/such.env\nExecStart=" + ENGINE, "--sourced /no/such.env"),
        ("ExecStart=" + ENGINE + " --x %m", "--set %m=VALUE"),
    ],
)
def test_what_only_systemd_knows_is_asked_for(bench, line: str, flag: str) -> None:
    bench.write("a.service", f"[Service]\n{line}\n")
    code, document = bench.adopt("a.service")
    assert code == Exit.USAGE and flag in "\n".join(document["error"]["details"])


def test_specifiers_of_the_units_name_are_known(bench) -> None:
    bench.write(
        "sglang@3.service", f"[Service]\nEnvironment=N=%i P=%p\nExecStart={ENGINE} --port 3000%i --x 100%%\n"
    )
    bench.adopt("sglang@3.service")
    assert bench.env("engine-0") == {"N": "3", "P": "sglang"}
    assert bench.fleet().engine("engine-0").spec.command == [
        *ENGINE.split(),
        "--port",
        "30003",
        "--x",
        "100%",
    ]


# The reading of systemd's own formats; every case was compared with systemd 252.


@pytest.mark.parametrize(
    ("text", "split"),
    [
        ("a  b\tc", ["a", "b", "c"]),
        ("'a b' \"c d\"e f'g h'", ["a b", "c de", "fg h"]),
        ('"a\\"b" a\\sb a\\x41 \\101', ['a"b', "a b", "aA", "A"]),
        ("'' \"\"", ["", ""]),
        ("a\\qb", ["a\\qb"]),
        ("'never", None),
    ],
)
def test_words(text: str, split: list[str] | None) -> None:
    assert words(text) == split


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("A=1\nB= 2 \n", {"A": "1", "B": "2"}),
        ('A=\'x y\' \nB="p\\"q\\n"\nC=a\\ b\n', {"A": "x y", "B": 'p"q\\n', "C": "a b"}),
        ("A=one \\\n  two\n", {"A": "one   two"}),
        ('A="one \\\ntwo"\n', {"A": "one two"}),
        ("A='one \\\ntwo'\n", {"A": "one \\\ntwo"}),
        ("A=x#y # z\n", {"A": "x#y # z"}),
        ('A="x"y "z"\n', {"A": 'xy "z"'}),
        ("A=\n", {"A": ""}),
        ("A=$B ${B} `c`\n", {"A": "$B ${B} `c`"}),
        ("  A=1", {"A": "1"}),
        ("export A=1\nB=2\n", {"B": "2"}),
        ("no equals\nB=2\n", {"B": "2"}),
    ],
)
def test_environment_files(text: str, found: dict[str, str]) -> None:
    assert {name: value for name, value, _ in EnvFile(text).found} == found


def test_lines_of_directives() -> None:
    text = "[Service]\nA=1 \\\n # no\n\n  2\nB=3\\\\\nC=4\n"
    assert [(d.key, d.value, d.first, d.last) for d in directives(text, "f")] == [
        ("A", "1  2", 2, 5),
        ("B", "3\\\\", 6, 6),
        ("C", "4", 7, 7),
    ]
