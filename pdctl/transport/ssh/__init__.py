"""The transport for other machines: one SSH connection a host, and a small program at its far end."""
