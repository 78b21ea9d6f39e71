"""A pair on two booted hosts: prefill and the router on h1, decode on h2, clients on their network."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.stack import Process, Stack
from tests.faults.bed import Bed
from tests.faults.load import wait
from tests.hosts import hostpython
from tests.hosts.lab.host import LabHost
from tests.hosts.lab.lab import Lab
from tests.hosts.lab.shell import sh

ROOT = Path(__file__).parents[2]
HOME = "/srv/faults"
PORTS = {"prefill-0": 21001, "decode-0": 21003, "router": 21000}
LINK = 21002


@dataclass
class HostStack(Stack):
    """As Stack, but each process runs inside its host; its parent here is `nsenter`, in one process group."""

    lab: Lab = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        for host in self.lab.hosts[:2]:
            hostpython.install(host)
            home = host.root / HOME.lstrip("/")
            shutil.rmtree(home, ignore_errors=True)
            home.mkdir(parents=True)
            for part in ("engine", "kernels", "profiles"):
                shutil.copytree(ROOT / part, home / part, ignore=shutil.ignore_patterns("__pycache__"))
            model = host.root / str(self.model).lstrip("/")
            if not model.exists():  # the lab binds the usual one
                shutil.copytree(self.model, model)
            (home / "token").write_text(self.token)
            (home / "drill").write_text(self.drill)

    def host_of(self, name: str) -> LabHost:
        return self.lab.hosts[1 if name == "decode-0" else 0]

    def pair(self, env: dict[str, str], router: dict[str, str]) -> None:
        """Both engines and the router, started together and ready."""
        serve = [
            "serve",
            "--model",
            str(self.model),
            "--cell",
            "a",
            "--pages",
            "256",
            "--served-model-name",
            "m",
        ]
        link = f"{self.lab.hosts[0].address}:{LINK}"
        self.add("prefill-0", [*serve, "--role", "prefill", "--bootstrap-port", str(LINK)], env)
        self.add("decode-0", [*serve, "--role", "decode", "--peer", link], env)
        urls = {n: self[n].url for n in ("prefill-0", "decode-0")}
        argv = ["router", "--served-model-name", "m", "--prefill", f"prefill-0={urls['prefill-0']},{link},a"]
        self.add("router", [*argv, "--decode", f"decode-0={urls['decode-0']},a"], router)
        self.wait_ready()

    def add(self, name: str, argv: list[str], env: dict[str, str]) -> Process:
        host, port = self.host_of(name), PORTS[name]
        argv = [*argv, "--instance", name, "--host", host.address, "--port", str(port)]
        argv += [] if name == "router" else ["--advertise", host.address]
        enter = ["nsenter", f"--target={host.leader}", "--all", "--root", "--wd", "--"]
        log = self.folder / f"{name}.log"
        env = {
            "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
            "PYTHONPATH": HOME,
            "OMP_NUM_THREADS": "1",
            "PD_FLEET_TOKEN_FILE": f"{HOME}/token",
            "PD_DRILL_TOKEN_FILE": f"{HOME}/drill",
            **env,
        }
        url = f"http://{host.address}:{port}"
        made = Process(name, [*enter, hostpython.PYTHON, "-m", "engine", *argv], env, log, url)
        self.processes[name] = made
        made.start()
        return made


@dataclass
class Wire:
    """A fault of the network: `cut` makes it, the counters of its rules show that packets met it."""

    what: Callable[[Lab], None]
    within: float = 20.0

    def inject(self, bed: Bed) -> None:
        self.what(lab_of(bed))

    def evidence(self, bed: Bed) -> str:
        met = packets(lab_of(bed))
        return f"{met} packets met the rule" if met else ""

    def cure(self, bed: Bed) -> int:
        wait(lambda: lost(bed), self.within, "both engines to say that the link is lost")
        heal(lab_of(bed))
        return 0


def lab_of(bed: Bed) -> Lab:
    assert isinstance(bed.stack, HostStack)
    return bed.stack.lab


def lost(bed: Bed) -> bool:
    """Each engine has said that the link is gone."""
    return all(not any(p["linked"] for p in s["peers"]) for s in bed.states().values())


def packets(lab: Lab) -> int:
    """Packets that met a rule of the bridge's faults, or of the resets."""
    ruled = sh("nsenter", f"--net=/run/netns/{lab.names.switch}", "nft", "-j", "list", "ruleset").stdout
    inside = sh(
        "nsenter", f"--net=/run/netns/{lab.names.namespace('h1')}", "nft", "-j", "list", "ruleset"
    ).stdout
    return sum(_counters(json.loads(text)) for text in (ruled, inside))


def _counters(found: Any) -> int:
    if isinstance(found, dict):
        own = found.get("counter")
        return (int(own["packets"]) if isinstance(own, dict) else 0) + sum(map(_counters, found.values()))
    return sum(map(_counters, found)) if isinstance(found, list) else 0


def reset(lab: Lab) -> None:
    """Every packet of the link's port on h1 is answered by a TCP reset."""
    rules = f"""
table inet resets {{
  chain input {{
    type filter hook input priority 0
    tcp dport {LINK} counter reject with tcp reset
  }}
}}
"""
    sh("nsenter", f"--net=/run/netns/{lab.names.namespace('h1')}", "nft", "-f", "-", input=rules)


def heal(lab: Lab) -> None:
    lab.net.heal()
    h1 = f"--net=/run/netns/{lab.names.namespace('h1')}"
    sh("nsenter", h1, "nft", "delete", "table", "inet", "resets", check=False)
