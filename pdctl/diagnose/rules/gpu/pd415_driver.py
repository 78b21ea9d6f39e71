"""PD415: driver, libraries and fabric manager do not fit or do not run."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since, writers
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import listed


@rule("PD415", "GPU driver or fabric is not ready", Severity.ERROR, [])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """CUDA cannot start: the fabric manager of an NVSwitch host does not run, or driver and libraries differ.

    What it looks like: "system not yet initialized" (error 802), "Driver/library version mismatch", or
    "driver version is insufficient" at the start of every process, while nvidia-smi may list all GPUs.

    What else it could be: one GPU that is gone is PD411; a wrong CUDA for the GPU's architecture says that no
    kernel image is available.

    What to do: systemctl start nvidia-fabricmanager (of the driver's very version); after a driver update
    reload the module or reboot; take an image whose CUDA the driver supports.
    """
    for sign, what, remedy in (
        ("gpu.not_ready", "the GPU fabric is not initialised", "systemctl restart nvidia-fabricmanager"),
        (
            "gpu.driver_mismatch",
            "the kernel driver does not fit the libraries",
            "reload the driver or reboot after an update; take an image that this driver supports",
        ),
    ):
        events = facts.events(sign)
        if events:
            names = writers(events)
            yield rule.finding(
                listed(names),
                f"{what} for {listed(names)}: CUDA cannot start.",
                quoted(events),
                remedy,
                touches=[*names, *(p.name for p in facts.parties if p.member.host in names)],
                since=since(events),
            )
