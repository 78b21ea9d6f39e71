"""PD101: the running environment is not what the profile says."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.adapters.picture import Timeout
from pdctl.diagnose.facts import PUTS_BACK, Facts, Member, RouterView
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import count
from pdctl.facts.missing import Missing, known
from pdctl.fleet.chain import chain_problems

_PDCTL_OWN = ("PD_FLEET_TOKEN_FILE", "PD_DRILL_TOKEN_FILE", "PD_LOG_LEVEL")


def _same(left: str, right: str) -> bool:
    try:
        return float(left) == float(right)
    except ValueError:
        return left == right


def _running(member: Member, said: dict[str, str] | Missing) -> dict[str, str] | Missing:
    """The process's own environment, else what it says of itself."""
    process = member.process
    if known(process) and known(process.environ):
        return process.environ
    return said


def _at(member: Member, name: str) -> str:
    """ " (FILE:LINE)" of the value that the files hold."""
    return f" ({at})" if (at := member.places.get(name)) else ""


def _first(member: Member, lines: list[str]) -> str:
    name = lines[0].partition(":")[0]
    more = f" and {count(len(lines) - 1, 'other')}" if len(lines) > 1 else ""
    return f"{name}{_at(member, name)}{more}"


def _differences(
    member: Member, expected: dict[str, str], running: dict[str, str], timeouts: dict[str, Timeout]
) -> list[str]:
    """What the process was started with against the profile; a value in force that agrees is none."""
    in_force = {t.env: str(t.value) for t in timeouts.values()}
    lines = []
    for name, value in sorted(expected.items()):
        if name in in_force and _same(value, in_force[name]):
            continue
        if name not in running:
            lines.append(f"{name}: profile {value}{_at(member, name)}, the process does not have it")
        elif not _same(value, running[name]):
            lines.append(f"{name}: profile {value}{_at(member, name)}, process {running[name]}")
    for name in sorted(running.keys() - expected.keys()):
        if name.startswith("PD_") and name not in _PDCTL_OWN:
            lines.append(f"{name}: not in the profile, process {running[name]}")
    return lines


def _live(facts: Facts, member: Member, expected: dict[str, str], timeouts: dict[str, Timeout]) -> list[str]:
    return [
        f"{t.env}: profile {expected[t.env]}{_at(member, t.env)}, set to {t.value:g} "
        + (
            f"live: {left.words}"
            if (left := facts.left_behind(member.name, t))
            else "by an admin call since the start"
        )
        for t in timeouts.values()
        if t.source == "admin" and t.env in expected and not _same(expected[t.env], str(t.value))
    ]


def _refused(facts: Facts) -> list[str]:
    """Why `pdctl deploy` would refuse what the files hold: deadlines of an edge that are out of order."""
    router = facts.router
    outer = router.member.expected if isinstance(router, RouterView) else router
    lines: dict[str, None] = {}
    for prefill, decode in facts.edges():
        values: dict[str, float] = {}
        for told, prefixes in (
            (prefill.member.expected, ("PD_PREFILL_", "PD_QUEUE_")),
            (decode.member.expected, ("PD_DECODE_",)),
            (outer, ("PD_ROUTER_",)),
        ):
            values |= _numbers(told, prefixes) if known(told) else {}
        lines |= dict.fromkeys(chain_problems(values))
    return list(lines)


def _numbers(values: dict[str, str], prefixes: tuple[str, ...]) -> dict[str, float]:
    mine = {name: value for name, value in values.items() if name.startswith(prefixes)}
    return {name: float(value) for name, value in mine.items() if value.replace(".", "", 1).isdigit()}


def _remedy(member: Member, lines: list[str], refused: list[str]) -> str:
    names = [line.partition(":")[0] for line in lines]
    wrong = next((name for name in names if any(f"{name}=" in line for line in refused)), "")
    if not wrong:
        return "pdctl deploy"
    return f"correct {wrong}{_at(member, wrong)}, then pdctl deploy: as the files are it refuses"


# A value that puts the order of deadlines upside down is told by what it breaks.
@rule(
    "PD101",
    "running environment differs from the profile",
    Severity.WARNING,
    ["profile"],
    echo_of=["PD105"],
    role="amplifier",
)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """The process was started with other values than the profile holds now, or one was changed live.

    What it looks like: a value was edited in the profile and the engine was not restarted; or somebody
    changed a timeout through the admin API; or an environment variable leaked in from a shell. The fleet
    behaves in a way that the files do not explain.

    What else it could be: nothing; the environment is read from the process itself (/proc) where that is
    readable, else from what the engine says of itself, and the evidence says which value is where.

    What to do: `pdctl deploy` restarts what differs with the profile's values. Where they are out of order it
    refuses, and what runs is the better value: correct the files first (`pdctl profile check`). If the live
    value is the one you want, put it into the profile with `pdctl profile set`. What a run set that died is
    put back by `pdctl resume`; the evidence names the run.
    """
    router, refused = facts.router, _refused(facts)
    views = [*facts.engines, *((router,) if known(router) else ())]
    for view in views:
        expected, state = view.member.expected, view.state
        if not known(expected):
            continue
        said: dict[str, str] | Missing = state.environ if known(state) else state
        if known(state) and state.kind != "bundled":
            said = Missing(f"{state.kind} does not show its environment")
        running = _running(view.member, said)
        timeouts = state.timeouts if known(state) else {}
        lines = _live(facts, view.member, expected, timeouts)
        left = any(facts.left_behind(view.name, t) for t in timeouts.values())
        set_since = {line.partition(":")[0] for line in lines}
        if known(running):
            found = _differences(view.member, expected, running, timeouts)
            lines += [line for line in found if line.partition(":")[0] not in set_since]
        if lines:
            remedy = _remedy(view.member, lines, refused)
            yield rule.finding(
                view.name,
                f"{view.name} runs with other values than its profile: {_first(view.member, lines)}.",
                [*lines, *(refused if remedy != "pdctl deploy" else ())],
                PUTS_BACK if left else remedy,
            )
