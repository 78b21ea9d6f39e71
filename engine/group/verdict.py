"""Why a group ends, judged from how its ranks ended and from their last words.

When one rank dies, the others' collectives and channels break at the same moment, and their last word can
reach the parent before the kernel shows the dead rank. Such a word is an effect, and waits for its cause.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.core.errors import Exit
from engine.group.messages import Fatal
from engine.group.parent import Rank

# The kernel closes what a killed process held before it shows the death; a large process takes a while.
CAUSE_WAIT = 2.0
# A living rank speaks twice a second, so one that was silent this long when a collective broke has broken it.
SILENT = 2.0
Verdict = tuple[Exit, str]


class Judge:
    """Of one group. `fatals` is the list that the ranks' last words are added to as they come."""

    def __init__(self, ranks: list[Rank], fatals: Sequence[Fatal], now: Callable[[], float]) -> None:
        self._ranks = ranks
        self._fatals = fatals
        self._now = now
        self._effect_at: float | None = None

    def verdict(self, timeout: float) -> Verdict | None:
        """Exit code and sentence once the cause is known, None while all are well or it may still show.

        A rank silent for `timeout` seconds counts as frozen.
        """
        found = self._cause() or self._silent(timeout)
        if found is not None or not self._effects():
            return found
        if self._effect_at is None:
            self._effect_at = self._now()
        if self._now() - self._effect_at < CAUSE_WAIT:
            return None
        return self._silent(SILENT) or self._unexplained()

    def _cause(self) -> Verdict | None:
        """A rank's own word, else a death. An unexpected failure may be due to a kill, so that goes first."""
        words = [(Exit(f.exit), f.message) for f in self._fatals if not f.effect]
        typed = [w for w in words if w[0] != Exit.INTERNAL]
        ended = [(r, r.process.poll()) for r in self._ranks]
        killed = [(Exit.RANK_DIED, f"{_name(r)} was killed by signal {-c}") for r, c in ended if c and c < 0]
        left = [
            (Exit.RANK_DIED, f"{_name(r)} exited with code {c}")
            for r, c in ended
            if c is not None and c >= 0 and c != Exit.RANK_DIED and not self._said(r)
        ]
        return next(iter([*typed, *killed, *words, *left]), None)

    def _said(self, rank: Rank) -> bool:
        return any(f.rank == rank.rank for f in self._fatals)

    def _effects(self) -> bool:
        """A rank left because another was gone: by its word, or by the code of one that had none to say."""
        return bool(self._fatals) or any(r.process.poll() == Exit.RANK_DIED for r in self._ranks)

    def _silent(self, timeout: float) -> Verdict | None:
        for r in self._ranks:
            silence = 0.0 if r.beat is None or r.process.poll() is not None else self._now() - r.beat
            if silence > timeout:
                return Exit.RANK_FROZEN, f"{_name(r)} is silent for {silence:.1f} s"
        return None

    def _unexplained(self) -> Verdict:
        """No rank died or froze: what broke between them was broken by the engine itself."""
        if self._fatals:
            return Exit(self._fatals[0].exit), self._fatals[0].message
        gone = next(r for r in self._ranks if r.process.poll() is not None)
        return Exit.RANK_DIED, f"{_name(gone)} exited with code {gone.process.returncode}"


def _name(rank: Rank) -> str:
    return f"rank {rank.rank} (pid {rank.process.pid})"
