"""The fleet's folder on a control host that is another machine: what the supervisor reads there.

It has the files that say how the fleet should be, its policy and its tokens, and a pdctl of that host. Logins
are that host's own: its user's keys, `known_hosts` and `~/.ssh/config`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from pdctl.errors import ConfigError, PdctlError
from pdctl.exits import Exit
from pdctl.fleet.model import Fleet
from pdctl.fleet.place import place
from pdctl.flows.context import Context
from pdctl.supervisor.policy import load_policy
from pdctl.transport.base import checked
from pdctl.transport.command import Command

# Beside what a login's PATH has.
PLACES = ("~/.local/bin", "/usr/local/bin", "/opt/pdctl/bin")
_FIND = f'PATH="$PATH:{":".join(PLACES).replace("~", "$HOME")}"; command -v pdctl && pdctl --version'
_LIST = """cd "$1" 2>/dev/null || exit 0
shift
find . -maxdepth 2 -type f -name "*.toml"
sha256sum -- "$@" 2>/dev/null
exit 0
"""
QUICK, LOOK, TRIES = 30.0, 90.0, 3


def is_elsewhere(fleet: Fleet) -> bool:
    """Whether the fleet file asks for a supervisor on another machine than this one."""
    return fleet.spec.fleet.supervise and not fleet.hosts[fleet.control].local


def folder(fleet: Fleet, host: str = "") -> str:
    """On the control host, or where one was before."""
    return f"{fleet.hosts[host or fleet.control].root}/supervisor/fleet"


def files(fleet: Fleet) -> dict[str, bytes]:
    """Name below the folder -> content. ConfigError for one that lies elsewhere or cannot be read."""
    paths, policy = fleet.paths, load_policy(fleet.paths.policy)
    wanted = [fleet.path, *sorted(paths.profiles.glob("*.toml")), paths.token]
    wanted += [p for p in (paths.policy, paths.page_token) if p.exists()]
    wanted += [paths.drill_token] if fleet.drill else []
    named = [u.spec.secrets for u in fleet.units()] + [c.secret for c in policy.notify.values()]
    wanted += [fleet.dir / Path(name).expanduser() for name in named if name is not None]
    found = {}
    for path in wanted:
        try:
            found[path.resolve().relative_to(fleet.dir.resolve()).as_posix()] = path.read_bytes()
        except OSError as error:
            raise ConfigError("no_file", f"{path} cannot be read: {error.strerror}.") from None
        except ValueError:
            raise ConfigError(
                "supervise_outside",
                f"{place(fleet, 'fleet', 'supervise')}: fleet.supervise: {path} is not in the fleet's "
                f"folder, and the supervisor on {fleet.control} needs it there.",
                f"Keep it below {fleet.dir}.",
            ) from None
    return found


def digest(found: dict[str, bytes]) -> str:
    return hashlib.sha256(b"\0".join(w for n in sorted(found) for w in (n.encode(), found[n]))).hexdigest()


def program(ctx: Context, version: str) -> str:
    """Path of the host's own pdctl; ConfigError where there is none, or it is another version."""
    fleet, control = ctx.fleet, ctx.fleet.control
    said = ctx.transport(control).run(Command(("sh", "-c", _FIND)), QUICK).text.split()
    if len(said) >= 3 and said[-1] == version:
        return said[0]
    there = f"that is {' '.join(said[1:])}" if len(said) >= 3 else "there is none"
    raise ConfigError(
        "no_pdctl",
        f"{place(fleet, 'fleet', 'supervise')}: fleet.supervise: the supervisor needs pdctl {version} on "
        f"{control}, and {there} (looked in its PATH, {', '.join(PLACES)}).",
        f"Install the same pdctl on {control}; or set fleet.supervise = false and run `pdctl supervise` "
        "here.",
    )


def differences(ctx: Context, found: dict[str, bytes]) -> list[str]:
    """What is missing, other than here, or too many there; contents are not shown."""
    there, many = _there(ctx, found)
    lines = []
    for name, data in found.items():
        known = there.get(name)
        if known != hashlib.sha256(data).hexdigest():
            lines.append(f"{name}: {'not there' if known is None else 'another one'}")
    return lines + [f"{name}: not here" for name in many]


def _there(ctx: Context, found: dict[str, bytes]) -> tuple[dict[str, str], Sequence[str]]:
    """(name -> digest of those that should be there, names of those that should not)."""
    home = folder(ctx.fleet)
    argv = ("sh", "-c", _LIST, "sh", home, *found)
    lines = checked(
        ctx.transport(ctx.fleet.control), Command(argv), QUICK, f"reading {home}"
    ).text.splitlines()
    sums = (line.split("  ", 1) for line in lines if not line.startswith("./"))
    digests = {name: digest for digest, name in sums}
    extra = [line[2:] for line in lines if line.startswith("./") and line[2:] not in found]
    return digests, extra


def send(ctx: Context, found: dict[str, bytes]) -> None:
    """Nobody but the login reads them; what should not be there is gone."""
    home, transport = folder(ctx.fleet), ctx.transport(ctx.fleet.control)
    dirs = sorted({f"{home}/{Path(name).parent.as_posix()}" for name in found} | {f"{home}/.pdctl"})
    checked(transport, Command(("install", "-d", "-m", "700", home, *dirs)), QUICK, f"making {home}")
    for name, data in found.items():
        transport.put(data, f"{home}/{name}", 0o600)
    _, many = _there(ctx, found)
    if many:
        checked(transport, Command(("rm", "-f", *(f"{home}/{n}" for n in many))), QUICK, f"tidying {home}")


def remove(ctx: Context, host: str) -> None:
    """Tokens too. What the supervisor saw and did is kept."""
    home = folder(ctx.fleet, host)
    argv = ("sh", "-c", 'cd "$1" && find . -maxdepth 2 -type f ! -name "*.db*" -delete', "sh", home)
    checked(ctx.transport(host), Command(argv), QUICK, f"clearing {home}")


def refuse_blind(ctx: Context, pdctl: str) -> None:
    """PdctlError that names hosts of the fleet which the control host's own login does not reach."""
    control, home = ctx.fleet.control, folder(ctx.fleet)
    silent: dict[str, str] = {}
    for _ in range(TRIES):  # a busy host is late now and then
        silent = _silent(ctx, pdctl)
        if not silent:
            return
    raise PdctlError(
        "supervisor_blind",
        f"The supervisor on {control} would not reach {', '.join(silent)}: it was not started.",
        f"On {control}, `pdctl --fleet {home} status` must reach every host, {control} too: put a key and "
        "known_hosts of its own into that login's ~/.ssh; then deploy again.",
        exit=Exit.FINDINGS,
        details=[f"{host}: {why}" for host, why in silent.items()],
    )


def _silent(ctx: Context, pdctl: str) -> dict[str, str]:
    """Hosts that tell pdctl nothing there, and why."""
    control = ctx.fleet.control
    asked = Command((pdctl, "--fleet", home_file(ctx.fleet), "--json", "status"))
    result = ctx.transport(control).run(asked, LOOK)
    try:
        found: dict[str, str] = json.loads(result.text)["silent"]
    except (ValueError, KeyError):
        return {control: " ".join(result.tail(3)) or f"exit code {result.rc}"}
    return found


def home_file(fleet: Fleet) -> str:
    return f"{folder(fleet)}/{fleet.path.name}"
