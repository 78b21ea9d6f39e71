"""PD604: an admission hold, a cordon or a drain that nobody ended."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import count, span
from pdctl.facts.missing import known

_HOLD = 60.0
# Between a hold and the end of the run that made it lie moments in which nobody holds the lock.
_MOMENT = 3.0


def _router(rule: Rule, facts: Facts) -> Iterator[Finding]:
    if not known(facts.router) or not known(facts.router.state):
        return
    router = facts.router.state
    if router.admission == "held":
        age = router.hold_age or 0.0
        waiting = count(router.held, "request waits", "requests wait")
        usual = router.timeouts.get("router_hold")
        limit = router.hold_limit if router.hold_limit is not None else usual.value if usual else None
        lines = [f"held for {span(age)}, {waiting}"]
        if limit is not None:
            lines.append(f"a held request fails after {limit:g} s")
        # With an engine stopped the co-restart has to go on, and PD201 says so.
        stopped = [m.name for m in facts.members() if known(m.unit) and m.unit.state == "stopped"]
        left = known(facts.run) and not facts.run and age > _MOMENT and not stopped
        if known(facts.run):
            lines.append(f"the fleet's lock: {facts.run or 'nobody has it, so no run will end the hold'}")
        long = left or age > _HOLD or (limit is not None and age > limit / 2)
        said = f"The router holds admissions since {span(age)}; {waiting}."
        half = facts.half_way
        if half is not None and not (known(facts.run) and facts.run):
            said = f"{half.words}: the router holds admissions since {span(age)}; {waiting}."
            lines.append(half.record)
        yield rule.finding(
            facts.router.name,
            said,
            lines,
            "pdctl resume",
            touches=[facts.router.name, *stopped],
            severity=Severity.WARNING if long else Severity.INFO,
            since=facts.at - age,
        )
    for engine in router.engines:
        if engine.cordoned:
            said = f"{engine.instance} is cordoned: the router sends it nothing."
            yield rule.finding(
                engine.instance, said, ["cordoned at the router"], "pdctl resume", severity=Severity.INFO
            )


@rule("PD604", "admission held or drain left behind", Severity.WARNING, ["engine.reach"], echo_of=["PD201"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Admissions are held, or an engine is drained, and nothing that would end it is in progress.

    What it looks like: every process is healthy, requests queue at the router or are refused with
    "draining". Usually a co-restart was interrupted or a person went home.

    What else it could be: a hold while a run has the fleet's lock is a co-restart in progress (info); one
    that nobody's run will end was left behind. A drain that still
    has requests to finish is at work.

    What to do: `pdctl resume` opens the router and resumes drained engines. If a co-restart stopped half
    way, run `pdctl restart --co` again: it begins from what is true now.
    """
    yield from _router(rule, facts)
    for view in facts.engines:
        state = view.state
        if not known(state) or state.status not in ("draining", "drained"):
            continue
        left = len(view.legs)
        limit = state.timeouts.get("drain")
        oldest = max((leg.age for leg in view.legs), default=0.0)
        over = state.status == "drained" or (limit is not None and oldest > limit.value + 30.0)
        router = facts.router_state
        held = known(router) and router.admission == "held"
        first = view.pair.first.picture
        before = known(first) and first.status == state.status
        yield rule.finding(
            view.name,
            f"{view.name} is {state.status}" + (f" with {count(left, 'request')} left." if left else "."),
            [f"status {state.status}, {count(left, 'request')} left"],
            "pdctl resume",
            severity=Severity.WARNING if over and before and not held else Severity.INFO,
        )
