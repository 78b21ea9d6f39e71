"""Preflight of the data path: a NIXL write each way between the hosts of each edge, as engines make them."""

from __future__ import annotations

import io
import json
import secrets
import tarfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from pdctl.errors import PdctlError
from pdctl.facts.machine import Python
from pdctl.facts.missing import Missing, known
from pdctl.fleet.model import Engine
from pdctl.flows.check.edges import States, pairs
from pdctl.flows.check.hosts import HostState, Launch
from pdctl.flows.check.reach import Ways
from pdctl.flows.check.report import Line, fail, ok, skip
from pdctl.flows.context import Context
from pdctl.release.build import package_files
from pdctl.remote.fanout import begin, fan_out
from pdctl.transport.command import Command, Result

# Of the probe itself; the command gets MARGIN more, for importing torch from a cold disk.
DEADLINE = 60.0
MARGIN = 30.0
CHECK = "transfer"
OURS = ("UCX_", "NIXL_", "CUDA_")
# An engine's Python that is there before the engine: its code travels with the question and goes again.
CARRY = """
read -r word
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
tar x -C "$dir" || exit 1
python=$1; shift
printf '%s\\n' "$word" | PYTHONPATH=$dir "$python" -m engine probe "$@"
"""


@dataclass(frozen=True)
class Side:
    """One end of a probe. `launch` has no environment of its own when the code must be carried there."""

    engine: Engine
    host: HostState
    launch: Launch
    carried: bool

    @property
    def device(self) -> str:
        """A running engine has its GPU's memory; the path is then tried from the host's."""
        busy = bool(self.host.pids(self.engine.name))
        return "cuda" if self.engine.spec.device == "cuda" and not busy else "cpu"

    @property
    def env(self) -> dict[str, str]:
        """UCX as the engine's profile has it."""
        given = self.host.env[self.engine.name]
        chosen = {name: value for name, value in given.items() if name.startswith(OURS)}
        if self.engine.spec.gpus is not None:
            chosen.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
            chosen.setdefault("CUDA_VISIBLE_DEVICES", ",".join(map(str, self.engine.spec.gpus)))
        return {**self.launch.env, **chosen}

    def command(self, word: str, *argv: str) -> Command:
        words = (*argv, "--device", self.device)
        if not self.carried:
            python = self.launch.python
            return Command((python, "-m", "engine", "probe", *words), self.env, stdin=f"{word}\n".encode())
        script = ("sh", "-c", CARRY, "sh", self.launch.python, *words)
        return Command(script, self.env, stdin=f"{word}\n".encode() + _code())


def lines(ctx: Context, states: States, ways: Ways, deadline: float = DEADLINE) -> Iterator[Line]:
    """One line for each pair of hosts and UCX settings that an edge has; `deadline` seconds for each."""
    wanted: dict[tuple[str, ...], tuple[Engine, Engine]] = {}
    for prefill, decode in pairs(ctx.fleet, states):
        reached = ways.path(decode.host, prefill.host)
        if known(reached) and not reached.ok:
            why = f"not tried: {decode.host} does not reach {prefill.host} ({reached.error})"
            yield skip(f"{prefill.name} -> {decode.name}", CHECK, why, _wanted(deadline))
            continue
        sides = [_side(states[e.host], e) for e in (prefill, decode)]
        key = tuple(
            str(s if isinstance(s, Missing) else (s.host.name, s.launch.python, s.env)) for s in sides
        )
        wanted.setdefault(key, (prefill, decode))
    # A host takes part in one at a time, so that no probe measures another.
    locks = {name: threading.Lock() for name in states}
    edges = {f"{p.name} -> {d.name}": (p, d) for p, d in wanted.values()}
    found = fan_out(edges, lambda subject: _edge(ctx, states, locks, deadline, edges[subject]))
    for subject, line in found.items():
        yield _failed(subject, line.message, deadline) if isinstance(line, PdctlError) else line


def _side(state: HostState, engine: Engine) -> Side | Missing:
    if engine.kind != "bundled":
        return Missing(f"{engine.name} is of kind {engine.kind}, which has no probe")
    launch = state.launches.get(engine.name)
    if launch is not None:
        return Side(engine, state, launch, carried=False)
    if state.host.runtime != "existing":
        return Missing(f"nothing is installed on {engine.host} yet; `pdctl deploy` tries it")
    python = state.pythons.get(state.host.tool_python)
    if isinstance(python, Python) and python.lacking:
        return Missing(f"{python.path} on {engine.host} lacks {', '.join(python.lacking)}")
    return Side(engine, state, Launch(state.host.tool_python, {}), carried=True)


