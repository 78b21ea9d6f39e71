"""From services to the tables of a fleet file: roles, names, hosts, and who gets which variable."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from pdctl.adopt.notes import Grade, Note
from pdctl.adopt.service import Service, Setting
from pdctl.errors import ConfigError
from pdctl.fleet.command import Served, peers, served
from pdctl.fleet.secret import is_secret, secret_words

GPUS = "CUDA_VISIBLE_DEVICES"
_DEVICES = re.compile(r"(?:0|[1-9]\d*)(?:,(?:0|[1-9]\d*))*")
_ANY = ("", "0.0.0.0", "::", "localhost")


@dataclass(frozen=True)
class Found:
    """A service, the host it was found on, and the source as the operator called it."""

    service: Service
    host: str
    source: str


@dataclass(frozen=True)
class Address:
    """Where a host is reached; `sure` when the operator said it of peers and not only of SSH."""

    text: str
    sure: bool


@dataclass(frozen=True)
class UnitDraft:
    """One engine or router to be written. `env` is without what `gpus` and `secrets` hold."""

    name: str
    role: str
    host: str
    served: Served
    command: list[str]
    env: dict[str, Setting]
    secrets: dict[str, str]
    cwd: str | None
    numa: int | None
    gpus: list[int] | None
    where: str


@dataclass(frozen=True)
class Share:
    """A variable as the profile holds it."""

    value: str
    side: str
    wheres: tuple[str, ...]


@dataclass
class Draft:
    """`shared` goes into the profile, `own` (unit -> variable) into the fleet file."""

    units: list[UnitDraft]
    addresses: dict[str, str]
    notes: list[Note] = field(default_factory=list)
    shared: dict[str, Share] = field(default_factory=dict)
    own: dict[str, dict[str, Setting]] = field(default_factory=dict)

    @property
    def engines(self) -> list[UnitDraft]:
        return [u for u in self.units if u.role != "router"]

    @property
    def router(self) -> UnitDraft | None:
        return next((u for u in self.units if u.role == "router"), None)


def assemble(found: Sequence[Found], role: str | None, places: Mapping[str, Address]) -> Draft:
    """`places` are where hosts are reached, as far as known. ConfigError when the services make no fleet."""
    notes: list[Note] = []
    units: list[UnitDraft] = []
    for one in found:
        told = served(one.service.texts)
        if told is None:
            raise ConfigError(
                "no_engine", f"{one.service.where} starts no engine or router that pdctl knows."
            )
        plays = _role(one, told, role, notes)
        number = sum(u.role == plays for u in units)
        name = "router" if plays == "router" else f"{'engine' if plays == 'both' else plays}-{number}"
        units.append(_unit(one, told, plays, name, notes))
    draft = Draft(units, {}, notes)
    if not draft.engines:
        raise ConfigError("no_engine", "There is a router and no engine.", "Name the engines' sources too.")
    if sum(u.role == "router" for u in units) > 1:
        raise ConfigError("two_routers", "A fleet has one router, and these sources start more than one.")
    _one_model(draft)
    draft.addresses = _addresses(draft, places)
    _share(draft)
    return draft


def _role(one: Found, told: Served, role: str | None, notes: list[Note]) -> str:
    """What the flags say, else what the operator says, else what the source is called."""
    if told.role is not None:
        if role is not None and told.role not in (role, "router"):
            where = one.service.where
            raise ConfigError("bad_role", f"{where} starts a {told.role}; --role says {role}.")
        return told.role
    if role is not None:
        return role
    named = [r for r in ("prefill", "decode") if r in f"{one.source} {one.service.file}".lower()]
    if len(named) != 1:
        raise ConfigError(
            "which_role",
            f"{one.service.where}: its flags do not tell whether this {told.kind} is prefill or decode.",
            "Pass --role for a single source, or give the sources names with prefill and decode in them.",
        )
    line = one.service.line
    text = f"{one.source}: {named[0]}"
    what = "the role is not in the flags and was taken from the source's name"
    notes.append(Note(one.service.file, line, line, Grade.ASSUMED, text, what, f"--role {named[0]}"))
    return named[0]


def _unit(one: Found, told: Served, role: str, name: str, notes: list[Note]) -> UnitDraft:
    service = one.service
    env = dict(service.env)
    gpus = None
    devices = str(env[GPUS].value) if GPUS in env and role != "router" else ""
    if _DEVICES.fullmatch(devices) and len(set(devices.split(","))) == len(devices.split(",")):
        gpus = [int(d) for d in devices.split(",")]
        del env[GPUS]
    for variable in [n for n in env if n.startswith("PD_")]:
        was = env.pop(variable)
        said = "is a name of the bundled engine's own, which this one does not read"
        notes.append(Note(was.file, was.line, was.line, Grade.LEFT, variable, said))
    secrets = {n: str(s.value) for n, s in env.items() if is_secret(n, str(s.value))}
    command = [str(w) for w in service.argv]
    if service.cwd is None and (relative := [w for w in command if w.startswith(("./", "../"))]):
        said = "is relative to the folder that it was started in, which is not known"
        answer = "--set PWD=FOLDER"
        notes.append(Note(service.file, service.line, service.line, Grade.ASSUMED, relative[0], said, answer))
    for at, (option, secret) in secret_words(command).items():
        reference = _reference(option, {*service.env, *secrets})
        secrets[reference] = secret
        command[at] = command[at].replace(secret, f"{{secret:{reference}}}")
    return UnitDraft(
        name=name,
        role=role,
        host=one.host,
        served=told,
        command=command,
        env={n: s for n, s in env.items() if n not in secrets},
        secrets=secrets,
        cwd=str(service.cwd) if service.cwd is not None else None,
        numa=service.numa,
        gpus=gpus,
        where=service.where,
    )


def _reference(option: str, taken: set[str]) -> str:
    name = "ARG_" + re.sub(r"[^A-Z0-9]", "_", option.lstrip("-").upper())
    while name in taken:
        name += "_"
    return name


def _one_model(draft: Draft) -> None:
    first = draft.engines[0]
    if not first.served.model:
        raise ConfigError(
            "no_model", f"{first.where}: the command names no model.", "Adopt it with --model-path."
        )
    for unit in draft.engines:
        for what, mine, its in (
            ("path", first.served.model, unit.served.model),
            ("name", first.served.name, unit.served.name),
        ):
            if mine != its:
                said = f"{first.where} has {mine}, {unit.where} has {its}"
                raise ConfigError("two_models", f"A fleet serves one model, and its {what} differs: {said}.")


def _addresses(draft: Draft, places: Mapping[str, Address]) -> dict[str, str]:
    """Host -> address: as said, else what its engines listen on, what the router calls them, SSH's name."""
    router = draft.router
    urls = peers(router.command) if router is not None else {}
    found: dict[str, str] = {}
    for host in dict.fromkeys(u.host for u in draft.units):
        mine = [u for u in draft.units if u.host == host]
        bound = {u.served.host for u in mine} - set(_ANY)
        called = {
            a
            for u in mine
            for url in urls.get(u.role, ())
            if (a := _address(url, u.served.port, draft)) is not None
        }
        choices = [c for c in (bound, called - set(_ANY)) if c]
        if choices and len(choices[0]) > 1:
            listed = ", ".join(sorted(choices[0]))
            hint = "Give them different hosts: --ssh NAME=LOGIN for each, and NAME=SOURCE."
            raise ConfigError(
                "two_addresses", f"What is on host {host} has several addresses: {listed}.", hint
            )
        place = places.get(host, Address("127.0.0.1", not choices))
        found[host] = place.text if place.sure or not choices else next(iter(choices[0]))
        if not choices and not place.sure:
            said = "how peers reach this host was taken from --ssh"
            answer = f"--ssh {place.text}=ADDRESS"
            draft.notes.append(Note(f"hosts.{host}", 0, 0, Grade.ASSUMED, place.text, said, answer))
    return found


