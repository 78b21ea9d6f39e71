"""Drills: a fault on a running fleet, what should find it and how soon, and everything as it was after it."""
