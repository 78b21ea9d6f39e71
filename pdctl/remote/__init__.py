"""Across hosts and operators: fan-out, host tools, the fleet's lock, journal of runs, audit records."""
