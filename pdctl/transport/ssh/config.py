"""From a host of the fleet file and ~/.ssh/config to what a connection needs to know."""

from __future__ import annotations

import getpass
import glob
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import paramiko

from pdctl.errors import ConfigError
from pdctl.fleet.model import Host
from pdctl.fleet.place import host_key

CONNECT_TIMEOUT = 10.0
_SYSTEM = ("/etc/ssh/ssh_config", "/etc/ssh/ssh_known_hosts")
_DEEP = 8
_JUMP = re.compile(r"(?:ssh://)?(?:([^@]+)@)?(\[[^]]+\]|[^@:\[\]]+)(?::(\d+))?/?")


@dataclass(frozen=True)
class Target:
    """One login. `alias` is what ~/.ssh/config was asked for; `jump` is where the connection starts from.

    `identities` are key files that somebody named; without any, the default ones are looked for.
    `known_name` is the host's name in known_hosts. A new key is written to the first of `known_files`.
    """

    alias: str
    address: str
    port: int
    user: str
    known_name: str
    identities: tuple[str, ...] = ()
    identities_only: bool = False
    known_files: tuple[str, ...] = ()
    connect_timeout: float = CONNECT_TIMEOUT
    proxy_command: str | None = None
    jump: Target | None = None

    def __str__(self) -> str:
        port = "" if self.port == 22 else f" port {self.port}"
        return f"{self.user}@{self.address}{port}"


def target(host: Host) -> Target:
    """What the fleet file says wins over what ~/.ssh/config says. ConfigError when that cannot be read."""
    spec = host.spec
    alias = spec.ssh or spec.address
    identity = os.path.expanduser(spec.identity_file) if spec.identity_file else None
    if identity and not os.path.exists(identity):
        message = f"{host_key(host, 'identity_file')}: there is no {identity}."
        raise ConfigError("identity_missing", message, "Name the private key file, or leave the key out.")
    if identity and (wrong := no_key(identity)):
        message = f"{host_key(host, 'identity_file')}: {identity} {wrong}."
        raise ConfigError("identity_no_key", message, "Name the private key file, or leave the key out.")
    return _Resolver().resolve(alias, spec.user, spec.port, identity)


def no_key(file: str) -> str:
    """Why `file`, which is there, cannot be a private key; "" when it may be one."""
    if os.path.isdir(file):
        return "is a folder"
    try:
        with open(file, "rb") as opened:
            head = opened.read(4096)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if re.search(rb"^-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----", head, re.MULTILINE):
        return ""
    public = re.match(rb"(ssh|ecdsa|sk-ssh|sk-ecdsa)-\S+ \S", head)
    return "is a public key, not the private one" if public else "is not a private key"


class _Shell:
    """Runs the commands of `Match exec`. What the library would use for it reads our standard input."""

    @staticmethod
    def run(command: str, **_: object) -> SimpleNamespace:
        quiet = subprocess.DEVNULL
        done = subprocess.run(["/bin/sh", "-c", command], stdin=quiet, stdout=quiet)
        return SimpleNamespace(ok=done.returncode == 0)


paramiko.config.invoke = _Shell


