"""PD340: what was named as the metadata server is none."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pdctl.adapters.traces import Event
from pdctl.diagnose.endpoints import recovered
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts, Party
from pdctl.diagnose.pairs import partners
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule

_URL = re.compile(r"(?P<url>https?://[\w.:\[\]-]+)")
_ETCD = (":2379", ":2380")


@rule("PD340", "the metadata server answers with errors", Severity.ERROR, ["logs"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """The transfer engine publishes its segments at an HTTP server that does not know what it is asked.

    What it looks like: "Unexpected code in http response, PUT http://…" with 404 or 405, then segments that
    cannot be published and a start that ends, often by an assertion. The server answers, so ports are open.

    What else it could be: "metadata not found" is the right server, without the peer's entry. A server that
    does not answer at all is down or blocked (PD304, PD312).

    What to do: name the kind of server that it is: etcd://HOST:2379 for etcd, http://HOST:PORT/metadata for
    Mooncake's own HTTP metadata server, redis:// for Redis, or P2PHANDSHAKE for none.
    """
    for party in facts.parties:
        events = list(party.traces.of("mooncake.metadata_refused"))
        if not events or recovered(facts, events):
            continue
        found = _URL.search(events[0].line)
        url = found["url"] if found else "its metadata server"
        etcd = url.endswith(_ETCD)
        code = events[0].values["code"]
        if re.search(r"(?:metadata|key) not found", events[0].line):
            yield _no_key(rule, facts, party, url, events)
            continue
        if code.startswith("5"):
            yield _sick(rule, party, url, events)
            continue
        yield rule.finding(
            party.name,
            f"{url} answers {party.name} with {code}: it is no HTTP metadata server"
            + (", by its port it is etcd." if etcd else "."),
            quoted(events),
            f"metadata_server: {'etcd://' + url.partition('//')[2] if etcd else 'http://HOST:PORT/metadata'} "
            "(or P2PHANDSHAKE), then start it again",
            since=since(events),
        )


def _no_key(rule: Rule, facts: Facts, party: Party, url: str, events: list[Event]) -> Finding:
    """It is a metadata server, and nobody has published there what is looked for."""
    return rule.finding(
        party.name,
        f"{url} does not know the segment that {party.name} looks for: its peer has not published it there.",
        quoted(events),
        "compare the metadata server and the local name that each side was given",
        touches=partners(facts, [party.name]),
        since=since(events),
        hypotheses=(
            Hypothesis(
                "the two sides publish at different servers, or under another name or address",
                f"GET {url}/metadata of the peer's key: which keys did the peer PUT, and where (its log)?",
            ),
            Hypothesis(
                "a rank of the peer has not started or ended",
                "count the ranks in the peer's log that registered; its start against the time of this line",
            ),
        ),
    )


def _sick(rule: Rule, party: Party, url: str, events: list[Event]) -> Finding:
    """The server says that it is itself at fault, or a proxy before it does."""
    return rule.finding(
        party.name,
        f"{url} answers {party.name} with {events[0].values['code']}: segments are not published.",
        quoted(events),
        f"curl -i {url} from there, and the log of that server",
        since=since(events),
        hypotheses=(
            Hypothesis(
                "the metadata server is ill", f"its log and its health; curl -i {url} on its own host"
            ),
            Hypothesis(
                "a proxy stands between them", "env | grep -i proxy there; try with no_proxy set for it"
            ),
        ),
    )
