"""The ranks of one engine: their collectives and their life."""
