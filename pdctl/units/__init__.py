"""Units: one supervised process each, under systemd or under pdctl's own keeper."""
