"""A fleet of fake engines with two profiles that differ in twenty values, and checks that read what runs."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pdctl.errors import PdctlError
from pdctl.flows import admin
from pdctl.flows.bisect.checks import Checked
from pdctl.flows.bisect.recovery import Refused
from pdctl.flows.bisect.report import BisectReport
from pdctl.flows.bisect.run import Options, run
from pdctl.flows.bisect.search import START, Verdict
from pdctl.flows.changing import changing
from pdctl.flows.context import Context
from pdctl.remote.journal import Call
from pdctl.units.envfile import parse_env
from tests.pdctl.flows.conftest import Bench

# What the fake engines say of themselves: five that are set live, by the names that engines give them.
LIVE = {
    "PD_PREFILL_INFLIGHT_TIMEOUT": ("prefill", "140"),
    "PD_DECODE_PREALLOC_TIMEOUT": ("decode", "110"),
    "PD_DECODE_TRANSFER_TIMEOUT": ("decode", "111"),
    "PD_ROUTER_IDLE_TIMEOUT": ("router", "170"),
    "PD_QUEUE_TIMEOUT": ("both", "320"),
}
# Read at a start by engines that pdctl's catalogue does not know.
FIXED = {f"KNOB_{n:02}": ("prefill" if n % 2 else "both", "1") for n in range(15)}
VALUES = {**LIVE, **FIXED}
# Enough for what is not about how many there are.
FEW = (*list(LIVE)[2:], *list(FIXED)[:3])


def write_noon(folder: Path, values: Iterable[str] = VALUES, **other: str) -> None:
    """The profile `noon`: default with `values` as VALUES has them, `other` instead of some."""
    text = 'schema = 1\nname = "noon"\nextends = "default"\n'
    for env, (side, value) in ((env, VALUES[env]) for env in values):
        text += f'[values.{env}]\nvalue = "{other.get(env, value)}"\nside = "{side}"\nreason = "noon"\n'
    (folder / "noon.toml").write_text(text)


def in_force(bench: Bench) -> dict[str, dict[str, str]]:
    """Unit -> what its process has of VALUES, as it says."""
    ctx = bench.context()
    found = {}
    for unit in ctx.fleet.units():
        state = admin.get(ctx, unit.url, "/v1/state")
        timeouts = state["timeouts"].values()
        found[unit.name] = {t["env"]: f"{t['value']:g}" for t in timeouts if t["env"] in LIVE} | state[
            "knobs"
        ]
    return found


def installed(bench: Bench) -> dict[str, dict[str, str]]:
    return {f.stem: parse_env(f.read_text()) for f in sorted((bench.root() / "env").glob("*.env"))}


@dataclass
class Fails:
    """A check that fails at `rate` where every one of `envs` has the value that noon gives it, somewhere."""

    bench: Bench
    envs: tuple[str, ...]
    rate: float = 1.0
    draw: random.Random = field(default_factory=lambda: random.Random(1))
    runs: int = 0
    words: str = "a test's"

    def run(self, ctx: Context) -> Checked:
        self.runs += 1
        running = in_force(self.bench).values()
        has = [any(unit.get(env) == VALUES[env][1] for unit in running) for env in self.envs]
        bad = all(has) and self.draw.random() < self.rate
        return Checked(Verdict.BAD if bad else Verdict.GOOD, f"run {self.runs}")


def starter(bench: Bench) -> Callable[[Context, str], Refused | None]:
    """In place of the co-restart; a fake engine that does not start is what the real one would refuse at."""

    def restart(ctx: Context, group: str) -> Refused | None:
        try:
            bench.restart(ctx, group)
        except PdctlError as error:
            return Refused(START, error.message)
        return None

    return restart


def bisect(
    bench: Bench,
    check: Fails,
    options: Options | None = None,
    planned: Callable[[BisectReport], None] = lambda report: None,
) -> BisectReport:
    ctx = bench.context()
    with changing(ctx, Call("profile bisect default noon")):
        return run(ctx, "default", "noon", lambda state: check, options or Options(), starter(bench), planned)
