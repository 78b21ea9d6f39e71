"""A real headless browser, driven over its own debugging pipe: a page as it is drawn, at any size."""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

BROWSER = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), ""
)
WHY_NOT = "no browser is installed: `make browser` installs one where it can"
DEADLINE = 60.0


class Browser:
    """`with Browser(folder) as browser: browser.open(url)`. What the page's console said is in `console`."""

    def __init__(self, folder: Path) -> None:
        to_read, self._to = os.pipe()
        self._from, from_write = os.pipe()
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run"]
        # The browser reads its commands from descriptor 3 and answers on 4.
        script = 'exec "$@" 3<&"$IN" 4>&"$OUT"'
        self._process = subprocess.Popen(
            ["bash", "-c", script, "-", BROWSER, *flags, f"--user-data-dir={folder}", "about:blank"],
            env={**os.environ, "IN": str(to_read), "OUT": str(from_write)},
            pass_fds=(to_read, from_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(to_read)
        os.close(from_write)
        self._ids = itertools.count(1)
        self._rest = b""
        self.console: list[str] = []

    def __enter__(self) -> Browser:
        targets = self._call("Target.getTargets")["targetInfos"]
        target = next(t["targetId"] for t in targets if t["type"] == "page")
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(10)
        os.close(self._to)
        os.close(self._from)

    def open(self, url: str, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        phone = width < 600
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=phone,
        )
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        self.call("Page.navigate", url=url)

    def value(self, expression: str) -> Any:
        """What a line of JavaScript is on the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise AssertionError(found["exceptionDetails"])
        return found["result"].get("value")

    def until(self, expression: str, fits: Callable[[Any], bool] = bool) -> Any:
        """Its value once it fits."""
        end = time.monotonic() + DEADLINE
        while not fits(value := self.value(expression)):
            if time.monotonic() > end:
                raise AssertionError(f"{expression} stays {value!r}; console: {self.console}")
            time.sleep(0.05)
        return value

    def shot(self, file: Path) -> None:
        taken = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(taken["data"]))

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._call(method, self._session, **parameters)

    def _call(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        number = next(self._ids)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            said = self._read()
            if said.get("id") == number:
                if "error" in said:
                    raise AssertionError(f"{method}: {said['error']}")
                return dict(said["result"])

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = os.read(self._from, 1 << 16)
            if not part:
                raise AssertionError("the browser ended")
            self._rest += part
        text, _, self._rest = self._rest.partition(b"\0")
        said: dict[str, Any] = json.loads(text)
        if said.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled"):
            self.console.append(json.dumps(said["params"])[:500])
        return said
