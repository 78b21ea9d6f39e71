"""Words to text, by bash's order: parameters, splitting, patterns; what cannot be known becomes Unknown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pdctl.adopt.notes import Grade, Unknown, Value
from pdctl.adopt.shell.state import Absent, Found, State
from pdctl.adopt.shell.tree import Dark, Lit, Param, Word
from pdctl.adopt.tables import names

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_BLANK = " \t\n"
# $(dirname "$0") and $(cd "$(dirname "$0")" && pwd), as scripts ask for their own folder.
_SELF = r"""(?:"?\$(?:0|\{0\}|BASH_SOURCE|\{BASH_SOURCE(?:\[0\])?\})"?)"""
_SELF_FILE = rf"""(?:{_SELF}|"?\$\((?:realpath|readlink -f) (?:-- )?{_SELF}\)"?)"""
_DIRNAME = rf"""\$\(dirname (?:-- )?{_SELF_FILE}\)"""
_QUIET = r"(?: ?&?>/?[a-z/]*(?: 2>&1)?)?"
_OWN_FOLDER = re.compile(
    rf"""{_DIRNAME}|\$\( ?cd (?:-P )?(?:-- )?"?{_DIRNAME}"?{_QUIET} ?&& ?pwd(?: -P)? ?\)"""
    rf"""|\$\((?:realpath|readlink -f) (?:-- )?"?{_DIRNAME}"?\)"""
)


@dataclass(frozen=True)
class Piece:
    """A stretch of a word's value. `split`: unquoted and not literal; `glob`: patterns in it count."""

    text: str
    split: bool
    glob: bool


class Break:
    """Between two elements of "${array[@]}"."""


class Dim(Exception):
    """The word's value is not known."""

    def __init__(self, unknown: Unknown) -> None:
        super().__init__(unknown.text)
        self.unknown = unknown


# Takes a note that goes with an expansion: (grade, line, text, sentence, the flag that says otherwise).
Say = Callable[[Grade, int, str, str, str], None]


