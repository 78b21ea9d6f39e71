"""profile bisect: try mixes of two profiles on the fleet until it is known which values flip the check."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from pdctl.errors import ConfigError
from pdctl.flows.bisect import recovery, state
from pdctl.flows.bisect.checks import Check, Checked
from pdctl.flows.bisect.differences import Compared, compare
from pdctl.flows.bisect.forecast import Forecast, forecast
from pdctl.flows.bisect.recovery import Restart
from pdctl.flows.bisect.report import BisectReport
from pdctl.flows.bisect.search import Answer, Ask, Mix, Rules, Verdict, decide
from pdctl.flows.bisect.state import State, Trial
from pdctl.flows.bisect.trial import Put, Trials
from pdctl.flows.changing import doing
from pdctl.flows.context import Context
from pdctl.flows.serving import need_serving
from pdctl.remote.journal_read import last_note


@dataclass(frozen=True)
class Options:
    """Budgets are of one run; None is without."""

    rules: Rules = field(default_factory=Rules)
    max_restarts: int | None = None
    max_seconds: float | None = None
    resume: bool = False


@dataclass
class _Search:
    """One run under way. `now` is the mix that the fleet has, None before the first; `more`: that one value
    is not enough was said."""

    ctx: Context
    compared: Compared
    check: Check
    options: Options
    trials: Trials
    state: State
    report: BisectReport
    began: float = field(default_factory=time.monotonic)
    now: Mix | None = None
    more: bool = False

    def until_known(self) -> None:
        """Runs until there is an answer or a budget is spent; what was learned is kept after each."""
        n = len(self.compared.differences)
        while isinstance(step := decide(n, self.state.table, self.report.rules), Ask):
            self._learned(step)
            if spent := self._spent(step.mix):
                self.report.stopped = spent
                return
            self._one(step.mix)
        self._answered(step)

    def _learned(self, step: Ask) -> None:
        """Say it once when a value is found that is not enough alone: it takes longer than for one."""
        self.report.known = known = step.known
        two = self.report.forecast.two
        if len(known.found) != 1 or step.mix <= frozenset(known.found[0]) or two is None or self.more:
            return
        self.more = True
        names = " or ".join(d.env for d in self.report.of(known.found[0]))
        most = f"at most {two.tests} mixes and {two.restarts} restarts in all, if it takes one more"
        self.ctx.say(f"{names} is needed and not enough alone: {most}")

    def _answered(self, answer: Answer) -> None:
        self.report.answer = answer
        state.path(self.ctx.fleet).unlink(missing_ok=True)

    def _spent(self, mix: Mix) -> str:
        """Which budget has no room for another run with `mix` and the way back after it."""
        options = self.options
        took = time.monotonic() - self.began
        if options.max_seconds is not None and took >= options.max_seconds:
            return f"--max-seconds {options.max_seconds:g} is spent"
        if mix == self.now or options.max_restarts is None:
            return ""
        more = len(self.trials.needs(mix)) + self.trials.restarts(mix, None)
        if self.report.restarts + more > options.max_restarts:
            return f"--max-restarts {options.max_restarts} leaves no room for the next test"
        return ""

    def _one(self, mix: Mix) -> None:
        put = Put()
        begin = time.monotonic()
        if mix != self.now:
            put = self._put(mix)
        refused = put.refused
        said = self._run(mix) if refused is None else Checked(Verdict.UNKNOWN, refused.why)
        trial = Trial(
            tuple(sorted(mix)),
            int(said.verdict is Verdict.GOOD),
            int(said.verdict is Verdict.BAD),
            int(said.verdict is Verdict.UNKNOWN and refused is None),
            refused.at if refused else "",
            put.restarts,
            time.monotonic() - begin,
            said.detail,
        )
        word = said.verdict if refused is None else f"does not {refused.at}"
        self.ctx.say(f"{self._named(mix)}: {word}, {said.detail}")
        last = self.state.trials[-1] if self.state.trials else None
        if last is not None and mix == self.now and last.mix == trial.mix:
            self.state.trials[-1] = _added(last, trial)
        else:
            self.state.trials.append(trial)
        self.now = mix if refused is None else None
        state.write(self.ctx.fleet, self.state)

    def _named(self, mix: Mix) -> str:
        names = [d.env for i, d in enumerate(self.compared.differences) if i in mix]
        if not names or len(names) == len(self.compared.differences):
            return self.compared.bad if names else self.compared.good
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        return f"{self.compared.good} with {', '.join(names[:3])}{more}"

    def _put(self, mix: Mix) -> Put:
        what = f"try {self._named(mix)}"
        self.ctx.say(what)
        begin = time.monotonic()
        # Kept before they begin: the count outlives a run that is cut off in one.
        self.state.restarts += (wanted := len(self.trials.needs(mix)))
        state.write(self.ctx.fleet, self.state)
        with doing(self.ctx, "bisect/try", "fleet", what, changes=False):
            put = self.trials.put(mix)
        self.state.restarts += put.restarts - wanted
        if put.restarts:
            self.report.restarts += put.restarts
            self.report.restart_s = (time.monotonic() - begin) / put.restarts
        return put

    def _run(self, mix: Mix) -> Checked:
        with doing(self.ctx, "bisect/check", "fleet", f"check {self._named(mix)}", changes=False):
            return self.check.run(self.ctx)


def _added(one: Trial, more: Trial) -> Trial:
    return replace(
        more,
        passed=one.passed + more.passed,
        failed=one.failed + more.failed,
        unknown=one.unknown + more.unknown,
        restarts=one.restarts,
        seconds=one.seconds + more.seconds,
    )


@dataclass(frozen=True)
class Prepared:
    """A bisect that was planned; nothing is changed yet. `report` is the plan."""

    check: Check
    trials: Trials
    report: BisectReport


def prepare(
    ctx: Context,
    good: str,
    bad: str,
    check: Callable[[State], Check],
    options: Options,
    restart: Restart,
) -> Prepared:
    """`check` is made from the state that it may keep something in. ConfigError when the profiles do not
    differ here, for a budget that no test fits into, or when there is nothing to resume; PdctlError when the
    fleet does not serve."""
    rules = options.rules
    compared = compare(ctx.fleet, good, bad)
    need_serving(ctx, "to try")
    fresh = state.begin(compared, "", rules.error, rules.steady)
    fresh.check = check(fresh).words
    kept = state.resumed(ctx.fleet, fresh) if options.resume else fresh
    compared = kept.ordered(compared)
    rules = replace(rules, live=sum(d.live for d in compared.differences))
    trials = Trials(ctx, compared, restart)
    said = _forecast(ctx, trials, compared, rules)
    report = BisectReport(compared, kept, said, rules, options.max_restarts)
    _need_room(report, trials)
    report.run = ctx.journal.id if ctx.journal else ""
    return Prepared(check(kept), trials, report)


def run(
    ctx: Context,
    good: str,
    bad: str,
    check: Callable[[State], Check],
    options: Options,
    restart: Restart,
    planned: Callable[[BisectReport], None] = lambda report: None,
) -> BisectReport:
    """What is found is in the report; the fleet has its old values again. `planned` is shown the plan before
    anything is tried and raises when the operator declines.

    PdctlError as in `prepare`, and when the fleet cannot be put back: the next run tries again.
    """
    restored = recovery.restore(ctx, restart)
    for line in (*restored.done, *restored.left):
        ctx.say(f"after an interrupted run: {line}")
    made = prepare(ctx, good, bad, check, options, restart)
    report = made.report
    report.restored, report.left_alone = restored.done, restored.left
    _count(report, _restarted(restored.done))
    planned(report)
    state.write(ctx.fleet, report.state)
    begin = time.monotonic()
    try:
        _Search(ctx, report.compared, made.check, options, made.trials, report.state, report).until_known()
    finally:
        ctx.say("putting the old values back")
        back = recovery.restore(ctx, restart)
        report.put_back, report.left_alone = back.done, report.left_alone + back.left
        _count(report, _restarted(back.done))
        if report.answer is None:
            state.write(ctx.fleet, report.state)
    report.seconds = time.monotonic() - begin
    return _evidence(ctx, report)


def _need_room(report: BisectReport, trials: Trials) -> None:
    """ConfigError for a budget with which no run could ever test both ends, each with the way back."""
    most, ends = report.max_restarts, (Mix(), report.whole)
    least = max(
        (len(trials.needs(m)) + trials.restarts(m, None) for m in ends if m not in report.state.table),
        default=0,
    )
    if most is not None and most < least:
        said = f"--max-restarts {most} has no room for one test: there and back takes {least}."
        raise ConfigError("few_restarts", said, f"Allow {least} or more, or leave it out.")


def _count(report: BisectReport, restarts: int) -> None:
    report.restarts += restarts
    report.state.restarts += restarts


def _restarted(lines: list[str]) -> int:
    return sum(line.endswith(recovery.RESTARTED) for line in lines)


def _forecast(ctx: Context, trials: Trials, compared: Compared, rules: Rules) -> Forecast:
    journal = ctx.fleet.paths.journal
    took = last_note(journal, "bisect").get("restart_s")
    if took is None:
        cells = (last_note(journal, "co-restart").get("report") or {}).get("cells") or [{}]
        took = sum((cells[-1].get("seconds") or {}).values()) or None
    return forecast(len(compared.differences), trials.restarts, rules, took)


def _evidence(ctx: Context, report: BisectReport) -> BisectReport:
    folder = ctx.fleet.paths.evidence
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    report.evidence = str((folder / f"bisect-{stamp}.json").relative_to(ctx.fleet.dir))
    (ctx.fleet.dir / report.evidence).write_text(json.dumps(report.document(), indent=1) + "\n")
    return report
