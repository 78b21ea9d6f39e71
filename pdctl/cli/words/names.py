"""The names that stand behind verbs and options, from this machine's files alone.

Nothing here raises for a file that is absent or damaged: there is then nothing to offer. No fleet model and
no TOML is checked, since a key pressed in a shell waits for this.
"""

from __future__ import annotations

import os
import re
import sqlite3
import tomllib
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pdctl.fleet.rules import rule_names

HERE = Path(__file__).parents[2]
# Runs and deployments that are offered, newest first.
LAST = 30
_VARIABLE = re.compile(r"^\[variables\.(\w+)\]", re.MULTILINE)
# Name -> a word or two about it.
Names = dict[str, str]


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


@dataclass(frozen=True)
class Local:
    """The fleet that a command line is about; `given` is its --fleet, "" without one."""

    given: str = ""

    @cached_property
    def path(self) -> Path:
        path = Path(self.given or os.environ.get("PDCTL_FLEET") or "fleet.toml").expanduser()
        return path / "fleet.toml" if path.is_dir() else path

    @cached_property
    def fleet(self) -> dict[str, Any]:
        try:
            return tomllib.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}

    @property
    def _state(self) -> Path:
        return self.path.parent / ".pdctl"

    def hosts(self) -> Names:
        rows = _table(self.fleet.get("hosts"))
        return {name: str(_table(row).get("address", "this machine")) for name, row in rows.items()}

    def engines(self) -> Names:
        found = {}
        for cell, row in _table(self.fleet.get("cells")).items():
            for name, engine in _table(_table(row).get("engines")).items():
                found[name] = f"{_table(engine).get('role', 'engine')} of cell {cell}"
        return found

    def router(self) -> Names:
        row = _table(self.fleet.get("router"))
        return {str(row.get("name", "router")): "router"} if row else {}

    def cells(self) -> Names:
        return dict.fromkeys(_table(self.fleet.get("cells")), "cell")

    def profiles(self) -> Names:
        return {p.stem: "profile" for p in sorted(self.path.parent.glob("profiles/*.toml"))}

    def runs(self) -> Names:
        rows = self._journal("SELECT id, command || ': ' || state FROM runs ORDER BY started DESC LIMIT ?")
        return {str(id): str(said) for id, said in rows}

    def deployments(self) -> Names:
        """Those that this machine's own pdctl has made, and those that lie on this machine."""
        rows = self._journal(
            "SELECT json_extract(data, '$.id'), 'deployment' FROM notes WHERE what = 'deployment'"
            " ORDER BY at DESC LIMIT ?"
        )
        found = {str(id): str(said) for id, said in rows if id}
        for folder in self._roots():
            there = sorted((p.stem for p in folder.glob("deployments/*.json")), reverse=True)
            found |= {name: "deployment" for name in there[:LAST] if name not in found}
        return found

    def _roots(self) -> list[Path]:
        """The folders of hosts that are this machine."""
        rows = {n: _table(row) for n, row in _table(self.fleet.get("hosts")).items()}
        return [
            self.path.parent / Path(str(row.get("root") or f".pdctl/host/{name}")).expanduser()
            for name, row in rows.items()
            if row.get("transport", "local") == "local"
        ]

    def _journal(self, sql: str) -> list[tuple[Any, ...]]:
        file = self._state / "journal.db"
        if not file.is_file():
            return []
        try:
            with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=0.2)) as db:
                return db.execute(sql, (LAST,)).fetchall()
        except sqlite3.Error:
            return []


def _rules(local: Local) -> Names:
    return rule_names()


def _assignments(local: Local) -> Names:
    """NAME= of the engine's own variables."""
    try:
        text = (HERE.parent / "profiles" / "catalogue" / "engine.toml").read_text(encoding="utf-8")
    except OSError:
        return {}
    return {f"{name}=": "" for name in _VARIABLE.findall(text)}


def _operands(local: Local) -> Names:
    """What `profile diff` compares."""
    units = {**local.engines(), **local.router()}
    return {
        **local.profiles(),
        "running": "what runs now",
        **{f"running:{name}": said for name, said in units.items()},
        "release:current": "what serves",
        **{f"release:{id}": said for id, said in local.deployments().items()},
    }


# What an argument or an option can be, and where its names come from.
KINDS: dict[str, Callable[[Local], Names]] = {
    "host": Local.hosts,
    "engine": Local.engines,
    "unit": lambda local: {**local.engines(), **local.router()},
    "cell": Local.cells,
    "unit or cell": lambda local: {**local.engines(), **local.router(), **local.cells()},
    "cell or host": lambda local: {**local.cells(), **local.hosts(), **local.router()},
    "profile": Local.profiles,
    "operand": _operands,
    "assignment": _assignments,
    "rule": _rules,
    "run": Local.runs,
    "deployment": Local.deployments,
}