class Expander:
    def __init__(self, state: State, file: str, say: Say) -> None:
        self.state = state
        self.file = file
        self.say = say

    def single(self, word: Word, braces: bool = False) -> Value:
        """As the value of an assignment: no splitting, no patterns, and no braces but behind `export`."""
        try:
            if braces:
                self._braces(word)
            self._tilde_in_value(word)
            pieces = self._pieces(word, joined=True)
        except Dim as dim:
            return dim.unknown
        return "".join(p.text for p in pieces if isinstance(p, Piece))

    def fields(self, words: Iterable[Word]) -> list[Value]:
        """As arguments of a command; a word that is not known is one Unknown."""
        found: list[Value] = []
        for word in words:
            try:
                self._braces(word)
                pieces = self._pieces(word, joined=False)
                found += self._split(word, pieces)
            except Dim as dim:
                found.append(dim.unknown)
        return found

    def dark(self, word: Word, text: str, what: str, answer: str = "") -> Dim:
        return Dim(Unknown(text, what, self.file, word.line, answer or f"--set '{text}=VALUE'"))

    def _end(self, word: Word, text: str, what: str, name: str) -> Dim:
        """Here the script ends, so what follows is not what runs."""
        answer = f"--set {name}=VALUE"
        self.say(Grade.OPEN, word.line, text, what, answer)
        return self.dark(word, text, what, answer)

    # what is refused before anything is expanded

    def _braces(self, word: Word) -> None:
        bare = "".join(p.text if isinstance(p, Lit) and not p.quoted else "\0" for p in word.parts)
        if "{" in bare and "}" in bare and ("," in bare or ".." in bare):
            raise self.dark(word, word.text, "holds braces that bash would expand")
        if (found := _ASSIGNMENT.match(bare)) and ("~" in bare[found.end() :]):
            raise self.dark(word, word.text, "holds a ~ that bash may expand")

    def _tilde_in_value(self, word: Word) -> None:
        if any(isinstance(p, Lit) and not p.quoted and ":~" in p.text for p in word.parts):
            raise self.dark(word, word.text, "holds a ~ that bash may expand")
        previous: str = ""
        for part in word.parts:
            if isinstance(part, Lit) and not part.quoted and part.text.startswith("~") and previous == ":":
                raise self.dark(word, word.text, "holds a ~ that bash may expand")
            previous = part.text[-1:]

    # expansion

    def _pieces(self, word: Word, joined: bool) -> list[Piece | type[Break]]:
        pieces: list[Piece | type[Break]] = []
        for number, part in enumerate(word.parts):
            if isinstance(part, Lit):
                text = part.text
                if number == 0 and not part.quoted and text.startswith("~"):
                    home, text = self._home(word, text)
                    pieces.append(Piece(home, False, False))
                pieces.append(Piece(text, False, not part.quoted))
            elif isinstance(part, Dark):
                answer = self._answer(word, part)
                pieces.append(Piece(answer, not part.quoted, not part.quoted))
            else:
                pieces += self._param(word, part, joined)
        return pieces

    def _answer(self, word: Word, part: Dark) -> str:
        """What the operator said it is, or the script's own folder where it is asked for in a known way."""
        answer, script = self.state.world.answers.get(part.text), self.state.world.script
        if answer is not None:
            return answer
        if script is None or not _OWN_FOLDER.fullmatch(part.text):
            raise self.dark(word, part.text, part.what)
        folder = script.rpartition("/")[0] or "/"
        self.say(
            Grade.ASSUMED,
            word.line,
            part.text,
            f"taken as {folder}, the script's own folder",
            f"--set '{part.text}=VALUE'",
        )
        return folder

    def _home(self, word: Word, text: str) -> tuple[str, str]:
        whole = text == "~" and len(word.parts) == 1
        if not whole and not text.startswith("~/"):
            raise self.dark(word, word.text, "holds a ~ that bash may expand")
        home = self.state.lookup("HOME")
        if not isinstance(home, str):
            raise self.dark(word, text, "needs HOME", "--set HOME=FOLDER")
        return home, text[1:]

    def _param(self, word: Word, param: Param, joined: bool) -> list[Piece | type[Break]]:
        value = self._value(word, param)
        if isinstance(value, Unknown):
            raise Dim(value)
        if param.op in (":+", "+"):
            return [] if _missing(value, param.op) else self._argument(param, joined)
        if param.op and _missing(value, param.op):
            if param.op in (":?", "?"):
                raise self._end(word, param.text, f"ends the script unless {param.name} is set", param.name)
            pieces = self._argument(param, joined)
            if param.op in (":=", "="):
                text = "".join(p.text for p in pieces if isinstance(p, Piece))
                self.state.assign(param.name, text, self.file, word.line)
                pieces = [Piece(text, not param.quoted, not param.quoted)]
            return pieces
        return self._plain(word, param, value, joined)

    def _argument(self, param: Param, joined: bool) -> list[Piece | type[Break]]:
        if param.arg is None:
            return []
        if param.arg.text.startswith("~") or ":~" in param.arg.text:
            raise self.dark(param.arg, param.text, "holds a ~ that bash may expand")
        pieces = self._pieces(param.arg, joined)
        if param.quoted:
            return [Piece("", False, False), *pieces]
        # Literal text that comes out of an expansion is split like the rest of it.
        return [Piece(p.text, p.glob or p.split, p.glob) if isinstance(p, Piece) else p for p in pieces]

    def _value(self, word: Word, param: Param) -> Found:
        name, world = param.name, self.state.world
        if name in "@*" or (name.isdigit() and name != "0"):
            return self._positional(word, param)
        value = self.state.lookup(name) if name != "0" else world.answers.get("0", Absent.OUTSIDE)
        bash = name in names("bash", "dynamic") or not (name[0].isalpha() or name[0] == "_")
        if value is Absent.OUTSIDE and bash:
            raise self.dark(word, param.text, "is set by bash itself", f"--set {name}=VALUE")
        if value is Absent.OUTSIDE and param.op in (":-", "-", ":=", "=", ":+", "+"):
            taken = "nothing" if "+" in param.op else "its default"
            said = f"{name} comes from outside the script; {taken} was taken"
            self.say(Grade.ASSUMED, word.line, param.text, said, f"--set {name}=VALUE")
        if isinstance(value, tuple):
            return self._array(word, param, value)
        if param.sub not in ("", "0", "@", "*"):
            raise self.dark(word, param.text, "is no array that is known")
        return value

    def _positional(self, word: Word, param: Param) -> Found:
        world, name = self.state.world, param.name
        if name in world.answers:
            return world.answers[name]
        args = world.args
        if args is None:
            if name in "@*" or param.op:
                said = "arguments of the script are not known; none were taken"
                self.say(Grade.ASSUMED, word.line, param.text, said, "--set 1=VALUE")
                return () if name in "@*" else Absent.UNSET
            return Absent.OUTSIDE
        if name in "@*":
            return tuple(args)
        return args[int(name) - 1] if int(name) <= len(args) else Absent.UNSET

    def _array(self, word: Word, param: Param, values: tuple[Value, ...]) -> Found:
        if param.sub in ("@", "*"):
            if param.op:
                raise self.dark(word, param.text, "is an expansion that is not evaluated")
            return values
        number = int(param.sub or "0")
        return values[number] if number < len(values) else Absent.UNSET

    def _plain(self, word: Word, param: Param, value: Found, joined: bool) -> list[Piece | type[Break]]:
        if isinstance(value, Unknown):
            raise Dim(value)
        if value is Absent.OUTSIDE and "u" in self.state.options:
            raise self._end(word, param.text, "comes from outside, and must be set with set -u", param.name)
        if value is Absent.OUTSIDE:
            raise self.dark(word, param.text, "comes from outside the script", f"--set {param.name}=VALUE")
        if isinstance(value, Absent):
            if "u" in self.state.options and param.name not in "@*":
                raise self._end(word, param.text, "is not set, and set -u ends the script here", param.name)
            return [Piece("", False, False)] if param.quoted else []
        if isinstance(value, str):
            return [Piece(value, not param.quoted, not param.quoted)]
        return self._elements(word, param, value, joined)

    def _elements(
        self, word: Word, param: Param, values: tuple[Value, ...], joined: bool
    ) -> list[Piece | type[Break]]:
        star = "*" in (param.sub, param.name)
        texts: list[str] = []
        for value in values:
            if isinstance(value, Unknown):
                raise Dim(value)
            texts.append(value)
        if joined or (star and param.quoted):
            self._ifs(word, param.text)
            return [Piece(" ".join(texts), False, False)]
        pieces: list[Piece | type[Break]] = []
        for number, text in enumerate(texts):
            pieces += [Break] if number else []
            pieces.append(Piece(text, not param.quoted, not param.quoted))
        return pieces

    # fields

    def _ifs(self, word: Word, text: str) -> None:
        if "IFS" in self.state.vars:
            raise self.dark(word, text, "is split by an IFS of the script's own")

    def _split(self, word: Word, pieces: list[Piece | type[Break]]) -> list[str]:
        fields: list[str] = []
        current: str | None = None
        for piece in pieces:
            if not isinstance(piece, Piece):
                fields += [] if current is None else [current]
                current = None
                continue
            if piece.glob and "f" not in self.state.options and any(c in piece.text for c in "*?["):
                raise self.dark(word, word.text, "holds a file pattern")
            if not piece.split:
                if piece.text or not piece.glob:
                    current = (current or "") + piece.text
                continue
            if piece.text:
                self._ifs(word, word.text)
            for number, part in enumerate(re.split(f"[{_BLANK}]+", piece.text)):
                if number:
                    fields += [] if current is None else [current]
                    current = None
                if part:
                    current = (current or "") + part
        return fields + ([] if current is None else [current])


def _missing(value: Found, op: str) -> bool:
    """Whether bash takes the other branch of the operator."""
    if isinstance(value, Absent):
        return True
    if isinstance(value, tuple):
        return not value
    return op.startswith(":") and value == ""
