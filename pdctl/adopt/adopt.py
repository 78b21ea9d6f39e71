"""The whole of an adoption: read the sources, write a fleet, and prove that it says what they said."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pdctl.adopt.assemble import Address, Draft, Found, UnitDraft, assemble
from pdctl.adopt.container import contained
from pdctl.adopt.notes import Grade, Note
from pdctl.adopt.service import Service
from pdctl.adopt.sources import Given, Place, note_blocks, read_source
from pdctl.adopt.write import SECRETS, fleet_text, profile_text, quoted
from pdctl.errors import ConfigError, PdctlError
from pdctl.fleet.load import load_fleet
from pdctl.fleet.offered import offered
from pdctl.fleet.profile import engine_env, unit_secrets
from pdctl.fleet.secret import masked
from pdctl.fleet.secretfile import filled, write_secrets
from pdctl.fleet.tokens import make_token

GITIGNORE = ".pdctl/\n"
# Of these an operator has to know before the fleet is trusted.
DOUBTS = (Grade.OPEN, Grade.ASSUMED)


@dataclass(frozen=True)
class Adopted:
    """`written` are files below `folder`; `units` are as written, secrets replaced by references."""

    folder: Path
    name: str
    units: tuple[UnitDraft, ...]
    variables: int
    secrets: int
    notes: tuple[Note, ...]
    written: tuple[str, ...]

    @property
    def exact(self) -> bool:
        """Nothing was assumed and nothing was not understood."""
        return not any(n.grade in DOUBTS for n in self.notes)


@dataclass(frozen=True)
class Wanted:
    """`sources` are (place, source); `hosts` are, by name, the lines of a table and the address, if known."""

    sources: Sequence[tuple[Place, str]]
    hosts: Mapping[str, tuple[list[str], Address | None]]
    out: Path
    name: str
    role: str | None
    given: Given


def adopt(wanted: Wanted) -> Adopted:
    """ConfigError, with nothing written, when a source cannot be read or a value is not known."""
    for file in (wanted.out / "fleet.toml", wanted.out / "profiles" / f"adopted-{wanted.name}.toml"):
        if file.exists():
            hint = "Remove it first, or pass another folder with --out."
            raise ConfigError("fleet_exists", f"{file} is there already; nothing was changed.", hint)
    found: list[Found] = []
    notes: list[Note] = []
    for place, source in wanted.sources:
        followed = read_source(source, place, wanted.given)
        notes += followed.notes
        found += [Found(s, place.name, source) for s in followed.services if _holds(s, notes)]
    _known(found, notes)
    draft = assemble(found, wanted.role, {h: a for h, (_, a) in wanted.hosts.items() if a is not None})
    notes = _settled([*notes, *draft.notes])
    written = _write(wanted, draft, notes)
    count = len(draft.shared) + sum(len(own) for own in draft.own.values())
    secrets = sum(len(u.secrets) for u in draft.units)
    return Adopted(wanted.out, wanted.name, tuple(draft.units), count, secrets, tuple(notes), tuple(written))


def _holds(service: Service, notes: list[Note]) -> bool:
    """Whether a unit can hold what `service` starts; what is to be said of its container is noted."""
    inside = contained(service.texts)
    if inside is not None:
        grade, said = inside
        notes.append(Note(service.file, service.line, service.line, grade, " ".join(service.texts), said))
    return inside is None or inside[0] is not Grade.OPEN


def _known(found: list[Found], notes: list[Note]) -> None:
    """Raise what keeps the fleet from being written: no engine, or a value that is not known."""
    missing = [n for n in (*notes, *note_blocks([f.service for f in found])) if n.grade is Grade.MISSING]
    for one in found:
        texts = {
            **{n: s.value for n, s in one.service.env.items()},
            "the command": " ".join(one.service.texts),
        }
        for name, text in texts.items():
            if isinstance(text, str) and any(c in text for c in "\n\r"):
                what = "holds a line break, which an env file or a unit cannot"
                missing.append(Note(one.service.file, one.service.line, 0, Grade.MISSING, name, what))
    if missing:
        raise ConfigError(
            "incomplete",
            f"Nothing was written: {len(missing)} thing{'s are' if len(missing) > 1 else ' is'} not known.",
            "Run it again with the flags named below, or adopt the running engines with pid:NUMBER.",
            details=list(dict.fromkeys(line_of(n) for n in missing)),
        )
    if not found:
        doubts = [line_of(n) for n in notes if n.grade is Grade.OPEN]
        hint = "Adopt the running engine with pid:NUMBER." if doubts else ""
        raise ConfigError(
            "no_engine", "No engine or router that pdctl knows is started there.", hint, details=doubts
        )


def line_of(note: Note) -> str:
    """A note on one line, secrets masked."""
    text = masked(" ".join(note.text.split()))
    shown = f"{note.where}: {text[:100]}: " if text else f"{note.where}: "
    return f"{shown}{note.what}" + (f" ({note.answer})" if note.answer else "")


def _settled(notes: Sequence[Note]) -> list[Note]:
    """Each thing said once, in order."""
    return list(dict.fromkeys(notes))


def _write(wanted: Wanted, draft: Draft, notes: Sequence[Note]) -> list[str]:
    """Everything into a folder beside the target first; it is moved only once it has proved itself."""
    out, name = wanted.out, wanted.name
    out.mkdir(parents=True, exist_ok=True)
    stage = Path(tempfile.mkdtemp(prefix=".adopt-", dir=out))
    try:
        hosts = {
            h: [*rows, f"address = {quoted(draft.addresses[h])}"]
            for h, (rows, _) in wanted.hosts.items()
            if h in draft.addresses
        }
        kinds = {unit.served.kind for unit in draft.engines}
        shipped = {f"profiles/{file}": text for kind in kinds for file, text in offered(kind).items()}
        texts = {
            **{file: text for file, text in shipped.items() if not (out / file).exists()},
            f"profiles/adopted-{name}.toml": profile_text(draft, name),
            "fleet.toml": fleet_text(draft, name, hosts, notes),
        }
        for file, text in texts.items():
            (stage / file).parent.mkdir(parents=True, exist_ok=True)
            (stage / file).write_text(text, encoding="utf-8")
        for unit in draft.units:
            if unit.secrets:
                write_secrets(stage / SECRETS / f"{unit.name}.env", unit.secrets)
        _prove(stage, out, draft)
        (out / ".pdctl").mkdir(exist_ok=True, mode=0o700)
        written = [str(p.relative_to(stage)) for p in sorted(stage.rglob("*")) if p.is_file()]
        # The fleet file last: what it names is there by then.
        for file in sorted(written, key=lambda f: f == "fleet.toml"):
            (out / file).parent.mkdir(exist_ok=True, mode=0o700 if file.startswith(".") else 0o755)
            shutil.move(stage / file, out / file)
    finally:
        shutil.rmtree(stage, ignore_errors=True)
    for token in ("token", "drill-token"):
        make_token(out / ".pdctl" / token)
    if not (out / ".gitignore").exists():
        (out / ".gitignore").write_text(GITIGNORE)
        written.append(".gitignore")
    return written


def _prove(stage: Path, out: Path, draft: Draft) -> None:
    """Load what was written and compare it, unit by unit, with what the sources start."""
    try:
        fleet = load_fleet(stage)
    except ConfigError as error:
        lines = [line.replace(str(stage), str(out)) for line in error.details]
        raise ConfigError("no_fleet", "What the sources start makes no fleet.", details=lines) from None
    for unit in draft.units:
        there = fleet.router if unit.role == "router" else fleet.engine(unit.name)
        secrets = {n: text for n, (text, _) in unit_secrets(fleet, there).items()}
        env = {n: v.value for n, v in engine_env(fleet, there).items()}
        wanted = {n: str(s.value) for n, s in unit.env.items()} | unit.secrets
        command = filled(there.spec.command or [], secrets)
        said = (env, command, there.spec.numa, there.spec.cwd)
        if said != (wanted, filled(unit.command, unit.secrets), unit.numa, unit.cwd):
            raise PdctlError(
                "not_proved", f"What was written for {unit.name} is not what {unit.where} starts."
            )


def slug(text: str) -> str:
    """A fleet's name from the name of a source."""
    stem = re.sub(r"^(?:pid|unit):", "", text).rpartition("/")[2].partition(".")[0]
    return re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")[:30] or "fleet"
