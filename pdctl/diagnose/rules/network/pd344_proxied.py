"""PD344: calls to peers go through an HTTP proxy."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from pdctl.adapters.traces import Event
from pdctl.diagnose.endpoints import loopback, recovered
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts, Party
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.words import listed

_PROXY = re.compile(r"^(?:https?|all)_proxy$", re.IGNORECASE)
_PRIVATE = re.compile(
    r"^(?:10\.|192\.168\.|172\.(?:1[6-9]|2\d|3[01])\.|100\.(?:6[4-9]|[7-9]\d|1[01]\d|12[0-7])\.)"
)
_HOST = re.compile(r"^\w+://\[?(?P<host>[\w.:-]+?)\]?(?::\d+)?(?:/|$)")


def _exempt(host: str, environ: Mapping[str, str]) -> bool:
    """Whether no_proxy names the host itself, a domain of it, or everything; networks count for some clients
    alone and are not taken here.
    """
    text = next((v for n, v in environ.items() if n.lower() == "no_proxy"), "")
    names = {entry.strip().lstrip(".*") for entry in text.split(",")}
    if "*" in [entry.strip() for entry in text.split(",")]:
        return True
    return any(n and (host == n or host.endswith("." + n)) for n in names)


def _peers(facts: Facts, party: Party) -> set[str]:
    """Hosts of the other servers, as their URLs have them."""
    urls = [p.member.url for p in facts.parties if p is not party]
    return {found["host"] for url in urls if (found := _HOST.match(url))}


def _through(facts: Facts, party: Party) -> list[Event]:
    """Calls to servers of this fleet that failed on their way and that no_proxy does not exempt."""
    seen, peers = party.traces, _peers(facts, party)
    return [
        e
        for e in seen.of("http.failed")
        if (host := e.values["host"]) in peers | {h for h in [host] if _PRIVATE.match(h)}
        and not loopback(host)
        and not _exempt(host, seen.environ)
    ]


@rule("PD344", "a proxy between servers", Severity.ERROR, ["logs"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A server was started with http_proxy: its calls to peers go to a proxy that does not reach them.

    What it looks like: 502, 503, 504 or 403 for calls between servers that are healthy when asked by hand, or
    "Cannot connect to proxy". no_proxy is not set, or has a network (10.0.0.0/8), which some clients do not
    read, or a name while calls go to the address.

    What else it could be: the peer itself answers 503 while it starts or is full: ask it without the proxy.

    What to do: exempt every peer by address and by name, or start servers without the variables: a fleet does
    not need them once its models are there.
    """
    for party in facts.parties:
        proxies = {n: v for n, v in party.traces.environ.items() if _PROXY.match(n) and v}
        said = list(party.traces.of("net.proxy"))
        lines = [*said, *(_through(facts, party) if proxies else ())]
        if not lines or recovered(facts, lines):
            continue
        hosts = sorted({e.values["host"] for e in lines if e.values.get("host")} or _peers(facts, party))
        told = {n: v for n, v in party.traces.environ.items() if n.lower() == "no_proxy"} | proxies
        yield rule.finding(
            party.name,
            f"{party.name} calls {listed(hosts[:3] or ['its peers'])} through an HTTP proxy, and that fails.",
            [*(f"{party.name}: {n}={v}" for n, v in sorted(told.items())), *quoted(lines)],
            f"add {','.join(hosts[:3]) or 'every peer'} to no_proxy of {party.name} (by address), "
            f"or unset http_proxy; then: pdctl restart {party.name}",
            since=since(lines),
            hypotheses=()
            if said and proxies
            else (
                Hypothesis(
                    "the proxy answers in the peer's place",
                    f"curl -i http://{hosts[0] if hosts else 'PEER'}:PORT/health with the variables of "
                    f"{party.name}, then with --noproxy '*': another answer?",
                ),
                Hypothesis("the peer itself refuses", "its own log at that time: is the request in it?"),
            ),
        )
