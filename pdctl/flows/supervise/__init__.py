"""The supervisor daemon: looks at the fleet, keeps what it saw, and acts by policy."""
