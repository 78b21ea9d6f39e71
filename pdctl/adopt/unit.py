"""A systemd unit, drop-ins and environment files: the engine it starts, and a note for every directive."""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping

from pdctl.adopt.files import Files, Here
from pdctl.adopt.notes import Grade, Note, Unknown, Value
from pdctl.adopt.service import Service, Setting, unwrap
from pdctl.adopt.tables import names, sentences
from pdctl.adopt.unitfile import Directive, EnvFile, directives, words
from pdctl.errors import ConfigError
from pdctl.fleet.command import entry

_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_BRACED = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|(\$))")
_SPECIFIER = re.compile(r"%(.)")
_READ = ("ExecStart", "Environment", "EnvironmentFile", "UnsetEnvironment", "WorkingDirectory")
_GRADES = {"open": Grade.OPEN, "assumed": Grade.ASSUMED, "idle": Grade.IDLE, "left": Grade.LEFT}
_PLACE = ("NUMAPolicy", "NUMAMask", "CPUAffinity")


class Unit:
    """`name` is the unit's (`sglang@0.service`); `answers` are the operator's, `%i` among their names."""

    def __init__(self, name: str, files: Files, answers: Mapping[str, str], given: Mapping[str, str]) -> None:
        self.name = name
        self.notes: list[Note] = []
        self.env: dict[str, Setting] = {}
        self.start: Directive | None = None
        self.argv: list[Value] = []
        self.cwd: Value = "/"
        self.numa: int | None = None
        self._files = files
        self._answers = answers
        self._given = given
        self._place: dict[str, Directive] = {}

    def read(self, parts: Iterable[tuple[str, str]]) -> None:
        """`parts` are (file, text): the unit, then its drop-ins; ConfigError without one ExecStart."""
        found = [d for file, text in parts for d in directives(text, file)]
        lists: dict[str, list[Directive]] = {key: [] for key in _READ}
        for directive in found:
            if directive.section == "Service" and directive.key in _READ:
                lists[directive.key] = [*lists[directive.key], directive] if directive.value else []
            elif directive.section == "Service" and directive.key in _PLACE:
                self._place[directive.key] = directive
            else:
                self._aside(directive)
        for directive in lists["Environment"]:
            self._environment(directive)
        for directive in lists["EnvironmentFile"]:
            self._environment_file(directive)
        for directive in lists["UnsetEnvironment"]:
            self._unset(directive)
        for directive in lists["WorkingDirectory"][-1:]:
            self._folder(directive)
        self._binding()
        if len(lists["ExecStart"]) != 1:
            count = len(lists["ExecStart"])
            raise ConfigError("no_engine", f"{self.name} has {count or 'no'} ExecStart=, and one is needed.")
        self.start = lists["ExecStart"][0]
        self.argv = list(self._command(self.start))

    @property
    def service(self) -> Service | None:
        """What it starts, when that is an engine itself and not a script."""
        if self.start is None:
            return None
        at = (self.start.file, self.start.first)
        numa, command, env = unwrap(self.argv, self.env, *at)
        if entry([w if isinstance(w, str) else "" for w in command]) is None:
            return None
        return Service(command, env, self.cwd, numa if self.numa is None else self.numa, *at)

    def note(self, directive: Directive, grade: Grade, what: str, answer: str = "") -> None:
        text = f"{directive.key}={directive.value}" if directive.key else directive.value
        self.notes.append(Note(directive.file, directive.first, directive.last, grade, text, what, answer))

    def _aside(self, directive: Directive) -> None:
        """What a fleet file has no place for, and what is not known at all."""
        pair = f"{directive.key}={directive.value}"
        for shown in (f"[{directive.section}]{pair}", pair, directive.key):
            for table, grade in _GRADES.items():
                for pattern, what in sentences("systemd", table).items():
                    if fnmatch.fnmatchcase(shown, pattern):
                        return self.note(directive, grade, what)
        return self.note(directive, Grade.OPEN, "a directive that pdctl does not know")

    # environment

    def _environment(self, directive: Directive) -> None:
        for word in words(directive.value) or [""]:
            found = _VARIABLE.fullmatch(word)
            if found is None:
                self.note(directive, Grade.OPEN, "is no list of NAME=VALUE that systemd would take")
                continue
            value = self._specified(found[2], directive)
            self.env[found[1]] = Setting(value, directive.file, directive.first)
            self.note(directive, Grade.USED, f"sets {found[1]}")

    def _environment_file(self, directive: Directive) -> None:
        path, optional = directive.value.removeprefix("-"), directive.value.startswith("-")
        if any(c in path for c in "*?[%"):
            return self.note(directive, Grade.OPEN, "names files by a pattern, which are not read")
        shown, text = self._env_text(path)
        if text is None:
            if optional:
                return self.note(directive, Grade.IDLE, "is not there, and need not be")
            return self.note(
                directive, Grade.MISSING, f"{path} is not {self._files.where}", f"--sourced {path}"
            )
        self.note(directive, Grade.USED, f"reads {path}")
        read = EnvFile(text)
        for name, value, line in read.found:
            self.env[name] = Setting(value, shown, line)
            self.notes.append(Note(shown, line, line, Grade.USED, f"{name}={value}", f"sets {name}"))
        self.notes += [Note(shown, line, line, Grade.OPEN, "", what) for line, what in read.odd]
        return None

    def _env_text(self, path: str) -> tuple[str, str | None]:
        for key in (path, posixpath.basename(path)):
            if key in self._given:
                return self._given[key], Here().read(self._given[key])
        return path, self._files.read(path)

    def _unset(self, directive: Directive) -> None:
        for word in words(directive.value) or []:
            name, equals, value = word.partition("=")
            if name in self.env and (not equals or self.env[name].value == value):
                del self.env[name]
        self.note(directive, Grade.USED, "takes variables away")

    # command

    def _command(self, directive: Directive) -> Iterator[Value]:
        text = directive.value.lstrip("-")
        split = words(text)
        if not split or split[0][:1] in ("@", "+", "!", ":", "|") or ";" in split or "\\;" in text:
            raise ConfigError(
                "not_understood",
                f"{directive.file}:{directive.first}: this form of ExecStart= is not read.",
                "Adopt the running engine with pid:NUMBER instead.",
            )
        self.note(directive, Grade.USED, "starts it")
        yield self._specified(split[0], directive)
        for word in split[1:]:
            yield from self._expanded(word, directive)

    def _expanded(self, word: str, directive: Directive) -> Iterator[Value]:
        if word.startswith("$") and word[1:2] not in ("{", "$"):
            yield from self._split(word, self._variable(word[1:], directive), directive)
            return
        specified = self._specified(word, directive)
        unknown: list[Unknown] = [specified] if isinstance(specified, Unknown) else []

        def one(found: re.Match[str]) -> str:
            value = "$" if found[2] else self._variable(found[1], directive)
            unknown.extend([value] if isinstance(value, Unknown) else [])
            return value if isinstance(value, str) else ""

        text = _BRACED.sub(one, specified if isinstance(specified, str) else word)
        yield unknown[0] if unknown else text

    def _split(self, word: str, value: Value, directive: Directive) -> Iterator[Value]:
        """A variable that is a word by itself is split, its quotes respected."""
        split = words(value) if isinstance(value, str) and "\\" not in value else None
        if split is not None:
            yield from split
        elif isinstance(value, Unknown):
            yield value
        else:
            what = "holds quotes or backslashes that are not read"
            yield Unknown(word, what, directive.file, directive.first, f"--set {word[1:]}=VALUE")

    def _variable(self, name: str, directive: Directive) -> Value:
        """A variable of the unit; one that nobody sets is empty, as systemd has it."""
        if name in self.env:
            return self.env[name].value
        if name in names("systemd", "ambient"):
            what, answer = "is set by systemd", f"--set {name}=VALUE"
            unknown = Unknown(f"${name}", what, directive.file, directive.first, answer)
            return self._answers.get(name, unknown)
        return ""

    def _specified(self, text: str, directive: Directive) -> Value:
        """With %i and its kin replaced as far as the unit's name tells them."""
        stem, _, kind = self.name.rpartition(".")
        prefix, at, instance = stem.partition("@")
        told = {"%": "%", "n": self.name, "N": stem, "p": prefix, "t": "/run"}
        if at and instance:
            told |= {"i": instance, **({} if "\\" in instance else {"I": instance.replace("-", "/")})}
        elif kind and not at:
            told |= {"i": "", "I": ""}
        told |= {k[1:]: v for k, v in self._answers.items() if k.startswith("%")}
        for letter in _SPECIFIER.findall(text):
            if letter not in told:
                answer = f"--set %{letter}=VALUE"
                what = "is filled in by systemd"
                return Unknown(f"%{letter}", what, directive.file, directive.first, answer)
        return _SPECIFIER.sub(lambda found: told[found[1]], text)

    # folder and node

    def _folder(self, directive: Directive) -> None:
        path = self._specified(directive.value.removeprefix("-"), directive)
        if path == "~":
            at = (directive.file, directive.first, "--set HOME=FOLDER")
            path = self._answers.get("HOME", Unknown("~", "is the home of the unit's user", *at))
        self.cwd = path
        self.note(directive, Grade.USED, "the folder that the engine is started in")

    def _binding(self) -> None:
        """NUMAPolicy=bind of one node with CPUAffinity=numa is what `numa` stands for."""
        found = {key: d.value for key, d in self._place.items()}
        node = found.get("NUMAMask", "")
        whole = found == {"NUMAPolicy": "bind", "NUMAMask": node, "CPUAffinity": "numa"} and node.isdigit()
        self.numa = int(node) if whole else None
        for directive in self._place.values():
            said = (
                "binds it to its node"
                if whole
                else "a placement that `numa` does not stand for; it is left out"
            )
            self.note(directive, Grade.USED if whole else Grade.OPEN, said)
