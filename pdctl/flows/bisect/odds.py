"""How often a check must pass before a mix counts as good, when bad ones do not fail every time.

What is known of a bad mix is how BAD did: `failed` and `passed` runs. Two kinds of failure are thought
equally likely beforehand: one that comes every time, and one that comes at a rate p of which nothing is known
(uniform on 0..1). By Bayes' rule the second kind keeps the weight w = 1 once BAD has passed at all, else

    w = (1 / (failed + 1)) / (1 + 1 / (failed + 1)) = 1 / (failed + 2)

and then p is Beta(failed + 1, passed + 1). A bad mix passes r runs in a row with the probability

    miss(r) = w * E[(1 - p)^r] = w * prod(i < r) (passed + 1 + i) / (failed + passed + 2 + i)

With good and bad equally likely before the runs, that mix is bad after all with miss / (1 + miss), which is
less than miss. A good verdict is given once miss(r) is at most that verdict's share of the allowed error.
Shares add up to the whole, so by the union bound the final answer is wrong with at most that probability.

It rests on two assumptions that the answer states: GOOD never fails (so one failure makes a mix bad; a GOOD
that is seen to fail ends the search), and a mix that is bad fails as often as BAD does.
"""

from __future__ import annotations

from functools import cache
from itertools import count


@cache
def miss(failed: int, passed: int, runs: int) -> float:
    """The probability that a bad mix passes `runs` times in a row, from how BAD did."""
    probability = 1.0 if passed else 1.0 / (failed + 2)
    for i in range(runs):
        probability *= (passed + 1 + i) / (failed + passed + 2 + i)
    return probability


@cache
def needed(failed: int, passed: int, share: float) -> int:
    """The least number of passes after which `miss` is at most `share`; `failed` is at least 1."""
    return next(runs for runs in count(1) if miss(failed, passed, runs) <= share)


def share(error: float, nth: int, expected: int) -> float:
    """What the `nth` (from 0) good verdict may take of `error`; all of them together take no more than it.

    Three quarters go to the `expected` verdicts of a search for one value, an eighth to as many and two more,
    which a second value may need, and an eighth to all later ones, halved from each to the next.
    """
    if nth < expected:
        return 0.75 * error / expected
    second = expected + 2
    if nth < expected + second:
        return 0.125 * error / second
    return 0.125 * error * 0.5 ** (nth - expected - second + 1)
