"""bundle.toml: what a person tells of a fleet that no log and no metric says. All of it is optional."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from pdctl.errors import ConfigError
from pdctl.fleet.problems import TomlFile

ROLES = Literal["prefill", "decode", "both", "router", "other"]


def _seconds(value: Any) -> Any:
    """A TOML time, or Unix seconds; a time without a zone is UTC."""
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    return value


When = Annotated[float, BeforeValidator(_seconds)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid")


class PartyTable(_Table):
    """[parties.NAME]: an engine, a router or another server. `exit` is its exit code (139, -11: SIGSEGV).

    `numbers` are readings under normal names at the time of the bundle, `numbers_before` the same `gap` s
    earlier.
    """

    kind: str = ""
    role: ROLES | None = None
    cell: str = "main"
    host: str = ""
    version: str = ""
    versions: dict[str, str] = Field(default_factory=dict)
    settings: dict[str, Any] = Field(default_factory=dict)
    env: dict[str, str] = Field(default_factory=dict)
    health: str = ""
    state: Literal["", "running", "ended", "frozen", "starting"] = ""
    exit: int | None = None
    restarts: int | None = None
    started: When | None = None
    last_transfer: When | None = None
    numbers: dict[str, float] = Field(default_factory=dict)
    numbers_before: dict[str, float] = Field(default_factory=dict)
    url: str = ""


class EdgeTable(_Table):
    """[[edges]]: how transfers of one prefill-decode pair went."""

    prefill: str
    decode: str
    ok: int = 0
    failed: int = 0


class ChangeTable(_Table):
    """[[changes]]: what was done, and when: restarted, deployed, upgraded, setting changed, router restarted.

    `value` says to what; `cured` whether the trouble ended with it.
    """

    what: Literal[
        "restarted", "co-restarted", "deployed", "upgraded", "setting", "scaled", "stopped", "other"
    ]
    party: str = ""
    at: When | None = None
    name: str = ""
    value: str = ""
    cured: bool | None = None


class HostTable(_Table):
    """[hosts.NAME]"""

    address: str = ""
    clock_offset: float | None = None
    numbers: dict[str, float] = Field(default_factory=dict)


class Told(_Table):
    """bundle.toml, whole. `gap` is the time between two samples of the same thing, in seconds."""

    source: str = ""
    reconstructed: bool = False
    at: When | None = None
    gap: float = 10.0
    parties: dict[str, PartyTable] = Field(default_factory=dict)
    hosts: dict[str, HostTable] = Field(default_factory=dict)
    edges: list[EdgeTable] = Field(default_factory=list)
    changes: list[ChangeTable] = Field(default_factory=list)
    notes: str = ""


def read_told(text: str, path: Path) -> Told:
    """ConfigError whose details are all problems as file:line: key: sentence; `path` names it in them."""
    file = TomlFile(path, text)
    told = file.validate(Told)
    file.finish("bad_bundle", f"The file {path}")
    if told is None:
        raise ConfigError("bad_bundle", f"The file {path} is not valid.")
    return told
