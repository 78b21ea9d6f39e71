"""What each builtin does to the variables, the folder and the options of a script that is followed."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Sequence
from typing import Any

from pdctl.adopt.notes import Grade, Unknown, Value
from pdctl.adopt.shell.machine import Machine
from pdctl.adopt.shell.state import Var
from pdctl.adopt.shell.touched import ENGINE, expanded, touched
from pdctl.adopt.shell.tree import Assign, Simple, Word
from pdctl.adopt.tables import names

_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:=(.*))?", re.DOTALL)
# What pdctl's systemd units set anyway.
_LIMITS = {"n": 1048576.0, "l": float("inf")}


def _words(command: Simple) -> list[Word]:
    return [w for w in command.args[1:] if isinstance(w, Word)]


def _arguments(machine: Machine, command: Simple) -> list[str] | None:
    """The arguments as texts; None, with a note, when one of them is not known."""
    fields = machine.fields(_words(command))
    texts = [f for f in fields if isinstance(f, str)]
    if len(texts) == len(fields):
        return texts
    machine.dark(command.text, "has an argument that is not known")
    return None


def export(machine: Machine, command: Simple) -> None:
    """export, readonly, declare and typeset: every argument is expanded before the first is assigned."""
    flags = {c for w in _words(command) if (w.plain or "").startswith("-") for c in (w.plain or "")[1:]}
    name = command.name
    passes, fixed = name == "export" or "x" in flags, name == "readonly" or "r" in flags
    known = {"export": "n", "readonly": ""}.get(name or "", "xrga")
    if "p" in flags and len(command.args) == 2:
        return machine.note(Grade.IDLE, "only says what is set")
    if flags - set(known) or (
        name == "export" and "n" in flags and any(isinstance(a, Assign) for a in command.args)
    ):
        return machine.dark(command.text, f"{name} with these options is not followed")
    expanded = [
        (a, [machine.assigned(a, braces=True)] if isinstance(a, Assign) else machine.fields([a]))
        for a in command.args[1:]
    ]
    for argument, values in expanded:
        if isinstance(argument, Assign):
            machine.assign(argument, values[0], export=passes)
        elif not (argument.plain or "").startswith("-"):
            _declare(machine, command, argument, values, passes, drop="n" in flags)
        if fixed:
            machine.state.fixed |= touched(f"readonly {argument.text}")
    return None


def _declare(
    machine: Machine, command: Simple, word: Word, fields: Sequence[Any], passes: bool, drop: bool
) -> None:
    for field in fields:
        found = _VARIABLE.fullmatch(field) if isinstance(field, str) else None
        if found is None:
            if isinstance(field, str) and machine.heedless(command):
                machine.note(Grade.IDLE, f"{field!r} is no name, so bash refuses it and goes on")
            else:
                machine.dark(command.text, f"{word.text} is no name that is known")
            continue
        if found[2] is not None:
            machine.state.assign(found[1], found[2], machine.file, word.line, passes)
        elif passes:
            machine.state.export(found[1], not drop, machine.file, word.line)
        elif found[1] not in machine.state.vars:
            machine.state.vars[found[1]] = Var(None, False, machine.file, word.line)
        machine.note(Grade.USED, f"{'un' if drop else ''}exports {found[1]}", text=word.text, line=word.line)


def unset(machine: Machine, command: Simple) -> None:
    arguments = _arguments(machine, command)
    for name in arguments or ():
        if name == "-f" or name in machine.state.fixed:
            return machine.dark(command.text, "this unset is not followed")
        if name != "-v":
            machine.state.unset(name, machine.file, command.line)
    if arguments:
        machine.note(Grade.USED, f"unsets {', '.join(a for a in arguments if a != '-v')}")
    return None


def set_(machine: Machine, command: Simple) -> None:
    """Options; arguments of the script that are set anew are not followed."""
    words = _arguments(machine, command)
    turns: list[tuple[bool, str]] = []
    rest = iter(words or ())
    for word in rest:
        if len(word) < 2 or word[0] not in "-+" or word == "--":
            return machine.dark(command.text, "set with arguments is not followed")
        for letter in word[1:]:
            turns.append((word[0] == "-", next(rest, "") if letter == "o" else letter))
    for on, option in turns:
        letter = {"allexport": "a", "noglob": "f", "nounset": "u"}.get(option, option)
        if letter in ("a", "f", "u"):
            (machine.state.options.add if on else machine.state.options.discard)(letter)
        elif option not in names("bash", "options") | names("bash", "option_names"):
            return machine.dark(command.text, f"set {option} is not followed")
    return machine.note(Grade.IDLE, "options of the shell")


def shopt(machine: Machine, command: Simple) -> None:
    words = _arguments(machine, command) or []
    if all(w in ("-s", "-u", "-q", "-p") or w in names("bash", "shopts") for w in words):
        return machine.note(Grade.IDLE, "options of the shell")
    return machine.dark(command.text, "shopt with these options is not followed")


def cd(machine: Machine, command: Simple) -> None:
    fields = [f for f in machine.fields(_words(command)) if f not in ("--", "-P", "-L")]
    if len(fields) > 1 or "-" in fields or "CDPATH" in machine.state.vars:
        machine.state.cwd = Unknown(
            command.text, "is not followed", machine.file, command.line, "--set PWD=FOLDER"
        )
        return machine.dark(command.text, "this cd is not followed")
    target: Any = fields[0] if fields else machine.state.lookup("HOME")
    machine.state.cwd = folder(machine, command, target)
    return machine.note(Grade.USED, "the folder that the engine is started in")


def folder(machine: Machine, command: Simple, target: Any) -> Value:
    """`target` as an absolute path; Unknown when it is relative to a folder that nobody says."""
    base = machine.state.cwd
    if isinstance(target, Unknown):
        return target
    if isinstance(target, str) and target.startswith("/"):
        return posixpath.normpath(target)
    if isinstance(target, str) and isinstance(base, str):
        return posixpath.normpath(posixpath.join(base, target))
    what = "is relative to the folder that the script was started in"
    return Unknown(command.text, what, machine.file, command.line, "--set PWD=FOLDER")


def source(machine: Machine, command: Simple) -> None:
    fields = machine.fields(_words(command))
    path = fields[0] if fields else ""
    if isinstance(path, Unknown):
        return machine.note(Grade.MISSING, f"reads a file: {path.text} {path.what}", path.answer)
    if len(fields) > 1:
        return machine.dark(command.text, "source with arguments is not followed")
    machine.note(Grade.USED, f"reads {path}")
    if path != "/dev/null" and not machine.source(path):
        machine.notes.pop()
        machine.note(Grade.MISSING, f"{path} is not here, and what it sets is not known", f"--sourced {path}")
    return None


def ulimit(machine: Machine, command: Simple) -> None:
    words = _arguments(machine, command) or []
    letter = "".join(w.strip("-SH") for w in words if w.startswith("-")) or "f"
    value = next((w for w in words if not w.startswith("-")), "")
    number = float("inf") if value == "unlimited" else float(value) if value.isdigit() else None
    if number is not None and number <= _LIMITS.get(letter, -1.0):
        return machine.note(Grade.IDLE, "a limit that pdctl's systemd units set as high or higher")
    return machine.note(Grade.LEFT, "a limit that pdctl's units do not set")


def umask(machine: Machine, command: Simple) -> None:
    machine.note(Grade.LEFT, "pdctl's units have a umask of their own")


def quiet(machine: Machine, command: Simple) -> None:
    """Its arguments are expanded all the same: `: ${X:=default}` assigns."""
    words = _words(command)
    if command.name == "printf" and words and words[0].plain == "-v":
        return machine.dark(command.text, "printf -v is not followed")
    machine.fields(words)
    plain = all(
        r.target is None or r.target.text in ("/dev/null", "/dev/stderr", "1", "2") for r in command.redirects
    )
    if plain:
        return machine.note(Grade.IDLE, "only says something or waits")
    return machine.note(Grade.LEFT, "writes a file, which pdctl does not do")


def check(machine: Machine, command: Simple) -> None:
    """`[` and `test`: their words are hardly file patterns, so only what an expansion sets is doubted."""
    machine.taint(command.text, sorted(expanded(command.text)))
    machine.note(Grade.LEFT, "a check of the script's own, which pdctl does not make")


def changing(machine: Machine, command: Simple) -> None:
    machine.dark(command.text, f"{command.name} is not followed")


def exit_(machine: Machine, command: Simple) -> None:
    machine.note(Grade.IDLE, "ends the script")
    machine.ended = f"the script ends in line {command.line} of {machine.file}"


def return_(machine: Machine, command: Simple) -> None:
    """Of a file that is sourced; in the script itself bash complains, and with set -e ends."""
    if not machine.depth:
        return machine.dark(command.text, "return outside a function is not followed")
    machine.ended = "return"
    return machine.note(Grade.IDLE, "ends this file")


def exec_(machine: Machine, command: Simple) -> None:
    if len(command.args) == 1:
        return machine.note(Grade.LEFT, "redirects what is said; pdctl keeps it (pdctl logs)")
    first = command.args[1]
    if isinstance(first, Word) and first.text.startswith("-"):
        return machine.dark(command.text, "exec with options is not followed")
    _start(machine, command, command.args[1:])
    machine.ended = f"exec in line {command.line} of {machine.file} ends the script"
    return None


def anything(machine: Machine, command: Simple) -> None:
    """A program, with its own variables in front."""
    _start(machine, command, command.args)


def _start(machine: Machine, command: Simple, args: tuple[Word | Assign, ...]) -> None:
    argv = machine.fields([a for a in args if isinstance(a, Word)])
    with machine.aside():
        for assign in command.assigns:
            value = machine.assigned(assign)
            if not assign.append and isinstance(machine.state.lookup(assign.name), tuple):
                del machine.state.vars[assign.name]  # what a command is given hides the array
            machine.assign(assign, value, export=True)
        if machine.launch(argv, command.line):
            if command.redirects:
                machine.note(Grade.LEFT, "what the engine says goes to pdctl's log (pdctl logs)")
            return
    first = argv[0] if argv else ""
    if isinstance(first, Unknown):
        machine.note(Grade.OPEN, f"what it starts is not known: {first.text} {first.what}", first.answer)
    elif any(isinstance(w, str) and w in VERBS for w in argv[: 1 + (first == "command")]):
        machine.dark(command.text, "a builtin that is called in this way is not followed")
    elif ENGINE.search(command.text):
        machine.note(Grade.OPEN, "names an engine in a way that is not understood")
    elif first.rpartition("/")[2] in ("bash", "sh", "dash") or first.endswith(".sh"):
        machine.note(Grade.OPEN, "starts another script; adopt that one")
    else:
        machine.note(Grade.LEFT, "a command that pdctl does not run", text=command.text)


VERBS: dict[str, Callable[[Machine, Simple], None]] = {
    **dict.fromkeys(names("bash", "quiet"), quiet),
    **dict.fromkeys(names("bash", "changing"), changing),
    **dict.fromkeys(("export", "readonly", "declare", "typeset"), export),
    "unset": unset,
    "set": set_,
    "shopt": shopt,
    "cd": cd,
    "source": source,
    ".": source,
    "ulimit": ulimit,
    "umask": umask,
    "exit": exit_,
    "return": return_,
    "exec": exec_,
    "[": check,
    "test": check,
    "*": anything,
}
