"""One verb per file. A verb's module has `command`, a function with typer annotations that returns an Exit
or None, or for a verb with sub-verbs `app`, a typer.Typer. `app.py` names them all; none is imported before
it is invoked. A verb gets its Session from `session(ctx)`: `.fleet()`, `.json`, `.context()`."""
