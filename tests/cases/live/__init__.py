"""Faults on a running fleet, each injected as nature or an operator would, named by `pdctl diagnose`."""
