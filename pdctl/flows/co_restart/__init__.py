"""Co-restart: the states, the steps that move between them, the run."""
