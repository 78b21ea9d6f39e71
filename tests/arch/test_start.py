"""`pdctl --help` and a deploy that changes nothing are quick because they load little."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

HEAVY = ("paramiko", "torch", "numpy", "nixl", "engine", "kernels", "cryptography")
HELP = """
import sys
sys.argv = ["pdctl", "--help"]
from pdctl.__main__ import main
code = main()
print("MODULES", int(code), *sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
"""
DEPLOY = """
import sys
import pdctl.__main__, pdctl.cli.deploy, pdctl.transport.ssh.transport
print(*sorted(sys.modules))
"""
TIMES_BARE = 25  # `pdctl --help` over an interpreter that does nothing: about 4 when this was written


def run(code: str) -> tuple[float, subprocess.CompletedProcess[str]]:
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    return time.perf_counter() - start, done


def test_help_loads_nothing_heavy():
    _, done = run(HELP)
    _, code, *loaded = done.stderr.strip().splitlines()[-1].split()
    assert code == "0", done.stderr
    assert "Usage" in done.stdout and "diagnose" in done.stdout
    assert not set(HEAVY) & set(loaded)


def test_a_deploy_starts_without_the_rules_of_diagnose_and_without_schemas():
    _, done = run(DEPLOY)
    loaded = set(done.stdout.split())
    assert "pdctl.flows.deploy.planning" in loaded, done.stderr
    assert not {"pdctl.diagnose.rules", "jsonschema", "torch", "numpy"} & loaded


def test_help_is_within_a_multiple_of_a_bare_interpreter(capsys):
    pairs = [(run("pass")[0], run(HELP)[0]) for _ in range(5)]
    bare, full = (statistics.median(side) for side in zip(*pairs, strict=True))
    with capsys.disabled():
        print(
            f"\npdctl --help: {full * 1e3:.0f} ms, a bare interpreter {bare * 1e3:.0f} ms, x{full / bare:.1f}"
        )
    assert full < bare * TIMES_BARE
