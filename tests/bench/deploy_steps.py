"""The deploy as pyinfra does it: run by pyinfra's own Python, once per host, never imported here."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from pyinfra import host
from pyinfra.api import FactBase, OperationError, StringCommand, operation
from pyinfra.facts.files import Directory
from pyinfra.operations import files, server, systemd
from pyinfra.operations.util import any_changed


class Answer(FactBase[str]):
    """What a Python program says on the host: asking changes nothing."""

    def command(self, program: str) -> StringCommand:
        return StringCommand(f"python3 -c {shlex.quote(program)}")

    def process(self, output: list[str]) -> str:
        return "\n".join(output)


@operation()
def proved(program: str) -> Iterator[StringCommand]:
    """Fails unless the program says ok; never a change."""
    said = host.get_fact(Answer, program=program)
    if said != "ok":
        raise OperationError(f"not proved: {said}")
    yield from ()


data = host.data
here, root = Path(data.here), data.root
files.directory(path=f"{root}/env", mode="700")
if not host.get_fact(Directory, path=f"{root}/releases/{data.release}"):
    files.put(src=str(here / "release.tgz"), dest="/tmp/release.tgz")
    server.shell(f"tar -C {root} -xzf /tmp/release.tgz")
files.link(path=f"{root}/current", target=f"releases/{data.release}")
for name in data.private:
    files.put(src=str(here / "env" / name), dest=f"{root}/env/{name}", mode="600")
unit_files = [
    files.put(src=str(here / "units" / name), dest=f"/etc/systemd/system/{name}", mode="644")
    for name in data.unit_files
]
settings = {
    unit: files.put(src=str(here / "env" / f"{name}.env"), dest=f"{root}/env/{name}.env", mode="600")
    for name, unit in data.units.items()
}
systemd.daemon_reload(_if=any_changed(*unit_files))
begun = []
for unit, env in settings.items():
    started = systemd.service(service=unit, running=True, enabled=True)
    again = systemd.service(
        service=unit,
        restarted=True,
        _if=lambda env=env, started=started: env.did_change() and not started.did_change(),
    )
    begun += [started, again]
proved(data.ready)
if data.canary:
    proved(data.canary, _if=any_changed(*begun))
