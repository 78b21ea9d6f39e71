"""A reader of bash scripts: what a script would export and start, found without running it.

It fails closed: a construct it does not know is a note with its lines, and a value that depends on one is
unknown. No parser from the index does this: bashlex is unmaintained and GPL, and tree-sitter-bash is an
editor's grammar, which leaves quoting, splitting and patterns to its user and takes `coproc` for a command.
"""
