"""The guards over this project's own tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.core.settings import BY_ENV, OTHER_ENV
from tests.arch import guards, layers
from tests.arch.source import Module, read

ROOT = Path(__file__).parents[2]
TOPS = ("pdctl", "engine", "kernels")


@pytest.fixture(scope="module")
def modules() -> dict[str, Module]:
    return read(ROOT, TOPS)


def clean(offences: object) -> None:
    found = list(offences)  # type: ignore[call-overload]
    assert not found, "\n" + "\n".join(found)


def test_the_tree_was_read(modules):
    assert {m.top for m in modules.values()} == set(TOPS)
    assert "engine.core.settings" in modules


def test_every_room_imports_only_what_is_below_it(modules):
    clean(guards.layers(modules, layers.packages(ROOT)))


def test_the_rooms_that_decide_hold_no_tensor(modules):
    clean(guards.torch_free(modules))


def test_no_import_cycle_even_a_hidden_one(modules):
    clean(guards.cycles(modules))


def test_files_and_functions_are_short(modules):
    clean(guards.sizes(modules))


def test_nothing_that_is_read_is_run(modules):
    clean(guards.executable(modules))


def test_no_assert_nothing_postponed_and_module_docstrings(modules):
    clean(guards.statements(modules))


def test_every_variable_that_is_named_exists():
    data = [p for d in ("profiles", "systemd", "docs") for p in (ROOT / d).rglob("*") if p.is_file()]
    code = [p for top in TOPS for p in (ROOT / top).rglob("*") if p.suffix in (".py", ".toml", ".json")]
    papers = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
    texts = {
        str(p.relative_to(ROOT)): p.read_text()
        for p in (*data, *code, *papers)
        if p.is_file() and p.suffix != ".pyc"
    }
    clean(guards.variables(texts, [*BY_ENV, *OTHER_ENV]))


def test_no_asyncio_wait_for() -> None:
    """Before Python 3.12 it can swallow a cancellation as its inner task ends, and a stop then hangs."""
    users = [p for p in (ROOT / "engine").rglob("*.py") if "asyncio.wait_for(" in p.read_text()]
    assert not users, f"use asyncio.timeout in {users}"
