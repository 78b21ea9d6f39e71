"""The room protocol as a small explicit model: both leaders, a rank, the wire and faults in one value.

One room number, used again after its first use ended, so that answers to an earlier use meet a later
one. Deadlines may fire in any order and at any moment while they are armed. `Model(drop={...})` leaves
one guard of the protocol out: what breaks then is what the guard is for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

OVER = ("done", "failed", "aborted")
CHUNKS = 2
Message = tuple[str, int]  # kind, ticket
Post = tuple[int, int, int, int]  # decode life, ticket, first chunk, end


class Out(NamedTuple):
    """A room on prefill. `want` is the ticket of its Want, `peer` the decode life that spoke of it."""

    stage: str = "none"
    rid: bool = False
    want: int = 0
    peer: int = 0
    ticket: int = 0
    complete: int = 0
    posted: int = 0
    open: int = 0
    done_sent: bool = False
    cancelled: bool = False


class In(NamedTuple):
    """A room on decode. `written` are the chunks that have landed in its pages."""

    stage: str = "none"
    ticket: int = 0
    peer: int = 0
    wanted: bool = False
    written: tuple[int, ...] = ()


class State(NamedTuple):
    """`p_up` and `d_up` are the life that each side believes to be linked with, 0 for none.

    `ends` and `quiets` are what the engines that live now were told: (side, use, how) and (side, use).
    """

    p: Out = Out()
    d: In = In()
    p_life: int = 1
    d_life: int = 1
    p_up: int = 1
    d_up: int = 1
    to_p: tuple[Message, ...] = ()
    to_d: tuple[Message, ...] = ()
    commands: tuple[tuple[str, Post], ...] = ()
    writes: tuple[Post, ...] = ()
    quiescing: bool = False
    reports: tuple[str, ...] = ()
    recent: str = ""
    p_uses: int = 0
    d_uses: int = 0
    d_before: int = 0  # uses of earlier lives of decode
    faults: int = 0
    ends: tuple[tuple[str, int, str], ...] = ()
    quiets: tuple[tuple[str, int], ...] = ()


NO_POST: Post = (0, 0, 0, 0)


class Model:
    """`uses` requests a side, `faults` losses, restarts and broken writes in all."""

    def __init__(self, uses: int = 2, faults: int = 1, drop: str = "") -> None:
        self.uses, self.faults, self.drop = uses, faults, drop

    def has(self, guard: str) -> bool:
        return guard != self.drop

    # Prefill -------------------------------------------------------------------------------------------

    def p_tell(self, s: State, kind: str, ticket: int, peer: int) -> State:
        return s._replace(to_d=(*s.to_d, (kind, ticket))) if s.p_up == peer != 0 else s

    def p_open(self, s: State) -> State:
        s = s._replace(p_uses=s.p_uses + 1)
        doomed, s = (s.recent, s._replace(recent="")) if s.p.stage == "none" else ("", s)
        s = s._replace(p=s.p._replace(stage="open", rid=True))
        if doomed.startswith("early ") and not self.has("a doomed request is told"):
            return s._replace(p=Out())
        if doomed.startswith("early "):
            return self.p_end(s, doomed.removeprefix("early "), tell=False)
        return s

    def p_pump(self, s: State) -> State:
        p = s.p
        if not (p.want and p.rid) or p.stage in OVER:
            return s
        if p.complete > p.posted:
            post = (p.peer, p.want, p.posted, p.complete)
            s = s._replace(
                p=p._replace(posted=p.complete, open=p.open + 1), commands=(*s.commands, ("post", post))
            )
        return self.p_hand_over(s)

    def p_hand_over(self, s: State) -> State:
        p = s.p
        waits = p.open and self.has("Done waits for every write")
        if waits or p.done_sent or p.stage != "inflight" or not p.want:
            return s
        s = self.p_tell(s._replace(p=p._replace(done_sent=True)), "done", p.want, p.peer)
        return s if self.has("prefill waits for Taken") else self.p_end(s, "done", tell=False)

    def p_end(self, s: State, how: str, tell: bool = True) -> State:
        p = s.p
        if p.stage in OVER and self.has("an end is final"):
            return s
        s = s._replace(p=p._replace(stage=how))
        if p.rid:
            s = s._replace(ends=tuple(sorted((*s.ends, ("p", s.p_uses, how)))))
        if tell and p.want:
            s = self.p_tell(s, how, p.want, p.peer)
        if p.open and self.has("quiet waits for open writes"):
            return s._replace(commands=(*s.commands, ("quiesce", NO_POST)))
        return self.p_quiet(s)

    def p_quiet(self, s: State) -> State:
        p = s.p
        s = s._replace(p=Out(), recent=("" if p.rid else "early ") + p.stage)
        if p.rid:
            s = s._replace(quiets=tuple(sorted((*s.quiets, ("p", s.p_uses)))))
        owed = (p.cancelled or p.want) and p.stage != "done"
        return self.p_tell(s, "quiesced", p.ticket, p.peer) if owed else s

    def p_heard(self, s: State) -> State:
        (kind, ticket), s = s.to_p[0], s._replace(to_p=s.to_p[1:])
        p, life = s.p, s.p_up
        if kind == "want":
            if p.stage in OVER or p.want or (p.stage == "none" and s.recent):
                return self.p_tell(self.p_tell(s, "failed", ticket, life), "quiesced", ticket, life)
            stage = "early" if p.stage == "none" else p.stage
            return self.p_pump(s._replace(p=p._replace(stage=stage, want=ticket, ticket=ticket, peer=life)))
        ours = p.want and (p.peer, p.ticket) == (life, ticket)
        if kind == "taken":
            if not ours or p.stage in OVER:
                return s
            return self.p_end(s, "done" if p.done_sent else "failed", tell=not p.done_sent)
        how = kind.removeprefix("cancel ")
        if p.stage == "none" or (p.want and not ours):
            if p.stage == "none" and not s.recent:
                s = s._replace(recent=f"early {how}")
            return self.p_tell(s, "quiesced", ticket, life)
        p = p._replace(cancelled=True) if p.want else p._replace(cancelled=True, peer=life, ticket=ticket)
        s = s._replace(p=p)
        return s if p.stage in OVER else self.p_end(s, how, tell=False)

    def p_report(self, s: State) -> State:
        report, s = s.reports[0], s._replace(reports=s.reports[1:])
        p = s.p
        if report == "quiet":
            return self.p_quiet(s) if p.stage in OVER else s
        if p.stage in OVER or not p.open:
            return s
        if report == "broken":
            return self.p_end(s, "failed")
        return self.p_hand_over(s._replace(p=p._replace(open=p.open - 1)))

    # Prefill's rank ------------------------------------------------------------------------------------

    def rank_settles(self, s: State) -> State:
        if s.quiescing and not s.writes:
            return s._replace(quiescing=False, reports=(*s.reports, "quiet"))
        return s

    def rank_step(self, s: State) -> State:
        (kind, post), s = s.commands[0], s._replace(commands=s.commands[1:])
        if kind == "post":
            s = s._replace(writes=(*s.writes, post))
        elif kind == "quiesce":
            s = s._replace(quiescing=True)
        else:
            s = s._replace(reports=(*s.reports, *("broken" for _ in s.writes)), writes=())
        return self.rank_settles(s)

    def rank_ends(self, s: State, at: int, good: bool) -> State:
        life, ticket, first, end = s.writes[at]
        s = s._replace(writes=s.writes[:at] + s.writes[at + 1 :])
        if good and (life, ticket) == (s.d_life, s.d.ticket):
            s = s._replace(d=s.d._replace(written=(*s.d.written, *range(first, end))))
        return self.rank_settles(s._replace(reports=(*s.reports, "posted" if good else "broken")))

    # Decode --------------------------------------------------------------------------------------------

    def d_tell(self, s: State, kind: str) -> State:
        return s._replace(to_p=(*s.to_p, (kind, s.d.ticket))) if s.d_up == s.d.peer != 0 else s

    def d_want(self, s: State) -> State:
        if not s.d.peer or s.d.stage != "granted" or s.d.wanted:
            return s
        return self.d_tell(s._replace(d=s.d._replace(wanted=True)), "want")

    def d_request(self, s: State) -> State:
        uses = s.d_uses + 1
        return s._replace(d_uses=uses, d=In("waiting", uses, s.d_up))

    def d_end(self, s: State, how: str, tell: bool = True) -> State:
        if s.d.stage in OVER and self.has("an end is final"):
            return s
        torn = how == "done" and set(s.d.written) != set(range(CHUNKS))
        ends = sorted((*s.ends, ("d", s.d.ticket, "torn" if torn else how)))
        s = s._replace(d=s.d._replace(stage=how), ends=tuple(ends))
        if tell:
            s = self.d_tell(s, f"cancel {how}")
        if how == "done" or not s.d.wanted or not self.has("decode waits for Quiesced"):
            return self.d_quiet(s)
        return s

    def d_quiet(self, s: State) -> State:
        return s._replace(d=In(), quiets=tuple(sorted((*s.quiets, ("d", s.d.ticket)))))

    def d_heard(self, s: State) -> State:
        (kind, ticket), s = s.to_d[0], s._replace(to_d=s.to_d[1:])
        d = s.d
        if (
            d.stage == "none"
            or d.peer != s.d_up
            or (ticket != d.ticket and self.has("answers carry tickets"))
        ):
            return s
        if kind == "quiesced":
            return self.d_quiet(s) if d.stage in OVER else s
        if d.stage in OVER and self.has("an end is final"):
            return s
        if kind == "done":
            return self.d_end(self.d_tell(s, "taken"), "done", tell=False) if d.wanted else s
        return self.d_end(s, kind, tell=False)

    # The link and lives --------------------------------------------------------------------------------

    def p_lost(self, s: State) -> State:
        peer, s = s.p_up, s._replace(p_up=0, to_p=())
        if s.p.peer == peer != 0 and s.p.stage != "none" and s.p.stage not in OVER:
            return self.p_end(s, "failed", tell=False)
        return s

    def d_lost(self, s: State) -> State:
        peer, s = s.d_up, s._replace(d_up=0, to_d=())
        if s.d.peer == peer != 0 and s.d.stage != "none" and s.d.stage not in OVER:
            return self.d_end(s, "failed", tell=False)
        return s

    def relink(self, s: State) -> State:
        s = self.d_lost(self.p_lost(s))
        s = s._replace(p_up=s.d_life, d_up=s.p_life, to_p=(), to_d=())
        if s.d.stage in OVER and s.d.peer == s.p_life:
            return self.d_tell(s, f"cancel {s.d.stage}") if self.has("Cancel is repeated") else s
        if s.d.stage not in ("none", *OVER) and not s.d.peer:
            return self.d_want(s._replace(d=s.d._replace(peer=s.p_life)))
        return s

    def p_restart(self, s: State) -> State:
        """The process and its writes are gone; decode hears of the next life."""
        s = self.d_lost(s._replace(p=Out(), commands=(), writes=(), quiescing=False, reports=(), recent=""))
        s = s._replace(p_life=s.p_life + 1, p_up=0, to_p=())
        # What the dead process owed its engine died with it.
        gone = tuple(e for e in s.ends if e[0] == "d"), tuple(q for q in s.quiets if q[0] == "d")
        s = s._replace(ends=gone[0], quiets=gone[1], p_uses=0)
        if s.d.stage in OVER and s.d.peer == s.p_life - 1 and self.has("a new life fences the old one"):
            return self.d_quiet(s)
        return s

    def d_restart(self, s: State) -> State:
        """Another life of decode says Hello: the old one's rooms end and its edge is removed."""
        s = self.p_lost(s)
        s = s._replace(commands=(*s.commands, ("remove", NO_POST)), d_life=s.d_life + 1, d_up=0)
        s = s._replace(to_p=(), to_d=(), d=In(), d_before=s.d_uses)
        ends = tuple(e for e in s.ends if e[0] == "p")
        return s._replace(ends=ends, quiets=tuple(q for q in s.quiets if q[0] == "p"))

    # What may happen next ------------------------------------------------------------------------------

    def progress(self, s: State) -> Iterator[tuple[str, State]]:
        """What happens by itself, sooner or later: no fault, and no wish of a client."""
        if s.p.stage == "open":
            if s.p.complete == 0:
                yield "chunk", self.p_pump(s._replace(p=s.p._replace(complete=1)))
            computed = s.p._replace(complete=CHUNKS, stage="inflight")
            yield "computed", self.p_pump(s._replace(p=computed))
        if s.p.stage in ("inflight", "early") and self.has("inflight has a deadline"):
            yield "inflight timeout", self.p_end(s, "failed")
        if s.d.stage == "waiting":
            yield "grant", self.d_want(s._replace(d=s.d._replace(stage="granted")))
        if s.d.stage in ("waiting", "granted"):
            yield "decode timeout", self.d_end(s, "failed")
        if s.to_p and s.p_up:
            yield f"prefill hears {s.to_p[0]}", self.p_heard(s)
        if s.to_d and s.d_up:
            yield f"decode hears {s.to_d[0]}", self.d_heard(s)
        if s.commands:
            yield f"rank does {s.commands[0]}", self.rank_step(s)
        for at in range(len(s.writes)):
            yield f"write {at} lands", self.rank_ends(s, at, good=True)
        if s.reports:
            yield f"report {s.reports[0]}", self.p_report(s)
        if not (s.p_up == s.d_life and s.d_up == s.p_life):
            yield "relink", self.relink(s)

    def choices(self, s: State) -> Iterator[tuple[str, State]]:
        """Requests, aborts and faults."""
        if s.p.stage in ("none", "early") and s.p_uses < self.uses:
            yield "open", self.p_open(s)
        if s.d.stage == "none" and s.d_uses < self.uses:
            yield "request", self.d_request(s)
        if s.p.complete and not s.p.want and s.p.stage not in OVER:
            yield "prefill begins again", s._replace(p=s.p._replace(stage="open", complete=0))
        if s.p.rid and s.p.stage not in OVER:
            yield "abort at prefill", self.p_end(s, "aborted")
        if s.d.stage in ("waiting", "granted"):
            yield "abort at decode", self.d_end(s, "aborted")
        if s.faults == self.faults:
            return
        s = s._replace(faults=s.faults + 1)
        for at in range(len(s.writes)):
            yield f"write {at} breaks", self.rank_ends(s, at, good=False)
        if s.p_up:
            yield "prefill loses the link", self.p_lost(s)
        if s.d_up:
            yield "decode loses the link", self.d_lost(s)
        yield "prefill restarts", self.p_restart(s)
        yield "decode restarts", self.d_restart(s)

    # What must hold ------------------------------------------------------------------------------------

    def broken(self, s: State) -> str:
        """The name of an invariant that this state breaks, or an empty string."""
        if any(how == "torn" for _, _, how in s.ends):
            return "handed over whole"
        posts = [*s.writes, *(post for kind, post in s.commands if kind == "post")]
        if posts and s.p.stage == "none":
            return "one owner"  # prefill's pages are free and still read from
        if any(life == s.d_life and not self.holds(s, ticket) for life, ticket, _, _ in posts):
            return "one owner"  # decode's pages are free and will be written
        told = {e[:2] for e in s.ends}
        if len(told) != len(s.ends):
            return "sticky ends"
        dones = [side for side, _, how in s.ends if how == "done"]
        if s.p_life == s.d_life == 1 and dones.count("p") > dones.count("d"):
            return "same end"  # prefill believes that decode has the KV
        if len(set(s.quiets)) != len(s.quiets) or not set(s.quiets) <= told:
            return "conservation"  # pages given back twice, or before the end
        if self.at_rest(s) and len(s.quiets) != s.p_uses + s.d_uses - s.d_before:
            return "conservation"  # a request that nobody has, and that nobody was told the end of
        return ""

    def holds(self, s: State, ticket: int) -> bool:
        return s.d.ticket == ticket and s.d.stage != "none"

    def at_rest(self, s: State) -> bool:
        return s.p.stage == "none" and s.d.stage == "none"
