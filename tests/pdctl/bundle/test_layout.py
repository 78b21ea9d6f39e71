"""What a person calls a file is understood: whose it is, what it is, and what is left alone."""

from __future__ import annotations

import pytest

from pdctl.bundle.layout import What, place


@pytest.mark.parametrize(
    ("path", "party", "what"),
    [
        ("prefill-0.log", "prefill-0", What.LOG),
        ("router.out", "router", What.LOG),
        ("engine.txt", "engine", What.LOG),
        ("prefill-0.log.1", "prefill-0", What.LOG),
        ("prefill-0/nccl.log", "prefill-0", What.LOG),
        ("prefill-0-log.txt", "prefill-0", What.LOG),
        ("prefill_0_metrics.txt", "prefill_0", What.METRICS),
        ("prefill-0-env.txt", "prefill-0", What.ENVIRON),
        ("prefill-0-pyspy.txt", "prefill-0", What.STACKS),
        ("prefill-0-server_info.json", "prefill-0", What.JSON),
        ("node-1-nvidia-smi.txt", "node-1", What.TOOL),
        ("prefill-0-dmesg.txt", "prefill-0", What.KERNEL),
        ("dmesg.txt", "", What.KERNEL),
        ("nvidia-smi-q.txt", "", What.TOOL),
        ("metrics.1.prom", "", What.METRICS),
        ("kubectl-describe.txt", "", What.LOG),
        ("rank0.log", "", What.LOG),
        ("metrics.txt", "", What.METRICS),
        ("py-spy-rank3.txt", "", What.STACKS),
        ("hosts/node-1/answers.json", "node-1", What.TOOL),
    ],
)
def test_whose_and_what(path: str, party: str, what: What) -> None:
    where = place(path)
    assert where is not None
    assert (where.party, where.what) == (party, what)


@pytest.mark.parametrize(
    "path",
    ["notes.txt", "README.md", "report.txt", "collect_env.txt", "a/pip-freeze.txt", "values.yaml", "x.png"],
)
def test_prose_is_left_alone(path: str) -> None:
    assert place(path) is None
