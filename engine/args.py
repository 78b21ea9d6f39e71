"""The command line of `python -m engine serve`, checked whole before anything starts."""

from __future__ import annotations

import argparse
from pathlib import Path

from engine.core.errors import ConfigError
from engine.core.ids import new_incarnation
from engine.group.messages import EngineConfig


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="python -m engine serve", allow_abbrev=False)
    p.add_argument("--instance", required=True, help="name of this engine, unique on its fleet")
    p.add_argument("--role", required=True, choices=("prefill", "decode", "both"))
    p.add_argument("--model", required=True, help="folder in Hugging Face format, or a GGUF file")
    p.add_argument("--host", default="127.0.0.1", help="address to listen on")
    p.add_argument("--port", type=int, required=True)
    p.add_argument("--bootstrap-port", type=int, help="prefill: port on which decodes link")
    p.add_argument("--advertise", help="address that peers reach this host by (default: --host)")
    p.add_argument(
        "--peer",
        action="append",
        default=[],
        metavar="[NAME=]HOST:PORT",
        help="decode: a prefill's link, and what to call it before it has said its name",
    )
    p.add_argument("--cell", default="")
    p.add_argument("--tp", type=int, default=1, help="tensor-parallel ranks")
    p.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    p.add_argument("--device", default="cpu")
    p.add_argument("--page-size", type=int, default=16, help="tokens a KV page holds")
    p.add_argument("--pages", type=int, default=1024, help="KV pages of this engine")
    p.add_argument("--max-running", type=int, default=16, help="sequences in one batch")
    p.add_argument("--token-budget", type=int, default=512, help="tokens computed in one step")
    p.add_argument("--served-model-name", help="name that clients ask for (default: the folder's)")
    p.add_argument("--legacy-bootstrap", action="store_true", help="drill: keep stale peer state")
    return p


def _positive(args: argparse.Namespace) -> None:
    for name in ("tp", "page_size", "max_running", "token_budget"):
        if getattr(args, name) < 1:
            flag = "--" + name.replace("_", "-")
            raise ConfigError("bad_flag", f"{flag} is {getattr(args, name)}; it must be at least 1.")
    if args.pages < 4:
        raise ConfigError("bad_flag", f"--pages is {args.pages}; an engine needs at least 4.")
    if args.token_budget < args.max_running:
        raise ConfigError(
            "bad_flag", "--token-budget is below --max-running: a step could not serve every sequence."
        )


def _addresses(args: argparse.Namespace) -> None:
    for name in ("port", "bootstrap_port"):
        port = getattr(args, name)
        if port is not None and not 0 < port < 65536:
            raise ConfigError("bad_flag", f"--{name.replace('_', '-')} is {port}, not a port of 1..65535.")
    if args.port == args.bootstrap_port:
        raise ConfigError("bad_flag", f"--port and --bootstrap-port are both {args.port}.")
    for peer in args.peer:
        host, _, port = _named(peer)[1].rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ConfigError("bad_flag", f"--peer {peer} is not HOST:PORT or NAME=HOST:PORT.")


def _named(peer: str) -> tuple[str, str]:
    """A --peer as (name, address), the name empty where none is given."""
    name, _, address = peer.rpartition("=")
    return name, address


def check(args: argparse.Namespace, drill: bool) -> None:
    """ConfigError naming the flag that is wrong. `drill`: whether a drill token is set."""
    if not args.instance.strip():
        raise ConfigError("bad_flag", "--instance is empty; peers and the router know an engine by its name.")
    _positive(args)
    if args.role == "prefill" and not args.bootstrap_port:
        raise ConfigError("bad_flag", "--role prefill needs --bootstrap-port, where decodes link.")
    if args.role != "decode" and args.peer:
        raise ConfigError("bad_flag", f"--peer is for --role decode, this is {args.role}.")
    _addresses(args)
    if args.legacy_bootstrap and not drill:
        raise ConfigError(
            "bad_flag",
            "--legacy-bootstrap is a drill and needs a drill token.",
            "Set PD_DRILL_TOKEN_FILE, or leave the flag out.",
        )


def config_from(args: argparse.Namespace, model: Path, token: str, drill: bool) -> EngineConfig:
    """The configuration of a new life, from arguments that `check` has passed."""
    return EngineConfig(
        instance=args.instance,
        role=args.role,
        incarnation=new_incarnation(),
        model=str(model),
        host=args.host,
        port=args.port,
        bootstrap_port=args.bootstrap_port,
        advertise=args.advertise or args.host,
        peers=tuple(_named(peer)[1] for peer in args.peer),
        peer_names={address: name for name, address in map(_named, args.peer) if name},
        cell=args.cell,
        tp=args.tp,
        dtype=args.dtype,
        device=args.device,
        page_size=args.page_size,
        pages=args.pages,
        max_running=args.max_running,
        token_budget=args.token_budget,
        legacy_bootstrap=args.legacy_bootstrap,
        drill=drill,
        token=token.encode(),
    )
