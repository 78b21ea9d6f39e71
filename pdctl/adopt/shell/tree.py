"""What a script consists of, as plain values. Lines count from 1."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Lit:
    """Text as it is; unquoted text may still hold patterns, braces or a tilde."""

    text: str
    quoted: bool


@dataclass(frozen=True)
class Param:
    """`$name`, `${name[sub]op arg}`. `op` is empty or one of :- - := = :? ? :+ +."""

    name: str
    sub: str
    op: str
    arg: Word | None
    quoted: bool
    text: str


@dataclass(frozen=True)
class Dark:
    """Something that only running the script could tell; `what` names it."""

    text: str
    what: str
    quoted: bool


Part = Lit | Param | Dark


@dataclass(frozen=True)
class Word:
    parts: tuple[Part, ...]
    text: str
    line: int

    @property
    def plain(self) -> str | None:
        """Its text when that is unquoted and literal: how keywords and builtins are written."""
        if len(self.parts) == 1 and isinstance(self.parts[0], Lit) and not self.parts[0].quoted:
            return self.parts[0].text
        return None


@dataclass(frozen=True)
class Assign:
    """`name=value`, `name+=value`, `name=(values)`; `value` is None for an element of an array."""

    name: str
    append: bool
    value: Word | tuple[Word, ...] | None
    text: str
    line: int


@dataclass(frozen=True)
class Redirect:
    """`op` with its descriptor before it; a here-document's body is not kept."""

    op: str
    target: Word | None
    text: str


@dataclass(frozen=True)
class Simple:
    """`args` may hold Assign behind export and its kin, as bash itself reads them."""

    assigns: tuple[Assign, ...]
    args: tuple[Word | Assign, ...]
    redirects: tuple[Redirect, ...]
    text: str
    line: int

    @property
    def name(self) -> str | None:
        """The command's name when it is written plainly."""
        first = self.args[0] if self.args else None
        return first.plain if isinstance(first, Word) else None


@dataclass(frozen=True)
class Block:
    """A compound command or a function (`name` then). `kind` is if, for, case, {, (, [[, ((, function …"""

    kind: str
    name: str
    body: tuple[Chain, ...]
    text: str
    line: int


Command = Simple | Block


@dataclass(frozen=True)
class Pipeline:
    """`prefix` is `!`, `time` or empty."""

    commands: tuple[Command, ...]
    prefix: str


@dataclass(frozen=True)
class Chain:
    """Pipelines joined by && and ||; `links[0][0]` is empty. `first` and `last` are lines."""

    links: tuple[tuple[str, Pipeline], ...]
    background: bool
    text: str
    first: int
    last: int
