"""How engines of every kind were started: flags, environment and logged arguments under normal names."""
