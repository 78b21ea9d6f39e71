"""Routers, gateways and control planes: breakers, counts, leases."""

from __future__ import annotations

from pdctl.adapters.signs.sign import Sign

SIGNS = (
    Sign("router.no_workers", "no_available_workers"),
    Sign("router.no_workers", "No available", r"No available (?:\w+ )?(?:workers|servers|endpoints|pods)"),
    Sign("router.no_workers", "all circuits open"),
    Sign("router.no_workers", "No worker available for"),
    Sign("router.no_workers", "Cluster is not ready"),
    Sign(
        "router.no_workers",
        "Failed to select",
        r"Failed to select (?:\w+ )?(?:prefill|decode|worker|PD)\b.*?(?:pair|worker|$)",
    ),
    Sign("router.no_workers", "no endpoints available"),
    Sign("router.no_workers", "o healthy", r"(?i)no healthy (?:upstream|workers|endpoints|backends)"),
    Sign("router.breaker_open", "ircuit", r"(?i)circuit.*(?:->|to|=|state)\s*\"?open\b"),
    Sign("router.breaker_closed", "ircuit", r"(?i)circuit.*\bclosed\b(?!.*\bopen\b)"),
    Sign("router.worker_back", "ealthy", r"(?i)unhealthy\W*(?:->|to)\W*healthy\b"),
    Sign(
        "router.worker_back",
        "ealthy",
        r"(?i)^(?!.*unhealthy).*(?:worker|server|endpoint|instance|backend|pod)s?\b.*"
        r"\b(?:is|now|became|back|again|marked|to|->)\W+(?:\w+ )?healthy",
    ),
    Sign(
        "router.worker_back",
        "ecovered",
        r"(?i)(?:worker|server|endpoint|instance|backend|pod)s?\b.*recovered",
    ),
    Sign(
        "router.unhealthy",
        "nhealthy",
        r"(?i)(?:worker|server|endpoint|instance|backend|pod)s?\b.*unhealthy(?!\W*(?:->|to)\W*healthy)",
    ),
    Sign(
        "router.unhealthy",
        "ealth check",
        r"(?i)health check.*(?:fail|timed? ?out).*(?:\w+://|worker|endpoint|pod)",
    ),
    Sign("router.client_error", "400", r"(?:\b400 Bad Request|status(?:_code)?[=: \"]+400|HTTP/1\.1\" 400)"),
    Sign("router.client_error", "413", r"(?:\b413 |status(?:_code)?[=: \"]+413)"),
    Sign("router.client_error", "422", r"(?:\b422 Unprocessable|status(?:_code)?[=: \"]+422)"),
    Sign("router.server_error", 'HTTP/1.1" 5', r"\" (?P<status>50\d)"),
    Sign("router.server_error", "status", r"status(?:_code)?[=: \"]+(?P<status>50[0-9])"),
    Sign("router.load_reset", "eset", r"(?i)reset(?:ting)? (?:worker )?load"),
    Sign(
        "router.reaped",
        "stale",
        r"(?i)(?:reap|evict|remov|expir|delet)\w* (?:\d+ )?stale|stale .*(?:reap|evict)",
    ),
    Sign("router.no_endpoint", "o active endpoint found"),
    Sign("router.worker_left", "Removing worker"),
    Sign("router.client_left", "issuing cancellation"),
    Sign("router.flap", "NotReady"),
    Sign("router.flap", "endpoint removed"),
    Sign("router.flap", "pod removed"),
    Sign(
        "router.negative",
        "negative",
        r"(?i)(?:in.?flight|load|active|running|count).*negative|negative.*(?:in.?flight|load|count)",
    ),
    Sign(
        "store.lease_lost",
        "lease",
        r"(?i)^(?!.*\bkv\b).*lease.*(?:lost|expired|not found|revoked|keep.?alive (?:failed|lost))",
    ),
    Sign("store.lease_lost", "keep-alive", r"(?i)keep-alive.*(?:lost|fail|closed|stopped)"),
    Sign("store.lease_lost", "etcdserver: requested lease not found"),
    Sign("store.leader_changed", "leader", r"(?i)leader changed|elected leader|lost leader|no leader"),
    Sign("store.refuses", "nats: ", r"(?:ServiceUnavailable|NoRespondersError|no responders|JetStream)"),
    Sign("store.refuses", "o responders available"),
    Sign("store.refuses", "no instances found for endpoint"),
    Sign("store.refuses", "JetStream not enabled"),
    Sign("store.refuses", "connect to etcd", r"(?i)fail|unable|could not"),
    Sign("store.refuses", "connect to NATS", r"(?i)fail|unable|could not"),
    Sign("store.negative_ttl", "remaining(-", r"remaining\((?P<seconds>-\d+)s\)"),
    Sign("store.deadline", "DeadlineExceeded"),
    Sign("store.deadline", "deadline has elapsed"),
    Sign("store.deadline", "context deadline exceeded"),
)
