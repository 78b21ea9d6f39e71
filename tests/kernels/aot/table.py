"""The committed table of what each kernel takes, and what is wrong with it now."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels.launch import Launch
from tests.kernels.aot.launches import ARCHES, VARIANTS, Variant, launches
from tests.kernels.aot.measure import Unfit, digest, measure, row

FILE = Path(__file__).parent / "resources.json"
Table = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Build:
    """One kernel for one architecture."""

    name: str
    arch: int
    launch: Launch

    def row(self) -> dict[str, Any]:
        return {"digest": digest(self.launch), **row(measure(self.launch, self.arch))}


def builds(variants: Sequence[Variant] = VARIANTS) -> Iterator[Build]:
    for variant in variants:
        for arch in ARCHES:
            for kernel, launch in launches(variant, arch):
                yield Build(f"{variant.op}.{kernel} {variant.name} sm_{arch}", arch, launch)


def committed() -> Table:
    return json.loads(FILE.read_text()) if FILE.is_file() else {}  # type: ignore[no-any-return]


def stale(table: Table) -> Iterator[str]:
    """Without compiling: kernels that are not those the table was written for."""
    now = {build.name: digest(build.launch) for build in builds()}
    for name in sorted(now.keys() | table.keys()):
        if name not in now:
            yield f"{name}: in the table and in no launch"
        elif name not in table:
            yield f"{name}: not in the table"
        elif table[name]["digest"] != now[name]:
            yield f"{name}: has changed since it was measured"


def wrong(build: Build, table: Table) -> Iterator[str]:
    """Past a limit, spilling, or not as it was measured: the table changes where somebody looks at it."""
    try:
        found = build.row()
    except Unfit as why:
        yield f"{build.name}: {why}"
        return
    known = table.get(build.name, {})
    for key, value in found.items():
        if key != "digest" and known.get(key) != value:
            yield f"{build.name}: {key} {value}, measured was {known.get(key)}"


def write() -> list[str]:
    """The table anew; what cannot be built is returned and leaves it as it was."""
    table, problems = {}, []
    for build in builds():
        try:
            table[build.name] = build.row()
        except Unfit as why:
            problems.append(f"{build.name}: {why}")
    if not problems:
        FILE.write_text(json.dumps(table, indent=1) + "\n")
    return problems
