"""The parts of the host tool: one subject a file, standard library of Python 3.9, joined by facts.ask."""
