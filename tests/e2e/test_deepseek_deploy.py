"""A tiny DeepSeek as an operator has it: deployed as a pair, looked at, restarted together, taken down."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import tomlkit

from engine.core.types import Slice
from engine.text.model import TextModel
from tests.engine.models.deepseek import build_served
from tests.engine.models.tiny import Ranks

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
PROMPTS = ["Paris", "The quick brown fox " * 9]
TOKENS = 20


@dataclass
class Fleet:
    folder: Path
    url: str = ""

    def pdctl(self, *args: str) -> subprocess.CompletedProcess[str]:
        env = os.environ | {"OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
        return subprocess.run(
            [sys.executable, "-m", "pdctl", *args], cwd=self.folder, env=env, text=True, capture_output=True
        )

    def run(self, *args: str) -> str:
        done = self.pdctl(*args)
        assert done.returncode == 0, f"pdctl {' '.join(args)}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def answer(self, prompt: str) -> str:
        body: dict[str, Any] = {"model": "tiny", "prompt": prompt, "max_tokens": TOKENS, "temperature": 0}
        body["ignore_eos"] = True
        answer = httpx.post(f"{self.url}/v1/completions", json=body, timeout=120.0)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["choices"][0]["text"])


@pytest.fixture(params=["deepseek_v32", "deepseek_v4"])
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fleet]:
    build_served(request.param, tmp_path / "tiny")
    made = Fleet(tmp_path)
    made.run("init", "--local", "--model", str(tmp_path / "tiny"), "--name", "dsk")
    path = tmp_path / "fleet.toml"
    document = tomlkit.parse(path.read_text())
    engines: Any = document["cells"]["a"]["engines"]  # type: ignore[index]
    engines["prefill-0"] |= {"tp": 2, "pages": 256}
    engines["decode-0"] |= {"tp": 3, "pages": 256, "env": {"PD_KV_CHECKSUM": "1"}}
    path.write_text(tomlkit.dumps(document))
    router = tomllib.loads(path.read_text())["router"]
    made.url = f"http://127.0.0.1:{router['port']}"
    try:
        yield made
    finally:
        made.pdctl("down", "--yes")


def single(folder: Path, prompt: str) -> str:
    """Greedy text of one engine of one rank."""
    text, ranks = TextModel.load(folder), Ranks(folder, page_size=16)
    tokens = text.encode(prompt)
    pages, found = list(range(60)), list[int]()
    piece = Slice(tokens, 0, pages, True)
    for _ in range(TOKENS):
        found.append(int(ranks.run(piece)[0].argmax()))
        piece = Slice(found[-1:], len(tokens) + len(found) - 1, pages, True)
    return text.decode(found)


def test_deployed_looked_at_and_restarted_together(fleet: Fleet) -> None:
    want = [single(fleet.folder / "tiny", prompt) for prompt in PROMPTS]
    fleet.run("deploy", "--yes")
    assert [fleet.answer(prompt) for prompt in PROMPTS] == want
    found = json.loads(fleet.run("--json", "diagnose"))
    assert not [f for f in found["findings"] if f["severity"] in ("error", "warning")]
    fleet.run("restart", "--co", "a", "--yes")
    assert [fleet.answer(prompt) for prompt in PROMPTS] == want
    assert "0 changes" in fleet.run("deploy", "--yes")
