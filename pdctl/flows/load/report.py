"""What became of a load: its requests, how many rounds succeeded and how fast, those that hang by id."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from pdctl.exits import Exit
from pdctl.flows.load.plan import Shape
from pdctl.flows.load.where import Standing

HUNG = "hung"


@dataclass(frozen=True)
class Shot:
    """One request. `code` is "" when it succeeded, `hung` when it had not ended at the deadline, else the
    error's code or the HTTP failure, and `said` its words.

    `id` is how the router knows it, `at` when it was sent in seconds of the load. `ttft` is seconds to the
    first text of a stream. One that the client gave up on purpose is `aborted` and no failure. `stands` is
    where one that hangs was at its deadline.
    """

    agent: int
    round: int
    seconds: float
    code: str
    id: str = ""
    at: float = 0.0
    ttft: float | None = None
    tokens: int = 0
    aborted: bool = False
    said: str = ""
    stands: Standing | None = None

    @property
    def ok(self) -> bool:
        return not self.code

    @property
    def hung(self) -> bool:
        return self.code == HUNG

    @property
    def rate(self) -> float | None:
        """Tokens a second behind the first one, None where that cannot be told."""
        if self.ttft is None or self.tokens < 2 or self.seconds <= self.ttft:
            return None
        return (self.tokens - 1) / (self.seconds - self.ttft)


@dataclass(frozen=True)
class Spread:
    """Quantiles of `count` values; None of none."""

    count: int
    p50: float | None
    p95: float | None
    p99: float | None
    most: float | None


def spread(values: Iterable[float | None]) -> Spread:
    """A quantile is a value that was seen: the least that so many of them do not exceed."""
    known = sorted(v for v in values if v is not None)
    if not known:
        return Spread(0, None, None, None, None)

    def quantile(share: float) -> float:
        return known[max(0, math.ceil(share * len(known)) - 1)]

    return Spread(len(known), quantile(0.5), quantile(0.95), quantile(0.99), known[-1])


@dataclass(frozen=True)
class Round:
    """All requests that were some agent's round `number`, counted from 1; None is several rounds."""

    number: int | None
    sent: int
    ok: int
    failed: int
    hung: int
    aborted: int
    ttft: Spread
    seconds: Spread
    rate: Spread


def summed(number: int | None, shots: Sequence[Shot]) -> Round:
    whole = [s for s in shots if s.ok and not s.aborted]
    return Round(
        number,
        sent=len(shots),
        ok=len(whole),
        failed=sum(not s.ok and not s.hung for s in shots),
        hung=sum(s.hung for s in shots),
        aborted=sum(s.ok and s.aborted for s in shots),
        ttft=spread(s.ttft for s in whole),
        seconds=spread(s.seconds for s in whole),
        rate=spread(s.rate for s in whole),
    )


@dataclass(frozen=True)
class LoadReport:
    """`trace` is the file that was replayed, "" of none; `shots` in the order of their ends.

    `open` are those that had not ended when it was `interrupted`, with the code "". `turned_away` counts
    agents that found as many under way as may be.
    """

    url: str
    model: str
    seed: int
    shape: Shape
    trace: str
    started_at: float
    seconds: float
    shots: tuple[Shot, ...]
    open: tuple[Shot, ...]
    turned_away: int
    interrupted: bool

    @property
    def ok(self) -> bool:
        """Rounds were made, and none of them failed or hung."""
        return bool(self.shots) and all(shot.ok for shot in self.shots)

    @property
    def hung(self) -> tuple[Shot, ...]:
        return tuple(shot for shot in self.shots if shot.hung)

    @property
    def failed(self) -> tuple[Shot, ...]:
        """Without those that hung."""
        return tuple(shot for shot in self.shots if not shot.ok and not shot.hung)

    @property
    def codes(self) -> Counter[str]:
        return Counter(shot.code for shot in self.shots if not shot.ok)

    @property
    def all(self) -> Round:
        return summed(None, self.shots)

    def rounds(self) -> list[Round]:
        by_number: dict[int, list[Shot]] = {}
        for shot in self.shots:
            by_number.setdefault(shot.round, []).append(shot)
        return [summed(number, by_number[number]) for number in sorted(by_number)]

    def rows(self, most: int) -> list[tuple[str, Round]]:
        """Rounds by name, what lies behind the first `most` - 1 of them as one."""
        by_number = self.rounds()
        if len(by_number) <= most:
            return [(str(one.number), one) for one in by_number]
        first, last = by_number[most - 1].number, by_number[-1].number
        rest = [shot for shot in self.shots if first is not None and shot.round >= first]
        head = [(str(one.number), one) for one in by_number[: most - 1]]
        return [*head, (f"{first}-{last}", summed(None, rest))]

    @property
    def tokens_per_s(self) -> float:
        """Of all answers, over the whole load."""
        return sum(s.tokens for s in self.shots) / self.seconds if self.seconds > 0 else 0.0

    def exit(self, fail_on: str = "failed") -> Exit:
        """FINDINGS from `fail_on` on: "failed" counts what hung as well, "hung" nothing else, "never"."""
        if self.interrupted:
            return Exit.INTERRUPTED
        bad = {"failed": not self.ok, "hung": bool(self.hung), "never": False}[fail_on]
        return Exit.FINDINGS if bad else Exit.OK

    def document(self) -> dict[str, object]:
        """pdctl/contracts/load.json."""
        return {
            "schema": 1,
            "url": self.url,
            "model": self.model,
            "seed": self.seed,
            "trace": self.trace or None,
            "shape": asdict(self.shape),
            "started_at": self.started_at,
            "seconds": self.seconds,
            "ok": self.ok,
            "interrupted": self.interrupted,
            "turned_away": self.turned_away,
            "tokens_per_s": self.tokens_per_s,
            "codes": dict(self.codes.most_common()),
            "all": asdict(self.all),
            "rounds": [asdict(one) for one in self.rounds()],
            "hung": [asdict(shot) for shot in self.hung],
            "failed": [asdict(shot) for shot in self.failed],
            "open": [asdict(shot) for shot in self.open],
        }
