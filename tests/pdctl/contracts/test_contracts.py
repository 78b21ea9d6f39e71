"""Schemas are valid, strict on what must be there, open for what may come."""

from __future__ import annotations

import pytest
from jsonschema import Draft202012Validator

from pdctl import contracts


@pytest.mark.parametrize("name", contracts.NAMES)
def test_schema_is_itself_valid_and_demands_keys(name: str) -> None:
    document = contracts.schema(name)
    Draft202012Validator.check_schema(document)
    missing = contracts.faults(name, {})
    assert len(missing) == len(document["required"])


def test_a_fault_names_its_place() -> None:
    ledger = {"schema": 1, "instance": "r", "now": 1, "requests": [{"id": "x"}], "recent": [], "new": True}
    found = contracts.faults("router_requests", ledger)
    assert found and all(line.startswith("requests/0: ") for line in found)
