"""The operator's own programs at points of a deploy: `.pdctl/hooks/NAME` beside the fleet file, executable.

pre-deploy, post-deploy, pre-rollback, post-rollback, pre-co-restart, post-co-restart. They get what they
need in the environment: PDCTL_FLEET (the fleet file), PDCTL_RUN, PDCTL_HOSTS (names, spaces between),
PDCTL_CHANGES (a JSON file with the steps of the plan), PDCTL_CELL for a co-restart, PDCTL_RESULT (done,
failed, interrupted) for those behind. A hook before that fails stops what it stands before.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pdctl.errors import ConfigError, PdctlError
from pdctl.exits import Exit
from pdctl.flows.changing import doing
from pdctl.flows.context import Context
from pdctl.transport.command import Command
from pdctl.transport.local import LocalTransport

# Seconds that a hook may take.
DEADLINE = 600.0
NAMES = tuple(f"{when}-{what}" for what in ("deploy", "rollback", "co-restart") for when in ("pre", "post"))


class Hooks:
    def __init__(self, ctx: Context, hosts: Sequence[str]) -> None:
        self._ctx = ctx
        self._hosts = hosts
        self._changes = ""

    @contextmanager
    def open(self, changes: object) -> Iterator[None]:
        """The plan's document lies in a file meanwhile. ConfigError for a hook that could not be run."""
        for name in NAMES:
            self._find(name)
        with tempfile.TemporaryDirectory(prefix="pdctl-") as folder:
            path = Path(folder) / "changes.json"
            path.write_text(json.dumps(changes, indent=1), encoding="utf-8")
            self._changes = str(path)
            yield

    def unusable(self) -> list[str]:
        """A sentence for each hook that could not be run, and nothing is begun while there is one; and for
        each file that was meant for one and that pdctl never runs."""
        said = []
        for name in NAMES:
            try:
                self._find(name)
            except ConfigError as error:
                said.append(f"{error.message} Nothing will be changed until it is: {error.hint}")
        return said + [
            f"{path} is never run: hooks are called {', '.join(NAMES)}."
            for path in sorted(self._folder.glob("[!.]*"))
            if path.name not in NAMES and _meant(path.name)
        ]

    def before(self, what: str, **more: str) -> None:
        """PdctlError with what it said when the hook fails: nothing behind it may be done then."""
        failed = self._run(f"pre-{what}", more)
        if failed:
            lines, message = failed
            hint = "Nothing was changed after it."
            raise PdctlError("hook_failed", message, hint, exit=Exit.FINDINGS, details=lines)

    def after(self, what: str, result: str, **more: str) -> str:
        """What went wrong, in a sentence; the work itself is done."""
        try:
            failed = self._run(f"post-{what}", {**more, "PDCTL_RESULT": result})
        except PdctlError as error:
            failed = [], error.message
        if failed:
            self._ctx.say(failed[1])
        return failed[1] if failed else ""

    def around(self, restart: Callable[[Context, str], None]) -> Callable[[Context, str], None]:
        """The co-restart of a cell with its hooks."""

        def restarted(ctx: Context, cell: str) -> None:
            self.before("co-restart", PDCTL_CELL=cell)
            result = "failed"
            try:
                restart(ctx, cell)
                result = "done"
            finally:
                self.after("co-restart", result, PDCTL_CELL=cell)

        return restarted

    @property
    def _folder(self) -> Path:
        return self._ctx.fleet.paths.state / "hooks"

    def _find(self, name: str) -> Path | None:
        path = self._folder / name
        if not os.path.lexists(path):
            return None
        if not path.is_file():
            raise ConfigError("hook_not_executable", f"The hook {path} leads to no file.", f"rm {path}")
        if not os.access(path, os.X_OK):
            what = f"The hook {path} is not executable."
            raise ConfigError("hook_not_executable", what, f"chmod +x {path}")
        if not _startable(path):
            what = f"The hook {path} is not executable: it does not begin with #! and an interpreter."
            raise ConfigError("hook_not_executable", what, f"sed -i '1i #!/bin/sh' {path}")
        return path

    def _run(self, name: str, more: dict[str, str]) -> tuple[list[str], str] | None:
        path = self._find(name)
        if path is None:
            return None
        env = {
            "PDCTL_FLEET": str(self._ctx.fleet.path),
            "PDCTL_RUN": self._ctx.journal.id if self._ctx.journal else "",
            "PDCTL_HOSTS": " ".join(self._hosts),
            "PDCTL_CHANGES": self._changes,
            **more,
        }
        self._ctx.say(f"hook {name}")
        with doing(self._ctx, f"hook/{name}", "fleet", f"hook {name}", changes=False) as step:
            command = Command((str(path),), env=env, cwd=str(self._ctx.fleet.dir))
            result = LocalTransport("this machine").run(command, DEADLINE)
            if result.rc == 0 and not result.timed_out:
                return None
            late = f"did not end in {DEADLINE:g} s"
            message = f"The hook {name} {late if result.timed_out else f'ended with exit code {result.rc}'}."
            if step is not None:
                step.failed(message)
            said = (result.stdout + result.stderr).decode("utf-8", "replace").splitlines()
            return [f"{name}| {line}" for line in said[-20:]], message


def _startable(path: Path) -> bool:
    """What a shell would read as a script all the same, the kernel does not start."""
    try:
        with path.open("rb") as file:
            return file.read(4).startswith((b"#!", b"\x7fELF"))
    except OSError:
        return True  # one may run what one may not read


def _meant(name: str) -> bool:
    """Whether a file is named nearly as a hook; copies that were set aside (.bak, .off, ~) are not."""
    stem, dot, suffix = name.partition(".")
    return (not dot or suffix in ("sh", "bash", "py")) and (
        stem.replace("_", "-") in NAMES or stem.startswith(("pre-", "post-", "pre_", "post_"))
    )
