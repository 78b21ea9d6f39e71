"""Notices to people: by webhook or command, tried again when they fail, none twice.

Sending never holds the supervisor up: a thread of its own works through a queue that drops the oldest when it
is full, and says so. What has not arrived lies in the outbox too, for whoever comes after this process.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx

from pdctl.errors import PdctlError
from pdctl.fleet.tokens import token_of
from pdctl.supervisor.outbox import KEPT, OLDEST, Outbox
from pdctl.supervisor.policy import Channel
from pdctl.supervisor.ward import Notice

QUEUED, REMEMBERED = KEPT, 1000
# Seconds between tries, the last one again and again until the notice is too old: it is given up, aloud.
RETRIES = (1.0, 5.0, 30.0, 120.0, 600.0)
DEADLINE = 10.0
FAREWELL = 5.0


@dataclass
class _Letter:
    channel: str
    body: dict[str, object]
    tries: int = 0
    due: float = 0.0
    until: float = float("inf")  # monotonic seconds


class Teller:
    """`channels` may be replaced while it runs. `folder` is where secrets lie; `say` hears what failed.

    What lies in `outbox` is sent first. A notice is tried for `patience` seconds.
    """

    def __init__(
        self,
        fleet: str,
        folder: Path,
        channels: Mapping[str, Channel],
        say: Callable[[str], None],
        outbox: Outbox,
        retries: tuple[float, ...] = RETRIES,
        patience: float = OLDEST,
    ) -> None:
        self.channels = channels
        self._outbox, self._patience = outbox, patience
        self._fleet, self._folder, self._say, self._retries = fleet, folder, say, retries
        self._letters: deque[_Letter] = deque()
        self._told: OrderedDict[str, None] = OrderedDict()
        self._changed = threading.Condition()
        self._over = False
        for name, body, age in outbox.waiting():
            self._letters.append(_Letter(name, body, until=time.monotonic() + patience - age))
        self._thread = threading.Thread(target=self._work, daemon=True, name="notices")
        self._thread.start()

    def tell(self, notice: Notice) -> None:
        """Queue it for every channel that wants its kind; one that was told already is not told again."""
        body: dict[str, object] = {"schema": 1, "fleet": self._fleet, **asdict(notice)}
        body["codes"] = list(notice.codes)
        key = f"{self._fleet} {notice.incident} {notice.kind} {notice.at} {notice.text}"
        body["id"] = hashlib.sha256(key.encode()).hexdigest()[:16]
        with self._changed:
            if key in self._told:
                return
            self._told[key] = None
            while len(self._told) > REMEMBERED:
                self._told.popitem(last=False)
            for name, channel in self.channels.items():
                if notice.kind in channel.on:
                    self._keep(name, body)
                    until = time.monotonic() + self._patience
                    self._letters.append(_Letter(name, body, until=until))
            while len(self._letters) > QUEUED:
                lost = self._letters.popleft()
                self._say(f"notify {lost.channel}: too many notices wait; one was dropped")
            self._changed.notify()

    def close(self) -> None:
        """Send what can be sent within a few seconds."""
        with self._changed:
            self._over = True
            self._changed.notify()
        self._thread.join(FAREWELL)

    def _work(self) -> None:
        while True:
            with self._changed:
                letter = self._next()
                if letter is None:
                    return
            channel = self.channels.get(letter.channel)
            why = self._send(channel, letter.body) if channel is not None else ""
            if why:
                self._again(letter, why)
            else:
                self._drop(letter)

    def _keep(self, channel: str, body: dict[str, object]) -> None:
        try:
            self._outbox.put(str(body["id"]), channel, body)
        except PdctlError as error:  # it is sent all the same
            self._say(f"notify {channel}: not kept: {error.message}")

    def _drop(self, letter: _Letter) -> None:
        try:
            self._outbox.drop(str(letter.body["id"]), letter.channel)
        except PdctlError as error:
            self._say(f"notify {letter.channel}: sent, and not noted: {error.message}")

    def _next(self) -> _Letter | None:
        """The first that is due, waited for; None at the end."""
        while True:
            now = time.monotonic()
            due = min(self._letters, key=lambda letter: letter.due, default=None)
            if due is not None and (due.due <= now or (self._over and due.tries == 0)):
                self._letters.remove(due)
                return due
            if self._over:
                return None
            self._changed.wait(None if due is None else due.due - now)

    def _again(self, letter: _Letter, why: str) -> None:
        wait = self._retries[min(letter.tries, len(self._retries) - 1)]
        if time.monotonic() + wait > letter.until:
            self._say(f"notify {letter.channel}: given up after {letter.tries + 1} tries: {why}")
            self._drop(letter)
            return
        if letter.tries == 0:
            self._say(f"notify {letter.channel}: {why}; it is tried again")
        letter.due = time.monotonic() + wait
        letter.tries += 1
        with self._changed:
            self._letters.append(letter)

    def _send(self, channel: Channel, body: Mapping[str, object]) -> str:
        """Why it did not arrive, "" when it did."""
        try:
            if channel.webhook is not None:
                return self._post(channel.webhook, channel.secret, body)
            return _run(channel.command or [], body)
        except (OSError, PdctlError, subprocess.SubprocessError) as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 - said like any other; the notices behind it are sent
            return f"{type(error).__name__}: {error}"

    def _post(self, url: str, secret: str | None, body: Mapping[str, object]) -> str:
        headers = {"Idempotency-Key": str(body["id"])}
        if secret is not None:
            headers["Authorization"] = f"Bearer {token_of(self._folder / secret)}"
        try:
            answer = httpx.post(url, json=dict(body), headers=headers, timeout=DEADLINE)
        except httpx.HTTPError as error:
            return f"{type(error).__name__}: {error}"
        return "" if answer.is_success else f"HTTP {answer.status_code}"


def _run(command: list[str], body: Mapping[str, object]) -> str:
    done = subprocess.run(command, input=json.dumps(body).encode(), capture_output=True, timeout=30.0)
    if done.returncode == 0:
        return ""
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
    return f"exit code {done.returncode}" + (f": {said[0]}" if said else "")
