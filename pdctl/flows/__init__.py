"""Use cases, one per file. A flow takes a Context, returns a result, prints nothing."""
