"""Numbers of servers of every kind under normal names: from metrics, from log lines, from JSON answers."""
