"""The deployments that a fleet's hosts keep, and how far back they do."""

from __future__ import annotations

from threading import Lock

from pdctl.errors import PdctlError
from pdctl.flows.context import Context
from pdctl.flows.deploy.deployment import Deployment, Entry, Mark, deployments, oldest_kept
from pdctl.release.host import HostReleases
from pdctl.remote.fanout import fan_out


def records_of(ctx: Context) -> tuple[dict[str, list[Entry]], dict[str, PdctlError]]:
    """Every record of every host, oldest first, and why a host could not be asked."""

    def ask(host: str) -> list[Entry]:
        return HostReleases(ctx.transport(host), ctx.fleet.hosts[host]).records()

    found = fan_out(ctx.fleet.hosts, ask)
    records = {h: r for h, r in found.items() if not isinstance(r, PdctlError)}
    return records, {h: e for h, e in found.items() if isinstance(e, PdctlError)}


def list_deployments(ctx: Context) -> tuple[list[Deployment], dict[str, PdctlError]]:
    """Every deployment that can be gone back to, newest first, and why a host could not be asked."""
    records, silent = records_of(ctx)
    return deployments(records, silent), silent


class Retention:
    """`retain` of the fleet file, counted over all hosts: a host alone does not know what others need."""

    def __init__(self, ctx: Context) -> None:
        self._ctx, self._lock = ctx, Lock()
        self._oldest: Mark | None = None

    @property
    def keep(self) -> int:
        return self._ctx.fleet.spec.fleet.retain

    def oldest(self) -> Mark:
        """The oldest deployment to be kept; none goes while a host is silent. Asked for once."""
        with self._lock:
            if self._oldest is None:
                records, silent = records_of(self._ctx)
                self._oldest = (0, "") if silent else oldest_kept(records, self.keep)
            return self._oldest
