"""From the fleet file to what must lie on a host: argv, env file and unit of every engine and router."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pdctl.errors import ConfigError
from pdctl.fleet.catalogue import known
from pdctl.fleet.model import Cell, Engine, Fleet, HostPaths, Router
from pdctl.fleet.profile import Value, engine_env
from pdctl.fleet.tokens import read_drill_token, read_token
from pdctl.flows.foreign import launch
from pdctl.release.build import Release
from pdctl.units.envfile import render_env
from pdctl.units.spec import UnitSpec

# Engines feed the watchdog several times a second while their state is fresh.
WATCHDOG_MIN = 30.0
# Above the engine's own deadlines, so that it ends by its own word and not by ours.
START_MARGIN = 30.0
STOP_MARGIN = 15.0
VISIBLE = "CUDA_VISIBLE_DEVICES"
# In a unit's environment: the id of the release that it runs from.
RELEASE = "PDCTL_RELEASE"


@dataclass(frozen=True)
class DesiredUnit:
    """`env` is the whole env file; `timeouts` are the live PD_* values among it, as numbers.

    `release` is the id of the release it runs from, "" for an engine that brings its own. `secret` are the
    names of `env` whose values are not shown.
    """

    unit: Engine | Router
    spec: UnitSpec
    env: dict[str, str]
    timeouts: dict[str, float]
    release: str = ""
    secret: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        return self.unit.name

    @property
    def host(self) -> str:
        return self.unit.host

    def env_text(self) -> str:
        return render_env(self.env)


def desired_unit(fleet: Fleet, unit: Engine | Router, release: Release | None) -> DesiredUnit:
    """`release` is what bundled engines and routers run from; others bring their own command."""
    if release is None or unit.kind != "bundled":
        return _foreign_unit(fleet, unit)
    paths = fleet.host_paths(unit.host)
    values = engine_env(fleet, unit)
    env = {name: value.value for name, value in values.items()}
    tokens = token_files(fleet, paths)
    env = {**_gpus(unit, values), **env, **{name: path for name, (path, _) in tokens.items()}}
    timeouts = {e: float(v) for e, v in env.items() if e in known() and known()[e].live}
    # Paths follow from what is in the release, so that settings alone change no path.
    home = paths.tree(release.tree)
    argv = engine_argv(fleet, unit) if isinstance(unit, Engine) else router_argv(fleet, unit)
    spec = replace(
        _spec(fleet, unit, (release.interpreter(paths.root), "-m", "engine", *argv)),
        cwd=home,
        env={"PYTHONPATH": home, "PYTHONUNBUFFERED": "1", RELEASE: release.id},
        start_timeout=_seconds(values, "PD_START_TIMEOUT") + START_MARGIN,
        stop_timeout=_seconds(values, "PD_DRAIN_TIMEOUT") + STOP_MARGIN,
        watchdog=max(WATCHDOG_MIN, 1.5 * _seconds(values, "PD_RANK_TIMEOUT")),
    )
    secrets = {name: hashlib.sha256(data).hexdigest() for name, (_, data) in tokens.items()}
    fixed = {e: v for e, v in env.items() if e not in timeouts}
    inputs = _digest([spec.argv, spec.cwd, spec.env, spec.numa, fixed, secrets, release.id])
    secret = frozenset(n for n, v in values.items() if v.secret)
    return DesiredUnit(unit, replace(spec, inputs=inputs), env, timeouts, release.id, secret)


def _foreign_unit(fleet: Fleet, unit: Engine | Router) -> DesiredUnit:
    """An engine of another kind: its own command line and environment, nothing of pdctl's in them."""
    values = engine_env(fleet, unit)
    env = {**_gpus(unit, values), **{n: v.value for n, v in values.items() if not n.startswith("PD_")}}
    spec = replace(_spec(fleet, unit, launch(unit.spec.command or [])), notify=False)
    spec = replace(spec, cwd=unit.spec.cwd or spec.cwd)
    inputs = _digest([spec.argv, spec.cwd, spec.numa, env])
    secret = frozenset(n for n, v in values.items() if v.secret)
    return DesiredUnit(unit, replace(spec, inputs=inputs), env, {}, secret=secret)


def _spec(fleet: Fleet, unit: Engine | Router, argv: tuple[str, ...]) -> UnitSpec:
    """What is said of every unit alike."""
    paths = fleet.host_paths(unit.host)
    return UnitSpec(
        name=unit.name,
        argv=argv,
        env_file=paths.env(unit.name),
        cwd=paths.root,
        log=paths.log(unit.name),
        run=paths.run(unit.name),
        role=unit.role,
        fleet=fleet.name,
        cell=unit.cell if isinstance(unit, Engine) else "",
        numa=unit.spec.numa,
    )


def _gpus(unit: Engine | Router, values: Mapping[str, Value]) -> dict[str, str]:
    """The devices that the fleet file gives an engine, counted as nvidia-smi counts them.

    ConfigError when its profile names devices too.
    """
    gpus = unit.spec.gpus if isinstance(unit, Engine) else None
    if gpus is None:
        return {}
    if VISIBLE in values:
        what = f"{values[VISIBLE].origin}: {VISIBLE} says what `gpus` of {unit.name} says."
        raise ConfigError("two_gpus", what, "Keep one of the two.")
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", VISIBLE: ",".join(map(str, gpus))}


def token_files(fleet: Fleet, paths: HostPaths) -> dict[str, tuple[str, bytes]]:
    """Environment name -> (path on the host, content) of the token files an engine reads."""
    files = {"PD_FLEET_TOKEN_FILE": (f"{paths.root}/env/fleet-token", read_token(fleet).encode())}
    if fleet.drill:
        files["PD_DRILL_TOKEN_FILE"] = (f"{paths.root}/env/drill-token", read_drill_token(fleet).encode())
    return files


def engine_argv(fleet: Fleet, engine: Engine) -> list[str]:
    """Arguments of `python -m engine`: where it stands and what it serves, then what its table gives."""
    argv = ["serve", "--instance", engine.name, "--role", engine.role, "--model", fleet.model.path]
    argv += ["--served-model-name", fleet.model.name, "--cell", engine.cell]
    argv += ["--host", engine.address, "--port", str(engine.port), "--advertise", engine.address]
    if engine.bootstrap_port is not None:
        argv += ["--bootstrap-port", str(engine.bootstrap_port)]
    if engine.role == "decode":
        for prefill in _cell_of(fleet, engine).prefills:
            argv += ["--peer", f"{prefill.name}={prefill.bootstrap}"]
    for flag, value in engine.arguments.items():
        argv += [flag] if value == "true" else [flag, value]
    return argv


def router_argv(fleet: Fleet, router: Router) -> list[str]:
    argv = ["router", "--instance", router.name, "--host", router.address, "--port", str(router.port)]
    argv += ["--served-model-name", fleet.model.name]
    for engine in fleet.engines():
        if engine.role == "prefill":
            argv += ["--prefill", f"{engine.name}={engine.url},{engine.bootstrap},{engine.cell}"]
        elif engine.role == "decode":
            argv += ["--decode", f"{engine.name}={engine.url},{engine.cell}"]
    return argv


def _cell_of(fleet: Fleet, engine: Engine) -> Cell:
    return fleet.cells[engine.cell]


def _seconds(values: Mapping[str, Value], env: str) -> float:
    """The value in force, or the engine's default where the profile is silent."""
    variable = known().get(env)
    default = variable.default if variable else 0.0
    return float(values[env].value) if env in values else default


def _digest(parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
