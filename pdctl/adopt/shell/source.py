"""A script's text with a position in it."""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass

_ASSIGNS = re.compile(r"\$\{\w+:?=|\$\(\(")


@dataclass(frozen=True)
class HereDocument:
    """`word` ends it; `tabs` in front of lines do not count; `quoted`: nothing in it is expanded."""

    word: str
    tabs: bool
    quoted: bool


class ScriptError(Exception):
    """The text is not a script that this reader can take apart; nothing of it is used."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(f"line {line}: {what}")
        self.line = line
        self.what = what


class Source:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.heredocs: list[HereDocument] = []
        self._starts = [0, *(m.end() for m in re.finditer("\n", text))]

    def line(self, at: int | None = None) -> int:
        return bisect.bisect_right(self._starts, self.at if at is None else at)

    @property
    def ended(self) -> bool:
        return self.at >= len(self.text)

    @property
    def here(self) -> str:
        """The character at the position, "" at the end."""
        return self.text[self.at : self.at + 1]

    def startswith(self, text: str) -> bool:
        return self.text.startswith(text, self.at)

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        return pattern.match(self.text, self.at)

    def since(self, start: int) -> str:
        return self.text[start : self.at]

    def fail(self, what: str, at: int | None = None) -> ScriptError:
        return ScriptError(self.line(at), what)

    def blank(self) -> None:
        """Over spaces, continued lines and a comment, up to the end of the line."""
        while True:
            if self.here and self.here in " \t":
                self.at += 1
            elif self.startswith("\\\n"):
                self.at += 2
            elif self.here == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            else:
                return

    def newline(self) -> None:
        """Over a line break, and over the here-documents that begin behind it."""
        self.at += 1
        for document in self.heredocs:
            self._skip(document)
        self.heredocs.clear()

    def _skip(self, document: HereDocument) -> None:
        joined = False
        while not self.ended:
            end = self.text.find("\n", self.at)
            end = len(self.text) if end < 0 else end
            line = self.text[self.at : end]
            self.at = min(end + 1, len(self.text))
            if not joined and (line.lstrip("\t") if document.tabs else line) == document.word:
                return
            if not document.quoted:
                if _ASSIGNS.search(line):
                    raise self.fail("a here-document assigns variables", self.at - 1)
                joined = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        raise self.fail(f"the here-document {document.word} has no end")
