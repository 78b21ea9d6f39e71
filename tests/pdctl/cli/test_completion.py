"""Completion: a real bash with the printed script, what is offered where, and how quick and quiet it is."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pdctl.cli import check, diagnose, load
from pdctl.cli.words.answer import TABLE, candidates, joined, shown
from pdctl.cli.words.names import KINDS
from pdctl.diagnose.rules import CATALOGUE
from pdctl.flows.init import Wanted, init_fleet
from pdctl.remote.journal import Call, Journal
from tests.docs.words import FREE, WITH
from tests.docs.words import KINDS as PARAMETERS
from tests.pdctl.models import model_folder

HEAVY = ("paramiko", "httpx", "typer", "click", "rich", "pydantic", "torch", "tomlkit")
# A Tab over an interpreter that does nothing; about 2.5 when this was written.
TIMES_BARE = 6

# What bash does at a Tab: the function is called with COMP_WORDS and COMP_CWORD set.
TAB = """
eval "$(cat "$1")"; shift
[[ "$(complete -p pdctl)" == *_pdctl_words* ]] || exit 9
COMP_CWORD=$1; shift
COMP_WORDS=("$@")
_pdctl_words pdctl
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("PDCTL_FLEET", raising=False)
    model_folder(tmp_path / "model")
    init_fleet(tmp_path / "fleet.toml", Wanted("test", str(tmp_path / "model"), prefills=2))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {}
    for shell in ("bash", "zsh", "fish"):
        done = pdctl("completion", shell)
        made[shell] = tmp_path_factory.mktemp("completion") / shell
        made[shell].write_text(done.stdout)
    return made


def pdctl(*words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "pdctl", *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)


