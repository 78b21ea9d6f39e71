"""Unit files as text: the templates in systemd/ as they are, and drop-ins for what differs per unit."""

from __future__ import annotations

from dataclasses import fields

from pdctl.errors import ConfigError
from pdctl.fleet.shipped import shipped_text
from pdctl.units.spec import UnitSpec
from pdctl.units.systemhost import LOGIN, TEMPLATES, files_of, mark, target_of

# Needs privileges that a user's own manager does not have; everything else means the same there.
NOT_FOR_USERS = frozenset(
    {
        *("User", "CapabilityBoundingSet", "PrivateTmp", "PrivateDevices", "ProtectSystem", "ProtectHome"),
        *("ProtectKernelTunables", "ProtectKernelModules", "ProtectKernelLogs", "ProtectControlGroups"),
        *("ProtectHostname", "ProtectClock", "ProtectProc", "OOMPolicy"),
    }
)
# Units of the machine, which users' managers do not know.
_MACHINE = ("network-online.target", "remote-fs.target", "nvidia-persistenced.service")
_TEMPORARY = ("/tmp/", "/var/tmp/")
_DEFAULTS = {f.name: f.default for f in fields(UnitSpec)}


def render(spec: UnitSpec, scope: str, root: str) -> dict[str, str]:
    """File name below the folder of unit files -> text. LOGIN in it is replaced on the host.

    ConfigError for a unit without a role, or with a word that a unit file cannot hold.
    """
    if spec.role not in TEMPLATES:
        raise ConfigError("no_role", f"{spec.name}: {spec.role or 'no role'} has no unit in systemd/.")
    paths = files_of({"fleet": spec.fleet, "role": spec.role, "name": spec.name, "cell": spec.cell})
    unit = paths[0]
    try:
        texts = [template(unit, scope), f"{mark(root)}\n{drop_in(spec, scope)}"]
    except ValueError as error:
        raise ConfigError("bad_unit", f"{spec.name}: {error}") from None
    if spec.cell:
        service = paths[1].partition(".d/")[0]
        texts += [template(paths[2], scope), f"{mark(root)}\n[Unit]\nWants={service}\n"]
    return dict(zip(paths, texts, strict=True))


def template(name: str, scope: str) -> str:
    """One of systemd/, for a user's manager without what that cannot do."""
    text = shipped_text("systemd", name.removeprefix("pdctl-"))
    if scope == "system":
        return text
    lines = [line for line in text.splitlines() if _for_users(line)]
    return "\n".join(lines).replace("WantedBy=multi-user.target", "WantedBy=default.target") + "\n"


def _for_users(line: str) -> bool:
    key, equals, value = line.partition("=")
    return not equals or (key not in NOT_FOR_USERS and value not in _MACHINE)


def drop_in(spec: UnitSpec, scope: str) -> str:
    """`Environment=PDCTL_INPUTS` lets a deploy read back what the running process was started with."""
    unit = []
    if spec.cell:
        target = target_of(spec.fleet, spec.cell)
        unit = [f"PartOf={target}", f"After={target}"]
    if _differ(spec, "burst", "burst_window"):
        unit += [f"StartLimitBurst={spec.burst}", f"StartLimitIntervalSec={spec.burst_window:g}"]
    env = {**spec.env, "PDCTL_INPUTS": spec.inputs}
    service = [
        *([f"User={spec.user or LOGIN}"] if scope == "system" else []),
        f"ExecStart={' '.join(quote(word) for word in spec.argv)}",
        f"WorkingDirectory={_path(spec.cwd)}",
        f"EnvironmentFile={_path(spec.env_file)}",
        # What is not pdctl's own engine gets its own environment, without the template's.
        *([] if spec.notify else ["Environment="]),
        *(f"Environment={quote(f'{k}={v}', variables=False)}" for k, v in sorted(env.items())),
        f"TimeoutStartSec={spec.start_timeout:g}",
        f"TimeoutStopSec={spec.stop_timeout:g}",
        f"WatchdogSec={spec.watchdog:g}",
        *_policy(spec),
    ]
    if scope == "system" and any(p.startswith(_TEMPORARY) for p in (spec.cwd, spec.env_file, *spec.argv)):
        service.append("PrivateTmp=no")
    sections = (("Unit", unit), ("Service", service))
    return "\n".join(f"[{name}]\n" + "\n".join(lines) + "\n" for name, lines in sections if lines)


def _policy(spec: UnitSpec) -> list[str]:
    """What is not as in the templates, and where it runs."""
    lines = []
    if not spec.notify:
        lines += ["Type=exec", "NotifyAccess=none"]
    if not spec.restart:
        lines.append("Restart=no")
    if _differ(spec, "restart_delay"):
        lines.append(f"RestartSec={spec.restart_delay:g}")
    if _differ(spec, "no_restart"):
        lines += [
            "RestartPreventExitStatus=",
            f"RestartPreventExitStatus={' '.join(map(str, spec.no_restart))}",
        ]
    if spec.numa is not None:
        # As numactl --cpunodebind --membind does.
        lines += ["NUMAPolicy=bind", f"NUMAMask={spec.numa}", "CPUAffinity=numa"]
    return lines


def _differ(spec: UnitSpec, *names: str) -> bool:
    return any(getattr(spec, name) != _DEFAULTS[name] for name in names)


def _path(path: str) -> str:
    if any(c in path for c in "\n\r\0"):
        raise ValueError("a path of a unit file holds a line break.")
    return path.replace("%", "%%")


def quote(word: str, variables: bool = True) -> str:
    """One word of a unit file: specifiers and, in ExecStart, variables lose their meaning.

    ValueError for a line break, which a unit file cannot hold in a word.
    """
    if any(c in word for c in "\n\r\0"):
        raise ValueError("a word of a unit file holds a line break.")
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    if variables:
        escaped = escaped.replace("$", "$$")
    plain = escaped and all(c.isalnum() or c in "-_./:=,@+%$" for c in escaped)
    return escaped if plain else f'"{escaped}"'
