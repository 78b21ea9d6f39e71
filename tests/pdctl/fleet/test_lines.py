"""The line of a key, whatever stands around it; held against tomllib on generated files."""

from __future__ import annotations

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from pdctl.fleet.lines import key_lines, line_of


def test_strings_comments_and_arrays_over_lines_hide_no_key() -> None:
    text = '''# [not.a.table]
top = 1 # a = 2
[a.b]
text = """
c = 3
[x]
"""
list = [
  "d = 4", # ]
  { e = 5 },
]
"quoted.key" = 'f = 6'
raw = \'\'\'
g = 7\'\'\'
last.dotted = 8
[["arr"]]
h = 9
'''
    tomllib.loads(text)
    lines = key_lines(text)
    assert lines[("top",)] == 2
    assert lines[("a", "b")] == 3
    assert lines[("a", "b", "text")] == 4
    assert lines[("a", "b", "list")] == 8
    assert lines[("a", "b", "quoted.key")] == 12
    assert lines[("a", "b", "raw")] == 13
    assert lines[("a", "b", "last", "dotted")] == 15
    assert lines[("arr", "h")] == 17
    hidden = {"c", "d", "e", "f", "g", "x", "not"}
    assert not hidden & {part for path in lines for part in path}


def test_a_key_that_is_absent_is_placed_at_its_table() -> None:
    lines = key_lines("[a]\nb = 1\n\n[c]\n")
    assert line_of(lines, ("c", "d")) == 4
    assert line_of(lines, ("nowhere",)) == 1


KEY = st.from_regex(r"[A-Za-z0-9_-]{1,8}", fullmatch=True)
VALUE = st.sampled_from(['"x"', "1", '"""\nk = 1\n"""', "[\n1,\n2]", "'# no'", '{ q = "]" }', '"\\"]"'])


@given(st.dictionaries(KEY, st.dictionaries(KEY, VALUE, max_size=4), max_size=4))
def test_every_key_is_found_on_the_line_it_was_written_on(tables: dict[str, dict[str, str]]) -> None:
    written: list[str] = []
    expected: dict[tuple[str, ...], int] = {}
    for table, keys in tables.items():
        written.append(f"[{table}]")
        expected[(table,)] = sum(w.count("\n") + 1 for w in written)
        for key, value in keys.items():
            expected[(table, key)] = sum(w.count("\n") + 1 for w in written) + 1
            written.append(f"{key} = {value}")
    text = "\n".join(written) + "\n"
    tomllib.loads(text)
    lines = key_lines(text)
    assert {path: lines[path] for path in expected} == expected
