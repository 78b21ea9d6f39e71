"""What the engine's API and the router share of HTTP: serving, bodies, errors, admin auth, disconnects."""
