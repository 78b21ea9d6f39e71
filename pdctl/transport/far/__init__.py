"""A small program where commands run, and calls to it: for other hosts, and for root on this one."""
