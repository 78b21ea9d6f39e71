"""Follow a script from its first line to the engines it starts; nothing is run and every line has a note."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Protocol

from pdctl.adopt.notes import Grade, Note, Unknown, Value
from pdctl.adopt.service import Service, unwrap
from pdctl.adopt.shell.expand import Expander
from pdctl.adopt.shell.parse import parse
from pdctl.adopt.shell.source import ScriptError
from pdctl.adopt.shell.state import Absent, Held, State, Var, World
from pdctl.adopt.shell.touched import ENGINE, anything, computed, expanded, exported, touched
from pdctl.adopt.shell.tree import Assign, Block, Chain, Pipeline, Simple, Word
from pdctl.adopt.tables import names
from pdctl.fleet.command import entry

DEEPEST = 10


class Ends(Enum):
    """How a command ends, as far as its text tells; LIKELY is taken for well, and not relied on to be."""

    WELL = "well"
    LIKELY = "likely well"
    BADLY = "badly"
    UNKNOWN = "unknown"


class Sourced(Protocol):
    """How `source FILE` is read: (the file's shown name, its text), None when it is not to be had."""

    def __call__(self, path: str, cwd: Value | None, script: str) -> tuple[str, str] | None: ...


class Machine:
    """One script with what it sources. `services` and `notes` are in the order of the script."""

    def __init__(
        self,
        file: str,
        world: World,
        sourced: Sourced,
        verbs: Mapping[str, Callable[[Machine, Simple], None]],
    ) -> None:
        self.file = file
        self.verbs = verbs
        self.state = State(world)
        self.sourced = sourced
        self.services: list[Service] = []
        self.notes: list[Note] = []
        self.functions: dict[str, Block] = {}
        self.ended = ""
        self.depth = 0
        self.chain: Chain | None = None

    def run(self, text: str) -> None:
        """ScriptError where the text cannot be taken apart."""
        for chain in parse(text):
            self.follow(chain)

    def follow(self, chain: Chain) -> None:
        outer, self.chain = self.chain, chain
        if self.ended:
            self.note(Grade.IDLE, f"never reached: {self.ended}")
        elif chain.background:
            with self.aside():
                self._links(chain)
        else:
            self._links(chain)
        self.chain = outer

    @contextmanager
    def aside(self) -> Iterator[None]:
        """A subshell: what it changes is gone afterwards."""
        kept, ended = self.state.copy(), self.ended
        yield
        self.state.restore(kept)
        self.ended = ended

    # notes

    def note(self, grade: Grade, what: str, answer: str = "", text: str = "", line: int = 0) -> None:
        chain = self.chain
        first, last, shown = (chain.first, chain.last, chain.text) if chain else (0, 0, "")
        if line:
            first, last = line, line + text.count("\n")
        self.notes.append(Note(self.file, first, last, grade, text or shown, what, answer))

    def _expander(self) -> Expander:
        def say(grade: Grade, line: int, text: str, what: str, answer: str) -> None:
            self.note(grade, what, answer, text, line)

        return Expander(self.state, self.file, say)

    # && and ||

    def _links(self, chain: Chain) -> None:
        (_, first), *rest = chain.links
        ends = self._pipeline(first)
        for operator, pipeline in rest:
            if self.ended:
                return None
            if operator == "||" and _bails(pipeline) and ends in (Ends.LIKELY, Ends.UNKNOWN):
                if ends is Ends.UNKNOWN:
                    self.note(Grade.LEFT, "a check of the script's own, which pdctl does not make")
                ends = Ends.LIKELY
            elif ends is Ends.UNKNOWN or (ends is Ends.LIKELY and operator == "||"):
                return self.dark(chain.text, "a condition, which is not evaluated")
            elif (ends is Ends.BADLY) is (operator == "||"):
                ends = self._pipeline(pipeline)
            else:
                self.note(Grade.IDLE, f"what stands behind {operator} is not reached")
        if not rest and first.commands[0].text == "false":
            self.note(Grade.OPEN, "fails, and with set -e the script ends here")
        return None

    def dark(self, text: str, what: str) -> None:
        """A piece that is not followed: what it may have changed is unknown from here on."""
        changed = sorted(touched(text))
        self.taint(text, changed)
        said = f"{what}; {', '.join(changed)} may have changed" if changed else what
        if made := computed(text):
            said += f"; it exports {', '.join(made)}: what the engine needs of these goes under env by hand"
        if ENGINE.search(text):
            said += "; an engine that starts in it is not adopted"
        elif anything(text):
            said += "; it may change what follows"
        self.note(Grade.OPEN, said)

    def heedless(self, command: Simple) -> bool:
        """Whether nothing of what follows depends on how `command` ends."""
        last = self.chain.links[-1][1].commands if self.chain else ()
        return any(each is command for each in last) and "e" not in self.state.options

    def taint(self, text: str, changed: list[str]) -> None:
        world, line = self.state.world, self.chain.first if self.chain else 0
        for name in changed:
            passed = name in exported(text) or self.state.passes(name)
            if name in world.unset:
                self.state.vars.pop(name, None)
                continue
            what = "may have been changed here"
            unknown = Unknown(f"${name}", what, self.file, line, f"--set {name}=VALUE or --unset {name}")
            self.state.vars[name] = Var(world.answers.get(name, unknown), passed, self.file, line)

    # pipelines

    def _pipeline(self, pipeline: Pipeline) -> Ends:
        """Follow it, and tell how it ends."""
        if len(pipeline.commands) > 1:
            self._piped(pipeline)
            return Ends.UNKNOWN
        command = pipeline.commands[0]
        if isinstance(command, Block):
            self._block(command)
            return Ends.UNKNOWN
        if pipeline.prefix == "!":
            self.dark(command.text, "! turns a result round, which is not evaluated")
            return Ends.UNKNOWN
        self.simple(command)
        if not command.args:
            # The status of A=$(command) is the command's.
            return Ends.UNKNOWN if "$(" in command.text or "`" in command.text else Ends.WELL
        if command.name == "false":
            return Ends.BADLY
        if command.name in names("bash", "sure"):
            return Ends.WELL
        return Ends.LIKELY if command.name in names("bash", "succeeds") else Ends.UNKNOWN

    def _piped(self, pipeline: Pipeline) -> None:
        """Each part runs in a shell of its own."""
        before = len(self.services)
        with self.aside():
            for command in pipeline.commands:
                if isinstance(command, Simple):
                    self.simple(command)
                elif ENGINE.search(command.text):
                    self.note(Grade.OPEN, "a part of a pipeline that is not followed, with its engine")
        if len(self.services) == before:
            self.note(Grade.LEFT, "a pipeline, which pdctl does not run")
        else:
            self.note(Grade.LEFT, "what the engine says goes to pdctl's log (pdctl logs), not through a pipe")

    def _block(self, block: Block) -> None:
        if block.kind == "function":
            self.functions[block.name] = block
            if "a" in self.state.options:
                self.note(Grade.OPEN, f"exports the function {block.name}, which an env file cannot hold")
            else:
                self.note(Grade.IDLE, f"defines the function {block.name}")
        elif block.kind == "{":
            for chain in block.body:
                self.follow(chain)
            if not block.text.endswith("}"):
                self.note(Grade.LEFT, "redirects what is said; pdctl keeps it (pdctl logs)")
        elif block.kind == "[[":
            self.note(Grade.LEFT, "a check of the script's own, which pdctl does not make")
        elif block.kind == "(":
            engine = ENGINE.search(block.text)
            said = (
                "an engine in a subshell is not adopted" if engine else "a subshell, which pdctl does not run"
            )
            self.note(Grade.OPEN if engine else Grade.LEFT, said)
        else:
            self.dark(block.text, _BLOCKS.get(block.kind, "is not evaluated"))

    # simple commands

    def simple(self, command: Simple) -> None:
        name = command.name
        if name in self.functions:
            body = self.functions[name].text
            self.dark(f"{command.text}\n{body}", f"calls the function {name}, which is not followed")
        elif not command.args:
            self._assigns(command)
        elif name not in self.verbs:
            self.verbs["*"](self, command)
        elif command.assigns and name != "exec":
            self.dark(command.text, f"{name} with variables of its own is not followed")
        else:
            self.verbs[name or "*"](self, command)
        self.fields([r.target for r in command.redirects if r.target is not None])

    def _assigns(self, command: Simple) -> None:
        for assign in command.assigns:
            self.assign(assign, self.assigned(assign))
        if not command.assigns:
            self.note(Grade.LEFT, "opens or empties a file, which pdctl does not do")

    def fields(self, words: Sequence[Word]) -> list[Value]:
        """The arguments that `words` are; what an expansion that is not known may have set is tainted."""
        found = self._expander().fields(words)
        self._doubt(found, "\n".join(w.text for w in words))
        return found

    def value(self, word: Word, braces: bool = False) -> Value:
        """The same as the value of an assignment."""
        found = self._expander().single(word, braces)
        self._doubt([found], word.text)
        return found

    def _doubt(self, found: Sequence[Value], text: str) -> None:
        if "$((" in text or any(isinstance(v, Unknown) for v in found):
            self.taint(text, sorted(expanded(text)))

    def assigned(self, assign: Assign, braces: bool = False) -> Held:
        """The value, before any `+=`; nothing for an element of an array, which is not followed."""
        if isinstance(assign.value, Word):
            return self.value(assign.value, braces)
        return tuple(self.fields(assign.value or ()))

    def assign(self, assign: Assign, value: Held, export: bool = False) -> None:
        """Store, with a note."""
        name = assign.name
        own = name in self.state.fixed or name in names("bash", "special")
        if own or assign.value is None:
            why = f"{name}, which is read-only or bash's own" if own else "an element of an array"
            return self.dark(assign.text, f"assigns {why}, which is not followed")
        if assign.append:
            value = self._appended(assign, value)
        self.state.assign(name, value, self.file, assign.line, export)
        held = self.state.vars[name].value
        if isinstance(held, Unknown):
            said = f"sets {name} to what only a run tells: {held.text} {held.what}; no engine uses it"
            self.note(Grade.LEFT, said, text=assign.text, line=assign.line)
        else:
            self.note(Grade.USED, f"sets {name}", text=assign.text, line=assign.line)
        return None

    def _appended(self, assign: Assign, value: Held) -> Held:
        before = self.state.lookup(assign.name)
        if isinstance(value, tuple):
            if isinstance(before, tuple) or before is Absent.UNSET:
                return (*(before if isinstance(before, tuple) else ()), *value)
        elif isinstance(value, Unknown):
            return value
        elif isinstance(before, Unknown):
            return before
        elif isinstance(before, str) or before is Absent.UNSET:
            return (before if isinstance(before, str) else "") + value
        what = "adds to a value that is not known"
        return Unknown(assign.text, what, self.file, assign.line, f"--set {assign.name}=VALUE")

    def launch(self, argv: Sequence[Value], line: int) -> bool:
        """Keep `argv` with the environment of this point when it is an engine; whether it is."""
        numa, command, env = unwrap(argv, self.state.exported(), self.file, line)
        if entry([w if isinstance(w, str) else "" for w in command]) is None:
            return False
        service = Service(command, env, self.state.cwd, numa, self.file, line)
        self.services.append(service)
        self.note(Grade.USED, "starts it")
        return True

    # sourcing

    def source(self, path: str) -> bool:
        """Follow another file in this very shell; False when it is not to be had."""
        found = self.sourced(path, self.state.cwd, self.file)
        if found is None or self.depth >= DEEPEST:
            return False
        outer, (self.file, text) = self.file, found
        chain, self.chain, self.depth = self.chain, None, self.depth + 1
        try:
            self.run(text)
        except ScriptError as error:
            self.notes.append(Note(self.file, error.line, error.line, Grade.MISSING, "", error.what))
        finally:
            self.file, self.chain, self.depth = outer, chain, self.depth - 1
        if self.ended == "return":
            self.ended = ""
        return True


def _bails(pipeline: Pipeline) -> bool:
    """Whether it only says something and ends the script, or does nothing at all."""
    if len(pipeline.commands) != 1 or pipeline.prefix:
        return False
    command = pipeline.commands[0]
    if isinstance(command, Simple):
        return command.name in names("bash", "bails") and not command.assigns
    inside = [p for chain in command.body for _, p in chain.links]
    return command.kind == "{" and all(_bails(p) for p in inside)


_BLOCKS = {
    "if": "a condition, which is not evaluated",
    "case": "a case, which is not evaluated",
    "for": "a loop, which is not followed",
    "while": "a loop, which is not followed",
    "until": "a loop, which is not followed",
    "((": "arithmetic, which is not computed",
}
