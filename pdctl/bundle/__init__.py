"""A bundle: everything that was collected about a fleet, as documents; written, read, told by hand."""
