"""`pdctl`: every failure ends as one sentence and an exit code, in text or in JSON."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

import typer

from pdctl.cli.app import run
from pdctl.errors import PdctlError
from pdctl.exits import Exit

# typer carries its own copy of click, whose exceptions it does not all export.
_USAGE: type[BaseException] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


def main(argv: Sequence[str] | None = None) -> int:
    args = list(sys.argv[1:] if argv is None else argv)
    as_json = "--json" in args[: args.index("--") if "--" in args else None]
    if os.environ.get("PDCTL_DEBUG") == "1":
        return run(args)
    try:
        signal.signal(signal.SIGTERM, _interrupt)
        code = run(args)
        sys.stdout.flush()
        return code
    except PdctlError as error:
        return _report(error, as_json)
    except (KeyboardInterrupt, typer.Abort):
        return _report(PdctlError("interrupted", "Interrupted.", exit=Exit.INTERRUPTED), as_json)
    except BrokenPipeError:
        # The reader went away (`pdctl status | head`); stdout must not be flushed again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
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


def _interrupt(number: int, frame: FrameType | None) -> None:
    """SIGTERM unwinds like Ctrl-C, so that locks are released and runs are marked."""
    raise KeyboardInterrupt


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
        print(json.dumps({"schema": 1, "error": error.document()}, indent=2))
        return error.exit
    print(f"pdctl: {error.message}", file=sys.stderr)
    for line in error.details:
        print(f"  {line}", file=sys.stderr)
    if error.hint:
        print(error.hint, file=sys.stderr)
    return error.exit


if __name__ == "__main__":
    sys.exit(main())
