"""What only a run could tell is listed with file and line, and nothing is executed to find out."""

from __future__ import annotations

import pytest

from pdctl.exits import Exit
from tests.pdctl.adopt.conftest import ENGINE

LAST = f"exec {ENGINE}\n"


def test_nothing_of_a_script_is_executed(bench) -> None:
    mark = bench.folder / "executed"
    lines = [
        f"touch {mark}",
        f"export A=$(touch {mark}) B=`touch {mark}`",
        f"cat <(touch {mark}) >/dev/null",
        f"if touch {mark}; then touch {mark}; fi",
        f"f() {{ touch {mark}; }}; f",
        f"eval 'touch {mark}'",
        f"trap 'touch {mark}' EXIT",
        f": ${{X:=$(touch {mark})}}",
        f"source <(echo touch {mark})",
        f"[[ -n $(touch {mark}) ]]",
        f"echo hi > {mark}",
        LAST,
    ]
    code, _ = bench.script("\n".join(lines), "--set", "A=1", "--set", "B=2", "--set", f"$(touch {mark})=3")
    assert code in (Exit.USAGE, Exit.FINDINGS)
    assert not mark.exists()


@pytest.mark.parametrize(
    ("line", "grade", "words"),
    [
        (
            'if [ -n "$X" ]; then\n  export Y=1\nfi',
            "not understood",
            ["serve.sh:1-3", "a condition", "Y may have"],
        ),
        ("for i in 1 2; do export N$i=1; done", "not understood", ["serve.sh:1", "a loop"]),
        (
            'for i in a b; do export GPU_$i="on off"; done',
            "not understood",
            ["a loop, which is not followed; i may have changed; it exports GPU_$i: what the engine needs"],
        ),
        ("case $X in a) Y=1;; esac", "not understood", ["serve.sh:1", "a case"]),
        ("f() { export Y=1; }\nf", "not understood", ["serve.sh:2", "calls the function f"]),
        ("eval $X", "not understood", ["serve.sh:1", "eval is not followed"]),
        ("trap 'kill 0' EXIT", "not understood", ["serve.sh:1", "trap"]),
        ("[ -f /x ] && export Y=1", "not understood", ["serve.sh:1", "a condition"]),
        ("L[0]=x", "not understood", ["serve.sh:1", "an element of an array"]),
        ("mkdir -p /var/log/x", "left out", ["serve.sh:1", "does not run"]),
        ("nvidia-smi -pm 1", "left out", ["serve.sh:1"]),
        ("ulimit -c unlimited", "left out", ["serve.sh:1", "a limit"]),
        ("[ -d /models ] || { echo no; exit 1; }", "left out", ["serve.sh:1", "check"]),
        ("STARTED=$(date +%s)", "left out", ["serve.sh:1", "$(date +%s)", "no engine uses it"]),
        ("export P=${PORT:-30000}", "assumed", ["serve.sh:1", "${PORT:-30000}", "--set PORT=VALUE"]),
        ("NCCL_DEBUG=INFO", "assumed", ["serve.sh:1", "not exported"]),
        ("./run_decode.sh &", "not understood", ["serve.sh:1", "another script"]),
    ],
)
def test_it_is_said_with_its_line(bench, said, line: str, grade: str, words: list[str]) -> None:
    code, document = bench.script(f"{line}\n{LAST}", "--unset", "Y")
    doubtful = grade in ("not understood", "assumed")
    assert code == (Exit.FINDINGS if doubtful else Exit.OK)
    assert document["exact"] is not doubtful
    assert any(all(w in text for w in words) for text in said(document, grade)), document["notes"]
    reminder = (bench.out / "fleet.toml").read_text().partition("schema")[0]
    assert words[0] in reminder, "the fleet file does not remind of it"


@pytest.mark.parametrize(
    ("script", "where", "flag"),
    [
        (f"IP=$(hostname -i)\nexec {ENGINE} --host $IP", "serve.sh:1", "--set IP=VALUE"),
        (f"exec {ENGINE} --host $(hostname -i)", "serve.sh:1", "--set '$(hostname -i)=VALUE'"),
        (f'exec {ENGINE} --port "$PORT"', "serve.sh:1", "--set PORT=VALUE"),
        (f"export A=$((1 + 2))\nexec {ENGINE}", "serve.sh:1", "--set A=VALUE"),
        (f"if x; then export A=1; fi\nexec {ENGINE}", "serve.sh:1", "--set A=VALUE or --unset A"),
        (f"exec {ENGINE} --x *.json", "serve.sh:1", "--set '*.json=VALUE'"),
        (f"cd ~/serve\nexec {ENGINE}", "serve.sh:1", "--set HOME=FOLDER"),
        (f". nowhere.env\nexec {ENGINE}", "serve.sh:1", "--sourced nowhere.env"),
    ],
)
def test_a_value_that_the_engine_needs_is_asked_for(bench, script: str, where: str, flag: str) -> None:
    code, document = bench.script(script + "\n")
    assert (code, document["error"]["code"]) == (Exit.USAGE, "incomplete")
    assert any(where in d and flag in d for d in document["error"]["details"]), document["error"]["details"]
    assert not (bench.out / "fleet.toml").exists()


def test_answers_settle_it(bench) -> None:
    text = f"IP=$(hostname -i)\nif x; then export A=1; fi\nexec {ENGINE} --host $IP --x $(y z) --port $PORT\n"
    code, _ = bench.script(
        text, "--set", "IP=10.0.0.5", "--unset", "A", "--set", "$(y z)=w", "--set", "PORT=31000"
    )
    engine = bench.fleet().engine("engine-0")
    assert code == Exit.FINDINGS, "the condition is still not understood"
    assert engine.spec.command == [*ENGINE.split(), "--host", "10.0.0.5", "--x", "w", "--port", "31000"]
    assert (engine.port, engine.address) == (31000, "10.0.0.5")
    assert bench.env("engine-0") == {"PORT": "31000"}


def test_the_folder_of_the_script_itself_is_known(bench) -> None:
    text = 'HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"\nexport C=$HERE/c.json\n' + LAST
    bench.script(text, name="a/serve.sh")
    assert bench.env("engine-0")["C"] == f"{bench.folder}/a/c.json"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("#!/usr/bin/python3\nimport os\n", "a script for python3"),
        ('export A="never closed\n', "a quote has no end"),
        ("export A=1\r\nexec x\r\n", "Windows line ends"),
        ("if true; then\n", "is missing"),
        ("echo nothing here\n", "No engine or router"),
    ],
)
def test_what_is_no_serve_script_gets_a_sentence(bench, text: str, words: str) -> None:
    code, document = bench.script(text)
    assert code == Exit.USAGE
    assert words in document["error"]["message"]
    assert not (bench.out / "fleet.toml").exists()


def test_several_engines_of_one_script_are_all_found(bench) -> None:
    text = (
        "export CUDA_VISIBLE_DEVICES=0\n"
        f"{ENGINE} --disaggregation-mode prefill --port 31000 > p.log 2>&1 &\n"
        f"CUDA_VISIBLE_DEVICES=1 {ENGINE} --disaggregation-mode decode --port 31001 2>&1 | tee d.log &\n"
        "sleep 5\nwait\n"
    )
    code, document = bench.script(text)
    assert code == Exit.OK
    assert [(u["name"], u["port"], u["gpus"], u["from"][-10:]) for u in document["units"]] == [
        ("prefill-0", 31000, [0], "serve.sh:2"),
        ("decode-0", 31001, [1], "serve.sh:3"),
    ]
