"""The order of deadlines over a whole fleet, as a deploy insists on it."""

from __future__ import annotations

from pdctl.errors import ConfigError
from pdctl.fleet.check.chain import Disorder, disorder
from pdctl.fleet.check.scope import fleet_scope
from pdctl.fleet.model import Fleet


def refuse_disorder(fleet: Fleet) -> None:
    """ConfigError with file and line when a deadline of an edge is not below the one that waits for it.

    Of bundled engines: how others' deadlines hang together is known too little to refuse to start them.
    """
    edges = [e for e in fleet_scope(fleet).edges if e.prefill.kind == e.decode.kind == "bundled"]
    problems = dict.fromkeys(_sentence(found) for edge in edges for found in disorder(edge))
    if problems:
        hint = "Change one of the two with `pdctl profile set`, or in its file."
        raise ConfigError(
            "out_of_order", f"Timeouts of {fleet.name} are out of order.", hint, details=list(problems)
        )


def _sentence(found: Disorder) -> str:
    also = f" The other is at {found.other_place}." if found.other_place else ""
    return f"{found.place or 'defaults'}: {found}{also}"
