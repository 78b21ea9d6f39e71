"""Proxies of a process are told, and what logs in at them is not."""

from __future__ import annotations

import os
import subprocess
import sys

from pdctl.facts.probes.process import environ_of, veiled


def test_a_proxy_is_shown_without_its_login() -> None:
    assert veiled("https_proxy", "http://user:pass@proxy:3128") == "http://***@proxy:3128"
    assert veiled("no_proxy", "10.0.0.7,.local") == "10.0.0.7,.local"


def test_the_proxies_of_a_process_are_among_what_is_told() -> None:
    own = {**os.environ, "http_proxy": "http://a:b@p:1", "NO_PROXY": "x", "MY_SECRET": "y"}
    wait = [sys.executable, "-c", "print(flush=True); input()"]
    child = subprocess.Popen(wait, env=own, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None and child.stdout.readline()
        told = environ_of(child.pid)["values"]
    finally:
        child.communicate(b"\n")
    assert (told["http_proxy"], told["NO_PROXY"]) == ("http://***@p:1", "x")
    assert "MY_SECRET" not in told
