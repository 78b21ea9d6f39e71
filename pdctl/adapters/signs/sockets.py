"""Connections and listeners: refused, timed out, in use, not assignable, blocked, advertised."""

from __future__ import annotations

from pdctl.adapters.signs.sign import Sign

_LISTENER = r"[Ee]xception in thread (?P<thread>\S[^:]*?)\s*(?:\((?P<target>\w+)\))?:"

SIGNS = (
    Sign("net.ready", "fired up and ready to roll"),
    Sign("net.ready", "pplication startup complete"),
    Sign("net.ready", "Avg generation throughput", r"throughput: [\d.]*[1-9]"),
    Sign("net.ready", "gen throughput", r"\(token/s\): [\d.]*[1-9]"),
    Sign("net.refused", "efused", r"(?i)connection ?refused|ECONNREFUSED|Errno 111"),
    Sign("net.refused", "onnect call failed", r"^(?!.*(?i:refused|Errno 111|timed out))"),
    Sign(
        "net.timed_out",
        "time",
        r"^(?!.*QP to)(?i:.*\b(?:connect(?:ion|ing|ed|s)?|dial|Errno 110|ETIMEDOUT)\b.*timed? ?out|"
        r".*timed out.*\bconnect|.*dial tcp.*timeout)",
    ),
    Sign("net.timed_out", "Timeout", r"ConnectTimeout|ConnectionTimeout"),
    Sign("net.proxy", "annot connect to proxy"),
    Sign("net.proxy", "ProxyError"),
    Sign("net.proxy", "roxy CONNECT aborted"),
    Sign("net.proxy", "unnel connection failed"),
    *(
        Sign("http.failed", key, r"\b(?P<status>403|407|50[234])\b.{0,80}https?://(?P<host>[\w.-]+)")
        for key in ("Service Unavailable", "Bad Gateway", "Gateway Time", "Forbidden", "Proxy Authentication")
    ),
    Sign("net.no_route", "No route to host"),
    Sign("net.no_route", "etwork is unreachable"),
    Sign("net.no_name", "Name or service not known"),
    Sign("net.no_name", "emporary failure in name resolution"),
    Sign("net.no_name", "ailed to lookup address information", r"^(?!.*(?:not known|name resolution))"),
    Sign("net.no_name", "odename nor servname"),
    Sign("net.no_name", "ould not resolve host"),
    Sign("net.no_name", "ailed to get IP address of", r"of (?:peer )?server (?P<host>\S+?):\d+,"),
    Sign("net.no_name", "no such host"),
    Sign("net.no_name", "ame does not resolve"),
    Sign("net.no_name", "NameResolutionError", r"^(?!.*(?:not known|name resolution))"),
    Sign("net.in_use", "ddress already in use"),
    Sign("net.in_use", "EADDRINUSE", r"^(?!.*already in use)"),
    # Not a queue pair's: that is no address that somebody wrote down.
    Sign("net.not_assignable", "annot assign requested address", r"^(?!.*(?:\bibv_|iface_open))"),
    Sign("net.not_assignable", "EADDRNOTAVAIL", r"^(?!.*requested address)"),
    Sign("net.loopback_fallback", "Using the loopback address as fallback"),
    Sign("net.told", "rank_ip", r"rank_ip['\"]?\s*[:=]\s*['\"]?(?P<host>[\w.:-]+?)['\",;]? "),
    Sign("net.told", "remote_host", r"remote_host['\"]?\s*[:=]\s*['\"]?(?P<host>[\w.-]+)"),
    Sign("net.told", "etected host", r"ip\w*[ :=]+(?P<host>[\d.]+)"),
    Sign("net.told", "ocal hostname", r"hostname[ :=]+(?P<host>[\w.-]+)"),
    Sign(
        "net.serves",
        "running on",
        r"(?:Uvicorn|ootstrap).*running on (?:\w+://)?(?P<host>[\w.\[\]]+):(?P<port>\d+)",
    ),
    Sign("net.serves", "started", r"ootstrapServer started.* on (?P<host>[\w.\[\]]+):(?P<port>\d+)"),
    Sign("net.serves", "bootstrap", r"bootstrap.*(?:listen\w*|bound).* (?P<host>[\d.]+):(?P<port>\d+)"),
    Sign("net.no_bootstrap", "from bootstrap", r"(?i)(?:error|fail\w*|could not)"),
    Sign("net.no_bootstrap", "to bootstrap server", r"(?i)fail"),
    Sign("net.registered", "uccessfully registered"),
    Sign("net.thread_died", "xception in thread", _LISTENER),
    Sign("net.thread_died", "_listener", r"(?P<thread>\w+_listener)\b.*(?:Error|[Ee]xception|died)"),
    Sign("net.waits_ready", "READY message", r"(?i)wait"),
    Sign("net.rank_port", "dp_rank", r"dp_rank\D{1,3}(?P<dp>\d+).*?(?P<port>(?:ipc|tcp)://[^\s'\",)]+)"),
    Sign(
        "kernel.blocked",
        "DPT=",
        r"(?P<verdict>UFW BLOCK|BLOCK|DROP|REJECT|DENY|denied|dropped)\w*.*SRC=(?P<src>\S+).*"
        r"PROTO=(?P<proto>\w+)"
        r".*DPT=(?P<port>\d+)",
    ),
    Sign(
        "kernel.link_down",
        "ink",
        r"(?P<device>mlx5\w*|ib\w+|eth\w+|en\w+|bond\w+|bnxt\w*)\b.*(?i:link (?:is )?down)",
    ),
    Sign("firewall.denies", "policy DROP", r"hain (?:INPUT|FORWARD).*policy DROP"),
    Sign("firewall.denies", "policy drop", r"hook input.*policy drop"),
    Sign("firewall.denies", "-P INPUT DROP"),
    Sign("firewall.denies", "Default: deny (incoming)"),
)
