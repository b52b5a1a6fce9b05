"""The docstring of every public name and method describes its purpose, arguments and errors completely."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("api_reference", ROOT / ".ci" / "api_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["api_reference"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


# "As ``other``.", "Arguments and errors as ``other``." and the like; "see ``other``" after the meaning is fine.
_ELSEWHERE = re.compile(
    r"(^|[.:] +)As ``|\b(arguments|errors)( and \w+)* as (in )?(``|there)|\braises as\b|\bas there\b",
    re.IGNORECASE | re.M,
)

reference = _load_script()
TARGETS = list(dict.fromkeys(name for page in reference.PAGES.values() for name in page.names))


def functions(target: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    found = reference.find(target)
    if isinstance(found.node, ast.FunctionDef):
        yield found.name, found.node
    elif isinstance(found.node, ast.ClassDef):
        for one in reference.members(found):
            yield f"{found.name}.{one.name}", one


@pytest.mark.parametrize("target", TARGETS)
def test_every_public_name_has_a_docstring_that_names_its_arguments(target: str) -> None:
    assert reference.find(target).doc
    problems = []
    for name, node in functions(target):
        doc = ast.get_docstring(node) or ""
        if not doc:
            problems.append(f"{name} has no docstring")
        if _ELSEWHERE.search(doc):
            problems.append(f"{name} describes itself by another call")
        parameters = [one.partition(":")[0].partition("=")[0].strip("* ") for one in reference._parameters(node.args)]
        parameters = [one for one in parameters if one not in ("self", "cls", "/", "")]
        if len(parameters) > 1:
            _, _, arguments = doc.partition("Args:")
            described = {
                one for line in re.findall(r"^\s*([\w, *]+): ", arguments, re.M) for one in re.findall(r"\w+", line)
            }
            if missing := [one for one in parameters if one not in described]:
                problems.append(f"{name} does not describe {', '.join(missing)}")
    assert not problems


def test_every_public_name_is_on_a_page() -> None:
    assert reference.pages()


def test_the_pages_are_as_the_docstrings_are() -> None:
    pages = reference.pages()
    assert {path.name: path.read_text(encoding="utf-8") for path in sorted(reference.FOLDER.glob("*.md"))} == {
        path.name: text for path, text in pages.items()
    }


def test_links_between_the_pages_have_targets() -> None:
    pages = reference.pages()
    anchors = {
        path.name: {line.lstrip("# ").lower().replace(" ", "-") for line in text.splitlines() if line.startswith("#")}
        for path, text in pages.items()
    }
    for path, text in pages.items():
        for file, anchor in re.findall(r"\]\(([\w.]*)#([\w-]+)\)", text):
            assert anchor in anchors[file or path.name], f"{path.name} links to {file}#{anchor}"
