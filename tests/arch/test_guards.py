"""Each guard catches what it is for, and lets its neighbour pass: small trees made for the purpose."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.arch import guards
from tests.arch.layers import Package, packages
from tests.arch.source import Module, read

LOW_HIGH = Package(
    "app", {"low": frozenset(), "high": frozenset({"low"})}, frozenset({"math", "typing", "importlib"})
)


@pytest.fixture
def tree(tmp_path):
    def make(**files: str) -> dict[str, Module]:
        for name, text in {"app": "", **files}.items():
            parts = name.split("__")
            package = any(other.startswith(name + "__") for other in files) or name == "app"
            path = tmp_path.joinpath(*parts) / "__init__.py" if package else tmp_path.joinpath(*parts)
            path = path if package else path.with_suffix(".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return read(tmp_path, ("app",))

    return make


@pytest.mark.parametrize(
    "line",
    [
        "import app.high",
        "from app.high import x",
        "from app import high",
        "from . import high",
        "def f():\n    import app.high",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from app.high import x",
    ],
)
def test_a_room_that_imports_upward_is_named_with_its_line(tree, line):
    (found,) = guards.layers(tree(app__low=line, app__high="x = 1"), [LOW_HIGH])
    assert "app/low.py:" in found and "app.low may not import app.high" in found


def test_downward_and_standard_imports_pass(tree):
    modules = tree(app__low="import math", app__high="from app import low\nfrom app.low import math")
    assert not list(guards.layers(modules, [LOW_HIGH]))


def test_a_room_without_a_row_is_named(tree):
    (found,) = guards.layers(tree(app__attic=""), [LOW_HIGH])
    assert "app.attic has no row" in found


def test_a_module_from_outside_that_is_not_listed_is_named(tree):
    (found,) = guards.layers(tree(app__low="def f():\n    import torch"), [LOW_HIGH])
    assert "app/low.py:2" in found and "torch" in found


def test_pdctl_has_no_engine_library_and_kernels_have_torch_and_triton_alone():
    pdctl, engine, kernels = packages(Path(__file__).parents[2])
    engine_only = {"torch", "triton", "nixl", "numpy", "msgspec", "engine", "kernels", "safetensors"}
    assert not engine_only & pdctl.outside
    assert {"typer", "paramiko", "httpx"} <= pdctl.outside
    assert "pdctl" not in engine.outside and {"torch", "nixl", "kernels"} <= engine.outside
    assert {"torch", "triton", "math"} <= kernels.outside
    assert not {"engine", "pdctl", "numpy", "nixl"} & kernels.outside


def test_the_deciding_rooms_may_not_hold_tensors(tmp_path):
    (tmp_path / "engine" / "schedule").mkdir(parents=True)
    (tmp_path / "engine" / "schedule" / "plan.py").write_text("def f():\n    import torch.nn")
    (found,) = guards.torch_free(read(tmp_path, ("engine",)))
    assert "engine/schedule/plan.py:2" in found


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("import app.b", "import app.a"),
        ("from app.b import x", "def f():\n    from app import a"),
        ("from app import b", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from app.a import T"),
        ("VERBS = {'b': 'app.b'}", "from app.a import VERBS"),
        ("import importlib\nf = lambda verb: importlib.import_module(f'app.{verb}')", "import app.a"),
    ],
)
def test_a_cycle_is_found_however_it_is_hidden(tree, a, b):
    (found,) = guards.cycles(tree(app__a=a, app__b=b))
    assert found == "import cycle: app.a, app.b."


def test_a_diamond_is_no_cycle(tree):
    modules = tree(app__a="import app.b, app.c", app__b="import app.d", app__c="from app import d", app__d="")
    assert not list(guards.cycles(modules))


def test_a_long_file_and_a_long_function_are_named(tree):
    body = "\n".join(f"    x{i} = {i}" for i in range(50))
    found = list(guards.sizes(tree(app__long=f"def f():\n{body}\n" + "y = 1\n" * 300)))
    assert any("app/long.py: 351 lines" in f for f in found)
    assert any("app/long.py:1: f has 51 lines" in f for f in found)
    assert any("median" in f for f in found)


def test_blank_lines_and_short_functions_pass(tree):
    body = "\n\n".join(f"    x{i} = {i}" for i in range(49))
    assert not list(guards.sizes(tree(app__short=f"def f():\n{body}\n")))


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from marshal import loads",
        "def f(x):\n    import shelve",
        "y = eval('1')",
        "exec('x = 1')",
        "import numpy as np\nnp.load('f')",
        "from multiprocessing import Queue",
        "import torch.multiprocessing as mp",
        "def f():\n    from multiprocessing.connection import Client",
        "y = __import__('x')",
        "import torch\ntorch.load('f')",
        "import torch.distributed as dist\ndist.broadcast_object_list([1])",
        "import torch\ntorch.distributed.all_gather_object([], 1)",
    ],
)
def test_what_runs_or_unpickles_is_named(tree, line):
    assert len(list(guards.executable(tree(app__a=line)))) == 1


def test_a_model_in_eval_mode_is_not_eval(tree):
    assert not list(guards.executable(tree(app__a="def f(model):\n    model.eval()\n    model.load('x')")))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('"""Doc."""\nassert 1', "assert"),
        ('"""Doc."""\ndef f():\n    raise NotImplementedError', "NotImplementedError"),
        ('"""Doc."""\nx = 1  # TODO later', "postpones"),
        ("x = 1", "docstring"),
    ],
)
def test_statements_that_do_not_belong_are_named(tree, text, word):
    (found,) = guards.statements(tree(app__a=text))
    assert word in found


def test_an_undeclared_variable_is_named_and_a_pattern_is_not_a_variable():
    texts = {"a.py": "x = 'PD_OLD_NAME'\ny = 'PD_OLD_NAMES'\nz = 'PD_OLD'\n# PD_*, PD_ANY_* and UPD_X"}
    assert list(guards.variables(texts, ["PD_OLD_NAME"])) == [
        "a.py:2: PD_OLD_NAMES is not declared in engine/core/settings.py."
    ]
