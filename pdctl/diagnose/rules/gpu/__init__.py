"""PD4xx: GPUs and collectives."""

from __future__ import annotations

from pdctl.diagnose.rule import Rule

RULES: tuple[Rule, ...] = ()
