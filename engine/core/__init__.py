"""Plain data shared by every room of the engine: no torch, no sockets, no other engine package."""
