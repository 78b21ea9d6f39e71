"""Whether this machine can boot test hosts; tests/hosts/setup.sh is what makes a Debian machine ready."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from tests.hosts.lab.image import debian_mirrors

PROGRAMS = {
    "systemd-nspawn": "systemd-container",
    "debootstrap": "debootstrap",
    "ssh-keygen": "openssh-client",
    "ip": "iproute2",
    "nft": "nftables",
    "nsenter": "util-linux",
}
_SBIN = "/usr/local/sbin:/usr/sbin:/sbin"


def missing(base: Path) -> str:
    """Why there can be no test hosts in `base`, as one sentence; empty when there can."""
    if sys.platform != "linux":
        return "test hosts are Linux containers: this machine is not Linux."
    if os.geteuid():
        return "test hosts need root: run the tests as root to include them."
    path = f"{os.environ.get('PATH', '')}:{_SBIN}"
    absent = [package for program, package in PROGRAMS.items() if not shutil.which(program, path=path)]
    if absent:
        return f"test hosts need {', '.join(absent)}: run tests/hosts/setup.sh as root on Debian."
    if not Path("/sys/fs/cgroup").is_dir() or not any(_killable()):
        return "test hosts need a cgroup v2 hierarchy with cgroup.kill (Linux 5.14): none is mounted here."
    built = any(base.glob("image-*"))
    if not (built or os.environ.get("TESTHOSTS_MIRROR") or debian_mirrors()):
        return "test hosts are made from a Debian mirror and apt here has none: set TESTHOSTS_MIRROR to one."
    if _kind(base) == "overlay":
        return f"test hosts need a disk and {base} is an overlay: set TESTHOSTS_BASE to a folder on a disk."
    if not _can_mount():
        return "test hosts need to make namespaces and mounts: this container does not let root do that."
    return ""


def _kind(folder: Path) -> str:
    """Of the file system that the folder is on, or will be."""
    best, kind = "", ""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, right = line.split(" - ", 1)
        mount = left.split()[4]
        if folder.is_relative_to(mount) and len(mount) >= len(best):
            best, kind = mount, right.split()[0]
    return kind


def _killable() -> list[Path]:
    places = [Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")]
    return [place for place in places if (place / "cgroup.procs").exists() and _has_kill(place)]


def _has_kill(place: Path) -> bool:
    """cgroup.kill is in every cgroup but the root."""
    probe = place / f"testhosts-probe-{os.getpid()}"
    try:
        probe.mkdir()
    except OSError:
        return False
    try:
        return (probe / "cgroup.kill").exists()
    finally:
        probe.rmdir()


def _can_mount() -> bool:
    """Try it in a child, which takes what it made with it."""
    words = (
        "unshare",
        "--mount",
        "--net",
        "--propagation",
        "private",
        "mount",
        "-t",
        "tmpfs",
        "tmpfs",
        "/mnt",
    )
    return os.spawnvp(os.P_WAIT, words[0], words) == 0
