"""The Debian that every host starts from, built once a machine and kept."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from pathlib import Path

from tests.hosts.lab.names import Names
from tests.hosts.lab.shell import LabError, sh

SUITE = "bookworm"
PACKAGES = (  # noqa: SIM905 - a list of words is read best as words
    "systemd systemd-sysv dbus dbus-user-session libpam-systemd openssh-server sudo python3 python3-venv "
    "ca-certificates iproute2 iputils-ping procps numactl rsync tcsh"
).split()
SETUP = Path(__file__).with_name("image-setup.sh")


def image(names: Names) -> Path:
    """The folder of the current image; about a minute when it has to be built first."""
    recipe = repr((SUITE, PACKAGES, SETUP.read_text()))
    target = names.base / f"image-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"
    with names.lock("image"):
        if target.is_dir():
            return target
        for unfinished in names.base.glob("image-*.tmp"):
            shutil.rmtree(unfinished)
        temporary = target.with_suffix(".tmp")
        debs = names.base / "debs"
        debs.mkdir(exist_ok=True)
        packages = ",".join(PACKAGES)
        options = ("--variant=minbase", f"--cache-dir={debs}", f"--include={packages}")
        sh("debootstrap", *options, SUITE, temporary, debian_mirror())
        sh("chroot", temporary, "/bin/sh", "-e", input=SETUP.read_text())
        os.sync()
        temporary.rename(target)
    return target


def apt_mirrors() -> list[str]:
    """URLs that this machine itself installs packages from."""
    files = [*Path("/etc/apt/sources.list.d").glob("*"), Path("/etc/apt/sources.list")]
    text = "\n".join(file.read_text() for file in files if file.is_file())
    return re.findall(r"^(?:URIs:|deb(?: \[.*?\])?)\s+(https?://\S+)", text, re.M)


def debian_mirrors() -> list[str]:
    return [url for url in apt_mirrors() if url.rstrip("/").endswith("/debian")]


def debian_mirror() -> str:
    """TESTHOSTS_MIRROR, or the mirror that apt uses here."""
    found = [os.environ.get("TESTHOSTS_MIRROR", ""), *debian_mirrors()]
    mirror = next(filter(None, found), None)
    if mirror is None:
        raise LabError("apt has no Debian mirror on this machine: set TESTHOSTS_MIRROR to one")
    return mirror
