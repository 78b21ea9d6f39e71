"""A first fleet: a commented fleet file, profiles, tokens. Nothing that exists is overwritten."""

from __future__ import annotations

import hashlib
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from string import Template

from pdctl.errors import ConfigError
from pdctl.fleet.names import nearest
from pdctl.fleet.offered import offered
from pdctl.fleet.problems import NAME_RULE
from pdctl.fleet.schema import DTYPES, NAME
from pdctl.fleet.shipped import shipped_text
from pdctl.fleet.tokens import make_token
from pdctl.flows.model import known_models, model_at, model_path

# Below the ports that Linux hands out for outgoing connections (32768 and up).
LOW, HIGH = 20000, 30000
# Where the ports of engines on other hosts begin; `pdctl check` sees whether they are free there.
REMOTE = 21000
_MODELS = "Give a Hugging Face folder, a GGUF file, or a name that `pdctl model list` shows."
GITIGNORE = ".pdctl/\n"


@dataclass(frozen=True)
class Remote:
    """A host reached over SSH as `ssh`; routers and peers reach it at `address`."""

    name: str
    ssh: str
    address: str


@dataclass(frozen=True)
class Wanted:
    """`model` is a known model's name, a folder or a GGUF file; with `hosts` an absolute path there.

    Without `hosts` everything runs on this machine; with them prefills come first and decodes after them,
    round the hosts in order, and the router stands on the first.
    """

    name: str
    model: str
    profile: str = "default"
    tp: int = 1
    prefills: int = 1
    decodes: int = 1
    dtype: str = "float32"
    drill: bool = False
    hosts: tuple[Remote, ...] = ()


def remote(text: str) -> Remote:
    """From SSH[=ADDRESS]: an alias of ~/.ssh/config or an address; ConfigError when it is neither."""
    ssh, _, address = text.partition("=")
    name = re.sub(r"[^a-z0-9]+", "-", ssh.rpartition("@")[2].lower()).strip("-")
    if not re.fullmatch(NAME, name) or "@" in text:
        hint = "Write ALIAS=ADDRESS or ADDRESS; a user goes into the fleet file or ~/.ssh/config."
        raise ConfigError("bad_host", f"--host {text!r} is no host.", hint)
    return Remote(name, ssh, address or ssh)


def init_fleet(path: Path, wanted: Wanted, repair: bool = False) -> list[str]:
    """Write what is missing; the names of files written, relative to the fleet's folder.

    ConfigError when a fleet file is there already, unless `repair`: then only what is missing is made.
    """
    folder = path.parent
    written = []
    if path.exists() and not repair:
        hint = "Edit it, or remove it first; `pdctl init --repair` only adds what is missing beside it."
        raise ConfigError("fleet_exists", f"{path} is there already; nothing was changed.", hint)
    shipped = offered("bundled")
    if f"{wanted.profile}.toml" not in shipped:
        names = ", ".join(sorted(n.removesuffix(".toml") for n in shipped))
        what = f"No profile {wanted.profile} of the bundled engine is shipped."
        raise ConfigError("no_profile", what, f"Valid: {names}.")
    if not path.exists():
        _check(wanted)
    (folder / "profiles").mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.write_text(fleet_text(folder, wanted), encoding="utf-8")
        written.append(path.name)
    for name, text in shipped.items():
        target = folder / "profiles" / name
        if not target.exists():
            target.write_text(text, encoding="utf-8")
            written.append(f"profiles/{name}")
    for name in ("token", "drill-token"):
        token = folder / ".pdctl" / name
        if not token.exists():
            make_token(token)
            written.append(f".pdctl/{name}")
    ignore = folder / ".gitignore"
    if not ignore.exists():
        ignore.write_text(GITIGNORE)
        written.append(".gitignore")
    return written


def _check(wanted: Wanted) -> None:
    """Before anything is written, so that a mistyped flag leaves no fleet file that must be removed."""
    if not re.fullmatch(NAME, wanted.name):
        raise ConfigError("bad_name", f"--name {wanted.name!r} is not a valid name.", NAME_RULE)
    if wanted.dtype not in DTYPES:
        raise ConfigError("bad_dtype", f"--dtype {wanted.dtype} is no dtype.", nearest(wanted.dtype, DTYPES))
    known = known_models()
    if wanted.hosts:
        _check_hosts(wanted)
    elif wanted.model not in known:
        _check_model(wanted.model, nearest(wanted.model, known) if "/" not in wanted.model else "")


