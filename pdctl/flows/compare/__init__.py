"""Values of profiles, deployments and running processes, side by side."""
