"""profile bisect for people: the plan before, what was found after."""

from __future__ import annotations

from pdctl.flows.bisect.differences import Difference
from pdctl.flows.bisect.report import BisectReport
from pdctl.flows.bisect.search import Count
from pdctl.render.paths import here
from pdctl.render.table import show_table


def _value(text: str | None) -> str:
    return "(unset)" if text is None else text


def _change(difference: Difference) -> str:
    return f"{difference.env}: {_value(difference.good)} -> {_value(difference.bad)}"


def show_plan(report: BisectReport) -> None:
    compared, said = report.compared, report.forecast
    good, bad = compared.good, compared.bad
    rows = [
        (d.env, _value(d.good), _value(d.bad), "live" if d.live else "restart", ", ".join(d.units))
        for d in compared.differences
    ]
    show_table(("value", good, bad, "set", "on"), rows, f"{len(rows)} values differ")
    for names, why in ((compared.idle, "reach no unit here"), (compared.secret, "are secrets")):
        if names:
            print(f"Not tried, because they {why}: {', '.join(names)}.")
    print(f"Check: {report.state.check}")
    took = f", about {said.seconds:.0f} s" if said.seconds else ""
    print(
        f"If one value is to blame: at most {said.tests} different mixes and {said.runs} runs of the check "
        f"(more where {bad} fails only sometimes), at most {said.restarts} restarts{took}, "
        f"{said.mean_restarts:.1f} on average."
    )
    if two := said.two:
        print(f"If two are, only together: at most {two.tests} mixes and {two.restarts} restarts.")
    _show_budget(report)
    if report.trials:
        print(f"Goes on: {report.tests} mixes were tested before.")
    print("The old values are put back at the end, however it ends.")


def _show_budget(report: BisectReport) -> None:
    budget, said = report.max_restarts, report.forecast
    for most, what in ((said.restarts, "one value"), (said.two.restarts if said.two else 0, "two")):
        if budget is not None and most > budget:
            stops = "it then stops with what it knows, and `pdctl resume` goes on"
            print(f"--max-restarts {budget} may not be enough for {what}: {stops}.")
            return


def show(report: BisectReport) -> None:
    _show_trials(report)
    for line in report.restored:
        print(f"Restored first: {line}")
    for line in report.put_back:
        print(f"Put back: {line}")
    for line in report.left_alone:
        print(f"Left alone: {line}")
    if ends := report.ends():
        print(ends)
    print(report.summary)
    for block in report.answer.found if report.answer else ():
        mark = "one of: " if len(block) > 1 else ""
        for difference in report.of(block):
            print(f"  {mark}{_change(difference)}")
            print(f"    {report.compared.good}: {here(difference.good_at)}")
            print(f"    {report.compared.bad}: {here(difference.bad_at)}")
    if report.bound:
        print(report.bound)
    said, in_all = report.forecast, report.state.restarts
    most = f"at most {said.tests} for one value" + (f", {said.two.tests} for two" if said.two else "")
    before = f" ({in_all} with the runs before it)" if in_all > report.restarts else ""
    took = f"{report.restarts} restarts{before}, {report.seconds:.0f} s"
    print(f"{report.tests} mixes tested ({most}), {took}.")
    print(f"Evidence: {report.evidence}")
    if report.next:
        print(f"Next: {report.next}")


def _show_trials(report: BisectReport) -> None:
    whole = len(report.compared.differences)
    rows = []
    for number, trial in enumerate(report.trials, 1):
        names = [d.env for d in report.of(trial.mix)]
        mix = {0: report.compared.good, whole: report.compared.bad}.get(len(names))
        named = mix or (
            ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:2])} and {len(names) - 2} more"
        )
        count = Count(trial.passed, trial.failed, trial.unknown, trial.refused)
        rows.append((number, named, _outcome(count), trial.restarts, f"{trial.seconds:.1f}", trial.detail))
    show_table(("test", "values of the bad profile", "runs", "restarts", "s", "last said"), rows)


def _outcome(count: Count) -> str:
    if count.refused:
        return f"does not {count.refused}"
    words = ((count.passed, "passed"), (count.failed, "failed"), (count.unknown, "cannot tell"))
    return ", ".join(f"{number} {word}" for number, word in words if number)
