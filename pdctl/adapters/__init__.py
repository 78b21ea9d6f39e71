"""Engine and router kinds: from each one's endpoints to one normalised picture."""