def tab(script: Path, *words: str, at: int | None = None) -> list[str]:
    """What bash offers for the last of `words`."""
    place = str(len(words) if at is None else at)
    argv = ["bash", "--norc", "-c", TAB, "bash", str(script), place, "pdctl", *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def offered(*words: str) -> list[str]:
    return list(candidates(json.loads(TABLE.read_text()), list(words[:-1]), [words[-1]]))


def test_bash_completes_verbs_options_and_every_kind_of_name(folder: Path, scripts: dict[str, Path]) -> None:
    with Journal(folder / ".pdctl" / "journal.db", Call("deploy", ("deploy",))) as journal:
        journal.note("deployment", id="20260101-000000-abcd")
    bash = scripts["bash"]
    assert tab(bash, "diag") == ["diagnose"]
    assert tab(bash, "profile", "b") == ["bisect"]
    assert tab(bash, "restart", "--c") == ["--co"]
    assert tab(bash, "logs", "prefill-") == ["prefill-0", "prefill-1"]
    assert tab(bash, "restart", "") == ["prefill-0", "prefill-1", "decode-0", "router", "a"]
    assert tab(bash, "profile", "show", "d") == ["default", "drill"]
    assert tab(bash, "profile", "bisect", "default", "pro") == ["production"]
    assert tab(bash, "profile", "set", "default", "PD_KV") == ["PD_KV_CHECKSUM="]
    assert tab(bash, "deploy", "--limit", "") == ["a", "local", "router"]
    assert tab(bash, "history", "--host", "l") == ["local"]
    assert tab(bash, "explain", "PD60") == [r.code for r in CATALOGUE if r.code.startswith("PD60")]
    assert tab(bash, "resume", "") == [journal.id] and tab(bash, "history", "") == [journal.id]
    assert tab(bash, "rollback", "") == ["20260101-000000-abcd"]
    assert tab(bash, "profile", "bisect", "a", "b", "--check", "t") == ["tokens"]
    assert tab(bash, "drill", "run", "lose-") == ["lose-want", "lose-done"]


def test_an_option_changes_what_an_argument_is_wherever_it_stands(folder: Path) -> None:
    with Journal(folder / ".pdctl" / "journal.db", Call("deploy", ("deploy",))) as journal:
        journal.note("deployment", id="20260101-000000-abcd")
    assert offered("restart", "--co", "") == ["a"] and offered("restart", "--yes", "--co", "") == ["a"]
    # A cell too while none of the options is there: --co may follow.
    assert offered("restart", "--yes", "")[0] == "prefill-0" and offered("restart", "")[-1] == "a"
    table = json.loads(TABLE.read_text())
    assert list(candidates(table, ["restart"], ["", "--co"])) == ["a"]
    assert offered("history", "") == [journal.id] and offered("rollback", "") == ["20260101-000000-abcd"]
    for words in (
        ("history", "--host", "local"),
        ("history", "--host=local"),
        ("history", "--prune", "3"),
        ("rollback", "--list"),
        ("drill", "run", "--all"),
    ):
        assert offered(*words, "") == []
    assert offered("drill", "run", "lose-want", "")[0] == "stall-transfer"
    assert offered("profile", "set", "default", "PD_KV_CHECKSUM=1", "")[0].startswith("PD_")
    assert set(WITH) == {
        f"{path} {option}" for path, node in nodes(table, "") for option in node.get("with", {})
    }


def nodes(node: dict, path: str) -> Iterator[tuple[str, dict]]:
    yield path, node
    for name, verb in node.get("verbs", {}).items():
        yield from nodes(verb, f"{path} {name}".strip())


def test_fixed_words_of_an_option_are_offered(folder: Path) -> None:
    for verb, words in (("check", check._LEVELS), ("diagnose", diagnose._LEVELS), ("load", load._FAIL_ON)):
        assert offered(verb, "--fail-on", "") == list(words), verb


def test_what_profile_diff_compares_is_offered_by_its_kind(folder: Path, scripts: dict[str, Path]) -> None:
    """Bash takes running:UNIT apart at the ":" and replaces what is behind it alone."""
    with Journal(folder / ".pdctl" / "journal.db", Call("deploy", ("deploy",))) as journal:
        journal.note("deployment", id="20260101-000000-abcd")
    bash = scripts["bash"]
    assert tab(bash, "profile", "diff", "d", "run") == [
        *("running", "running:prefill-0", "running:prefill-1", "running:decode-0", "running:router"),
    ]
    assert tab(bash, "profile", "diff", "default", "running", ":", "dec") == ["decode-0"]
    assert tab(bash, "profile", "diff", "release", ":") == ["current", "20260101-000000-abcd"]
    assert tab(bash, "profile", "diff", "release", ":", "current", "dr") == ["drill"]


def test_a_word_in_the_middle_and_a_fleet_elsewhere(folder: Path, scripts: dict[str, Path]) -> None:
    bash = scripts["bash"]
    assert tab(bash, "logs", "dec", "--json", at=2) == ["decode-0"]
    other = folder / "other"
    other.mkdir()
    text = (folder / "fleet.toml").read_text().replace("decode-0", "decode-elsewhere")
    (other / "fleet.toml").write_text(text)
    assert tab(bash, "--fleet", str(other), "logs", "dec") == ["decode-elsewhere"]
    assert tab(bash, "logs", "dec", "--fleet", "=", str(other), at=2) == ["decode-0"]
    assert tab(bash, "--fleet", "=", str(other), "logs", "dec") == ["decode-elsewhere"]
    assert tab(bash, "history", "-n", "5", "--host", "") == ["local"]


def test_bash_completes_files_where_a_path_belongs(folder: Path, scripts: dict[str, Path]) -> None:
    """Left to bash: nothing of ours is offered."""
    assert tab(scripts["bash"], "--fleet", "") == [] and tab(scripts["bash"], "diagnose", "--from", "") == []
    assert offered("--fleet", "") == [":files"] and offered("--fleet=") == [":files"]


@pytest.mark.parametrize("text", ["[hosts", "hosts = 3\ncells = [1]", "\0", "[cells.a]\nengines = 5"])
def test_a_broken_fleet_file_is_silent(folder: Path, scripts: dict[str, Path], text: str) -> None:
    (folder / "fleet.toml").write_text(text)
    (folder / ".pdctl" / "journal.db").write_text("no database")
    for words in (("logs", ""), ("restart", ""), ("history", ""), ("rollback", "")):
        assert tab(scripts["bash"], *words) in ([], ["a"])
    (folder / "fleet.toml").unlink()
    assert tab(scripts["bash"], "logs", "") == [] and tab(scripts["bash"], "stat") == ["status"]


def test_a_tab_loads_nothing_heavy_and_is_quick(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = (
        "import sys; from pdctl.cli.words.answer import main; main(['bash', '2', 'pdctl', 'history', '']);"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert not {m.partition(".")[0] for m in done.stderr.split()} & set(HEAVY), done.stderr

    def took(*argv: str) -> float:
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-I", *argv], capture_output=True, timeout=60, check=True)
        return time.perf_counter() - begin

    answer = ("-m", "pdctl.cli.words.answer", "bash", "2", "pdctl", "logs", "")
    pairs = [(took("-c", "pass"), took(*answer)) for _ in range(5)]
    bare, full = (statistics.median(side) for side in zip(*pairs, strict=True))
    with capsys.disabled():
        print(f"\na Tab: {full * 1e3:.0f} ms, a bare interpreter {bare * 1e3:.0f} ms, x{full / bare:.1f}")
    assert full < bare * TIMES_BARE


def test_every_argument_of_every_verb_has_a_kind_or_is_known_to_have_none() -> None:
    table = json.loads(TABLE.read_text())
    known = {*KINDS, ":files", ""}

    def below(node: dict, path: str) -> None:
        kinds = [*node.get("arguments", []), *node.get("options", {}).values()]
        for kind in kinds:
            assert kind is None or "|" in kind or kind in known, f"{path}: {kind}"
        if "" in node.get("arguments", []):
            assert any(name.startswith(f"{path} ") for name in FREE), f"{path}: an argument without a kind"
        for name, verb in node.get("verbs", {}).items():
            below(verb, f"{path} {name}".strip())

    below(table, "")
    assert {"host", "engine", "unit", "profile", "rule", "deployment", "run"} <= set(PARAMETERS.values()) - {
        ""
    }


def test_zsh_and_fish_get_words_with_what_they_mean() -> None:
    found = {"a:b": "one: two", "ac": ""}
    assert list(shown("zsh", "a", found)) == ["a\\:b:one: two", "ac"]
    assert list(shown("fish", "a", found)) == ["a:b\tone: two", "ac"]
    assert joined(["pdctl", "--fleet", "=", "x", "logs", "d"], 5) == (["pdctl", "--fleet=x", "logs", "d"], 3)


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_script_of_another_shell_is_sound(shell: str, scripts: dict[str, Path]) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed here")
    done = subprocess.run([program, "-n", str(scripts[shell])], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")


def test_fish_completes(folder: Path, scripts: dict[str, Path]) -> None:
    fish = shutil.which("fish")
    if fish is None:
        pytest.skip("fish is not installed here")

    def typed(line: str) -> list[str]:
        code = f"source {scripts['fish']}; complete -C '{line}'"
        argv = [fish, "--no-config", "-c", code]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True)
        return [row.split("\t")[0] for row in done.stdout.splitlines()]

    assert typed("pdctl logs prefill-") == ["prefill-0", "prefill-1"]
    assert typed("pdctl diag") == ["diagnose"]
    assert typed("pdctl profile diff running:d") == ["running:decode-0"]
    assert typed("pdctl deploy --limit=l") == ["--limit=local"]


# Of a zsh on a terminal: the script as ~/.zshrc has it, and what the line has become, told to a file.
ZSHRC = """
PS1=; autoload -Uz compinit && compinit -D; source {script}
told() {{ print -r -- "$BUFFER" >> {told} }}
zle -N told; zle -N zle-line-init told; bindkey '^T' told
"""


def wait_for_lines(file: Path, count: int) -> None:
    end = time.monotonic() + 60
    while not file.exists() or file.read_text().count("\n") < count:
        assert time.monotonic() < end, f"{file} has no line {count}"
        time.sleep(0.02)


def test_zsh_completes(folder: Path, scripts: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    zsh = shutil.which("zsh")
    if zsh is None:
        pytest.skip("zsh is not installed here")
    told = folder / "told"
    (folder / ".zshrc").write_text(ZSHRC.format(script=scripts["zsh"], told=told))
    monkeypatch.setenv("ZDOTDIR", str(folder))
    typed = {
        "pdctl diag": "pdctl diagnose ",
        "pdctl logs dec": "pdctl logs decode-0 ",
        "pdctl profile set default PD_KV": "pdctl profile set default PD_KV_CHECKSUM=",
        "pdctl restart --c": "pdctl restart --co ",
        "pdctl profile diff default running:r": "pdctl profile diff default running:router ",
        "pdctl diagnose --from fleet.t": "pdctl diagnose --from fleet.toml ",
    }
    shell, terminal = pty.fork()
    if shell == 0:
        os.execv(zsh, [zsh, "-d", "-i"])
    try:
        for number, line in enumerate(("", *typed)):
            os.write(terminal, f"{line}\t\x14\x15".encode() if line else b"")
            wait_for_lines(told, number + 1)
    finally:
        os.kill(shell, signal.SIGKILL)
        os.waitpid(shell, 0)
        os.close(terminal)
    assert told.read_text().splitlines() == ["", *typed.values()]