def _edge(
    ctx: Context,
    states: States,
    locks: Mapping[str, threading.Lock],
    deadline: float,
    edge: tuple[Engine, Engine],
) -> Line:
    prefill, decode = edge
    subject = f"{prefill.name} -> {decode.name}"
    ear, dial = _side(states[prefill.host], prefill), _side(states[decode.host], decode)
    wanted = _wanted(deadline)
    for side in (ear, dial):
        if isinstance(side, Missing):
            return skip(subject, CHECK, side, wanted)
    if isinstance(ear, Missing) or isinstance(dial, Missing) or len(ear.host.spare) < 2:
        return skip(subject, CHECK, f"not known: {prefill.host} has no free port to listen on", wanted)
    with ExitStack() as held:
        for host in sorted({ear.host.name, dial.host.name}):
            held.enter_context(locks[host])
        ctx.wait(f"NIXL between {prefill.host} and {decode.host}")
        return _judge(subject, ear, dial, _both(ctx, ear, dial, deadline), deadline)


def _both(ctx: Context, ear: Side, dial: Side, deadline: float) -> list[Result | PdctlError]:
    """What the listening and the dialing end said."""
    word = secrets.token_hex(16)
    where = f"{ear.engine.address}:{ear.host.spare[1]}"
    more = ("--deadline", f"{deadline:g}")
    commands = {
        ear.host.name: ear.command(word, "--listen", where, *more),
        f"{dial.host.name} dials": dial.command(word, "--dial", where, *more),
    }
    limit = deadline + MARGIN
    listening = begin(partial(_run, ctx, ear.host.name, commands[ear.host.name], limit))
    dialed = _run(ctx, dial.host.name, commands[f"{dial.host.name} dials"], limit)
    return [listening.result(limit + MARGIN), dialed]


def _run(ctx: Context, host: str, command: Command, deadline: float) -> Result | PdctlError:
    try:
        return ctx.transport(host).run(command, deadline)
    except PdctlError as error:
        return error


def _judge(subject: str, ear: Side, dial: Side, results: list[Result | PdctlError], deadline: float) -> Line:
    said = [_said(result) for result in results]
    problems = [
        f"{side.host.name}: {problem.rstrip('.')}"
        for side, found in zip((ear, dial), said, strict=True)
        if (problem := found if isinstance(found, str) else str(found["error"]))
    ]
    if problems:
        return _failed(subject, "; ".join(dict.fromkeys(problems)), deadline)
    document = said[1]
    if isinstance(document, str):
        return _failed(subject, document, deadline)
    back, out = document["back"], document["out"]
    where = f"{ear.host.name} -> {dial.host.name}"
    memory = " and ".join(sorted({side.device for side in (ear, dial)}))
    found = f"{back['gb_s']:.2f} GB/s {where}, {out['gb_s']:.2f} GB/s back, {memory} memory, every byte right"
    return ok(subject, CHECK, found, _wanted(deadline))


def _said(result: Result | PdctlError) -> dict[str, Any] | str:
    """The probe's document, with what UCX itself said where it failed; or why there is none."""
    if isinstance(result, PdctlError):
        return result.message
    if result.timed_out:
        return "the probe did not end in time"
    *noise, last = result.text.splitlines() or [""]
    try:
        found: dict[str, Any] = json.loads(last)
    except ValueError:
        return (result.tail(1) or [f"the probe ended with exit code {result.rc} and said nothing"])[0]
    errors = [line.partition("ERROR")[2].strip() for line in noise if "UCX" in line and "ERROR" in line]
    if found["error"] and errors:
        found["error"] = f"{found['error'].rstrip('.')}; UCX: {errors[-1]}"
    return found


def _wanted(deadline: float) -> str:
    return f"NIXL writes each way within {deadline:g} s"


def _failed(subject: str, found: str, deadline: float) -> Line:
    fix = "compare UCX_NET_DEVICES and UCX_TLS of both sides; UCX needs every TCP port open between the hosts"
    return fail(subject, CHECK, found, _wanted(deadline), fix)


def _code() -> bytes:
    """The engine's own files as a tar."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in package_files().items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o644
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()
