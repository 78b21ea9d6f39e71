"""What the shells complete: a table of verbs and options, names from local files, and the answer to one
key."""
