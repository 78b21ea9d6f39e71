"""Long-lived processes of a lab: `python -m tests.hosts.lab.child BASE NAME NET HOST TOKEN ROLE`.

`kill` takes the token away before it kills. Whoever joins its cgroup too late for the kill finds no token
and gives up, so one host never runs twice on the same disk, also when an `up` was itself killed half-way.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.hosts.lab import cgroups, egress, netns, wire
from tests.hosts.lab.names import Names

_PROJECT = Path(__file__).parents[3]
_KEEPER = Path(__file__).with_name("keeper.sh")


def spawn(names: Names, host: str, role: str, log: Path) -> None:
    """Start one in the cgroups of `host`, which exist."""
    token = os.urandom(8).hex()
    (names.dir / f".token-{host}").write_text(token)
    words = (str(names.base), names.name, names.net, host, token, role)
    with open(log, "ab") as file:
        subprocess.Popen(
            [sys.executable, "-m", __name__, *words],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
            cwd=_PROJECT,
        )


def kill(names: Names, host: str = "") -> None:
    for token in names.dir.glob(f".token-{host or '*'}"):
        token.unlink(missing_ok=True)
    cgroups.kill(names, host)


def join(names: Names, host: str, token: str) -> list[Path]:
    """Move into the host's cgroups, which are found before the move: their place depends on ours."""
    groups = [place / host for place in cgroups.places(names)]
    for group in groups:
        (group / "keeper/cgroup.procs").write_text(str(os.getpid()))
    file = names.dir / f".token-{host}"
    if not file.exists() or file.read_text() != token:
        raise SystemExit("start revoked")
    return groups


def boot(names: Names, host: str, groups: list[Path]) -> None:
    """Become the keeper of a host."""
    state, disk = names.state(), names.disk(host)
    network = netns.path(names.namespace(host))
    nspawn = [
        # From within: the host's /sys shows the devices of the network that it is mounted from.
        *("nsenter", f"--net={network}"),
        *("systemd-nspawn", "--quiet", "-D", f"{disk}/merged", f"--machine={host}"),
        *("--register=no", "--keep-unit", "--resolv-conf=off", "--timezone=off", "--link-journal=no"),
        *("--kill-signal=SIGRTMIN+3", "--console=read-only"),
        f"--network-namespace-path={network}",
        *(f"--bind-ro={bind}" for bind in state["bind_ro"]),
        "/usr/local/sbin/testhosts-init",
    ]
    # /tmp on the host's disk, as on a server.
    os.environ["SYSTEMD_NSPAWN_TMPFS_TMP"] = "0"
    os.makedirs("/run/systemd/nspawn", exist_ok=True)
    own = ["unshare", "--mount", "--propagation", "private", "--"]
    words = [state["image"], str(disk), " ".join(map(str, groups)), *nspawn]
    os.execvp(own[0], [*own, "sh", str(_KEEPER), *words])


def main(base: str, name: str, net: str, host: str, token: str, role: str) -> None:
    names = Names(Path(base), name, net)
    groups = join(names, host, token)
    os.chdir("/")
    if role == "boot":
        boot(names, host, groups)
    ready = names.dir / f"{host}.ready"
    if role == "egress":
        egress.serve(names, ready)
    elif role.startswith("wire-"):
        wire.carry(names, ready, role.removeprefix("wire-"))


if __name__ == "__main__":
    main(*sys.argv[1:])
