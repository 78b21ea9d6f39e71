"""Releases: one immutable installation of the engine on a host, named by what is in it."""