class _Resolver:
    def __init__(self) -> None:
        self._file = os.path.expanduser("~/.ssh/config")
        text = "\n".join([_text(self._file), "Host *", _text(_SYSTEM[0])])
        try:
            self._config = paramiko.SSHConfig.from_text(text)
        except paramiko.ConfigParseError as error:
            raise ConfigError("ssh_config", f"{self._file} cannot be read: {error}.") from None

    def resolve(
        self,
        alias: str,
        user: str | None = None,
        port: int | None = None,
        identity: str | None = None,
        before: tuple[str, ...] = (),
    ) -> Target:
        """`before` are the aliases that this one is a jump of."""
        found = self._lookup(alias)
        address = found["hostname"]
        number = port or self._number(alias, found, "port", 22)
        name = found.get("hostkeyalias") or (address if number == 22 else f"[{address}]:{number}")
        files = found.get("userknownhostsfile", "~/.ssh/known_hosts ~/.ssh/known_hosts2").split()
        return Target(
            alias=alias,
            address=address,
            port=number,
            user=user or found.get("user") or getpass.getuser(),
            known_name=name.lower(),
            identities=(identity,) if identity else self._identities(alias, found),
            identities_only=bool(identity) or found.get("identitiesonly") == "yes",
            known_files=(*_files(files), *_files(found.get("globalknownhostsfile", _SYSTEM[1]).split())),
            connect_timeout=float(self._number(alias, found, "connecttimeout", int(CONNECT_TIMEOUT))),
            proxy_command=found.get("proxycommand"),
            jump=self._jump(alias, found.get("proxyjump"), before),
        )

    def _identities(self, alias: str, found: paramiko.SSHConfigDict) -> tuple[str, ...]:
        """Key files as the configuration names them. One that is no key is passed over like one that is not
        there, unless nothing else could log in."""
        files = _files(found.get("identityfile", []))
        wrong = {file: why for file in files if os.path.exists(file) and (why := no_key(file))}
        agent = "SSH_AUTH_SOCK" in os.environ and found.get("identitiesonly") != "yes"
        if wrong and not agent and all(f in wrong or not os.path.exists(f) for f in files):
            said = ", and ".join(f"{file} {why}" for file, why in wrong.items())
            message = f"{self._file}: IdentityFile of {alias}: {said}."
            raise ConfigError("identity_no_key", message, "Name the private key file there.")
        return tuple(files)

    def _lookup(self, alias: str) -> paramiko.SSHConfigDict:
        try:
            return self._config.lookup(alias)
        except paramiko.CouldNotCanonicalize as error:
            message = f"{self._file}: {alias} has no canonical name ({error})."
            raise ConfigError("ssh_config", message) from None

    def _number(self, alias: str, found: paramiko.SSHConfigDict, key: str, default: int) -> int:
        text = found.get(key, str(default))
        if not text.isdigit():
            message = f"{self._file}: {key} of {alias} is {text!r}, which is not a number."
            raise ConfigError("ssh_config", message)
        return int(text)

    def _jump(self, alias: str, text: str | None, before: tuple[str, ...]) -> Target | None:
        """`a,b` is b reached through a. A single jump may have a ProxyJump of its own, as in OpenSSH."""
        if not text or text.lower() == "none":
            return None
        chain: Target | None = None
        for part in text.split(","):
            parsed = _JUMP.fullmatch(part.strip())
            if not parsed:
                raise ConfigError("ssh_config", f"{self._file}: ProxyJump {text} of {alias} is not readable.")
            user, name, port = parsed.groups()
            if name in (*before, alias) or len(before) > _DEEP:
                message = f"{self._file}: ProxyJump of {alias} leads back to {name}."
                raise ConfigError("ssh_config", message)
            number = int(port) if port else None
            one = self.resolve(name.strip("[]"), user, number, None, (*before, alias))
            chain = Target(**{**vars(one), "jump": chain}) if chain else one
        return chain


def _files(names: list[str]) -> list[str]:
    return [os.path.expanduser(name) for name in names if name.lower() != "none"]


def _text(file: str, depth: int = 0) -> str:
    """A configuration file with what it includes in place; empty when there is none."""
    try:
        lines = Path(file).read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise ConfigError("ssh_config", f"{file} cannot be read: {error.strerror}.") from None
    found, block = [], "Host *"
    for line in lines:
        word, _, rest = line.strip().replace("=", " ", 1).partition(" ")
        if word.lower() in ("host", "match"):
            block = line
        if word.lower() != "include" or depth > _DEEP:
            found.append(line)
            continue
        for pattern in rest.split():
            place = os.path.join(os.path.dirname(file), os.path.expanduser(pattern.strip('"')))
            found += [_text(one, depth + 1) for one in sorted(glob.glob(place))]
        # What follows belongs to the block that the include stands in, whatever the file opened.
        found.append(block)
    return "\n".join(found)
