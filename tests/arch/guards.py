"""The guards: each takes a tree that was read and returns what is wrong with it, one sentence an offence."""

from __future__ import annotations

import ast
import io
import re
import statistics
import tokenize
from collections.abc import Iterable, Iterator

from tests.arch.layers import MAX_FILE, MAX_FUNCTION, MEDIAN_FILE, NO_TORCH, Package
from tests.arch.source import Module, inside

Modules = dict[str, Module]
Function = ast.FunctionDef | ast.AsyncFunctionDef

# Modules and calls that run what they read, or turn bytes from elsewhere into objects.
EXECUTABLE_MODULES = {"pickle", "_pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
# Queues, pipes and managers of these pickle whatever they carry, and their listeners take it from a network.
PICKLING_MODULES = {"multiprocessing", "torch.multiprocessing", "torch.distributed.rpc", "xmlrpc", "yaml"}
EXECUTABLE_CALLS = {"eval", "exec", "compile", "__import__"}
PICKLING_CALLS = {
    "torch.load",
    "torch.save",
    "np.load",
    "numpy.load",
    "np.save",
    "numpy.save",
    *(
        f"dist.{n}"
        for n in (
            "send_object_list",
            "recv_object_list",
            "broadcast_object_list",
            "all_gather_object",
            "gather_object",
            "scatter_object_list",
        )
    ),
}
VARIABLE = re.compile(r"(?<![A-Z0-9_])PD_[A-Z0-9_]*[A-Z0-9](?![A-Z0-9_*])")


def layers(modules: Modules, packages: Iterable[Package]) -> Iterator[str]:
    """A room imports what its row allows, a package what its list allows."""
    by_name = {p.name: p for p in packages}
    for module in modules.values():
        package = by_name[module.top]
        if module.room and module.room not in package.allowed:
            yield f"{module.path}: {module.top}.{module.room} has no row in tests/arch/layers.py."
            continue
        allowed = package.allowed.get(module.room, frozenset())
        for name, line in module.imports:
            top, _, rest = name.partition(".")
            room = rest.partition(".")[0]
            if top != module.top:
                if top not in package.outside:
                    yield f"{module.at(line)}: {module.top} may not import {name}."
            elif room and room != module.room and room in package.allowed and room not in allowed:
                yield f"{module.at(line)}: {module.top}.{module.room} may not import {top}.{room}."


def torch_free(modules: Modules, rooms: Iterable[str] = NO_TORCH) -> Iterator[str]:
    """The deciding rooms of the engine hold no tensor."""
    for module in modules.values():
        if module.top == "engine" and module.room in set(rooms):
            for name, line in module.imports:
                if name.partition(".")[0] in ("torch", "kernels", "nixl"):
                    yield f"{module.at(line)}: engine.{module.room} decides only, it may not import {name}."


def cycles(modules: Modules) -> Iterator[str]:
    """No module reaches itself by imports (Tarjan's strongly connected components)."""
    graph = {
        m.name: {t for n, _ in m.imports if (t := inside(n, modules)) and t != m.name}
        for m in modules.values()
    }
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []

    def visit(name: str) -> Iterator[list[str]]:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in index:
                yield from visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            ring = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            yield ring

    for name in sorted(graph):
        if name not in index:
            yield from (f"import cycle: {', '.join(sorted(r))}." for r in visit(name) if len(r) > 1)


def _size(text: str) -> int:
    return sum(1 for line in text.splitlines() if line.strip())


def sizes(modules: Modules) -> Iterator[str]:
    """Files and functions stay short; the median file is far below the limit."""
    counts = []
    for module in modules.values():
        size = _size(module.text)
        if size > 3:  # a package's docstring alone says nothing about the house
            counts.append(size)
        if size > MAX_FILE:
            yield f"{module.path}: {size} lines, limit {MAX_FILE}."
        for node in ast.walk(module.tree):
            if isinstance(node, Function):
                lines = _size("\n".join(module.text.splitlines()[node.lineno - 1 : node.end_lineno]))
                if lines > MAX_FUNCTION:
                    yield f"{module.at(node.lineno)}: {node.name} has {lines} lines, limit {MAX_FUNCTION}."
    if counts and statistics.median(counts) >= MEDIAN_FILE:
        yield f"the median file has {statistics.median(counts):.0f} lines, not under {MEDIAN_FILE}."


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def executable(modules: Modules) -> Iterator[str]:
    """Nothing that is read is run: no pickle and its kin, no eval or exec, no pickling calls of torch."""
    for module in modules.values():
        for name, line in module.imports:
            if name.partition(".")[0] in EXECUTABLE_MODULES:
                yield f"{module.at(line)}: {name} turns bytes into code."
            if any(name == m or name.startswith(m + ".") for m in PICKLING_MODULES):
                yield f"{module.at(line)}: {name} pickles what it carries."
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Call):
                called = _dotted(node.func)
                short = ".".join(called.split(".")[-2:]).replace("distributed.", "dist.")
                if called in EXECUTABLE_CALLS or short in PICKLING_CALLS:
                    yield f"{module.at(node.lineno)}: {called}() runs or unpickles what it is given."


def statements(modules: Modules) -> Iterator[str]:
    """No `assert` (python -O drops it), nothing left to do, a docstring in each module that has code."""
    for module in modules.values():
        if module.tree.body and not ast.get_docstring(module.tree):
            yield f"{module.path}: no module docstring."
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Assert):
                yield f"{module.at(node.lineno)}: assert in product code; raise an error with a code."
            elif isinstance(node, ast.Raise) and "NotImplementedError" in ast.unparse(node):
                yield f"{module.at(node.lineno)}: raises NotImplementedError."
        for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
            if token.type == tokenize.COMMENT and re.search(r"\b(TODO|FIXME|XXX|HACK)\b", token.string):
                yield f"{module.at(token.start[0])}: a comment that postpones work."


def variables(texts: dict[str, str], known: Iterable[str]) -> Iterator[str]:
    """Every PD_* variable that a text names is declared in the engine's settings; whole leading words of
    a declared one (`PD_DECODE`) are a pattern and pass."""
    names = set(known)
    names |= {name[: i.start()] for name in names for i in re.finditer("_", name)}
    for where, text in texts.items():
        for number, line in enumerate(text.splitlines(), 1):
            for name in VARIABLE.findall(line):
                if name not in names:
                    yield f"{where}:{number}: {name} is not declared in engine/core/settings.py."
