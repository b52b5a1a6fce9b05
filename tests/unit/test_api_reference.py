"""Every public name is on a page of the Python reference, and its docstring describes its purpose and arguments."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import registry

PAGES = Path(__file__).resolve().parents[2] / "docs" / "api"
SHOWN = [name for page in sorted(PAGES.glob("*.md")) for name in re.findall(r"^::: (\S+)$", page.read_text(), re.M)]

ELSEWHERE = {"RegistryError", "RegistryWarning", "YankedVersionWarning", "slim", "torch"}
"""Names of ``registry`` that are on the pages of ``registry.errors``, or are pages."""

# "As ``other``.", "Arguments and errors as ``other``." and the like; "see ``other``" after the meaning is fine.
_SENT_ON = re.compile(
    r"(^|[.:] +)As ``|\b(arguments|errors)( and \w+)* as (in )?(``|there)|\braises as\b|\bas there\b",
    re.IGNORECASE | re.M,
)


def definitions(path: str) -> Iterator[ast.ClassDef | ast.FunctionDef]:
    """The function, or the class and its bases in the registry. Modules that need torch are parsed, not imported."""
    module, _, name = path.rpartition(".")
    if "frameworks.torch" in module:
        yield _node(module, name)
        return
    value = getattr(importlib.import_module(module), name)
    for home in inspect.getmro(value) if inspect.isclass(value) else [inspect.unwrap(value)]:
        if getattr(home, "__module__", "").startswith("registry"):
            yield _node(home.__module__, home.__name__)


@cache
def _parse(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def _node(module: str, name: str) -> ast.ClassDef | ast.FunctionDef:
    folder = Path(*registry.__path__, *module.split(".")[1:])
    file = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    for node in _parse(file).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name and not _is_overload(node):
            return node
    raise LookupError(f"{name} is not defined in {module}")


def functions(path: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    """A function, or the public methods of a class; a method that overrides another is described there."""
    nodes = list(definitions(path))
    for place, node in enumerate(nodes):
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
            continue
        inherited = {
            child.name for base in nodes[place + 1 :] for child in base.body if isinstance(child, ast.FunctionDef)
        }
        for child in node.body:
            is_method = isinstance(child, ast.FunctionDef) and not child.name.startswith("_")
            if is_method and child.name not in inherited and not _is_overload(child):
                yield f"{node.name}.{child.name}", child


def _is_overload(node: ast.ClassDef | ast.FunctionDef) -> bool:
    return any(isinstance(mark, ast.Name) and mark.id == "overload" for mark in node.decorator_list)


def test_every_public_name_has_a_docstring_that_names_its_arguments() -> None:
    problems = []
    for name, node in (pair for path in SHOWN for pair in functions(path)):
        doc = ast.get_docstring(node) or ""
        if not doc:
            problems.append(f"{name} has no docstring")
        if _SENT_ON.search(doc):
            problems.append(f"{name} describes itself by another call")
        given = node.args
        parameters = [one.arg for one in (*given.posonlyargs, *given.args, given.vararg, *given.kwonlyargs) if one]
        parameters = [parameter for parameter in parameters if parameter not in ("self", "cls")]
        if len(parameters) > 1:
            _, _, arguments = doc.partition("Args:")
            described = {
                word for line in re.findall(r"^\s*([\w, *]+): ", arguments, re.M) for word in re.findall(r"\w+", line)
            }
            if missing := [parameter for parameter in parameters if parameter not in described]:
                problems.append(f"{name} does not describe {', '.join(missing)}")
    assert not problems


def test_every_class_and_function_has_a_docstring() -> None:
    for path in (path for path in SHOWN if "frameworks.torch" not in path):
        module, _, name = path.rpartition(".")
        value = getattr(importlib.import_module(module), name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert inspect.getdoc(value), path


@pytest.mark.parametrize("module", ["registry", "registry.features", "registry.slim"])
def test_every_public_name_is_on_a_page(module: str) -> None:
    names = set(importlib.import_module(module).__all__)
    assert names - {path.rpartition(".")[2] for path in SHOWN if path.startswith(f"{module}.")} <= ELSEWHERE
    assert "registry.errors" in SHOWN
