"""The supervisor's pages: what they say, who may read them, and that a real browser draws them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from pdctl import contracts
from pdctl.adapters.picture import Reach
from pdctl.errors import ConfigError
from pdctl.supervisor.address import parsed
from pdctl.supervisor.history import History
from pdctl.supervisor.incidents import Incidents, Moment
from pdctl.supervisor.live import Live, Standing
from pdctl.supervisor.observation import EngineLook
from pdctl.supervisor.store import prepare
from pdctl.supervisor.web.serve import Pages
from pdctl.supervisor.web.sources import Sources
from tests.pdctl.supervisor.browser import BROWSER, WHY_NOT, Browser
from tests.pdctl.supervisor.looks import engine, look, moved

# A phone widens its window to what is too wide for it, so that is no measure.
SCROLLED = "Math.max(document.documentElement.scrollWidth, window.innerWidth)"
EVIL = "<img src=x onerror=\"document.body.dataset.evil='1'\">"


@contextmanager
def served(folder: Path, address: str = "127.0.0.1:0", looks: int = 30) -> Iterator[tuple[Pages, Live]]:
    """Pages over a history of `looks` looks that ends now, with one incident closed and one open."""
    file, now = folder / "supervisor.db", time.time()
    assert prepare(file) == ""
    history, live = History(file), Live(stale=60.0)
    for number in range(looks):
        seen = look(now - 5 * (looks - 1 - number), engine(), moved(engine("decode-0"), 100 * number))
        history.record(seen)
        live.look = replace(seen, monotonic=time.monotonic())
    book = Incidents(file)
    first = book.begin("a", "decode-0", ["PD602"], "ill", "a request is pinned", at=now - 100)
    book.change(first, Moment(now - 99, "finding", EVIL), evidence=str(folder / "kept.tar.gz"))
    book.act(first, "co-restart", "a", "done", "serves again after 21 s", at=now - 90)
    book.close(first, "serving", "serves again", at=now - 60)
    book.begin("a", "prefill-0", ["PD203"], "needs a person", f"prefill-0 ends again {EVIL}", at=now - 20)
    book.close_file()
    (folder / "kept.tar.gz").write_bytes(b"")
    live.standing = Standing(mode="act", cells={"a": "needs a person"})
    sources = Sources(live, file, "test", lambda path: f"<h1>evidence in {path.name}</h1>")
    with Pages(address, sources, folder / "page-token") as pages:
        yield pages, live


def get(pages: Pages, path: str, **headers: str) -> httpx.Response:
    with httpx.Client(trust_env=False, verify=False) as client:
        return client.get(f"{pages.url}{path}", headers=headers, timeout=30)


def test_documents_hold_the_look_the_history_and_the_incidents(tmp_path: Path) -> None:
    with served(tmp_path) as (pages, _):
        now = get(pages, "/api/now").json()
        history = get(pages, "/api/history?kind=cell&seconds=900").json()
        book = get(pages, "/api/incidents").json()
        evidence = get(pages, "/evidence/1").text
        missing = get(pages, "/evidence/2")
        policies = [
            get(pages, path).headers["content-security-policy"] for path in ("/", "/api/now", "/evidence/1")
        ]
    # Nothing of elsewhere is loaded, and nothing that a log holds is run.
    assert all("default-src 'none'" in policy and "http" not in policy for policy in policies)
    assert "script-src 'self'" in policies[0] and "script-src" not in policies[2]
    assert contracts.faults("supervisor_now", now) == []
    (cell,) = now["cells"]
    prefill, _ = cell["engines"]
    assert (now["fleet"], cell["name"], cell["state"]) == ("test", "a", "needs a person")
    assert prefill["queues"]["inflight"] == [1, 0.788] and prefill["pages"] == [993, 30, 0, 1023]
    (request, _) = now["router"]["requests"]
    # The ledger joins what the router counts with where the engines have it.
    assert request["prefill"]["engine"] == "prefill-0" and request["prefill"]["leg"]["stage"] == "prefilling"
    assert request["decode"]["leg"]["waits_on"] == "transfer"
    rate = history["columns"].index("decode_rate")
    assert len(history["series"]["a"]) == 30 and history["series"]["a"][-1][1][rate] == 20.0
    assert [i["id"] for i in book["incidents"]] == [2, 1] and book["incidents"][1]["readable"]
    assert book["actions"][0]["action"] == "co-restart"
    assert "evidence in kept.tar.gz" in evidence and missing.status_code == 404


def test_metrics_are_what_prometheus_reads(tmp_path: Path) -> None:
    with served(tmp_path) as (pages, _):
        text = get(pages, "/metrics").text
    found = {
        (s.name, *sorted(s.labels.items())): s.value
        for f in text_string_to_metric_families(text)
        for s in f.samples
    }
    mine = (("cell", "a"), ("engine", "prefill-0"))
    role = ("role", "prefill")
    assert found["pdctl_engine_queue_depth", *mine, ("queue", "inflight"), role] == 1.0
    assert found["pdctl_engine_kv_pages", *mine, ("owner", "free"), role] == 993.0
    assert found["pdctl_incidents_open",] == 1.0
    assert found["pdctl_actions_kept", ("action", "co-restart"), ("outcome", "done")] == 1.0
    assert found["pdctl_cell_state", ("cell", "a"), ("state", "needs a person")] == 1.0


def test_health_is_the_loops_own_progress(tmp_path: Path) -> None:
    with served(tmp_path) as (pages, live):
        assert get(pages, "/healthz").status_code == 200
        assert live.look is not None
        live.look = replace(live.look, monotonic=time.monotonic() - 61)
        late = get(pages, "/healthz")
    assert late.status_code == 503 and "no look ended for 61 s" in late.text


def test_a_change_is_told_to_who_listens_and_the_end_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        served(tmp_path) as (pages, live),
        httpx.Client(trust_env=False, verify=False, timeout=30) as client,
        client.stream("GET", f"{pages.url}/api/events") as stream,
    ):
        lines = (line for line in stream.iter_lines() if line)
        first = next(lines)
        live.standing = Standing(paused="by a test")
        assert next(lines) != first
        pages.__exit__(None, None, None)
        assert list(lines) == []  # it ended by itself: nothing had to be cut off, which the server would log
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


def test_nothing_can_be_changed_here(tmp_path: Path) -> None:
    with served(tmp_path) as (pages, _), httpx.Client(trust_env=False, verify=False) as client:
        for path in ("/", "/api/now", "/api/incidents", "/metrics"):
            assert client.post(f"{pages.url}{path}").status_code == 405


def test_on_loopback_another_sites_name_is_refused(tmp_path: Path) -> None:
    with served(tmp_path) as (pages, _):
        for host in ("127.0.0.1:9470", "localhost", "LOCALHOST:1", "[::1]:9470", "[::1]"):
            assert get(pages, "/api/now", host=host).status_code == 200
        for host in ("rebound.example", "127.0.0.1.example:9470", "[::1", "x@evil.example", ""):
            assert get(pages, "/api/now", host=host).status_code == 403


def test_elsewhere_the_page_token_is_needed_and_leaves_the_address(tmp_path: Path) -> None:
    with served(tmp_path, "0.0.0.0:0") as (pages, _):
        token = (tmp_path / "page-token").read_text().strip()
        assert (tmp_path / "page-token").stat().st_mode & 0o077 == 0 and str(
            tmp_path / "page-token"
        ) in pages.hint
        for path in ("/", "/page.js", "/api/now", "/api/events", "/metrics", "/evidence/1", "/?token=wrong"):
            assert get(pages, path).status_code == 401
        assert get(pages, "/api/now", authorization="Bearer wrong").status_code == 401
        assert get(pages, "/api/now", cookie="pdctl_page=" + token).status_code == 401
        assert get(pages, "/healthz").status_code == 200
        assert get(pages, "/api/now", authorization=f"Bearer {token}").status_code == 200
        with httpx.Client(trust_env=False, verify=False) as client:
            let_in = client.get(f"{pages.url}//evil.example/?token={token}&x=1")
            assert let_in.status_code == 303 and let_in.headers["location"] == "/evil.example/?x=1"
            cookie = let_in.headers["set-cookie"]
            assert token not in cookie and "HttpOnly" in cookie and "samesite=strict" in cookie.lower()
            assert client.get(f"{pages.url}/api/now").status_code == 200


@pytest.mark.parametrize(
    "address", ["9470", "host:", ":1", "127.0.0.1:99999", "127.0.0.1:port", "127.0.0.1:²"]
)
def test_an_address_that_is_none_is_a_sentence(address: str) -> None:
    with pytest.raises(ConfigError, match="is no ADDRESS:PORT"):
        parsed(address)


def test_an_address_that_is_taken_is_a_sentence(tmp_path: Path) -> None:
    with served(tmp_path) as (pages, live):
        address = pages.url.removeprefix("http://")
        with pytest.raises(ConfigError, match=f"Cannot serve pages at {address}: Address already in use"):
            Pages(address, Sources(live, tmp_path / "none.db", "test"), tmp_path / "t")


def test_a_name_that_no_resolver_takes_is_a_sentence(tmp_path: Path) -> None:
    with served(tmp_path) as (_, live), pytest.raises(ConfigError, match=r"Cannot serve pages at a{64}:0: "):
        Pages(f"{'a' * 64}:0", Sources(live, tmp_path / "none.db", "test"), tmp_path / "t")


def gone(of: EngineLook) -> EngineLook:
    return replace(
        of, reach=Reach.REFUSED, detail=f"nothing listens {EVIL}", queues={}, pages=None, progress=None
    )


@pytest.mark.skipif(not BROWSER, reason=WHY_NOT)
def test_a_browser_draws_it_wide_narrow_light_and_dark(tmp_path: Path) -> None:
    with served(tmp_path) as (pages, live), Browser(tmp_path / "profile") as browser:
        background = {}
        for name, width, dark in (("wide", 1200, False), ("dark", 1200, True), ("phone", 360, False)):
            browser.open(f"{pages.url}/", width, 800, dark)
            browser.until("document.body?.dataset.drawn")
            assert browser.value(SCROLLED) <= width, name
            top = browser.value("document.querySelector('#open a').getBoundingClientRect().top")
            assert top < 300, "what is wrong now stands where the page opens"
            background[name] = browser.value("getComputedStyle(document.body).backgroundColor")
            drawn = browser.value("document.querySelectorAll('path.line').length")
            assert drawn >= 10, name  # four plots of the fleet and four of the cell
        assert background["wide"] == background["phone"] != background["dark"]
        text = browser.value("document.body.innerText")
        for word in (
            "prefill-0",
            "preallocated 2",
            "req-1dfed01a6f35f77d",
            "co-restart",
            "PD203",
            "needs a person",
        ):
            assert word in text
        # Still on the phone: an incident is opened by touch, and stays open when news come.
        closed = "document.querySelector('[data-key=\"incident:1\"]')"
        browser.value(f"{closed}.querySelector('summary').click()")
        assert live.look is not None
        live.look = replace(
            live.look, engines=tuple(map(gone, live.look.engines)), monotonic=time.monotonic()
        )
        browser.until("document.body.innerText.includes('nothing listens')")
        assert browser.value(f"{closed}.open") and "<img src=x" in browser.value(f"{closed}.innerText")
        assert browser.value("document.querySelectorAll('img').length") == 0
        assert browser.value("document.body.dataset.evil ?? ''") == ""
        assert browser.value(SCROLLED) <= 360
        browser.value("[...document.querySelectorAll('nav button')].find(b => b.innerText == '6h').click()")
        browser.until(
            "document.querySelector('nav [aria-pressed=true]').innerText", lambda said: said == "6h"
        )
        assert browser.console == []
        pages.__exit__(None, None, None)
        browser.until("document.getElementById('alarm').innerText", lambda said: "does not answer" in said)


def test_before_the_first_look_and_for_odd_questions_there_is_an_answer(tmp_path: Path) -> None:
    sources = Sources(Live(stale=60.0), tmp_path / "none.db", "test")
    with Pages("127.0.0.1:0", sources, tmp_path / "token") as pages:
        now = get(pages, "/api/now").json()
        assert contracts.faults("supervisor_now", now) == [] and now["at"] is None and now["cells"] == []
        odd = [
            f"/api/history?seconds={text}&kind={text}&names={text},," for text in ("nan", "-1", "1e999", "'x")
        ]
        odd += [f"/api/incidents?last={text}" for text in ("nan", "-1", "1e999", "x")]
        for path in (*odd, "/metrics", "/api/history", "/healthz"):
            assert get(pages, path).status_code == 200, path
        assert get(pages, "/evidence/1").status_code == 404 and get(pages, "/evidence/x").status_code == 404


def test_a_file_that_breaks_while_it_is_read_is_a_sentence(tmp_path: Path) -> None:
    with served(tmp_path) as (pages, _):
        (tmp_path / "supervisor.db").write_bytes(b"no database " * 1000)
        for path in ("/api/history?kind=cell", "/api/incidents"):
            answer = get(pages, path)
            assert answer.status_code in (200, 503) and "Traceback" not in answer.text
        assert get(pages, "/api/now").status_code == 200 and get(pages, "/metrics").status_code == 200
