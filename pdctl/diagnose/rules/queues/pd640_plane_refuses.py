"""PD640: the control plane does not serve what workers ask of it."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since, writers
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.words import listed


@rule("PD640", "control plane refuses", Severity.ERROR, ["logs"], echo_of=["PD668", "PD304"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Workers hand requests over through NATS or etcd, and the server there says that it cannot.

    What it looks like: "nats: ServiceUnavailableError" where a stream is looked up, "no responders
    available", "Failed to connect to etcd server"; workers loaded their model and no request gets through.

    What else it could be: leases that are lost together are PD668; a refused port is PD304.

    What to do: start NATS with JetStream (nats-server -js) and etcd where NATS_SERVER and ETCD_ENDPOINTS of
    every worker point; then start the workers.
    """
    lines = facts.events("store.refuses")
    if not lines:
        return
    stream = any("ServiceUnavailable" in e.line or "JetStream" in e.line for e in lines)
    absent = Hypothesis(
        "the workers' address of it is wrong or it does not run",
        "NATS_SERVER and ETCD_ENDPOINTS of every worker; curl ETCD/health; nats server check connection",
    )
    plain = Hypothesis("NATS runs without JetStream", "nats-server -js; nats account info: is it enabled?")
    nobody = Hypothesis("no worker has registered for that endpoint", "etcdctl get --prefix instances")
    yield rule.finding(
        listed(writers(lines)),
        f"The control plane refuses {listed(writers(lines))}.",
        quoted(lines),
        plain.test if stream else absent.test,
        touches=writers(lines),
        since=since(lines),
        hypotheses=(plain, absent) if stream else (absent, nobody),
    )