def _address(url: str, port: int, draft: Draft) -> str | None:
    """The address of a URL that must mean the unit on `port`: no other unit of the draft listens there."""
    parts = urlsplit(url)
    same = sum(u.served.port == port for u in draft.engines) == 1
    return parts.hostname if same and parts.port == port else None


def _share(draft: Draft) -> None:
    """A variable that all of a role have alike goes to the profile with that side; others stay apart."""
    order = list(dict.fromkeys(n for u in draft.units for n in u.env))
    roles = {u.role for u in draft.engines}
    for name in order:
        holders = [u for u in draft.units if name in u.env]
        engines = [u for u in holders if u.role != "router"]
        side = _side(draft, name, engines, roles)
        if side is None and not engines:
            side = "router"
        shared = [u for u in holders if side and (u.role == "router") == (side == "router")]
        if side and shared:
            wheres = tuple(dict.fromkeys(u.env[name].where for u in shared))
            draft.shared[name] = Share(str(shared[0].env[name].value), side, wheres)
        for unit in holders:
            if unit not in shared:
                draft.own.setdefault(unit.name, {})[name] = unit.env[name]


def _side(draft: Draft, name: str, holders: list[UnitDraft], roles: set[str]) -> str | None:
    """The side whose engines, all and alone, have `name` with one value."""
    if not holders or len({str(u.env[name].value) for u in holders}) > 1:
        return None
    held = {u.role for u in holders}
    whole = [u for u in draft.engines if u.role in held]
    if len(whole) != len(holders):
        return None
    if held == roles and (len(roles) > 1 or roles == {"both"}):
        return "both"
    return next(iter(held)) if len(held) == 1 and held != {"both"} and "both" not in roles else None
