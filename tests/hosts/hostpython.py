"""A Python on each host that has the engine's libraries, without installing them there.

Debian's own interpreter with a .pth file to this environment's site-packages, bound in read-only: what an
operator's `runtime = "existing"` names. The project itself is not importable there, so what a test deploys
is what runs.
"""

from __future__ import annotations

import sys
import sysconfig

from tests.hosts.lab.host import LabHost

HOST_VERSION = (3, 11)
_BOUND = "/opt/pd/site-packages"
_VENV = "/srv/app"
PYTHON = f"{_VENV}/bin/python"


def bind() -> list[str]:
    """For `Lab.up`; nothing where the compiled libraries are for another Python than the hosts'."""
    same = sys.version_info[:2] == HOST_VERSION
    return [f"{sysconfig.get_paths()['purelib']}:{_BOUND}"] if same else []


def install(host: LabHost) -> None:
    """Makes PYTHON on the host; quick, and nothing when it is there.

    Without pip: Debian's setuptools would come with it and hide the newer one that torch asks for.
    """
    link = f"{_VENV}/lib/python3.11/site-packages/bound.pth"
    host.sh(f"test -e {link} || {{ python3 -m venv --without-pip {_VENV} && echo {_BOUND} >{link}; }}")
