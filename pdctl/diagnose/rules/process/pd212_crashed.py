"""PD212: a process crashed in native code."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pdctl.adapters.traces import Event
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts, Party
from pdctl.diagnose.lives import before, end_in_words, gravity, of_its_end, past, said_in, signal_of
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule

_WORDS = {"seg": 11, "bus": 7, "abort": 6, "floating": 8, "illegal": 4}
_NATIVE = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 11: "SIGSEGV"}


def _hypotheses(number: int | None, name: str) -> list[Hypothesis]:
    core = Hypothesis(
        "a native library crashed: the innermost frame outside of Python names it",
        f"coredumpctl debug on the host of {name}, or PYTHONFAULTHANDLER=1 and one more crash",
    )
    if number == 7:
        return [Hypothesis("a mapped file had no room behind it: shared memory is full", "df /dev/shm"), core]
    peer = Hypothesis(
        "it met a new life of a peer: a transfer library kept state of the old one",
        "compare the time of the crash with the last start of each peer",
    )
    return [peer, core]


def _asserted(party: Party) -> list[Hypothesis]:
    """A library that ends itself says which of its own limits was passed."""
    lines = _now(party, "process.assertion")
    if not lines:
        return []
    return [
        Hypothesis(
            f"a library met what it has no room or case for: {lines[0].values['what']}",
            "search for the assertion with its version; start it with fewer devices (UCX_NET_DEVICES)",
        )
    ]


# Frames that every crash has.
_ANY = re.compile(r"^lib(?:ucs|c|pthread|stdc\+\+|gcc_s|python[\d.]*)\b")


# Transports that read what they send with the CPU.
_COPIES = re.compile(r"uct_(?:tcp|mm|sysv|posix|cma|self)_ep_(?:am|put)_(?:bcopy|short|zcopy)")


def _innermost(party: Party) -> list[Hypothesis]:
    """The library that the frames of the crash name, and how to do without it."""
    frames = [e for e in _now(party, "process.frame") if not _ANY.match(e.values["library"])]
    if not frames:
        return _symbol(party)
    library, function = frames[0].values["library"], frames[0].values["function"]
    copies = next((e for e in frames if _COPIES.match(e.values["function"])), None)
    if copies is not None:
        return [
            Hypothesis(
                f"UCX has no CUDA: it reads GPU memory as the host's ({copies.values['function']})",
                "ucx_info -d | grep cuda with the UCX that it loaded; UCX_TLS must keep cuda_copy",
            )
        ]
    transport = re.sub(r"^libuct_(?:cuda_)?|\.so$", "", library) if library.startswith("libuct_") else ""
    test = "compare its version on both sides and with the last good start; one more run without it"
    if transport:
        name = {"gdrcopy": "gdr_copy", "ib": "rc,dc,ud"}.get(transport, transport)
        test = f"start it with UCX_TLS=^{name}: does it stay up? Then compare that library with the driver"
    return [Hypothesis(f"{library} crashed in {function}", test)]


def _symbol(party: Party) -> list[Hypothesis]:
    """The function that the frames begin with, where they name no library."""
    names = [e.values["function"].strip() for e in _now(party, "process.symbol")]
    if not names:
        return []
    test = f"compare the version of what has {names[0]} with the last good start; read LD_LIBRARY_PATH"
    return [Hypothesis(f"it crashed in {names[0]}", test)]


def _first_words(party: Party, lines: list[Event]) -> list[Event]:
    """What it called an error just before it crashed."""
    return before(party, lines[0])[-3:] if lines and lines[0].party == party.name else []


def _now(party: Party, *signs: str) -> list[Event]:
    """Its lines that are not of an earlier life than the last."""
    return [e for e in party.traces.of(*signs) if not past(party, e)]


def _number(party: Party) -> int | None:
    """The signal that ended it; 0 when a line says that one did and not which, None when none did."""
    number = signal_of(party.traces)
    ends = party.traces.ended is not None or _now(party, "process.unit_ended")
    if number in _NATIVE and ends:
        return number
    lines = _now(party, "process.signal")
    said = " ".join(e.values.get("what", "") for e in lines).lower()
    if not lines:
        return None
    return next((number for word, number in _WORDS.items() if word in said), 0)


@rule("PD212", "crashed in native code", Severity.ERROR, ["engine.reach"], echo_of=["PD446"], fallback=True)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A process ended by SIGSEGV, SIGABRT, SIGBUS or the like: native code, not a Python exception.

    What it looks like: "Fatal Python error", "Caught signal 11", exit 139, -11, 134 or 135; the frames
    below it name the library.

    What else it could be: 137 is a kill (PD210, PD211). A crash in a transfer library within one request of
    a peer's restart is the restart's. A GPU fault shows an Xid or a CUDA error.

    What to do: keep the core and the frames, read which library is innermost, and compare its version with
    the other hosts'.
    """
    for party in facts.parties:
        number = _number(party)
        if number is None:
            continue
        host = facts.host(party.member.host)
        kernel = [e for e in host.traces.events if e.sign == "kernel.segfault"] if host else []
        kernel = [e for e in kernel if of_its_end(party, e)]
        lines = [*_now(party, "process.assertion"), *_now(party, "process.signal"), *kernel]
        said = _first_words(party, lines)
        signal = _NATIVE.get(number, "")
        how = end_in_words(party.traces) if signal_of(party.traces) else f"ended by {signal or 'a signal'}"
        yield rule.finding(
            party.name,
            f"{party.name} crashed in native code{f' ({signal})' if signal else ''}"
            + (f"; before that: {said_in(said[0])}." if said else "."),
            [f"{party.name}: {how}", *quoted(said), *quoted(lines)],
            f"pdctl logs {party.name}",
            since=since(lines),
            severity=gravity(party),
            hypotheses=[*_asserted(party), *_innermost(party), *_hypotheses(number, party.name)][:3],
        )
