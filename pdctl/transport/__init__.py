"""How pdctl reaches a host: commands are values, transports execute them."""
