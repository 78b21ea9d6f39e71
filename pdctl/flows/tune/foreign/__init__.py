"""tune-timeout on other kinds of engines: with the watchdogs they have, and saying what cannot be shown."""
