"""A test double that stands where SGLang would: the same command line, health and completions."""
