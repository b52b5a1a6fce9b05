"""No two files import each other in a circle: not in functions, for type checkers or through an ``__init__``.

A contract of import-linter in ``pyproject.toml`` holds the same for folders; it does not look at the
``__init__`` of the folder itself.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import registry
import registry.builders
import registry.migrations

FOLDERS = {
    "registry": Path(*registry.__path__),
    "registry.builders": Path(*registry.builders.__path__),
    "registry.migrations": Path(*registry.migrations.__path__),
}


def modules() -> dict[str, Path]:
    """Every module by its name; a package is its ``__init__``."""
    found = {}
    for package, folder in FOLDERS.items():
        for path in folder.rglob("*.py"):
            parts = path.relative_to(folder).with_suffix("").parts
            found[".".join([package, *(part for part in parts if part != "__init__")])] = path
    return found


def imports(tree: ast.Module, known: dict[str, Path]) -> Iterator[str]:
    """The modules that ``tree`` imports, in functions and for type checkers, too. Expressions import nothing."""
    statements: list[ast.AST] = [*tree.body]
    while statements:
        child = statements.pop()
        if isinstance(child, ast.ImportFrom) and child.module in known:
            submodules = [f"{child.module}.{one.name}" for one in child.names]
            yield from (one if one in known else child.module for one in submodules)
        elif isinstance(child, ast.Import):
            yield from (one.name for one in child.names if one.name in known)
        for name in ("body", "orelse", "handlers", "finalbody", "cases"):
            statements += getattr(child, name, ())


def circle(graph: dict[str, set[str]]) -> list[str]:
    """One circle of ``graph``, or nothing."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_files_import_each_other_in_a_circle() -> None:
    known = modules()
    assert len(known) > 200
    graph = {name: {*imports(ast.parse(path.read_text()), known)} - {name} for name, path in known.items()}
    assert circle(graph) == []


def test_a_circle_would_be_found() -> None:
    known = {"a": Path(), "a.b": Path(), "a.c": Path()}
    code = {"a": "def f():\n    from a import b", "a.b": "import a.c", "a.c": "from a import anything"}
    graph = {name: {*imports(ast.parse(text), known)} for name, text in code.items()}
    assert circle(graph) == ["a", "a.c", "a.b", "a"]
    typing = "if TYPE_CHECKING:\n    from a import anything"
    assert circle({**graph, "a.c": {*imports(ast.parse(typing), known)}}) != []
