"""The fleet file's engines and routers as servers that are asked."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from pdctl.adapters.endpoints import Server
from pdctl.bundle.manifest import Declared, FleetPage
from pdctl.diagnose.facts import Suppression
from pdctl.errors import PdctlError
from pdctl.facts.missing import Missing
from pdctl.facts.probes.process import OURS
from pdctl.facts.process import shown
from pdctl.fleet.command import Flags
from pdctl.fleet.model import Engine, Fleet, Router
from pdctl.fleet.place import place
from pdctl.fleet.profile import engine_env
from pdctl.flows.foreign import is_foreign


def server(unit: Engine | Router) -> Server:
    command = Flags(tuple(unit.spec.command or ()))
    port = command.number(0, "--prometheus-port")
    return Server(
        name=unit.name,
        kind=unit.kind,
        role=unit.role,
        url=unit.url,
        bootstrap=unit.bootstrap if isinstance(unit, Engine) else None,
        metrics_port=port or None,
    )


def page(fleet: Fleet) -> FleetPage:
    """What the fleet file declares, without secrets."""
    router = () if fleet.router.kind == "none" else (fleet.router,)
    members = tuple(
        Declared(
            server(unit),
            unit.cell if isinstance(unit, Engine) else "",
            unit.host,
            _expected(fleet, unit),
            _places(fleet, unit),
        )
        for unit in (*fleet.engines(), *router)
    )
    hosts = {h.name: h.address for h in fleet.hosts.values()}
    return FleetPage(fleet.name, fleet.drill, hosts, members, tuple(_suppressions(fleet)))


def _suppressions(fleet: Fleet) -> Iterator[Suppression]:
    """In force until the end of their day."""
    for each in fleet.spec.suppress:
        end = datetime.combine(each.until, datetime.max.time(), UTC).timestamp()
        yield Suppression(each.code, each.subject, each.reason, round(end, 3))


def _places(fleet: Fleet, unit: Engine | Router) -> dict[str, str]:
    """Variable -> FILE:LINE, "" -> the unit's own; from the fleet file's folder where it is in there."""
    try:
        found = {name: value.place for name, value in engine_env(fleet, unit).items() if not value.secret}
    except PdctlError:
        found = {}
    inside = f"{fleet.dir}/"
    return {name: at.removeprefix(inside) for name, at in {**found, "": place(fleet, *unit.keys)}.items()}


def _expected(fleet: Fleet, unit: Engine | Router) -> dict[str, str] | Missing:
    """What `unit` is given of the variables that are read from a process; PD_* only where it gets them."""
    try:
        given = {name: value.value for name, value in engine_env(fleet, unit).items()}
    except PdctlError as error:
        said = " ".join([error.message, *error.details, error.hint]).strip()
        return Missing(said.replace(f"{fleet.dir}/", ""))
    read = {name: text for name, text in given.items() if name.startswith(OURS)}
    return shown({n: t for n, t in read.items() if not (is_foreign(unit) and n.startswith("PD_"))})
