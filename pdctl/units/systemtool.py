"""systemd's hands on a host. Runs there through `python3 - VERB JSON`: Python >= 3.9, nothing else.

JSON: {root, fleet, scope, …}; scope is system (as root) or user (the login's own manager).

status   {names}              what systemd says of each unit; of all that are installed when names is empty
files    {names}              spec and unit files as they lie there
install  {name, spec, files}  write them, reload when something changed; starts nothing
start    {name, again}        also restart and stop; then status. Answers after WAIT at the latest, also
                              while it is still under way; asked `again` it goes on with that. A stop
                              `at_once` kills
remove   {name}               stop it and delete everything of it
logs     {name, lines, cursor}   text, and the cursor behind it
probe    {}                   whether this scope can be used, before anything is installed

Exit 1 with a sentence on stderr when it could not be done.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from collections.abc import Callable

from pdctl.units.systemfiles import disable, enable, enabled, files, install, linger, lingers, remove
from pdctl.units.systemhost import Ask, Host, Shown, Trouble, me, read, write

WAIT = 8.0
# From fork to exec, with the sandbox made in between.
EXEC = 2.0
# The journal's message id of "a unit's process ended".
PROCESS_EXIT = "98e322203f7a4ed290d09fe03c09fe15"


def start(host: Host, ask: Ask, verb: str = "start") -> Ask:
    """A failed past does not forbid it. What runs is left alone."""
    name = ask["name"]
    unit = host.unit(name)
    if unit is None or host.show([unit])[unit]["LoadState"] != "loaded":
        raise Trouble(f"{name} is not installed as a systemd unit")
    if kept(host, name):
        raise Trouble(f'{name} is run by pdctl\'s own keeper; stop that first (units = "process")')
    enable(host, unit)
    before = host.show([unit])[unit]
    if verb == "start" and before["MainPID"] != "0" and before["ActiveState"] != "deactivating":
        if ask.get("again"):
            note_start(host, name, before)
        return status(host, {"names": [name]})
    host.ctl("reset-failed", "--", unit, may_fail=True)
    host.ctl(verb, "--no-block", "--", unit)

    def born(now: Shown) -> bool:
        """A process exists, or has ended already and none is under way."""
        if now["InvocationID"] in ("", before["InvocationID"]) or now["ActiveState"] == "deactivating":
            return False
        return now["MainPID"] != "0" or now["SubState"].startswith(("auto-restart", "failed", "dead"))

    now = wait(host, unit, born)
    if born(now):
        note_start(host, name, now)
    return status(host, {"names": [name]})


def restart(host: Host, ask: Ask) -> Ask:
    return start(host, ask, "restart")


def note_start(host: Host, name: str, now: Shown) -> None:
    """Which life pdctl began: any other one was begun by somebody else."""
    said = {"schema": 1, "invocation": now["InvocationID"], "at": time.time()}
    write(host.run_file(name), json.dumps(said) + "\n", 0o600, host.login())


def stop(host: Host, ask: Ask) -> Ask:
    """It stays down over a reboot. A stop that had to kill was a stop: only an earlier failure is kept."""
    name = ask["name"]
    unit, result = host.unit(name), ""
    if unit is not None:
        failed = host.show([unit])[unit]["ActiveState"] == "failed" and not ask.get("again")
        disable(host, unit)
        host.ctl("stop", "--no-block", "--", unit, may_fail=True)
        if ask.get("at_once"):
            # Behind the order to stop, so that nothing brings it back.
            host.ctl("kill", "--signal=SIGKILL", "--", unit, may_fail=True)
        now = wait(host, unit, over)
        if now["ActiveState"] == "failed" and not failed:
            result = now["Result"]
            host.ctl("reset-failed", "--", unit, may_fail=True)
    answer = status(host, {"names": [name]})
    if answer["units"][name] is not None:
        answer["units"][name]["stopped"] = result
    return answer


def over(now: Shown) -> bool:
    return now["ActiveState"] in ("inactive", "failed") and now["MainPID"] == "0"


def wait(host: Host, unit: str, done: Callable[[Shown], bool]) -> Shown:
    """Until `done`, WAIT at most; the last look."""
    end, pause = time.monotonic() + WAIT, 0.01
    while True:
        now = host.show([unit])[unit]
        if done(now) or time.monotonic() > end:
            return now
        time.sleep(pause)
        pause = min(0.25, pause * 1.5)


def kept(host: Host, name: str) -> bool:
    """Whether the process backend's keeper has this unit now."""
    try:
        with open(host.lock_file(name), "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def status(host: Host, ask: Ask) -> Ask:
    """`now` and `mono` are the same instant: Unix seconds, and microseconds of systemd's own clock, by which
    the host had come up at `booted`; 0 while it has not."""
    units = {name: host.unit(name) for name in host.names(ask["names"])}
    shown = host.show([unit for unit in units.values() if unit is not None])
    found: Ask = {}
    for name, unit in units.items():
        spec = host.spec(name) or {}
        found[name] = unit and {
            "show": shown[unit],
            "stop_timeout": spec.get("stop_timeout", 90.0),
            "inputs": inputs(shown[unit]),
            "ended": ended(host, unit, shown[unit]),
            "asked": asked(host, name),
            "enabled": enabled(host, unit),
        }
    clock = {"now": time.time(), "mono": time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6}
    return {**clock, "booted": booted_at(host, found), "units": found}


def booted_at(host: Host, found: Ask) -> int:
    """Asked only when somebody else than pdctl has started something."""
    lives = [(unit["asked"], unit["show"]["InvocationID"]) for unit in found.values() if unit]
    if all(asked in ("", life) for asked, life in lives):
        return 0
    return int(host.ctl("show", "--property=FinishTimestampMonotonic").strip().partition("=")[2] or 0)


def inputs(show: Shown) -> str:
    """What the process that runs now was started with, whatever its unit file says by now.

    systemd names a process that it has only forked; its environment is its own once it is the program.
    """
    end = time.monotonic() + EXEC
    while show["MainPID"] != "0":
        try:
            with open(f"/proc/{show['MainPID']}/environ", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            break
        found = next((w[13:].decode() for w in words if w.startswith(b"PDCTL_INPUTS=")), None)
        if found is not None or time.monotonic() > end:
            return found or ""
        time.sleep(0.01)
    return ""


def ended(host: Host, unit: str, show: Shown) -> Ask | None:
    """How the life before this one ended; systemd itself forgets it as soon as the next one begins."""
    if show["MainPID"] == "0" or show["NRestarts"] in ("", "0"):
        return None
    match = [f"MESSAGE_ID={PROCESS_EXIT}", f"{'UNIT' if host.system else 'USER_UNIT'}={unit}"]
    _, out, _ = host.call("journalctl", "-q", "-b", "-o", "json", "-n", "1", *match)
    try:
        said = json.loads(out)
        return {"how": said["EXIT_CODE"], "status": int(said["EXIT_STATUS"])}
    except (ValueError, KeyError, TypeError):
        return None


def asked(host: Host, name: str) -> str:
    """The life that pdctl began, "" when it began none."""
    try:
        return str(json.loads(read(host.run_file(name)) or "")["invocation"])
    except (ValueError, KeyError, TypeError):
        return ""


def logs(host: Host, ask: Ask) -> Ask:
    """The last `lines`, or what came behind `cursor`; a unit that has said nothing yet begins at the end."""
    unit, cursor = host.unit(ask["name"]), ask["cursor"]
    if unit is None:
        return {"text": "", "cursor": cursor}
    which = ["--after-cursor", cursor] if cursor else ["-n", str(ask["lines"])]
    options = [*host.manager, "-q", "--no-pager", "-o", "cat", "--show-cursor"]
    _, out, err = host.call("journalctl", *options, *which, "-u", unit)
    text, found, at = out.rpartition("-- cursor: ")
    if not found and not cursor:
        _, out, err = host.call("journalctl", *options, "-n", "0")
        text, found, at = out.rpartition("-- cursor: ")
    if not found and not host.system and not os.path.isdir("/var/log/journal"):
        why = "it is kept in memory only, where users cannot read it; root must make /var/log/journal"
        raise Trouble(f"there is no journal of {unit} for {me()}: {why}")
    if not found and err.strip():
        raise Trouble(f"the journal of {unit} cannot be read: {' '.join(err.split())}")
    return {"text": text, "cursor": at.strip() if found else cursor}


def probe(host: Host, ask: Ask) -> Ask:
    """`lasts`: units outlive the login; `ours`, `kept`: this fleet has units there, or keepers that run."""
    names = host.names([])
    return {
        "answers": host.answers(),
        "lasts": host.system or lingers(me()),
        "ours": any(host.installed(name) for name in names),
        "kept": any(kept(host, name) for name in names),
    }


def outlive(host: Host, ask: Ask) -> Ask:
    linger(host, me())
    return {}


VERBS: dict[str, Callable[[Host, Ask], Ask]] = {
    "status": status,
    "files": files,
    "install": install,
    "start": start,
    "restart": restart,
    "stop": stop,
    "remove": remove,
    "logs": logs,
    "probe": probe,
    "linger": outlive,
}


def main(verb: str, ask: Ask) -> int:
    host = Host(ask)
    try:
        if verb not in ("probe", "install", "linger"):
            host.insist()
        print(json.dumps(VERBS[verb](host, ask)))
    except Trouble as trouble:
        print(trouble, file=sys.stderr)
        return 1
    except OSError as error:
        # What fails on an open file (a full disk) names none.
        print(f"{error.filename or host.root}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], json.loads(sys.argv[2])))
