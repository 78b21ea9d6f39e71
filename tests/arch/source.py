"""Reads a tree of Python files: modules, and every import in them, hidden ones included.

An import counts wherever it stands: at the top, under TYPE_CHECKING, in a function, as a string that spells
a module's full name, and as an f-string that begins with a package's name (both are lazy imports by name).
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Module:
    """One file. `imports` are full dotted names with their line, inside the tree and outside."""

    name: str
    path: Path
    text: str
    tree: ast.Module
    imports: tuple[tuple[str, int], ...]

    @property
    def top(self) -> str:
        return self.name.partition(".")[0]

    @property
    def room(self) -> str:
        """The part below the top-level package; empty for the package's own `__init__`."""
        parts = self.name.split(".")
        return parts[1] if len(parts) > 1 else ""

    def at(self, line: int) -> str:
        return f"{self.path}:{line}"


@functools.cache
def read(root: Path, tops: tuple[str, ...]) -> dict[str, Module]:
    """Every module below the named packages, by dotted name."""
    found = {}
    for top in tops:
        for path in sorted((root / top).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            name = ".".join(parts).removesuffix(".__init__")
            found[name] = (path, path.name == "__init__.py")
    modules = {}
    for name, (path, is_package) in found.items():
        text = path.read_text()
        tree = ast.parse(text, str(path))
        package = name if is_package else name.rpartition(".")[0]
        imports = tuple(_imports(tree, package, frozenset(found)))
        modules[name] = Module(name, path.relative_to(root), text, tree, imports)
    return modules


def _imports(tree: ast.Module, package: str, known: frozenset[str]) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, package)
            for alias in node.names:
                full = f"{base}.{alias.name}"
                yield (full if full in known else base), node.lineno
        elif isinstance(node, ast.Constant) and "." in str(node.value) and node.value in known:
            yield str(node.value), node.lineno
        elif isinstance(node, ast.JoinedStr) and isinstance(first := node.values[0], ast.Constant):
            # f"pdctl.cli.{verb}" may be any module of that package
            base = str(first.value)
            if base.endswith(".") and base[:-1] in known:
                yield from ((m, node.lineno) for m in known if m.rpartition(".")[0] == base[:-1])


def _absolute(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    parts = parts[: len(parts) - node.level + 1]
    return ".".join([*parts, node.module] if node.module else parts)


def inside(name: str, modules: dict[str, Module]) -> str | None:
    """The module of the tree that an imported name belongs to, or None for one from outside."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name or None
