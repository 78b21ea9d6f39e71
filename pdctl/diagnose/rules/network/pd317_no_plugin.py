"""PD317: NIXL does not find its backend's plugin."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since, writers
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.pairs import partners
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import listed


@rule("PD317", "NIXL does not find its plugin", Severity.ERROR, ["logs"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """The shared library of a NIXL backend is not found, or a library that it needs is not.

    What it looks like: "getPluginParams: backend 'UCX' not found" and "createBackend: unsupported backend" at
    the start, although libplugin_UCX.so is on the disk; `ldd` on it shows a library as "not found".

    What else it could be: NIXL_ERR_BACKEND means that the plugin was loaded and failed (PD310, PD313, PD325).

    What to do: put the folder of libucp.so.0 into LD_LIBRARY_PATH and that of the plugins into
    NIXL_PLUGIN_DIR; check with ldd on libplugin_UCX.so.
    """
    events = facts.events("nixl.no_plugin")
    if not events:
        return
    names = writers(events)
    missing = facts.events("nixl.no_library")
    backend = next((e.values["backend"] for e in events if e.values.get("backend")), "UCX")
    library = f": {missing[0].values['library']} is not found" if missing else ""
    paths = [
        f"{name}: {variable}={party.traces.environ[variable]}"
        for name in names
        if (party := facts.party(name)) is not None
        for variable in ("LD_LIBRARY_PATH", "NIXL_PLUGIN_DIR")
        if variable in party.traces.environ
    ]
    yield rule.finding(
        listed(names),
        f"NIXL of {listed(names)} does not find its {backend} plugin{library}.",
        [*paths, *quoted([*events, *missing])],
        "set LD_LIBRARY_PATH (libucp.so.0) and NIXL_PLUGIN_DIR; check: ldd libplugin_UCX.so",
        touches=partners(facts, names),
        since=since(events),
    )
