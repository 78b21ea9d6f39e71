"""Facts of a host, one subject per file; what cannot be read is Missing with the reason."""
