"""An engine in a container: taken where a unit can hold it, and said with its line where none can."""

from __future__ import annotations

import pytest

from pdctl.adopt.container import contained
from pdctl.adopt.notes import Grade
from pdctl.exits import Exit
from tests.pdctl.adopt.conftest import ENGINE

RUN = "docker run --rm --network host --gpus all -v /m:/m -e NCCL_DEBUG=INFO img"


def test_one_in_the_foreground_is_taken_as_it_stands_and_said_to_be_unseen(bench, said) -> None:
    code, document = bench.script(f"exec {RUN} {ENGINE}\n")
    assert code == Exit.FINDINGS
    assert any("serve.sh:1" in s and "runs in a container" in s for s in said(document, "assumed"))
    assert bench.fleet().engine("engine-0").spec.command == [*RUN.split(), *ENGINE.split()]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (RUN.replace("--rm", "-d"), "docker run -d leaves the container behind"),
        (RUN.replace("--rm", "--detach --restart=always"), "docker run -d leaves the container behind"),
        (RUN.replace("--rm", "-itd"), "docker run -d leaves the container behind"),
        ("sudo podman run -d img", "podman run -d leaves the container behind"),
        (RUN.replace("--rm", "-it"), "wants a terminal"),
        ("docker exec -e A=1 box", "docker exec starts it beside"),
    ],
)
def test_what_no_unit_can_hold_is_not_adopted(bench, command: str, words: str) -> None:
    code, document = bench.script(f"date\n{command} {ENGINE}\n")
    assert (code, document["error"]["code"]) == (Exit.USAGE, "no_engine")
    assert any("serve.sh:2" in d and words in d for d in document["error"]["details"])
    assert not bench.out.exists()


def test_a_unit_that_starts_one_is_asked_the_same(bench) -> None:
    unit = bench.write("d.service", f"[Service]\nExecStart=/usr/bin/docker run -d img {ENGINE}\n")
    code, document = bench.adopt(unit)
    assert code == Exit.USAGE and any("d.service:2" in d for d in document["error"]["details"])


@pytest.mark.parametrize(
    "words", [ENGINE, f"docker run --rm -v /data:/d --shm-size 32g img {ENGINE} -d x", f"env -i {ENGINE}"]
)
def test_nothing_is_seen_where_there_is_nothing(words: str) -> None:
    found = contained(words.split())
    assert found is None or found[0] is Grade.ASSUMED


def test_each_part_of_a_pipeline_is_said_in_its_own_words(bench) -> None:
    _, document = bench.script(f"{ENGINE} 2>&1 | tee /var/log/x\n")
    (part,) = [n for n in document["notes"] if "does not run" in n["said"]]
    assert "tee /var/log/x: a command that pdctl does not run" in part["said"]
    assert "sglang" not in part["said"]
