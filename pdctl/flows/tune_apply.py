"""Put a proven value into the profile and into the running fleet, read it back, keep the evidence."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from pdctl.fleet.catalogue import known
from pdctl.fleet.chain import IDLE, INFLIGHT, PREALLOC, TOTAL, TRANSFER
from pdctl.fleet.edit import now, set_value, set_verified
from pdctl.fleet.model import Fleet
from pdctl.fleet.profile import load_profile
from pdctl.fleet.schema import Verified
from pdctl.flows import admin, tune_recovery
from pdctl.flows.context import Context
from pdctl.flows.tune_drill import Proof

_INNER_FIRST = (TRANSFER, PREALLOC, INFLIGHT, IDLE, TOTAL)


@dataclass(frozen=True)
class Change:
    env: str
    old: float
    new: float


def by() -> str:
    return f"{getpass.getuser()}@{socket.gethostname()}"


def profile_name(fleet: Fleet) -> str:
    """The profile the prefills run with: where their watchdog's value stands."""
    return next((e.profile for e in fleet.engines() if e.role == "prefill"), fleet.spec.fleet.profile)


def in_order(changes: Mapping[str, float], lower: bool) -> list[str]:
    """The order in which every single step keeps the chain valid."""
    order = _INNER_FIRST if lower else tuple(reversed(_INNER_FIRST))
    return [env for env in order if env in changes]


def apply(ctx: Context, wanted: Mapping[str, float], reason: str) -> list[Change]:
    """Profile, then live, then read back. The recovery record holds the old state until all of it is done.

    DeadlineError when a value does not read back; everything is as before then.
    """
    fleet = ctx.fleet
    name = profile_name(fleet)
    current = load_profile(fleet.paths.profiles, name).numbers()
    tune_recovery.write(fleet, _record(ctx, wanted, name))
    try:
        lower = wanted.get(INFLIGHT, current[INFLIGHT]) < current[INFLIGHT]
        for env in in_order(wanted, lower):
            set_value(fleet.paths.profiles, name, env, f"{wanted[env]:g}", reason, by())
        _live(ctx, wanted)
    except BaseException:
        tune_recovery.restore(ctx)
        raise
    tune_recovery.forget(fleet)
    return [Change(env, current[env], seconds) for env, seconds in wanted.items()]


def _record(ctx: Context, wanted: Mapping[str, float], profile: str) -> tune_recovery.Record:
    fleet = ctx.fleet
    record = tune_recovery.Record()
    for unit in fleet.units():
        values = admin.state(ctx, unit.url).get("timeouts", {})
        names = [known()[env].name for env in wanted if known()[env].read_by(unit.role)]
        record.timeouts[unit.name] = {n: float(values[n]["value"]) for n in names if n in values}
    file = fleet.paths.profiles / f"{profile}.toml"
    record.files[str(file)] = file.read_text(encoding="utf-8")
    return record


def _live(ctx: Context, wanted: Mapping[str, float]) -> None:
    for unit in ctx.fleet.units():
        mine = {known()[e].name: v for e, v in wanted.items() if known()[e].read_by(unit.role)}
        if mine:
            tune_recovery.set_live(ctx, unit.name, mine)


def vouch(fleet: Fleet, proof: Proof, evidence: str) -> None:
    """Write into the profile that its present inflight value's watchdog was seen to fire."""
    name = profile_name(fleet)
    value = load_profile(fleet.paths.profiles, name).values.get(INFLIGHT)
    text = value.value if value else f"{known()[INFLIGHT].default:g}"
    if value is None:
        reason = known()[INFLIGHT].reason
        set_value(fleet.paths.profiles, name, INFLIGHT, text, reason, by())
    record = Verified(
        value=text,
        at=now(),
        by=by(),
        fired_after_s=round(proof.fired_after, 3) if proof.fired_after is not None else None,
        test_value_s=proof.test_value,
        evidence=evidence,
    )
    set_verified(fleet.paths.profiles, name, INFLIGHT, record)
