"""What was adopted, what it rests on, and what of the sources is not in it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

from pdctl.adopt.adopt import Adopted, line_of
from pdctl.adopt.assemble import UnitDraft
from pdctl.adopt.notes import Grade, Note
from pdctl.fleet.secret import MASK
from pdctl.fleet.secretfile import REFERENCE

_HEADS = {
    Grade.OPEN: "not understood, and so not in the fleet:",
    Grade.ASSUMED: "assumed:",
    Grade.LEFT: "left out:",
}


def show(adopted: Adopted, lines: bool) -> None:
    """`lines`: also how every single line was read."""
    for unit in adopted.units:
        _unit(unit)
    if adopted.variables:
        print(f"{adopted.variables} variables in profiles/adopted-{adopted.name}.toml and the fleet file")
    if adopted.secrets:
        print(f"{adopted.secrets} secrets in .pdctl/secrets, mode 0600; they are shown nowhere")
    if lines:
        _notes("every line:", adopted.notes, lambda n: f"{n.grade}: {line_of(n)}")
    for grade, head in _HEADS.items():
        _notes(head, [n for n in adopted.notes if n.grade is grade], line_of)
    for file in adopted.written:
        print(f"wrote {adopted.folder / file}")
    if adopted.exact:
        print("It starts what the sources start, word for word.")
    print(f"next: pdctl --fleet {shlex.quote(str(adopted.folder))} deploy --plan")


def _unit(unit: UnitDraft) -> None:
    served = unit.served
    port = f"port {served.port}"
    if served.bootstrap_port is not None:
        port += f", bootstrap {served.bootstrap_port}"
    place = [f"numa {unit.numa}"] if unit.numa is not None else []
    place += [f"gpus {','.join(map(str, unit.gpus))}"] if unit.gpus is not None else []
    place += [f"in {unit.cwd}"] if unit.cwd is not None else []
    serves = f", {served.model} as {served.name}" if served.model else ""
    what = f"{served.kind} {unit.role} on {unit.host}"
    print(f"{unit.name}: {what}, {', '.join([port, *place])}{serves} ({unit.where})")
    print(f"  {REFERENCE.sub(MASK, shlex.join(unit.command))}")


def _notes(head: str, notes: Sequence[Note], say: Callable[[Note], str]) -> None:
    if notes:
        print(head)
    for note in notes:
        print(f"  {say(note)}")


def document(adopted: Adopted) -> dict[str, object]:
    """The --json document, schema 1."""
    return {
        "schema": 1,
        "fleet": str(adopted.folder / "fleet.toml"),
        "exact": adopted.exact,
        "units": [
            {
                "name": u.name,
                "role": u.role,
                "kind": u.served.kind,
                "host": u.host,
                "port": u.served.port,
                "bootstrap_port": u.served.bootstrap_port,
                "model": u.served.model,
                "served_model_name": u.served.name,
                "numa": u.numa,
                "gpus": u.gpus,
                "cwd": u.cwd,
                "command": [REFERENCE.sub(MASK, word) for word in u.command],
                "env": {n: str(s.value) for n, s in u.env.items()},
                "secrets": sorted(u.secrets),
                "from": u.where,
            }
            for u in adopted.units
        ],
        "notes": [
            {
                "file": n.file,
                "first": n.first,
                "last": n.last,
                "grade": str(n.grade),
                "said": line_of(n),
                "answer": n.answer,
            }
            for n in adopted.notes
        ],
        "written": list(adopted.written),
    }
