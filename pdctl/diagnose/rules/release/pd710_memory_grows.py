"""PD710: host memory of an engine grows."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.facts import EngineView, Facts
from pdctl.diagnose.growth import Growth, growth
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule

_CACHES = ("UCX_RCACHE_MAX_UNRELEASED", "UCX_MEM_MMAP_HOOK_MODE")


def _uses_ucx(view: EngineView) -> bool:
    settings = " ".join(f"{k}={v}" for k, v in view.traces.settings.items()).lower()
    other = any(name in settings for name in ("mooncake", "mori", "ascend", "lmcache"))
    return "nixl" in settings and not other


@rule("PD710", "host memory grows", Severity.ERROR, ["readings"], echo_of=["PD621"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """An engine's resident memory climbs for hours with the requests it serves, and KV use is normal.

    What it looks like: a slope that follows transfers, exit 137 at its end, fine again after a restart.

    What else it could be: growth in the first minutes is pools that fill. Page cache and shared memory are
    no leak: /proc/PID/smaps_rollup tells anonymous, file and shared apart. With NIXL over UCX and no
    UCX_RCACHE_MAX_UNRELEASED, UCX's registration cache keeps what was unmapped.

    What to do: for UCX set UCX_RCACHE_MAX_UNRELEASED=1024 or take a newer UCX. Otherwise compare
    smaps_rollup an hour apart before anybody is blamed, and restart in time.
    """
    for view in facts.engines:
        found = growth(view.traces)
        if found is None:
            continue
        yield _finding(rule, view, found)


def _finding(rule: Rule, view: EngineView, found: Growth) -> Finding:
    bounded = [n for n in _CACHES if n in view.traces.environ]
    usage = view.traces.last("kv_usage")
    lines = [f"resident memory {found.told}"]
    lines += [f"KV in use {usage:.0%}"] if usage is not None else []
    lines += ["it grew with the requests served"] if found.with_work else []
    if _uses_ucx(view) and found.with_work and not bounded:
        lines.append("NIXL over UCX, UCX_RCACHE_MAX_UNRELEASED is not set")
        return rule.finding(
            view.name,
            f"Host memory of {view.name} grows with its transfers ({found.told}): UCX's registration cache.",
            lines,
            "UCX_RCACHE_MAX_UNRELEASED=1024 in its profile, then: pdctl deploy",
            since=found.since,
        )
    return rule.finding(
        view.name,
        f"The host memory of {view.name} grows: {found.told}.",
        lines,
        f"pdctl restart --co {view.member.cell}",
        since=found.since,
        hypotheses=[
            Hypothesis(
                "anonymous memory: a leak in the engine or its transfer library",
                "cat /proc/PID/smaps_rollup twice, an hour apart: anonymous, file or shared?",
            ),
            Hypothesis("shared memory or files that nobody removes", "df /dev/shm and ls -la /dev/shm"),
        ],
    )
