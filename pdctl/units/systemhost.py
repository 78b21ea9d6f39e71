"""A host's systemd as the host tool sees it: names, files and calls. Python >= 3.9, nothing else.

Part of the program that units.systemd sends; units.systemtool is its entry.
"""

from __future__ import annotations

import glob
import json
import os
import pwd
import subprocess
from typing import Any

Ask = dict[str, Any]
Shown = dict[str, str]

TEMPLATES = {
    "prefill": "prefill@",
    "decode": "decode@",
    "both": "decode@",
    "router": "router@",
    "supervisor": "supervisor@",
}
# Stands in a unit file for the user whose fleet it is, whom only the host knows.
LOGIN = "@LOGIN@"
PROPERTIES = (
    *("LoadState", "ActiveState", "SubState", "Result", "MainPID", "InvocationID", "NRestarts", "StatusText"),
    *("ExecMainCode", "ExecMainStatus", "ExecMainStartTimestampMonotonic", "StateChangeTimestampMonotonic"),
    *("Restart", "RestartPreventExitStatus", "StartLimitBurst"),
)


class Trouble(Exception):
    """A sentence for the operator."""


def unit_of(fleet: str, role: str, name: str) -> str:
    """The instance carries the fleet, so that fleets may share a host."""
    return f"pdctl-{TEMPLATES[role]}{fleet}-{name}.service"


def target_of(fleet: str, cell: str) -> str:
    return f"pdctl-cell@{fleet}-{cell}.target"


def files_of(spec: Ask) -> list[str]:
    """Unit files of a spec, below the unit folder: template and drop-in, and its cell's target likewise."""
    unit = unit_of(spec["fleet"], spec["role"], spec["name"])
    names = [unit.partition("@")[0] + "@.service", f"{unit}.d/pdctl.conf"]
    if spec["cell"]:
        names += ["pdctl-cell@.target", f"{target_of(spec['fleet'], spec['cell'])}.d/{spec['name']}.conf"]
    return names


def mark(root: str) -> str:
    """First line of what belongs to one fleet: instance names of two fleets may be the same."""
    return f"# pdctl, fleet at {root}"


class Host:
    """`folder` is where the scope's unit files lie."""

    def __init__(self, ask: Ask) -> None:
        self.root, self.fleet = ask["root"], ask["fleet"]
        self.system = ask["scope"] == "system"
        self.env = dict(os.environ, LC_ALL="C", SYSTEMD_COLORS="0", SYSTEMD_PAGER="")
        self.folder = "/etc/systemd/system"
        self.manager: list[str] = []
        if not self.system:
            self.env.setdefault("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}")
            config = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
            self.folder = os.path.join(config, "systemd/user")
            self.manager = ["--user"]

    # the manager

    def answers(self) -> bool:
        """Whether the manager of this scope runs."""
        if self.system or not booted():
            return booted()
        return os.path.exists(os.path.join(self.env["XDG_RUNTIME_DIR"], "systemd/private"))

    def insist(self) -> None:
        if not booted():
            raise Trouble("systemd does not run this host")
        if not self.answers():
            raise Trouble(
                f"no systemd --user runs for {me()}; root must run `loginctl enable-linger {me()}` once"
            )

    def call(self, *argv: str) -> tuple[int, str, str]:
        """Exit code, stdout, stderr."""
        try:
            done = subprocess.run(argv, env=self.env, stdin=subprocess.DEVNULL, capture_output=True)
        except FileNotFoundError:
            raise Trouble(f"there is no {argv[0]} on this host") from None
        return done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")

    def ctl(self, *argv: str, may_fail: bool = False) -> str:
        rc, out, err = self.call("systemctl", *self.manager, "--no-pager", *argv)
        if rc and not may_fail:
            said = " ".join(err.split()) or f"exit code {rc}"
            raise Trouble(f"systemctl {' '.join([*self.manager, *argv])}: {said}")
        return out

    def show(self, units: list[str], properties: tuple[str, ...] = PROPERTIES) -> dict[str, Shown]:
        """What systemd says of each; of a unit that it does not know too."""
        if not units:
            return {}
        out = self.ctl("show", f"--property=Id,{','.join(properties)}", "--", *units)
        blocks = [dict(line.split("=", 1) for line in block.splitlines()) for block in out.split("\n\n")]
        return {block["Id"]: block for block in blocks if block}

    # the fleet's units on this host

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def spec_file(self, name: str) -> str:
        return os.path.join(self.root, "units", f"{name}.json")

    def run_file(self, name: str) -> str:
        return os.path.join(self.root, "run", f"{name}.json")

    def noted_file(self, name: str) -> str:
        """Digests of its unit files as they were installed."""
        return os.path.join(self.root, "run", f"{name}.files")

    def lock_file(self, name: str) -> str:
        """Held by the process backend's keeper while it has the unit."""
        return os.path.join(self.root, "run", f"{name}.lock")

    def names(self, asked: list[str]) -> list[str]:
        found = glob.glob(os.path.join(glob.escape(self.root), "units", "*.json"))
        return asked or sorted(os.path.basename(path)[: -len(".json")] for path in found)

    def spec(self, name: str) -> Ask | None:
        """None when there is none, or it is damaged or not for systemd."""
        try:
            spec = json.loads(read(self.spec_file(name)) or "")
            return spec if spec["role"] in TEMPLATES and spec["fleet"] == self.fleet else None
        except (ValueError, KeyError, TypeError):
            return None

    def ours(self, path: str) -> bool:
        return (read(path) or "").startswith(mark(self.root) + "\n")

    def installed(self, name: str) -> list[str]:
        """Units of this fleet by that name, whatever their role; one, unless its role was changed."""
        units = sorted({unit_of(self.fleet, role, name) for role in TEMPLATES})
        return [unit for unit in units if self.ours(self.path(f"{unit}.d/pdctl.conf"))]

    def unit(self, name: str) -> str | None:
        """Its systemd name, by its spec, or by its drop-in when the spec is damaged."""
        spec = self.spec(name)
        if spec is not None:
            return unit_of(self.fleet, spec["role"], name)
        return next(iter(self.installed(name)), None)

    def login(self) -> str:
        """The owner of the fleet's folder: the one who logs in, also while this runs as root."""
        try:
            return pwd.getpwuid(os.stat(self.root).st_uid).pw_name
        except (OSError, KeyError):
            return me()


def booted() -> bool:
    """Whether systemd is this machine's PID 1; the test of sd_booted(3)."""
    return os.path.isdir("/run/systemd/system")


def me() -> str:
    return pwd.getpwuid(os.getuid()).pw_name


def read(path: str) -> str | None:
    """None when there is no such file."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None


def write(path: str, text: str, mode: int, owner: str | None = None) -> bool:
    """Whether the file was another one before; replaced whole. `owner` gets it and folders made for it."""
    if read(path) == text:
        return False
    made, folder = [path], os.path.dirname(path)
    while not os.path.isdir(folder):
        made.append(folder)
        folder = os.path.dirname(folder)
    for folder in reversed(made[1:]):
        os.mkdir(folder, 0o755 if owner is None else 0o700)
    temporary = f"{path}.{os.getpid()}.new"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        os.fchmod(fd, mode)
        file.write(text)
        file.flush()
        os.fsync(fd)
    os.replace(temporary, path)
    if owner is not None and os.getuid() == 0:
        who = pwd.getpwnam(owner)
        for item in made:
            os.chown(item, who.pw_uid, who.pw_gid, follow_symlinks=False)
    return True
