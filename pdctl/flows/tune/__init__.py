"""tune-timeout: measure dwell, propose, prove by a drill, apply."""
