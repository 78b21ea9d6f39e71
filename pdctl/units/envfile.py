"""Environment files as systemd reads them: NAME="value", one a line."""

from __future__ import annotations

from collections.abc import Mapping


def render_env(values: Mapping[str, str]) -> str:
    """ValueError for a value with a line break, which systemd would read differently from us."""
    lines = []
    for name, value in sorted(values.items()):
        if any(c in value for c in "\n\r\0"):
            raise ValueError(f"{name} holds a line break.")
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        lines.append(f'{name}="{escaped}"\n')
    return "".join(lines)


def parse_env(text: str) -> dict[str, str]:
    """The inverse; comments and blank lines are skipped, unquoted values are taken as they are."""
    values = {}
    for line in text.split("\n"):
        name, equals, value = line.strip().partition("=")
        if not equals or name.startswith("#"):
            continue
        if len(value) >= 2 and value[0] == value[-1] == '"':
            value = value[1:-1].replace('\\"', '"').replace("\\\\", "\\")
        values[name] = value
    return values
