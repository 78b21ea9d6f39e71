"""Which values to test next, from what all tests so far have said. Pure: no fleet, no clock, no file.

A *mix* is GOOD with some of the n differing values as BAD has them, written as the set of their numbers. The
search is a function of the table of runs alone, so the table is all that has to be kept to go on later.

First both ends: {} must pass and all n must fail. Then the shortest prefix 0..k-1 that is bad is found by
binary search: it is bad and the one a value shorter is not, so its last value is needed. If that value alone
is bad it is the answer, after ceil(log2 n) + 3 tests. Else it stays set and the search goes on among the
values before it for the next one that is needed, until those found are bad together. At the end the check is
seen to pass without each of them in turn: the set is 1-minimal. For this no assumption about how values act
together is needed.

A mix whose engines start and then do not link, answer canaries or get ready is bad as if the check had
failed. One with an engine that does not start is bad only if BAD does not start either. Else nothing can be
said about it, as where the check cannot tell: it is stepped around, and values that cannot be told apart
because of such mixes are found as one block.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from pdctl.flows.bisect.odds import miss, needed, share

Mix = frozenset[int]
Block = tuple[int, ...]


# At what a mix can be refused before its check is run: an engine does not start with it; or all start, and do
# not link, answer their canaries or get ready.
START, SERVE = "start", "serve"


class Verdict(StrEnum):
    GOOD = "good"
    BAD = "bad"
    UNKNOWN = "cannot tell"


@dataclass(frozen=True)
class Count:
    """The runs of one mix. `refused` is START or SERVE when it did not come up, so that there were none."""

    passed: int = 0
    failed: int = 0
    unknown: int = 0
    refused: str = ""


@dataclass(frozen=True)
class Rules:
    """`error` is the allowed probability of a wrong answer. `ends` is how often GOOD passes and BAD fails
    before the search begins, `patience` how often BAD may pass before it counts as good. `steady`: every
    check gives the same answer each time, so one run settles a mix. The first `live` values need no
    restart."""

    error: float = 0.05
    ends: int = 3
    patience: int = 30
    steady: bool = False
    live: int = 0


@dataclass(frozen=True)
class Known:
    """`found` are blocks of which one value each is needed; `rest` are the values that may be needed beside
    them. `whole`: those found are enough by themselves, only that each is needed is not yet shown."""

    found: tuple[Block, ...] = ()
    rest: Block = ()
    whole: bool = False


@dataclass(frozen=True)
class Ask:
    """Run the check once more with `mix`."""

    mix: Mix
    known: Known


@dataclass(frozen=True)
class Answer:
    """`kind`: found, good_fails, bad_passes or no_verdict. `minimal`: every block is one value and the check
    was seen to pass without it. `bound` is the probability that the answer is wrong, as odds.py has it."""

    kind: str
    found: tuple[Block, ...] = ()
    minimal: bool = False
    bound: float = 0.0


class _NeedError(Exception):
    """A mix is not settled yet."""

    def __init__(self, mix: Mix) -> None:
        super().__init__()
        self.mix = mix


def announced(n: int) -> int:
    """The most mixes that are tested when one of `n` values is to blame and every verdict is right."""
    return 2 if n == 1 else math.ceil(math.log2(n)) + 3


def announced_for_two(n: int) -> int:
    """The same for two of `n` that fail only together: a search for each, the second among one less, and the
    check without each of them."""
    return announced(n) + math.ceil(math.log2(n - 1)) + 2


def decide(n: int, table: Mapping[Mix, Count], rules: Rules) -> Ask | Answer:
    """What to do after the runs of `table`; `n` is at least 1."""
    judge = _Judge(n, table, rules)
    try:
        return _ends(judge) or _search(judge)
    except _NeedError as need:
        return Ask(need.mix, judge.known)


@dataclass
class _Judge:
    """The verdicts of one pass over the table; `bound` adds up what the good ones may be wrong by."""

    n: int
    table: Mapping[Mix, Count]
    rules: Rules
    known: Known = field(default_factory=Known)
    bound: float = 0.0
    whole: Mix = frozenset()
    _good: dict[Mix, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.whole = frozenset(range(self.n))

    def count(self, mix: Mix) -> Count:
        return self.table.get(mix, Count())

    def __call__(self, mix: Mix) -> Verdict:
        """_NeedError until `mix` is settled."""
        if mix in self._good:
            return Verdict.GOOD
        found, bad = self.count(mix), self.count(self.whole)
        if found.failed or found.refused == SERVE:
            return Verdict.BAD
        if found.refused:
            # Where BAD does start, one that does not is another trouble than the one that is looked for.
            return Verdict.BAD if bad.refused == START else Verdict.UNKNOWN
        if found.unknown:
            return Verdict.UNKNOWN
        steady = self.rules.steady
        # A BAD that was refused counts as one that fails every time.
        failed = self.rules.ends if bad.refused else bad.failed
        expected = max(1, announced(self.n) - 2)
        allowed = share(self.rules.error, len(self._good), expected)
        if found.passed < (1 if steady else needed(failed, bad.passed, allowed)):
            raise _NeedError(mix)
        self.bound += 0.0 if steady else miss(failed, bad.passed, found.passed)
        self._good[mix] = None
        return Verdict.GOOD


def _ends(judge: _Judge) -> Answer | None:
    """None once GOOD passes and BAD fails."""
    rules, good = judge.rules, judge.count(frozenset())
    judge.known = Known((), tuple(range(judge.n)))
    ends = 1 if rules.steady else rules.ends
    if good.failed or good.refused:
        return Answer("good_fails")
    if good.unknown:
        return Answer("no_verdict")
    if good.passed < ends:
        raise _NeedError(frozenset())
    bad = judge.count(judge.whole)
    if bad.refused:
        return None
    if bad.unknown:
        return Answer("no_verdict")
    runs = bad.failed + bad.passed
    patience = 1 if rules.steady else rules.patience
    if not bad.failed and runs >= patience:
        return Answer("bad_passes")
    if bad.failed < ends and runs < 3 * patience:
        raise _NeedError(judge.whole)
    return None


def _search(judge: _Judge) -> Answer:
    judge(frozenset())
    found: list[Block] = []
    base: Mix = frozenset()
    items = tuple(range(judge.n))
    while not found or (items and judge(base) is not Verdict.BAD):
        judge.known = Known(tuple(found), items)
        low, high = _needed_block(judge, base, items, tuple(found))
        found.append(items[low:high])
        base |= frozenset(items[low:high])
        items = items[:low]
        judge.known = Known(tuple(found), items)
    return _reduced(judge, found)


def _needed_block(judge: _Judge, base: Mix, items: Block, found: tuple[Block, ...]) -> tuple[int, int]:
    """(low, high): `base` with items[:high] is bad, with items[:low] it is not; the two are as near as
    verdicts allow. `base` with all items is bad, alone it is not."""
    low, high = 0, len(items)
    blind: set[int] = set()
    while between := [m for m in range(low + 1, high) if m not in blind]:
        middle = _middle(low, high, between, judge.rules.live)
        judge.known = Known(found, items[:high])
        verdict = judge(base | frozenset(items[:middle]))
        if verdict is Verdict.BAD:
            high = middle
        elif verdict is Verdict.GOOD:
            low = middle
        else:
            blind.add(middle)
    return low, high


def _middle(low: int, high: int, between: Sequence[int], live: int) -> int:
    """The nearest to the middle; the end of the live values instead, where that costs no further test."""
    half = 2 ** (math.ceil(math.log2(high - low)) - 1)
    if live in between and max(live - low, high - live) <= half:
        return live
    return min(between, key=lambda m: abs(2 * m - low - high))


def _reduced(judge: _Judge, found: Sequence[Block]) -> Answer:
    """See that the check passes without each block in turn; one without which it still fails is left out."""
    blocks, sure, at = list(found), True, 0
    judge.known = Known(tuple(blocks), (), True)
    while len(blocks) > 1 and at < len(blocks):
        rest = [b for i, b in enumerate(blocks) if i != at]
        verdict = judge(frozenset(i for b in rest for i in b))
        if verdict is Verdict.BAD:
            blocks, sure, at = rest, True, 0
            judge.known = Known(tuple(blocks), (), True)
            continue
        sure = sure and verdict is Verdict.GOOD
        at += 1
    minimal = sure and all(len(b) == 1 for b in blocks)
    return Answer("found", tuple(sorted(blocks)), minimal, judge.bound)


def walk(n: int, bad: Callable[[Mix], bool], rules: Rules) -> list[Mix]:
    """The mix of each run of a search where `bad` says of one whether the check fails, every time the
    same."""
    runs: list[Mix] = []
    table: dict[Mix, Count] = {}
    while isinstance(step := decide(n, table, rules), Ask):
        was = table.get(step.mix, Count())
        failed = bad(step.mix)
        table[step.mix] = Count(was.passed + (not failed), was.failed + failed)
        runs.append(step.mix)
    return runs
