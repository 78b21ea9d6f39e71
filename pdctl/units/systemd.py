"""systemd units as text: the templates in systemd/ as they are, and a drop-in for what differs per unit."""

from __future__ import annotations

from pdctl.fleet.shipped import shipped_text
from pdctl.units.spec import UnitSpec

# Role -> template. A whole engine (both) has the needs of a decode.
TEMPLATES = {"prefill": "prefill@", "decode": "decode@", "both": "decode@", "router": "router@"}


def unit_name(role: str, instance: str) -> str:
    """`prefill@demo-prefill-0.service`: the instance carries the fleet, so fleets may share a host."""
    return f"{TEMPLATES[role]}{instance}.service"


def render(role: str, instance: str, spec: UnitSpec) -> dict[str, str]:
    """File name below /etc/systemd/system -> text: the template and this instance's drop-in."""
    template = f"{TEMPLATES[role]}.service"
    text = shipped_text("systemd", template)
    return {template: text, f"{unit_name(role, instance)}.d/pdctl.conf": drop_in(spec)}


def drop_in(spec: UnitSpec) -> str:
    """`Environment=PDCTL_INPUTS` lets a deploy read back what the running process was started with."""
    env = {**spec.env, "PDCTL_INPUTS": spec.inputs}
    lines = [
        "[Service]",
        f"Type={'notify' if spec.notify else 'exec'}",
        f"ExecStart={' '.join(quote(word) for word in spec.argv)}",
        f"WorkingDirectory={spec.cwd.replace('%', '%%')}",
        f"EnvironmentFile={spec.env_file.replace('%', '%%')}",
        *(f"Environment={quote(f'{k}={v}', variables=False)}" for k, v in sorted(env.items())),
        f"TimeoutStartSec={spec.start_timeout:g}",
        f"TimeoutStopSec={spec.stop_timeout:g}",
        f"RestartSec={spec.restart_delay:g}",
    ]
    if not spec.restart:
        lines.append("Restart=no")
    if spec.watchdog:
        lines.append(f"WatchdogSec={spec.watchdog:g}")
    return "\n".join(lines) + "\n"


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
