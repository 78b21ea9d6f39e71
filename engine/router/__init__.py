"""The router: one request to one prefill and one decode, a ledger of all of them, holds and cordons."""

from engine.router.app import run_router

__all__ = ["run_router"]
