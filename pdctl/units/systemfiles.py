"""Unit files on a host: written, compared, removed. Part of the program that units.systemd sends."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import shutil
import time

from pdctl.units.systemhost import LOGIN, Ask, Host, Trouble, files_of, me, read, unit_of, write

MANAGER_DEADLINE = 10.0
NODES = "/sys/devices/system/node"


def files(host: Host, ask: Ask) -> Ask:
    """What lies there; the one who asks knows what should."""
    found: Ask = {}
    for name in host.names(ask["names"]):
        spec = host.spec(name)
        found[name] = {
            "spec": read(host.spec_file(name)),
            "files": {},
            "foreign": [],
            "times": {},
            "ours": {},
        }
        if spec is not None:
            found[name]["files"] = {rel: read(host.path(rel)) for rel in files_of(spec)}
            found[name]["foreign"] = foreign(host, unit_of(host.fleet, spec["role"], name))
            rels = [*found[name]["files"], *found[name]["foreign"]]
            found[name]["times"] = {rel: changed_at(host.path(rel)) for rel in rels}
            found[name]["ours"] = ours(host, name, found[name]["files"])
    return {"login": host.login(), "lasts": host.system or lingers(me()), "units": found}


def changed_at(path: str) -> float | None:
    """When its content was written or put in its place: what copies keep is the time of the content alone."""
    try:
        return os.lstat(path).st_ctime
    except FileNotFoundError:
        return None


def ours(host: Host, name: str, texts: dict[str, str | None]) -> dict[str, bool | None]:
    """Which files are as they were when this unit was installed; None where that was not noted."""
    try:
        noted = json.loads(read(host.noted_file(name)) or "{}")
    except ValueError:
        noted = {}
    return {rel: noted[rel] == digest(text or "") if rel in noted else None for rel, text in texts.items()}


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def foreign(host: Host, unit: str) -> list[str]:
    """Files beside ours that change this very unit: what `systemctl edit`, with and without --full, makes."""
    found = glob.glob(host.path(f"{unit}.d/*.conf"))
    names = [os.path.relpath(p, host.folder) for p in found if os.path.basename(p) != "pdctl.conf"]
    return sorted(names) + ([unit] if os.path.lexists(host.path(unit)) else [])


def install(host: Host, ask: Ask) -> Ask:
    """Files that somebody else put there are set aside under a name that systemd does not read."""
    name, spec, login = ask["name"], json.loads(ask["spec"]), host.login()
    unit = unit_of(host.fleet, spec["role"], name)
    drop_in = host.path(f"{unit}.d/pdctl.conf")
    if os.path.exists(drop_in) and not host.ours(drop_in):
        whose = (read(drop_in) or "").partition("\n")[0].removeprefix("# pdctl, ")
        raise Trouble(f"{unit} is another fleet's already ({whose}); give this fleet another name")
    numa(spec.get("numa"))
    if not host.system:
        linger(host, login)  # once more: somebody may have taken it back since the deploy began
    host.insist()
    changed = False
    for old in host.installed(name):
        if old != unit:  # its role was changed: the same engine must not run as two units
            discard(host, name, old)
            changed = True
    for rel in [r for r in targets(host, name) if r not in ask["files"]]:
        os.unlink(host.path(rel))
        changed = True
    for rel in foreign(host, unit):
        os.replace(host.path(rel), host.path(f"{rel}.set-aside"))
        changed = True
    texts = {rel: text.replace(LOGIN, login) for rel, text in ask["files"].items()}
    for rel, text in texts.items():
        changed |= write(host.path(rel), text, 0o644)
    noted = json.dumps({rel: digest(text) for rel, text in texts.items()}, indent=1)
    write(host.noted_file(name), noted, 0o600, login)
    write(host.spec_file(name), ask["spec"], 0o600, login)
    if changed or host.show([unit], ("NeedDaemonReload",))[unit]["NeedDaemonReload"] == "yes":
        host.ctl("daemon-reload")
    return {}


def numa(node: int | None) -> None:
    """systemd 252 cannot even show a unit that is bound to a node that is not there."""
    if node is not None and not os.path.isdir(f"{NODES}/node{node}"):
        there = sorted(int(os.path.basename(p)[4:]) for p in glob.glob(f"{NODES}/node[0-9]*"))
        raise Trouble(f"there is no NUMA node {node} on this host (there is: {', '.join(map(str, there))})")


def linger(host: Host, login: str) -> None:
    """Without it the user's units end with the last login and do not come back with the host."""
    if not lingers(login):
        rc, _, err = host.call("loginctl", "enable-linger")
        if rc:
            said = " ".join(err.split()).rstrip(".")
            what = f"{login} may not keep units running after logout ({said})"
            raise Trouble(f"{what}; root must run `loginctl enable-linger {login}` once")
    end = time.monotonic() + MANAGER_DEADLINE
    while not host.answers() and time.monotonic() < end:
        time.sleep(0.05)


def lingers(login: str) -> bool:
    return os.path.exists(f"/var/lib/systemd/linger/{login}")


def targets(host: Host, name: str) -> list[str]:
    """Where a cell's target names this unit."""
    found = glob.glob(host.path(f"pdctl-cell@{host.fleet}-*.target.d/{name}.conf"))
    return [os.path.relpath(path, host.folder) for path in found if host.ours(path)]


def remove(host: Host, ask: Ask) -> Ask:
    """The unit has ended already; its log stays."""
    name = ask["name"]
    for unit in host.installed(name):
        discard(host, name, unit)
    host.ctl("daemon-reload")
    env = os.path.join(host.root, "env", f"{name}.env")
    for path in (host.spec_file(name), env, host.run_file(name), host.lock_file(name), host.noted_file(name)):
        if os.path.lexists(path):
            os.unlink(path)
    return {}


def discard(host: Host, name: str, unit: str) -> None:
    """Stop a unit and delete its files, and templates that have no unit left."""
    disable(host, unit)
    host.ctl("stop", "--", unit, may_fail=True)
    host.ctl("reset-failed", "--", unit, may_fail=True)
    shutil.rmtree(host.path(f"{unit}.d"), ignore_errors=True)
    for rel in [unit, f"{unit}.set-aside", *targets(host, name)]:
        if os.path.lexists(host.path(rel)):
            os.unlink(host.path(rel))
    for folder in glob.glob(host.path(f"pdctl-cell@{host.fleet}-*.target.d")):
        if not os.listdir(folder):
            os.rmdir(folder)
    for template in (unit.partition("@")[0] + "@.service", "pdctl-cell@.target"):
        stem, _, ending = template.partition("@.")
        if not glob.glob(host.path(f"{stem}@*.{ending}.d")) and os.path.exists(host.path(template)):
            os.unlink(host.path(template))


def enabled(host: Host, unit: str) -> bool:
    """Whether it comes back with the host."""
    wanted = "multi-user.target" if host.system else "default.target"
    return os.path.islink(host.path(f"{wanted}.wants/{unit}"))


def enable(host: Host, unit: str) -> None:
    if not enabled(host, unit):
        host.ctl("enable", "--quiet", "--no-reload", "--", unit)


def disable(host: Host, unit: str) -> None:
    if enabled(host, unit):
        host.ctl("disable", "--quiet", "--no-reload", "--", unit)
