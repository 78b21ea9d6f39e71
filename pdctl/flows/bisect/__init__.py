"""Bisect: which of the values that differ between two profiles flip a check."""
