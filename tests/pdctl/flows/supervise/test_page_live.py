"""The page of a running supervisor over real engines under load, in a real browser the size of a phone."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdctl.supervisor.series import Series
from tests.bench.procs import free_ports
from tests.pdctl.flows.supervise.live import START, wait, ward
from tests.pdctl.supervisor.browser import BROWSER, WHY_NOT, Browser

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800), pytest.mark.skipif(not BROWSER, reason=WHY_NOT)]


def test_where_a_request_is_and_that_an_engine_began_anew(smollm: Path, tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    with ward(tmp_path / "ward", smollm) as fleet:
        policy = f'schema = 1\n[supervisor]\nmode = "watch"\nlook_every = 1.0\npage = "{address}"\n'
        (fleet.folder / "policy.toml").write_text(policy)
        with fleet.supervised(), Browser(tmp_path / "profile") as browser:
            browser.open(f"http://{address}/", 360, 800)
            browser.until("document.body?.dataset.drawn")
            assert fleet.serves()
            fleet.pdctl("drill", "arm", "prefill-0", "stall-transfer")
            fleet.send()
            # The request as the router has it, and the engines and stages where it is.
            row = "[...document.querySelectorAll('#requests td')].map(td => td.innerText).join('|')"
            seen = browser.until(row, lambda text: "inflight" in text and "preallocated" in text)
            assert "prefill-0" in seen and "decode-0" in seen and "dispatched" in seen
            fleet.pdctl("drill", "disarm", "prefill-0")
            series = Series(fleet.ctx.fleet.paths.supervisor)
            newest = series.newest() or 0
            rates = series.read("engine", ["decode-0"], ["decode_rate"], newest - 300, newest)["decode-0"]
            assert max(values[0] or 0.0 for _, values in rates) > 0
            marks = "document.querySelectorAll('#whole svg:first-of-type .mark.life').length"
            before = browser.value(marks)
            fleet.kill("decode-0")
            browser.until(marks, lambda count: count > before)
            assert browser.value("document.documentElement.scrollWidth") <= 360 and browser.console == []
            wait("the new life to be written down", lambda: len(series.lives(0, 2e9)) >= 3, START)
