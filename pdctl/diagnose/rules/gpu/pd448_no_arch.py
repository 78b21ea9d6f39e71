"""PD448: a build without native kernels for the GPU that it runs on."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.lives import died
from pdctl.diagnose.progress import stall
from pdctl.diagnose.rule import Finding, Rule, Severity, rule


def _parts(text: str) -> tuple[int, int]:
    """(12, 1) of 12.1, sm_121, 12.1a."""
    found = re.search(r"(\d+)\.(\d)|(\d+)(\d)", text)
    if found is None:
        return 0, 0
    major, minor = found.groups()[:2] if found[1] else found.groups()[2:]
    return int(major), int(minor)


def _runs(archs: str, capability: str) -> str:
    """ "native", "older" (code of an older minor of the same generation, or PTX), "" when nothing fits."""
    want = _parts(capability)
    have = [_parts(a) for a in re.split(r"[,; ]+", archs) if any(c.isdigit() for c in a)]
    if want in have:
        return "native"
    near = any(major == want[0] and minor < want[1] for major, minor in have)
    return "older" if near or "PTX" in archs else ""


@rule("PD448", "no kernels for this GPU", Severity.ERROR, ["engine.reach"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """The engine's extensions hold no code for the compute capability of its GPU.

    What it looks like: "no kernel image is available", or, where a fallback exists, a decode several times
    too slow for weeks and then hangs. The list of architectures of the build lacks the GPU's.

    What else it could be: a GPU that is slow for power or heat has the right kernels; a hang without
    slowness before it has another cause.

    What to do: `cuobjdump --list-elf` on the extension and `nvidia-smi --query-gpu=compute_cap` must agree;
    build with TORCH_CUDA_ARCH_LIST of that capability and see that the build took it.
    """
    for party in facts.parties:
        traces = party.traces
        lines = list(traces.of("collective.no_arch"))
        wanted = traces.settings.get("compute_capability") or traces.versions.get("compute_capability", "")
        shown = traces.settings.get("arch_list") or traces.versions.get("arch_list", "")
        shown = shown or next((e.values["archs"] for e in traces.of("collective.arch_list")), "")
        fits = _runs(shown, wanted) if shown and wanted else "native"
        ill = died(party) or stall(traces) is not None
        if not (lines and ill) and (fits == "native" or (fits == "older" and not ill)):
            continue
        said = [f"GPU has compute capability {wanted}"] if wanted else []
        said += [f"the build has {shown}"] if shown else []
        lists = list(traces.of("collective.arch_list"))
        yield rule.finding(
            party.name,
            f"The build that {party.name} runs has no kernels for its GPU{f' ({wanted})' if wanted else ''}.",
            [*said, *quoted([*lines, *lists])],
            "build with TORCH_CUDA_ARCH_LIST of this GPU, and check with cuobjdump --list-elf",
            since=since([*lines, *lists]),
        )
