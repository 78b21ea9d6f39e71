"""docs/catalogue.md: every variable and launch argument that pdctl knows, from profiles/catalogue."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.fleet.catalogue.read import FAMILIES, Family, family
from pdctl.fleet.catalogue.risk import Risk
from pdctl.fleet.catalogue.timeouts import deadlines, orders
from pdctl.fleet.catalogue.variable import Variable
from tests.docs.markdown import NOTE, table

KINDS = ("bundled", "sglang", "vllm", "sglang-router")
INTRO = """\
What `pdctl profile check` and `pdctl profile set` know, and from where. A row says who reads a name (*side*;
"both, alike" must be the same on both sides of a pair, "each its own" must differ between engines of a host),
when it is read (*live* changes while it runs; *start*, *import* of a module and *capture* of graphs do not),
its default where one is known, and what breaks when it is wrong. A name that is not here is not wrong: for
SGLang, UCX, NCCL and NIXL `profile check` also has the list of every name that there is. Rows marked *fork*
are read by builds of a fork and not by the public engine.
"""


def catalogue() -> str:
    out = ["# The catalogue", "", NOTE, INTRO, *_timeouts()]
    for name in FAMILIES:
        out += _family(family(name))
    return "\n".join(out)


def _timeouts() -> Iterator[str]:
    yield from ("## The deadlines of one request", "")
    yield "The same deadline under each name; where there is no knob for it, why not."
    yield ""
    for deadline in deadlines().values():
        yield f"### {deadline.name}"
        yield ""
        yield deadline.means
        yield ""
        rows = []
        for kind in KINDS:
            names = ", ".join(f"`{n}`" for n in deadline.names.get(kind, ()))
            said = " ".join(s for s in (names, deadline.absent.get(kind), deadline.notes.get(kind)) if s)
            rows.append([kind, said])
        yield table(["", "Set by"], rows)
        yield ""
    yield "Inside out, for engines that are not the bundled one"
    yield "(the bundled one's order is in [settings](settings.md#order)):"
    yield ""
    rows = [[o.inner, o.outer, ", ".join(o.kinds), f"{o.why[0].upper()}{o.why[1:]}."] for o in orders()]
    yield table(["Must be below", "this one", "Of", "Why"], rows)
    yield ""


def _family(found: Family) -> Iterator[str]:
    yield f"## {found.about[0].upper()}{found.about[1:]}"
    yield ""
    if found.release != found.about:
        yield f"The names that `profile check` tells misspelled ones from are those of {found.release}."
        yield ""
    for title, rows in (("Variable", found.variables), ("Argument", found.arguments)):
        if rows:
            head = [
                title,
                "Type and range",
                "Default",
                "Side",
                "Read",
                "What it does",
                "When it is wrong",
                "From",
            ]
            sources = list(dict.fromkeys(row.source for row in rows.values()))
            yield table(head, [_row(row, sources.index(row.source) + 1) for row in rows.values()])
            yield ""
            yield from (f"{number}. {source}" for number, source in enumerate(sources, 1))
            yield ""
    if found.risks:
        yield from ("Known to hurt:", "")
        yield table(["What", "How bad", "Why", "What to do"], [_risk(risk) for risk in found.risks])
        yield ""


def _row(row: Variable, source: int) -> list[str]:
    side = f"{row.side}, alike" if row.agree else f"{row.side}, each its own" if row.unique else row.side
    name = f"`{row.key}`" + (" *fork*" if row.fork else "")
    default = row.default_text
    shown = "-" if default is None else f"`{default}`" if default else "empty"
    return [name, _range(row), shown, side, row.read, row.does, row.wrong, str(source)]


def _range(row: Variable) -> str:
    if row.type == "choice":
        return ", ".join(row.choices)
    if row.type == "switch":
        return " or ".join(row.spellings[:2])
    low, high = (None if x is None else f"{x:g}" for x in (row.low, row.high))
    unit = f", {row.unit}" if row.unit and row.type not in ("seconds", "milliseconds") else ""
    if low is not None and high is not None:
        return f"{row.type}{unit}, {low} to {high}"
    return f"{row.type}{unit}" + (f", from {low}" if low is not None else f", to {high}" if high else "")


def _risk(risk: Risk) -> list[str]:
    what = f"`{risk.name}`"
    what += f" is {' or '.join(risk.is_)}" if risk.is_ else ""
    what += f" above {risk.above:g}" if risk.above is not None else ""
    what += f" with `{risk.contains}`" if risk.contains else ""
    what += " set" if risk.given else ""
    what += "".join(f", `{name}` {' or '.join(words)}" for name, words in risk.with_.items())
    what += f", `{risk.also}` set" if risk.also else ""
    what += (" not set" if risk.lacks == risk.name else f", `{risk.lacks}` not set") if risk.lacks else ""
    what += f", on {' or '.join(risk.roles)}" if risk.roles else ""
    what += ", pair on two hosts" if risk.across_hosts else ""
    return [what, risk.level, f"{risk.says[0].upper()}{risk.says[1:]}.", risk.do]
