"""`python -m tests.hosts.login TABLES COMMAND…`: run a command on hosts at once, in a process of its own.

TABLES is JSON: host names to the tables of a fleet file. A line for each host: its name, then its exit code
and output, or the code of the error.
"""

from __future__ import annotations

import json
import sys

from pdctl.errors import PdctlError
from pdctl.remote.fanout import fan_out
from pdctl.transport.base import Transport
from pdctl.transport.command import Command, Result
from pdctl.transport.open import open_transport
from tests.hosts.operator_home import fleet_host


def main(tables: str, *argv: str) -> None:
    opened = {name: open_transport(fleet_host(name, **table)) for name, table in json.loads(tables).items()}

    def ask(transport: Transport) -> Result:
        return transport.run(Command(argv), 60)

    answers = fan_out(opened.values(), ask)
    for name, transport in opened.items():
        answer = answers[transport]
        said = answer.code if isinstance(answer, PdctlError) else f"{answer.rc} {answer.text.strip()}"
        print(name, said, flush=True)
        transport.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
