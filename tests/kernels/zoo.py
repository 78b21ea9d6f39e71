"""The faults of `faults.toml`, planted: one that no longer applies is an error."""

from __future__ import annotations

import importlib.util
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]

SEEN = {
    "memory": "from the start of",
    "init": "nobody wrote",
    "race": "race: ",
    "answer": " instead of ",
}


@dataclass(frozen=True)
class Fault:
    """`edits` are (file below kernels/ops, old text, new text); `seen` is in what the lane must say."""

    name: str
    op: str
    lane: str
    seen: str
    edits: tuple[tuple[str, str, str], ...]
    case: str = ""
    sample: bool = False


def faults(lane: str) -> list[Fault]:
    rows = tomllib.loads((Path(__file__).parent / "faults.toml").read_text())["fault"]
    found = []
    for row in rows:
        edits = tuple((e["file"], e["old"], e["new"]) for e in row.pop("edit"))
        row["seen"] = SEEN.get(row["seen"], row["seen"])
        found.append(Fault(edits=edits, **row))
    return [fault for fault in found if fault.lane == lane]


@contextmanager
def planted(fault: Fault, folder: Path) -> Iterator[ModuleType]:
    """The operation's kernel module with the fault, and with it in what the kernel imports."""
    texts = {name: (ROOT / "kernels" / "ops" / name).read_text() for name, _, _ in fault.edits}
    for name, old, new in fault.edits:
        if texts[name].count(old) != 1:
            raise LookupError(
                f"{fault.name}: {texts[name].count(old)} places in {name} read {old!r}, not one"
            )
        texts[name] = texts[name].replace(old, new)
    kernel = f"{fault.op}/kernel.py"
    texts.setdefault(kernel, (ROOT / "kernels" / "ops" / kernel).read_text())
    kept = {}
    try:
        for name in sorted(texts, key=lambda n: n == kernel):  # what the kernel imports comes first
            path = folder / name.replace("/", "_")
            path.write_text(texts[name])
            full = "kernels.ops." + name.removesuffix(".py").replace("/", ".")
            kept[full] = sys.modules.get(full)
            spec = importlib.util.spec_from_file_location(full, path)
            if spec is None or spec.loader is None:
                raise LookupError(f"{path} cannot be imported")
            sys.modules[full] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(sys.modules[full])
        yield sys.modules[full]
    finally:
        for full, module in kept.items():
            if module is None:
                sys.modules.pop(full, None)
            else:
                sys.modules[full] = module
