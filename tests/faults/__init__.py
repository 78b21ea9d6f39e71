"""The fault matrix: real processes, real faults, each with the evidence that it took effect."""
