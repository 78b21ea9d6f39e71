"""Host tool: the verbs, and one request answered whole."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from pdctl.facts.probes.gpu import probe_gpu
from pdctl.facts.probes.leftovers import probe_footprint, probe_left
from pdctl.facts.probes.logs import probe_logs, probe_zone
from pdctl.facts.probes.machine import (
    probe_boot,
    probe_clock,
    probe_disk,
    probe_memlock,
    probe_python,
    probe_shm,
)
from pdctl.facts.probes.model import probe_model
from pdctl.facts.probes.ports import probe_ports, probe_spare
from pdctl.facts.probes.proc import denied
from pdctl.facts.probes.process import probe_processes
from pdctl.facts.probes.reach import listen, probe_reach
from pdctl.facts.probes.stacks import probe_stacks
from pdctl.facts.probes.tools import probe_tools
from pdctl.facts.probes.topology import probe_interfaces, probe_numa, probe_rdma, probe_resolve

SUBJECTS: dict[str, Callable[..., Any]] = {
    "boot": probe_boot,
    "clock": probe_clock,
    "disk": probe_disk,
    "footprint": probe_footprint,
    "gpu": probe_gpu,
    "interfaces": probe_interfaces,
    "left": probe_left,
    "logs": probe_logs,
    "memlock": probe_memlock,
    "model": probe_model,
    "numa": probe_numa,
    "ports": probe_ports,
    "processes": probe_processes,
    "python": probe_python,
    "rdma": probe_rdma,
    "reach": probe_reach,
    "resolve": probe_resolve,
    "shm": probe_shm,
    "spare": probe_spare,
    "stacks": probe_stacks,
    "tools": probe_tools,
    "zone": probe_zone,
}


def ask(request: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Subject -> arguments becomes {facts: subject -> answer, missing: subject -> why, denied}."""
    facts: dict[str, Any] = {}
    missing: dict[str, str] = {}
    for subject, arguments in request.items():
        try:
            facts[subject] = SUBJECTS[subject](**arguments)
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            missing[subject] = where + (error.strerror or str(error))
    return {"facts": facts, "missing": missing, "denied": bool(denied) and os.geteuid() != 0}


def main(argv: list[str]) -> int:
    """`ask REQUEST` or `listen ARGUMENTS`, both JSON; one JSON document on stdout."""
    answer = listen(**json.loads(argv[1])) if argv[0] == "listen" else ask(json.loads(argv[1]))
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
