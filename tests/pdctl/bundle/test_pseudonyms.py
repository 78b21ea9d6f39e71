"""Names leave a bundle everywhere and consistently; engines keep names that say their role."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pdctl.adapters.endpoints import Server
from pdctl.bundle.documents import Documents
from pdctl.bundle.manifest import Asked, Declared, FleetPage, Manifest, read_fleet, read_manifest
from pdctl.bundle.pseudonyms import Private, pseudonymous

MANIFEST = Manifest(
    "0.1",
    (100.0, 101.0),
    1.2,
    1800.0,
    "bob@acmes-laptop (pid 7) for 8 s: pdctl restart --co a",
    (
        Asked("gpu-berlin-7", "facts", "", 0, 100.0, 0.2, 10, "ok", "", "hosts/gpu-berlin-7/answers.json"),
        Asked("prefill-0", "state", "http://192.0.2.41:1/", 1, 100.0, 0.1, 9, "ok", "", "prefill-0/x"),
    ),
    (),
)
PAGE = FleetPage(
    "acme-prod",
    False,
    {"gpu-berlin": "192.0.2.40", "gpu-berlin-7": "192.0.2.41", "gpu-berlin-70": "192.0.2.42"},
    (
        Declared(Server("prefill-0", "sglang", "prefill", "http://192.0.2.41:1"), "a", "gpu-berlin-7", {}),
        Declared(Server("alices-box", "sglang", "decode", "http://192.0.2.42:1"), "a", "gpu-berlin-70", {}),
    ),
)
LOG = (
    "2026-08-20 10:00:00 prefill-0 on gpu-berlin-7 (192.0.2.41): decode at 192.0.2.42:30000, "
    "router 203.0.113.9, loopback 127.0.0.1, version 0.5.17, fake room 2.2.2.2\n"
    "gid fe80::5054:ff:fe12:3456, python /home/alice/venv/bin/python --model-path /srv/secret-llm-9b\n"
    "alices-box and gpu-berlin-70 at 10:00:00\n"
    "ssh carol@gpu-berlin-7 failed; dave@192.0.2.42: denied; nixl@v1.2; via jumphost-x as erin\n"
    "reads /srv/acme-llm/prod/fleet.toml and /data/pd-root/log/prefill-0.log, /opt/x\n"
    "7f00 r-xp 0 8:1 9 /mnt/zuse-lab/env/lib/python3.11/site-packages/x.so, /usr/local/bin/python3 -m y\n"
)
ANSWERS = {"facts": {"ports": [{"holders": [{"user": "alice"}]}]}, "missing": {}, "sent": 1, "seconds": 1}


@pytest.fixture
def made() -> Documents:
    texts = {
        "manifest.json": MANIFEST.to_json(),
        "fleet.json": PAGE.to_json(),
        "prefill-0/log.txt": LOG,
        "alices-box/log.txt": LOG,
        "hosts/gpu-berlin-7/answers.json": json.dumps(ANSWERS),
    }
    private = Private(
        users=("svc-llm",),
        dialled=("erin@jumphost-x",),
        models=("/srv/secret-llm-9b",),
        folders=("/srv/acme-llm/prod", "/data/pd-root", "/opt"),
    )
    return pseudonymous(Documents("acme-prod", texts), private)


def test_no_real_name_is_left(made: Documents) -> None:
    everything = "\n".join([made.name, *made.texts, *made.texts.values()])
    for name in ("berlin", "acme", "192.0.2.", "203.0.113", "alice", "bob", "secret-llm", "fe80::5054"):
        assert name not in everything, name
    for name in ("carol", "dave", "erin", "jumphost", "pd-root", "/srv/", "zuse-lab"):
        assert name not in everything, name
    assert "/usr/local/bin/python3" in everything, "the system's own is nobody's"


def test_one_name_is_one_pseudonym_and_what_is_nobody_s_stays(made: Documents) -> None:
    page = read_fleet(made.texts["fleet.json"])
    assert len(page.hosts) == len(set(page.hosts.values())) == 3
    assert {name.rstrip("0123456789") for name in page.hosts} == {"host-"}
    prefill, decode = page.members
    assert prefill.name == "prefill-0" and decode.name.startswith("decode")
    assert prefill.server.url == f"http://{page.hosts[prefill.host]}:1"
    log = made.texts["prefill-0/log.txt"]
    assert f"prefill-0 on {prefill.host} ({page.hosts[prefill.host]})" in log
    assert f"{decode.name} and {decode.host} at 10:00:00" in log
    for kept in (
        "nixl@v1.2",
        "/fleet.toml",
        "/log/prefill-0.log",
        "/opt/x",
        "127.0.0.1",
        "2.2.2.2",
        "0.5.17",
        "2026-08-20 10:00:00",
    ):
        assert kept in log
    assert f"{decode.name}/log.txt" in made.texts


def test_the_manifest_names_documents_that_are_there(made: Documents) -> None:
    manifest = read_manifest(made.texts["manifest.json"])
    assert manifest.pseudonyms and replace(manifest, pseudonyms=False).samples == MANIFEST.samples
    assert manifest.asked[0].document in made.texts
