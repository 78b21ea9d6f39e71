"""Across hosts and operators: fan-out, the fleet's lock, the journal of runs."""