def _check_model(model: str, near: str) -> None:
    """A path on this machine must have what an engine can load."""
    found = model_at(Path(model).expanduser().absolute())
    if not found.there:
        what = f"--model {model}: no known model, and no file or folder here."
        raise ConfigError("no_model", what, near or _MODELS)
    if found.wrong:
        raise ConfigError("bad_model", f"--model {model} cannot be loaded: {found.wrong}.", _MODELS)


def _check_hosts(wanted: Wanted) -> None:
    if not wanted.model.startswith("/"):
        what = f"--model {wanted.model}: on hosts a model is named by its path there."
        raise ConfigError("no_model", what, "Pass --model /path/on/every/host.")
    names = [host.name for host in wanted.hosts]
    if len(set(names)) != len(names):
        raise ConfigError("same_host", f"--host names one host twice: {', '.join(names)}.")


def fleet_text(folder: Path, wanted: Wanted) -> str:
    """fleet.toml; on this machine with free ports, chosen from the folder's name so that fleets differ."""
    template = Template(shipped_text("profiles", "catalogue/fleet.toml.in"))
    known = not wanted.hosts and wanted.model in known_models()
    weights = model_path(wanted.model) if known else Path(wanted.model).expanduser().absolute()
    count = 1 + 2 * wanted.prefills + wanted.decodes
    ports = list(range(REMOTE, REMOTE + count)) if wanted.hosts else free_ports(folder, count)
    places = [host.name for host in wanted.hosts] or ["local"]
    router = ports.pop(0)
    engines = []
    for number in range(wanted.prefills):
        lines = [f"port = {ports.pop(0)}", f"bootstrap_port = {ports.pop(0)}   # decodes link here"]
        engines.append(_engine(wanted, "prefill", number, places[number % len(places)], lines))
    for number in range(wanted.decodes):
        place = places[(wanted.prefills + number) % len(places)]
        engines.append(_engine(wanted, "decode", number, place, [f"port = {ports.pop(0)}"]))
    return template.substitute(
        name=wanted.name,
        profile=wanted.profile,
        drill=str(wanted.drill).lower(),
        model_path=_quoted(str(weights)),
        model_name=_quoted(wanted.model if known else weights.name),
        hosts=_hosts(wanted),
        engines="\n".join(engines),
        router_host=places[0],
        router_port=router,
    )


def _hosts(wanted: Wanted) -> str:
    if not wanted.hosts:
        return '# Machines. "local" is this one.\n[hosts.local]\ntransport = "local"\naddress = "127.0.0.1"\n'
    lines = [
        "# Machines, reached over SSH; ~/.ssh/config counts. Routers and peers reach them at `address`.",
        "# More per host: user, port, identity_file, root, python, scope, runtime, wheels.",
    ]
    for host in wanted.hosts:
        lines += [f"[hosts.{host.name}]", 'transport = "ssh"', f"address = {_quoted(host.address)}"]
        lines += [f"ssh = {_quoted(host.ssh)}"] if host.ssh != host.address else []
        lines.append("")
    return "\n".join(lines)


def _engine(wanted: Wanted, role: str, number: int, host: str, ports: list[str]) -> str:
    lines = [f"[cells.a.engines.{role}-{number}]", f'role = "{role}"', f'host = "{host}"', *ports]
    return "\n".join([*lines, f"tp = {wanted.tp}", f'dtype = "{wanted.dtype}"']) + "\n"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def free_ports(folder: Path, count: int) -> list[int]:
    """`count` consecutive ports that nothing on this machine uses now."""
    span = (HIGH - LOW) // 20 - 1
    first = int.from_bytes(hashlib.sha256(str(folder.absolute()).encode()).digest()[:4], "big") % span
    for attempt in range(span):
        start = LOW + 20 * ((first + attempt) % span)
        ports = list(range(start, start + count))
        if all(_free(port) for port in ports):
            return ports
    raise ConfigError("no_ports", f"There are no {count} consecutive free ports from {LOW} to {HIGH}.")


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
