"""One engine as a group of processes: the parent, its ranks, and what they tell each other."""
