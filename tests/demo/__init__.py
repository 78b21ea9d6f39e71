"""`make demo`: the main job, on this machine, on real processes; exits non-zero when a step lies."""
