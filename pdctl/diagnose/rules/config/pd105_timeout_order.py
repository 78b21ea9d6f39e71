"""PD105: timeouts in force are out of order."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.adapters.picture import Timeout
from pdctl.diagnose.facts import PUTS_BACK, EngineView, Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.facts.missing import known
from pdctl.fleet.chain import chain_problems


def _values(timeouts: dict[str, Timeout], *prefixes: str) -> dict[str, float]:
    """The values that this process reads itself: every process lists them all."""
    return {t.env: t.value for t in timeouts.values() if t.env.startswith(prefixes)}


_LIVE = "by an admin call since the start"
_LEFT = f"`{PUTS_BACK}` does"


def _set_live(facts: Facts, view: EngineView, lines: tuple[str, ...]) -> list[str]:
    """Which of the values in `lines` were set on the running engine and are in no file, and by which run."""
    state = view.state
    timeouts = state.timeouts.values() if known(state) else ()
    return [
        f"{t.env} of {view.name} was set to {t.value:g} s "
        + (f"live: {left.words}" if (left := facts.left_behind(view.name, t)) else _LIVE)
        for t in timeouts
        if t.source == "admin" and any(f"{t.env}=" in line for line in lines)
    ]


@rule("PD105", "timeouts out of order", Severity.WARNING, ["engine.state"], role="amplifier")
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """The deadlines of one request must fire from the inside out: decode, then prefill, then router.

    What it looks like: a request that waits with good reason is cut by the outer party first. The error
    names the wrong component, pages are freed while the other side still counts on them, or the router
    gives up and both engines go on working for nobody.

    What else it could be: failures at exactly one timer's value with the chain in order are that timer
    doing its work; look at PD602 and PD603 for what it waited for.

    What to do: a value that was set by an admin call is put back by `pdctl deploy`, one that a run set which
    died by `pdctl resume`. Otherwise
    `pdctl tune-timeout` proposes the inflight value from measured dwell and adjusts the chain
    around it; or set the values with `pdctl profile set` and `pdctl deploy`.
    """
    router = facts.router_state
    outer = _values(router.timeouts, "PD_ROUTER_") if known(router) else {}
    said: dict[tuple[str, ...], set[str]] = {}
    for prefill, decode in facts.edges():
        p, d = prefill.state, decode.state
        if not known(p) or not known(d):
            continue
        inner = _values(p.timeouts, "PD_PREFILL_", "PD_QUEUE_") | _values(d.timeouts, "PD_DECODE_")
        if lines := tuple(chain_problems(inner | outer)):
            live = (*_set_live(facts, prefill, lines), *_set_live(facts, decode, lines))
            said.setdefault((*lines, *live), set()).update((prefill.name, decode.name))
    for lines, names in said.items():
        by_hand = any(line.endswith(_LIVE) for line in lines)
        left = any(_LEFT in line for line in lines)
        yield rule.finding(
            " and ".join(sorted(names)),
            "; ".join(line.partition(": ")[0] for line in lines if " was set to " not in line) + ".",
            lines,
            PUTS_BACK if left else "pdctl deploy" if by_hand else "pdctl tune-timeout",
            touches=names,
        )
