"""The tables of docs/kernels.md: operations, what their kernels take, the faults that lanes must see."""

from __future__ import annotations

import ast
import json
import tomllib
from pathlib import Path

from kernels.registry import OPS
from tests.docs.markdown import table

ROOT = Path(__file__).parents[2]


def _operations() -> str:
    rows = []
    for op in OPS.values():
        package = ROOT / "kernels" / "ops" / op.name / "__init__.py"
        about = (ast.get_docstring(ast.parse(package.read_text())) or "").splitlines()[0]
        kernel = "Triton" if not op.why else f"torch: {op.why}"
        rows.append([f"`{op.name}`", about, ", ".join(f"`{f}`" for f in op.functions), kernel])
    return table(["Operation", "What it does", "Functions", "On CUDA"], rows)


def _resources() -> str:
    measured = json.loads((ROOT / "tests" / "kernels" / "aot" / "resources.json").read_text())
    by_kernel: dict[str, dict[str, str]] = {}
    for name, row in measured.items():
        kernel, _, arch = name.rpartition(" sm_")
        mma = f" {row['mma']}" if row["mma"] else ""
        text = f"{row['shared'] / 1024:.1f} KiB, {row['registers']}, {row['ctas']}{mma}"
        by_kernel.setdefault(kernel, {})[arch] = text
    arches = sorted({arch for row in by_kernel.values() for arch in row}, key=int)
    rows = [
        [f"`{kernel.partition(' ')[0]}`", kernel.partition(" ")[2], *(row.get(a, "") for a in arches)]
        for kernel, row in by_kernel.items()
    ]
    return table(["Kernel", "Shapes", *(f"sm_{a}" for a in arches)], rows)


def _faults() -> str:
    text = (ROOT / "tests" / "kernels" / "faults.toml").read_text()
    kinds = ("memory", "init", "race", "answer")
    rows = [
        [f["name"], f"`{f['op']}`", f["lane"], f["seen"] if f["seen"] in kinds else f"“{f['seen'].strip()}”"]
        for f in tomllib.loads(text)["fault"]
    ]
    return table(["Planted fault", "Operation", "Lane", "Seen as"], rows)


def kernels() -> str:
    """The page as it is, its tables as they must be."""
    text = (ROOT / "docs" / "kernels.md").read_text()
    for name, made in (("operations", _operations), ("resources", _resources), ("faults", _faults)):
        begin = f"<!-- {name}: written by `make docs` -->\n"
        before, found, rest = text.partition(begin)
        if not found:
            raise LookupError(f"docs/kernels.md has no place for its table of {name}: {begin.strip()}")
        text = f"{before}{begin}\n{made()}\n\n<!-- end -->{rest.partition('<!-- end -->')[2]}"
    return text
