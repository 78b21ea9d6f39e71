"""The shape of fleet.toml and of a profile file. Types are strict; an unknown key is an error."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

NAME = r"^[a-z0-9][a-z0-9-]{0,39}$"
Name = Annotated[str, Field(pattern=NAME)]
Port = Annotated[int, Field(ge=1, le=65535)]
Count = Annotated[int, Field(ge=1)]
Text = Annotated[str, Field(min_length=1)]
EnvName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Dtype = Literal["float32", "bfloat16"]
DTYPES: tuple[str, ...] = get_args(Dtype)
Role = Literal["prefill", "decode", "both"]
Side = Literal["prefill", "decode", "both", "router"]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, protected_namespaces=())


class FleetTable(Strict):
    """`retain` counts the older deployments kept beside the newest one, over all hosts.

    `control` is the host that holds the fleet's lock; the router's when left out. `supervise`: a deploy
    starts the supervisor there.
    """

    name: Name
    profile: Name = "default"
    drill: bool = False
    supervise: bool = False
    retain: Annotated[int, Field(ge=0)] = 3
    control: str | None = None


class ModelTable(Strict):
    """`path` is a Hugging Face folder or a GGUF file, relative to the fleet file or with ~."""

    path: Text
    name: Text


class HostTable(Strict):
    """A machine. `address` is where routers and peers reach it, `ssh` where pdctl does (an alias of
    ~/.ssh/config is fine; `address` when left out).

    `root` holds releases, units and logs there. `scope` is whose systemd runs the units: the machine's, or
    the login user's own. `runtime` says where the engines' Python comes from: `existing` is `python` as it
    is, `index` and `wheelhouse` are a venv made with `python` from a package index or from wheels that
    pdctl sends (those in `wheels`, else fetched once into pdctl's cache).
    """

    transport: Literal["local", "ssh"] = "local"
    address: Text = "127.0.0.1"
    units: Literal["auto", "process", "systemd"] = "auto"
    scope: Literal["system", "user"] = "system"
    root: str | None = None
    runtime: Literal["existing", "index", "wheelhouse"] | None = None
    python: str | None = None
    wheels: str | None = None
    ssh: Text | None = None
    user: str | None = None
    port: Port | None = None
    identity_file: str | None = None


class Started(Strict):
    """What every process of a fleet may say. `env` wins over the profile.

    `numa` binds the process and its memory to that node. `command` is the whole command line of one that is
    not the bundled kind, `cwd` the folder it is started in, and `secrets` a 0600 file NAME=VALUE beside the
    fleet file: its variables are given to the process, and a word of `command` may hold {secret:NAME}.
    """

    command: list[str] | None = None
    cwd: Text | None = None
    secrets: Text | None = None
    numa: Annotated[int, Field(ge=0)] | None = None
    profile: Name | None = None
    env: dict[EnvName, str] = {}


class EngineTable(Started):
    """One engine; unset numbers are left to the engine. `gpus` are the devices it may see."""

    role: Role
    host: str
    port: Port
    bootstrap_port: Port | None = None
    kind: Literal["bundled", "sglang", "vllm"] = "bundled"
    tp: Count = 1
    dtype: Dtype | None = None
    device: Literal["cpu", "cuda"] | None = None
    pages: Count | None = None
    page_size: Count | None = None
    max_running: Count | None = None
    token_budget: Count | None = None
    legacy_bootstrap: bool = False
    gpus: list[Annotated[int, Field(ge=0)]] | None = None


class CellTable(Strict):
    engines: dict[Name, EngineTable] = {}


class RouterTable(Started):
    name: Name = "router"
    host: str
    port: Port
    kind: Literal["bundled", "sglang-router"] = "bundled"


class SuppressTable(Strict):
    """A finding of diagnose that is known and accepted until a day (UTC), and why. `subject` is a pattern for
    the names of engines and hosts that it may touch.
    """

    code: Annotated[str, Field(pattern=r"^PD\d{3}$")]
    subject: Text = "*"
    reason: Text
    until: date


class FleetFile(Strict):
    version: Literal[1] = Field(alias="schema")
    fleet: FleetTable
    model: ModelTable
    hosts: dict[Name, HostTable]
    cells: dict[Name, CellTable]
    router: RouterTable | None = None
    suppress: list[SuppressTable] = []


class Verified(Strict):
    """A watchdog seen to fire. It vouches for the value that it names, on the units that it names of that
    fleet, and for no other; both are empty in a record of before they were written down.
    """

    value: str
    fleet: str = ""
    units: list[Name] = []
    at: str
    by: str
    fired_after_s: float | None = None
    test_value_s: float | None = None
    evidence: str = ""


class ValueTable(Strict):
    """`secret` stands for `value`: a 0600 file NAME=VALUE beside the fleet file that holds this variable.

    `author` and `date` are who set it last and when, as the journal has them. `proved_by` is the test of this
    project that sees the variable do what it is for, on the project's machine and at the test's value;
    `verified` is what was seen on the fleet that has the profile.
    """

    value: str | None = None
    secret: Text | None = None
    side: Side
    reason: Text
    proved_by: str | None = None
    author: str | None = None
    date: str | None = None
    verified: Verified | None = None


class ProfileFile(Strict):
    """`drillable` says that faults may be played on what runs with it; a profile that extends it does not
    inherit that.
    """

    version: Literal[1] = Field(alias="schema")
    name: Name
    extends: Name | None = None
    description: str = ""
    drillable: bool = False
    values: dict[EnvName, ValueTable] = {}
