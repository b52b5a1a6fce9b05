"""Compares the size of every room, and its names, with ``.ci/budget.toml``.

A line of code is a line that is neither empty, nor only a comment, nor part of a docstring. Generated code is left out.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
import tomllib
from collections import Counter
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]

_LAYOUT: Final = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
_DOCUMENTED: Final = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def count_lines(source: str) -> int:
    """The number of lines of code of a module."""
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _LAYOUT:
            code.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            code.difference_update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(code)


def bound_names(source: str) -> Counter[str]:
    """How often each name is assigned, or is a parameter."""
    nodes = list(ast.walk(ast.parse(source)))
    stored = [node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    return Counter([*stored, *(node.arg for node in nodes if isinstance(node, ast.arg))])


def sources(room: str) -> list[str]:
    """The modules of a room: of a folder, or the files directly in ``registry``."""
    folder = ROOT / room
    paths = folder.glob("*.py") if room == "registry" else folder.rglob("*.py")
    return [path.read_text(encoding="utf-8") for path in sorted(paths) if "_pb2" not in path.name]


def main() -> int:
    """Print the table; the exit code is 1 if something is over its budget, or has none."""
    budget = tomllib.loads((ROOT / ".ci" / "budget.toml").read_text(encoding="utf-8"))
    found = {path.parent.relative_to(ROOT).as_posix() for path in ROOT.glob("registry/*/__init__.py")}
    problems = [f"{room} has no budget" for room in sorted(found - budget["lines"].keys())]
    names: Counter[str] = Counter()
    total = 0
    for room, most in budget["lines"].items():
        modules = sources(room)
        number = sum(map(count_lines, modules))
        total += number
        for module in modules:
            names.update(bound_names(module))
        print(f"{room:24} {number:7,} of {most:7,} lines of code")  # noqa: T201 (a script)
        if number > most:
            problems.append(f"{room} has {number - most:,} lines of code more than its budget")
    fillers = sum(names[word] for word in budget["names"]["fillers"])
    percent = 100 * fillers / names.total()
    print(f"{'all':24} {total:7,}; {percent:.2f}% of the names are fillers, of {budget['names']['percent']}%")  # noqa: T201
    if percent > budget["names"]["percent"]:
        problems.append("too many names are fillers: use the noun, such as shard, version, row")
    for problem in problems:
        print(problem, file=sys.stderr)  # noqa: T201 (a script)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
