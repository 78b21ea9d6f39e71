"""Put a proven value into the profile and into the running fleet, read it back, keep the evidence."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pdctl.errors import PdctlError
from pdctl.exits import Exit
from pdctl.fleet.catalogue import known
from pdctl.fleet.chain import INFLIGHT
from pdctl.fleet.edit import now, set_value, set_values, set_verified
from pdctl.fleet.model import Engine, Fleet, Router
from pdctl.fleet.profile import load_profile
from pdctl.fleet.schema import Verified
from pdctl.flows import admin
from pdctl.flows.context import Context
from pdctl.flows.recovery.envs import change_env, read_env
from pdctl.flows.recovery.record import Record, forget, write
from pdctl.flows.recovery.restore import restore
from pdctl.flows.recovery.timeouts import add_live, set_live
from pdctl.flows.tune.proof import Proof


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


def taken(fleet: Fleet, unit: Engine | Router, profile: str, wanted: Mapping[str, float]) -> dict[str, float]:
    """Those of `wanted` that `unit` reads and that reach it when `profile` says them."""
    own = load_profile(fleet.paths.profiles, unit.profile)
    if unit.kind != "bundled" or profile not in own.chain:
        return {}
    upto = own.chain[: own.chain.index(profile)]
    return {
        env: value
        for env, value in wanted.items()
        if known()[env].read_by(unit.role)
        and env not in unit.env
        and not (env in own.values and own.values[env].profile in upto)
    }


def apply(ctx: Context, wanted: Mapping[str, float], reasons: Mapping[str, str]) -> list[Change]:
    """Profile, env files on the hosts, then live, then read back: what restarts later comes back with them.

    The recovery record holds the old state until all of it is done. DeadlineError when a value does not read
    back, another PdctlError when a host or an engine refuses; everything is as before then.
    """
    fleet = ctx.fleet
    name = profile_name(fleet)
    current = load_profile(fleet.paths.profiles, name).numbers()
    edit = set_values(
        fleet.paths.profiles, name, {e: (f"{v:g}", reasons[e]) for e, v in wanted.items()}, by()
    )
    found = [(unit, taken(fleet, unit, name, wanted)) for unit in fleet.units()]
    mine = [(unit, values) for unit, values in found if values]
    record = Record(files={str(edit.path): (edit.before, edit.after)})
    for unit, values in mine:
        add_live(ctx, record, unit.name, _names(values))
        _add_env(ctx, record, unit, values)
    write(fleet, record)
    try:
        edit.apply()
        for unit, values in mine:
            change_env(ctx, unit, {env: f"{value:g}" for env, value in values.items()})
            set_live(ctx, unit.name, _names(values))
    except BaseException:
        restore(ctx)
        raise
    forget(fleet)
    return [Change(env, current[env], seconds) for env, seconds in wanted.items()]


def _add_env(ctx: Context, record: Record, unit: Engine | Router, values: Mapping[str, float]) -> None:
    seen = read_env(ctx, unit)
    if seen is not None:
        record.envs[unit.name] = {env: (seen.get(env), f"{value:g}") for env, value in values.items()}


def _names(values: Mapping[str, float]) -> dict[str, float]:
    return {known()[env].name: value for env, value in values.items()}


def not_in_force(ctx: Context, profile: str, value: float) -> str:
    """Which prefills of `profile` do not run with its inflight `value`; "" when it is in force everywhere."""
    fleet, name = ctx.fleet, known()[INFLIGHT].name
    prefills = [e for e in fleet.engines() if (e.role, e.kind) == ("prefill", "bundled")]
    mine = [e for e in prefills if profile in _chain(fleet, e)]
    running = {e.name: admin.timeouts(ctx, e.url)[name] for e in mine}
    other = [f"{engine} runs with {seconds:g} s" for engine, seconds in running.items() if seconds != value]
    return f"profile {profile} says {INFLIGHT}={value:g}, and {', '.join(other)}" if other else ""


def _chain(fleet: Fleet, engine: Engine) -> tuple[str, ...]:
    return load_profile(fleet.paths.profiles, engine.profile).chain


def need_in_force(ctx: Context, profile: str, value: float) -> None:
    """PdctlError when a drill now would vouch for a value that the engines do not run with."""
    if why := not_in_force(ctx, profile, value):
        raise PdctlError(
            "not_in_force",
            f"There is nothing to verify: {why}.",
            "Run `pdctl deploy` first: what is in force is what can be seen to fire.",
            exit=Exit.FINDINGS,
        )


def vouch(ctx: Context, proofs: Sequence[Proof], evidence: str, value: float) -> str:
    """Write into the profile that its inflight `value` was seen to fire on the prefills of `proofs`, if it is
    still what all run with. What it took to fire is of the first of them.

    Why that was not done, "" when it was.
    """
    fleet = ctx.fleet
    name = profile_name(fleet)
    profile = load_profile(fleet.paths.profiles, name)
    if (present := profile.numbers()[INFLIGHT]) != value:
        return f"profile {name} was changed to {INFLIGHT}={present:g} meanwhile"
    if why := not_in_force(ctx, name, value):
        return why
    stated = profile.values.get(INFLIGHT)
    text = stated.value if stated else f"{known()[INFLIGHT].default:g}"
    if stated is None:
        set_value(fleet.paths.profiles, name, INFLIGHT, text, known()[INFLIGHT].does, by())
    proof = proofs[0]
    record = Verified(
        value=text,
        fleet=fleet.name,
        units=[p.prefill for p in proofs],
        at=now(),
        by=by(),
        fired_after_s=round(proof.fired_after, 3) if proof.fired_after is not None else None,
        test_value_s=proof.test_value,
        evidence=evidence,
    )
    set_verified(fleet.paths.profiles, name, INFLIGHT, record)
    return ""
