"""Where the packages installed with pdctl lie: data in profiles and systemd, the engine's source.

They are one distribution, so they are siblings. The import system is not asked: from inside a fleet's
folder `python -m pdctl` would find that folder's own `profiles`.
"""

from __future__ import annotations

from pathlib import Path

from pdctl.errors import PdctlError


def package_dir(name: str) -> Path:
    """The folder of one package, never imported; PdctlError when it is not installed."""
    folder = Path(__file__).parents[2] / name
    if not (folder / "__init__.py").is_file():
        hint = "Install it again: pip install --force-reinstall pdctl."
        raise PdctlError("not_installed", f"The package {name} is not installed beside pdctl.", hint)
    return folder


def shipped_text(package: str, name: str) -> str:
    return (package_dir(package) / name).read_text(encoding="utf-8")
