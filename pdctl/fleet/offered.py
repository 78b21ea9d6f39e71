"""The shipped profiles that are for one kind of engine: what a new fleet gets a copy of."""

from __future__ import annotations

import tomllib

from pdctl.fleet.catalogue.find import kinds_of
from pdctl.fleet.shipped import package_dir


def offered(kind: str) -> dict[str, str]:
    """File name -> text."""
    texts = {p.name: p.read_text(encoding="utf-8") for p in sorted(package_dir("profiles").glob("*.toml"))}
    return {name: text for name, text in texts.items() if kind in kinds_of(tomllib.loads(text)["values"])}
