"""The fleet file and the profile of an adopted fleet, as text that a person goes on editing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from pdctl.adopt.assemble import Draft, UnitDraft
from pdctl.adopt.notes import Grade, Note
from pdctl.fleet.secret import masked

SECRETS = ".pdctl/secrets"
# Of these a fleet file reminds whoever reads it.
_REMIND = (Grade.OPEN, Grade.ASSUMED, Grade.LEFT)


def quoted(text: str) -> str:
    """A TOML basic string; ValueError for text that cannot be written as UTF-8."""
    text.encode("utf-8")
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def fleet_text(draft: Draft, name: str, hosts: dict[str, list[str]], notes: Sequence[Note]) -> str:
    """`hosts` are the lines of each host's table."""
    first = draft.engines[0]
    lines = [
        "# A fleet of pdctl, adopted from what started it before.",
        "# `pdctl deploy --plan` shows what would be done.",
        *_reminders(notes),
        "schema = 1",
        "",
        "[fleet]",
        f"name = {quoted(name)}",
        f"profile = {quoted(f'adopted-{name}')}",
        "",
        "[model]",
        f"path = {quoted(first.served.model)}   # {first.where}",
        f"name = {quoted(first.served.name)}",
    ]
    for host, rows in hosts.items():
        lines += ["", f"[hosts.{host}]", *rows]
    for unit in draft.engines:
        lines += ["", f"# {unit.where}", f"[cells.a.engines.{unit.name}]", *_engine(draft, unit)]
    if draft.router is not None:
        lines += ["", f"# {draft.router.where}", "[router]", 'name = "router"', *_head(draft.router)]
        lines += _started(draft, draft.router)
    return "\n".join(lines) + "\n"


def _reminders(notes: Sequence[Note]) -> Iterator[str]:
    said = [n for n in notes if n.grade in _REMIND]
    if said:
        yield "# Not in this file:"
    for note in said:
        text = masked(" ".join(note.text.split()))[:90]
        line = f"#   {note.where}  {text}  ({note.grade}: {note.what})"
        yield "".join(c for c in line if c.isprintable())


def _engine(draft: Draft, unit: UnitDraft) -> list[str]:
    lines = [f"role = {quoted(unit.role)}", *_head(unit)]
    if unit.served.bootstrap_port is not None:
        lines.append(f"bootstrap_port = {unit.served.bootstrap_port}")
    lines.append(f"tp = {unit.served.tp}")
    if unit.gpus is not None:
        lines.append(f"gpus = {unit.gpus}")
    return lines + _started(draft, unit)


def _head(unit: UnitDraft) -> list[str]:
    return [f"kind = {quoted(unit.served.kind)}", f"host = {quoted(unit.host)}", f"port = {unit.served.port}"]


def _started(draft: Draft, unit: UnitDraft) -> list[str]:
    lines = []
    if unit.numa is not None:
        lines.append(f"numa = {unit.numa}")
    if unit.cwd is not None:
        lines.append(f"cwd = {quoted(unit.cwd)}")
    if unit.secrets:
        lines.append(f"secrets = {quoted(f'{SECRETS}/{unit.name}.env')}")
    lines += ["command = [", *(f"  {row}," for row in _rows(unit.command)), "]"]
    own = draft.own.get(unit.name, {})
    if own:
        rows = (f"{name} = {quoted(str(s.value))}" for name, s in own.items())
        wheres = ", ".join(dict.fromkeys(s.where for s in own.values()))
        lines.append(f"env = {{ {', '.join(rows)} }}   # {wheres}")
    return lines


def _rows(command: Sequence[str]) -> Iterator[str]:
    """An option and its values on one line, as people write them."""
    row: list[str] = []
    for word in command:
        if word.startswith("-") and row:
            yield ", ".join(row)
            row = []
        row.append(quoted(word))
    if row:
        yield ", ".join(row)


def profile_text(draft: Draft, name: str) -> str:
    lines = [
        "schema = 1",
        f"name = {quoted(f'adopted-{name}')}",
        'description = "What the adopted engines were given; each value says where."',
    ]
    for env, share in sorted(draft.shared.items()):
        lines += [
            "",
            f"[values.{env}]",
            f"value = {quoted(share.value)}",
            f"side = {quoted(share.side)}",
            f"reason = {quoted('adopted from ' + ', '.join(share.wheres))}",
        ]
    return "\n".join(lines) + "\n"
