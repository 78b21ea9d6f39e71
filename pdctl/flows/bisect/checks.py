"""What a mix is judged by: the load harness, equal tokens, or any command."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from pdctl.errors import ConfigError, PdctlError
from pdctl.fleet.model import Engine
from pdctl.flows.bisect.search import Verdict
from pdctl.flows.context import Context
from pdctl.flows.edge_canary import once
from pdctl.flows.foreign import authorization, completion, knows_edges
from pdctl.flows.http import call, error_of
from pdctl.flows.load.plan import Shape
from pdctl.flows.load.run import drive
from pdctl.transport.command import Command
from pdctl.transport.local import LocalTransport

# Exit codes of --check-command: cannot tell (as in git bisect), and a shell that could not run it at all.
CANNOT_TELL = 125
NOT_RUN = (126, 127)
# Every run of the load is the same one.
SEED = 1


@dataclass(frozen=True)
class Checked:
    verdict: Verdict
    detail: str


class Check(Protocol):
    """`words` name it, and with what it was asked: a bisect goes on only with the same."""

    words: str

    def run(self, ctx: Context) -> Checked: ...


class LoadCheck:
    """Good when every request of the load succeeded."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        sizes = (
            f"{shape.rounds} rounds, {shape.seconds:g} s, {shape.tokens} tokens, {shape.context} of context"
        )
        self.words = f"load: {shape.agents} agents, {sizes}"

    def run(self, ctx: Context) -> Checked:
        report = asyncio.run(drive(ctx, self._shape, seed=SEED))
        sent = len(report.shots)
        if not sent:
            return Checked(Verdict.UNKNOWN, "no request was sent")
        if report.ok:
            return Checked(Verdict.GOOD, f"{sent} requests succeeded")
        codes = ", ".join(f"{code} ({times})" for code, times in report.codes.most_common())
        return Checked(Verdict.BAD, f"{sum(report.codes.values())} of {sent} requests failed: {codes}")


_SHORT = (
    "The capital of France is",
    "Count from one to ten: one, two,",
    "A haiku about the sea:",
)
_LINE = "Entry {n}: unit {n} reported {m} requests and no errors during the shift.\n"
# A line of that text has about this many tokens in common vocabularies.
_LINE_TOKENS = 18


def prompts(context: int) -> dict[str, str]:
    """Name -> prompt: three short ones, and two of about a half and the whole of `context` tokens."""
    made = {f"short-{n}": text for n, text in enumerate(_SHORT)}
    for tokens in (context // 2, context):
        lines = "".join(_LINE.format(n=n, m=n * 37 % 101) for n in range(max(1, tokens // _LINE_TOKENS)))
        made[f"long-{tokens}"] = f"{lines}The unit of entry 1 is called unit"
    return made


class TokenCheck:
    """Good when every greedy answer over every edge is the one that was recorded under GOOD.

    `answers` is that record, filled by the first run and kept with the bisect. Where pdctl cannot send over
    an edge itself the router is asked.
    """

    def __init__(self, answers: dict[str, str], context: int, tokens: int, deadline: float) -> None:
        self._answers, self._tokens, self._deadline = answers, tokens, deadline
        self._prompts = prompts(context)
        self.words = f"tokens: {len(self._prompts)} prompts up to {context} tokens, {tokens} tokens each"

    def run(self, ctx: Context) -> Checked:
        seen: dict[str, str] = {}
        for name, send in self._asks(ctx):
            text, problem = send()
            if problem:
                return Checked(Verdict.BAD, f"{name}: {problem}")
            seen[name] = text
        if not seen:
            return Checked(Verdict.UNKNOWN, "there is no edge to ask over")
        if not self._answers:
            self._answers.update(seen)
            return Checked(Verdict.GOOD, f"{len(seen)} answers recorded")
        other = [name for name, text in seen.items() if text != self._answers.get(name)]
        if other:
            first = other[0]
            said = f"{first} was {self._answers.get(first, '')[:40]!r}, now {seen[first][:40]!r}"
            return Checked(Verdict.BAD, f"{len(other)} of {len(seen)} answers differ: {said}")
        return Checked(Verdict.GOOD, f"{len(seen)} answers as recorded")

    def _asks(self, ctx: Context) -> Iterator[tuple[str, Callable[[], tuple[str, str]]]]:
        edges = [(p, d) for p, d in ctx.fleet.edges() if knows_edges(p, d)]
        for name, prompt in self._prompts.items():
            for prefill, decode in edges:
                where = f"{prefill.name} -> {decode.name}, {name}"
                yield where, lambda p=prefill, d=decode, t=prompt: self._over(ctx, p, d, t)  # type: ignore[misc]
            if not edges:
                yield f"router, {name}", lambda t=prompt: self._routed(ctx, t)  # type: ignore[misc]

    def _over(self, ctx: Context, prefill: Engine, decode: Engine, prompt: str) -> tuple[str, str]:
        return once(ctx, prefill, decode, prompt, self._deadline, self._tokens)

    def _routed(self, ctx: Context, prompt: str) -> tuple[str, str]:
        router = ctx.fleet.router
        body = completion(ctx.fleet.model.name, prompt, self._tokens)
        headers = authorization(ctx, [router, *ctx.fleet.engines()])
        try:
            status, answer = call(ctx, "POST", f"{router.url}/v1/completions", self._deadline, body, headers)
        except PdctlError as error:
            return "", error.message
        choices = answer.get("choices") or [{}]
        return str(choices[0].get("text") or ""), "" if status == 200 else error_of(answer)


class CommandCheck:
    """A command of the operator's, on this machine: exit 0 is good, 125 cannot tell, anything else bad, and
    so is one that does not end in `deadline` seconds. ConfigError when the shell cannot run it at all.

    It gets PDCTL_FLEET (the fleet file), PDCTL_ROUTER (its URL), PDCTL_MODEL and PDCTL_RUN in its
    environment.
    """

    def __init__(self, command: str, deadline: float) -> None:
        self._command, self._deadline = command, deadline
        self.words = f"command: {command}"

    def run(self, ctx: Context) -> Checked:
        fleet = ctx.fleet
        env = {
            "PDCTL_FLEET": str(fleet.path),
            "PDCTL_ROUTER": fleet.router.url,
            "PDCTL_MODEL": fleet.model.name,
            "PDCTL_RUN": ctx.journal.id if ctx.journal else "",
        }
        shell = Command(("/bin/sh", "-c", self._command), env, cwd=os.getcwd())
        done = LocalTransport("this machine").run(shell, self._deadline)
        said = next((line for line in reversed(done.tail()) if line.strip()), "")
        if done.timed_out:
            return Checked(Verdict.BAD, f"it did not end in {self._deadline:g} s")
        if done.rc in NOT_RUN:
            what = f"The check cannot be run, its shell ended with {done.rc}: {said}"
            raise ConfigError("bad_check", what, "Correct --check-command.")
        verdict = {0: Verdict.GOOD, CANNOT_TELL: Verdict.UNKNOWN}.get(done.rc, Verdict.BAD)
        return Checked(verdict, f"exit {done.rc}" + (f": {said}" if said else ""))
