"""Prints results. Decides nothing, asks nobody."""
