"""Load on a fleet: agents in rounds, what became of each request, and where those that hang stand."""
