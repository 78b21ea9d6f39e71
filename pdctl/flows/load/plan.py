"""What a load will ask, drawn from a seed: the same seed and shape give the same agents, turns and pauses.

Pure: no clock, no I/O. Sizes of texts are in words, one of which is at most `WORD` tokens of a usual
tokenizer; what a model answers is not part of a plan.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pdctl.errors import ConfigError

# A text, token ids, or the messages of a chat.
Prompt = str | list[int] | list[dict[str, str]]
WORD = 1.6  # tokens, with its space; measured as about 1.2, more for tokenizers of few words
_TURNS = (
    "List three files of a small web project.",
    "Explain what the second one is for.",
    "Write one test for it.",
    "Say what could go wrong with it.",
    "The tool printed this:",
    "Read this file and go on:",
)
_WORDS = (
    *("the", "file", "has", "a", "line", "that", "says", "what", "to", "do", "when", "this", "test", "ends"),
    *(
        "and",
        "why",
        "it",
        "was",
        "made",
        "so",
        "other",
        "code",
        "can",
        "read",
        "from",
        "or",
        "write",
        "while",
    ),
    *("one", "more", "part", "of", "work", "is", "under", "way", "in", "same", "place", "with", "new"),
    *("names", "for", "each", "value", "all", "them", "are", "kept", "until", "they", "no", "longer", "used"),
)
# Times the mean at most: a plan has no single wait or text that takes it over.
_PROMPT_MOST, _PAUSE_MOST = 4, 5.0


@dataclass(frozen=True)
class Shape:
    """What is sent. Closed loop: `agents` at once. Open loop: `rate` agents a second arrive, whatever
    becomes of those before them, and `agents` is not used.

    No round begins after `seconds`, none lasts longer than `deadline`, and no agent has more than `rounds`.
    `tokens` is the longest answer and `prompt` the usual words of a turn. `pause` is the mean wait between
    an agent's rounds, seconds. With `burst`, requests go out at multiples of that many seconds only, so that
    agents send together. `abort` is the share of requests that the client gives up, `long` the share of
    agents that begin with a long text. A conversation of more than `context` tokens is begun anew; at most
    `most` agents are under way, and those that arrive beyond are turned away.
    """

    agents: int
    seconds: float
    rounds: int = 1000
    tokens: int = 16
    deadline: float = 120.0
    rate: float = 0.0
    prompt: int = 16
    pause: float = 0.0
    burst: float = 0.0
    abort: float = 0.0
    long: float = 0.0
    context: int = 512
    most: int = 256
    stream: bool = True
    chat: bool = False

    def __post_init__(self) -> None:
        need = int(WORD * _PROMPT_MOST * self.prompt) + self.tokens + 32
        if self.context < need:
            raise ConfigError(
                "load_context",
                f"A conversation may have {self.context} tokens, and one round of this load up to {need}.",
                "Allow more with --context, or ask less with --prompt and --tokens.",
            )
        if not self.rate and self.agents > self.most:
            raise ConfigError(
                "load_most", f"{self.agents} agents at once are more than the {self.most} allowed.", "--most."
            )


@dataclass(frozen=True)
class Turn:
    """One round of an agent: after `pause` seconds, or at `at` seconds of the load, it says `text`.

    `abort` is how many pieces of the answer the client takes before it gives up. A `whole` turn is a prompt
    by itself, as a trace has it: nothing said before goes with it.
    """

    text: Prompt
    tokens: int
    pause: float = 0.0
    abort: int | None = None
    at: float = 0.0
    whole: bool = False


@dataclass(frozen=True)
class Agent:
    """`at` is its arrival in seconds of the load."""

    number: int
    at: float
    turns: Iterable[Turn]


def words(rng: random.Random, count: int) -> str:
    return " ".join(rng.choices(_WORDS, k=count))


def agents(shape: Shape, seed: int) -> Iterator[Agent]:
    """In order of arrival, none after `shape.seconds`."""
    if not shape.rate:
        yield from (Agent(n, 0.0, Turns(shape, seed, n)) for n in range(shape.agents))
        return
    rng, at = random.Random(f"{seed}/arrivals"), 0.0
    for number in itertools.count():
        at += rng.expovariate(shape.rate)
        if at >= shape.seconds:
            return
        yield Agent(number, at, Turns(shape, seed, number))


@dataclass(frozen=True)
class Turns:
    """The turns of agent `number`, drawn while they are asked for."""

    shape: Shape
    seed: int
    number: int

    def __iter__(self) -> Iterator[Turn]:
        shape, rng = self.shape, random.Random(f"{self.seed}/agent/{self.number}")
        begins_long = rng.random() < shape.long
        for number in range(shape.rounds):
            size = min(_PROMPT_MOST * shape.prompt, 1 + round(rng.lognormvariate(0.0, 0.7) * shape.prompt))
            text = f"{_TURNS[number % len(_TURNS)]} {words(rng, size)}."
            if number == 0 and begins_long:
                text = f"{words(rng, round(rng.uniform(0.5, 1.0) * self._longest()))}.\n{text}"
            tokens = rng.randint(max(1, shape.tokens // 2), shape.tokens)
            pause = min(rng.expovariate(1.0), _PAUSE_MOST) * shape.pause if number else 0.0
            gives_up, after = rng.random() < shape.abort, rng.randrange(tokens)
            yield Turn(text, tokens, pause, after if gives_up else None)

    def _longest(self) -> int:
        """Words of a text that leaves room for a turn and its answer."""
        room = self.shape.context - self.shape.tokens - WORD * _PROMPT_MOST * self.shape.prompt - 32
        return max(1, int(room / WORD))
