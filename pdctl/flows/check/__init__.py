"""Preflight: what each host, unit and edge must have before an engine starts there."""
