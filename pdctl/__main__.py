"""`pdctl`: every failure ends as one sentence and an exit code, in text or in JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence

import typer

from pdctl.cli import interrupt
from pdctl.cli.app import run
from pdctl.errors import PdctlError
from pdctl.exits import Exit
from pdctl.render.paths import here
from pdctl.render.streams import ReaderGone, drop, enduring

# typer carries its own copy of click, whose exceptions it does not all export.
_USAGE: type[BaseException] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a verb and return its exit code. `argv` are the words behind `pdctl`."""
    interrupt.install()
    with enduring():
        return _main(list(sys.argv[1:] if argv is None else argv))


def _main(args: list[str]) -> int:
    as_json = "--json" in args[: args.index("--") if "--" in args else None]
    if os.environ.get("PDCTL_DEBUG") == "1":
        return run(args)
    try:
        code = run(args)
        sys.stdout.flush()
        return code
    except PdctlError as error:
        return _report(error, as_json)
    except (KeyboardInterrupt, typer.Abort):
        return _report(PdctlError("interrupted", "Interrupted.", exit=Exit.INTERRUPTED), as_json)
    except ReaderGone:
        drop(sys.stdout)
        return Exit.OK
    except _USAGE as error:
        if type(error).__name__ == "NoArgsIsHelpError" and not as_json:
            # The help itself, as click has made it.
            print(_said(error), file=sys.stderr)
            return Exit.USAGE
        return _report(PdctlError("usage", _sentence(error), _help(error), Exit.USAGE), as_json)
    except OSError as error:
        if error.filename is None:
            return _report(_internal(error), as_json)
        return _report(PdctlError("file", f"{error.filename}: {error.strerror}.", exit=Exit.USAGE), as_json)
    except Exception as error:  # noqa: BLE001 - the last stop: reported, never a traceback
        return _report(_internal(error), as_json)


def _internal(error: Exception) -> PdctlError:
    message = f"pdctl failed by its own fault: {type(error).__name__}: {error}"
    return PdctlError("internal", message, "Run it again with PDCTL_DEBUG=1 for the traceback.")


def _sentence(error: BaseException) -> str:
    if type(error).__name__ == "NoArgsIsHelpError":
        return "A verb is missing."
    text = _said(error)
    return text if text.endswith((".", "?", ")")) else f"{text}."


def _said(error: BaseException) -> str:
    return str(error.format_message() if hasattr(error, "format_message") else error).strip()


def _help(error: BaseException) -> str:
    ctx = getattr(error, "ctx", None)
    return f"See `{ctx.command_path} --help`." if ctx is not None else "See `pdctl --help`."


def _report(error: PdctlError, as_json: bool) -> int:
    if as_json:
        try:
            print(json.dumps({"schema": 1, "error": error.document()}, indent=2), flush=True)
        except ReaderGone:
            drop(sys.stdout)
        return error.exit
    print(here(f"pdctl: {error.message}"), file=sys.stderr)
    for line in error.details:
        print(here(f"  {line}"), file=sys.stderr)
    if error.hint:
        print(here(error.hint), file=sys.stderr)
    return error.exit


if __name__ == "__main__":
    sys.exit(main())
