"""Real engines and a real router on loopback, ended by pid, for tests that kill and freeze them."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

START = 120.0
# A client each call would load the machine's certificates each time, which costs more than the call.
HTTP = httpx.Client(
    verify=False,
    trust_env=False,
    limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def wait_for(what: str, check: Callable[[], Any], timeout: float = 30.0, every: float = 0.05) -> Any:
    """The first truthy value of `check`; AssertionError saying what was waited for and what was last seen."""
    deadline = time.monotonic() + timeout
    seen: Any = None
    while time.monotonic() < deadline:
        try:
            seen = check()
        except httpx.HTTPError as error:
            seen = error
        else:
            if seen:
                return seen
        time.sleep(every)
    raise AssertionError(f"waited {timeout:g} s for {what}; last: {seen!r}")


@dataclass
class Process:
    """One engine or router of the stack, restartable with the same arguments."""

    name: str
    argv: list[str]
    env: dict[str, str]
    log: Path
    url: str
    popen: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as out:
            self.popen = subprocess.Popen(
                self.argv, env=self.env, stdout=out, stderr=out, start_new_session=True
            )

    @property
    def pid(self) -> int:
        assert self.popen is not None
        return self.popen.pid

    def ranks(self) -> list[int]:
        """Pids of the rank processes, rank 0 first."""
        return [p.pid for p in psutil.Process(self.pid).children()]

    def state(self) -> dict[str, Any]:
        return dict(HTTP.get(f"{self.url}/v1/state", timeout=3.0).json())

    def ready(self) -> bool:
        return HTTP.get(f"{self.url}/ready", timeout=3.0).status_code == 200

    def tail(self, lines: int = 30) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def wait_ready(self, timeout: float = START) -> None:
        def check() -> bool:
            assert self.popen is not None and self.popen.poll() is None, (
                f"{self.name} exited {self.popen and self.popen.returncode}:\n{self.tail()}"
            )
            return self.ready()

        wait_for(f"{self.name} to be ready", check, timeout, every=0.1)

    def end(self, how: signal.Signals = signal.SIGTERM, timeout: float = 40.0) -> int:
        """Signal the process, wait for it, SIGKILL its group when it stays; its exit code."""
        assert self.popen is not None
        if self.popen.poll() is None:
            self.popen.send_signal(how)
            try:
                self.popen.wait(timeout)
            except subprocess.TimeoutExpired:
                pass
        self.kill_group()
        return int(self.popen.wait(5))

    def kill_group(self) -> None:
        assert self.popen is not None
        try:
            os.killpg(self.popen.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def restart(self) -> None:
        self.end()
        self.start()
        self.wait_ready()


@dataclass
class Stack:
    """Prefills and decodes of one cell and, when asked for, their router."""

    folder: Path
    model: Path
    processes: dict[str, Process] = field(default_factory=dict)
    token: str = field(default_factory=lambda: secrets.token_hex(16))
    drill: str = field(default_factory=lambda: secrets.token_hex(16))

    def __post_init__(self) -> None:
        (self.folder / "token").write_text(self.token)
        (self.folder / "drill").write_text(self.drill)

    def __getitem__(self, name: str) -> Process:
        return self.processes[name]

    def _env(self, extra: dict[str, str]) -> dict[str, str]:
        env = {k: v for k, v in os.environ.items() if not k.startswith("PD_")}
        env["PD_FLEET_TOKEN_FILE"] = str(self.folder / "token")
        env["PD_DRILL_TOKEN_FILE"] = str(self.folder / "drill")
        env["OMP_NUM_THREADS"] = "1"
        return env | extra

    def engine(
        self,
        name: str,
        role: str,
        *,
        tp: int = 1,
        env: dict[str, str] | None = None,
        flags: tuple[str, ...] = (),
        **options: object,
    ) -> Process:
        """Add and start an engine; `options` are flags with values (pages=64 is --pages 64)."""
        port = free_port()
        argv = [sys.executable, "-m", "engine", "serve", "--instance", name, "--role", role]
        argv += ["--model", str(self.model), "--port", str(port), "--cell", "a", "--tp", str(tp)]
        argv += ["--served-model-name", "smollm2"]
        if role == "prefill":
            argv += ["--bootstrap-port", str(free_port())]
        if role == "decode":
            for peer in self.of_role("prefill"):
                argv += ["--peer", f"127.0.0.1:{bootstrap_port(peer)}"]
        defaults: dict[str, object] = {"pages": 256}
        for key, value in (defaults | options).items():
            argv += ["--" + key.replace("_", "-"), str(value)]
        return self._add(name, argv + list(flags), port, env or {})

    def router(self, name: str = "router", env: dict[str, str] | None = None) -> Process:
        port = free_port()
        argv = [sys.executable, "-m", "engine", "router", "--instance", name, "--port", str(port)]
        argv += ["--host", "127.0.0.1", "--served-model-name", "smollm2"]
        for p in self.of_role("prefill"):
            argv += ["--prefill", f"{p.name}={p.url},127.0.0.1:{bootstrap_port(p)},a"]
        for p in self.of_role("decode"):
            argv += ["--decode", f"{p.name}={p.url},a"]
        return self._add(name, argv, port, env or {})

    def of_role(self, role: str) -> list[Process]:
        return [p for p in self.processes.values() if f"--role {role}" in " ".join(p.argv)]

    def _add(self, name: str, argv: list[str], port: int, env: dict[str, str]) -> Process:
        log = self.folder / f"{name}.log"
        process = Process(name, argv, self._env(env), log, f"http://127.0.0.1:{port}")
        self.processes[name] = process
        process.start()
        return process

    def wait_ready(self) -> None:
        for process in self.processes.values():
            process.wait_ready()

    # talking to it ----------------------------------------------------------------------------------

    def admin(self, at: str, verb: str, /, **args: object) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self.token}", "X-Drill-Token": self.drill}
        answer = HTTP.post(f"{self[at].url}/admin/{verb}", json=args, headers=headers, timeout=10.0)
        assert answer.status_code == 200, f"{verb} at {at}: {answer.status_code} {answer.text}"
        return dict(answer.json())

    def complete(
        self, name: str, prompt: str | list[int], tokens: int = 16, timeout: float = 60.0, **extra: object
    ) -> httpx.Response:
        """POST /generate, greedy and without an early end, so that the answer is `tokens` tokens long."""
        key = "text" if isinstance(prompt, str) else "input_ids"
        params = {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True}
        body = {key: prompt, "sampling_params": params, **extra}
        return HTTP.post(f"{self[name].url}/generate", json=body, timeout=timeout)

    def ids(self, name: str, prompt: str | list[int], tokens: int = 16) -> list[int]:
        answer = self.complete(name, prompt, tokens)
        assert answer.status_code == 200, f"{answer.status_code} {answer.text}"
        return list(answer.json()["output_ids"])

    def pair_ids(self, prefill: str, decode: str, prompt: str, tokens: int = 16) -> list[int]:
        """Both legs of one request at once, as a router sends them; AssertionError when either fails."""
        room: dict[str, object] = {
            "bootstrap_host": "127.0.0.1",
            "bootstrap_port": bootstrap_port(self[prefill]),
            "bootstrap_room": secrets.randbits(62) + 1,
        }
        with ThreadPoolExecutor(1) as pool:
            leg = pool.submit(self.complete, prefill, prompt, tokens, 120.0, **room)
            answer = self.complete(decode, prompt, tokens, 120.0, **room)
            for name, one in ((prefill, leg.result()), (decode, answer)):
                assert one.status_code == 200, f"{name}: {one.status_code} {one.text}"
        return list(answer.json()["output_ids"])

    def baseline(self, *names: str, timeout: float = 20.0) -> None:
        """Wait until these engines hold nothing: no request, every page free."""

        def check() -> bool:
            states = [self[n].state() for n in names]
            return all(not s["requests"] and s["pages"]["free"] == s["pages"]["total"] for s in states)

        wait_for(f"{', '.join(names)} to hold no page and no request", check, timeout)

    def close(self) -> None:
        for process in reversed(list(self.processes.values())):
            if process.popen is not None:
                try:
                    os.killpg(process.popen.pid, signal.SIGCONT)
                except ProcessLookupError:
                    pass
                process.end(timeout=5.0)


def bootstrap_port(process: Process) -> int:
    return int(process.argv[process.argv.index("--bootstrap-port") + 1])


@contextmanager
def stack(folder: Path, model: Path) -> Iterator[Stack]:
    """An empty stack that ends every process it started, and shows their logs when the test failed."""
    s = Stack(folder, model)
    try:
        yield s
    except BaseException:
        for process in s.processes.values():
            print(f"--- {process.name}\n{process.tail(25)}")
        raise
    finally:
        s.close()


def dump(document: object) -> str:
    return json.dumps(document, indent=1)
