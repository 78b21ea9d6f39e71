"""Collect a fleet as documents: engines and router twice, every host once."""
