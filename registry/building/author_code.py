"""Locates the author's own code for errors: file and line, the author's part of a traceback, and lines to change.

Called by ``builder``, ``discovery`` and ``generation`` when a builder class is wrong or its code raises. This module
reads source text; it does not run the author's code.
"""

from __future__ import annotations

import ast
import difflib
import functools
import importlib
import linecache
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import GeneratorType
from typing import Any, Final, NamedTuple

from registry.errors import BuildError, RegistryError

_METHOD_LINES: Final = {
    "features": 'def features(self): return FeaturesDict({"number": Scalar("int64")})',
    "splits": 'def splits(self): return {"train": [("key", {"number": 1})]}',
}
_TFDS_LINES: Final = {
    "_info": "def features(self): return FeaturesDict({...})  # the features of _info",
    "_split_generators": 'def splits(self): return {"train": self._generate_examples(...)}  # for each split',
    "_generate_examples": "def _generate_examples(...):  # as it is, if it yields key, example",
}

_PACKAGE = str(Path(__file__).resolve().parents[1]) + os.sep
_BUILDERS = _PACKAGE + "builders" + os.sep  # datasets that come with the registry count as author code
_IMPORTLIB = str(Path(importlib.__file__).parent) + os.sep


class CodeLine(NamedTuple):
    """A line of a source file."""

    path: str
    line: int

    def __str__(self) -> str:
        return f"{self.path}, line {self.line}"


def defining_place() -> CodeLine:
    """Return the place of the class whose ``__init_subclass__`` calls this: the nearest frame of author code."""
    frame = sys._getframe(2)
    while frame.f_back is not None and (
        frame.f_code.co_name == "__init_subclass__" or _is_abc(frame.f_code.co_filename)
    ):
        frame = frame.f_back
    return CodeLine(frame.f_code.co_filename, frame.f_lineno)


def attribute_place(definition: CodeLine, attribute: str) -> CodeLine:
    """The line in the class at ``definition`` that assigns ``attribute``; ``definition`` if the class inherits it."""
    node = _class_at(definition)
    for statement in [] if node is None else node.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == attribute for target in targets):
            return CodeLine(definition.path, statement.lineno)
    return definition


def function_place(function: object) -> CodeLine | None:
    """Where a function, method, generator or partial is defined; None for objects without Python code."""
    while isinstance(function, functools.partial):
        function = function.func
    code = function.gi_code if isinstance(function, GeneratorType) else getattr(function, "__code__", None)
    # Methods that dataclass and the like generate have no file.
    return None if code is None or code.co_filename == "<string>" else CodeLine(code.co_filename, code.co_firstlineno)


def add_place(error: RegistryError, place: CodeLine | None) -> None:
    """Append ``place`` to the message of ``error``, unless the message already names a place."""
    if place is not None and not error.details.get("where"):
        error.message = f"{error.message} ({place})"
        error.args = (error.message,)
        error.details["where"] = str(place)


def author_error(
    subject: str,
    error: BaseException,
    *,
    after: str = "",
    details: Mapping[str, Any] | None = None,
    hint: str | None = None,
) -> BuildError:
    """The BuildError for an exception of author code.

    Its message names the exception and the author's line. ``details["traceback"]`` holds the lines of the author's code
    and of the libraries it calls, without those of the registry and of Python's import system.
    """
    place = _error_place(error)
    return BuildError(
        f"{subject}{after}: {text_of(error)}" + (f" ({place})" if place is not None else ""),
        hint=(error.hint if isinstance(error, RegistryError) else None) or hint,
        details={
            **(details or {}),
            "where": "" if place is None else str(place),
            "traceback": author_traceback(error),
        },
    )


def text_of(error: BaseException) -> str:
    """Return the class and message of an exception, even if its ``__str__`` fails.

    >>> text_of(ValueError("no more"))
    'ValueError: no more'
    """
    try:
        text = str(error.msg) if isinstance(error, SyntaxError) else str(error)  # str() would repeat file and line
    except Exception:  # noqa: BLE001 - author code
        text = "its message cannot be shown"
    kind = type(error).__name__
    if isinstance(error, SystemExit):
        return f"it called sys.exit({text})"
    return f"{kind}: {text}" if text else kind


def author_traceback(error: BaseException) -> str:
    """The traceback of ``error`` and of its causes, without lines of the registry and of Python's import system."""
    trace = traceback.TracebackException.from_exception(error)
    one: traceback.TracebackException | None = trace
    while one is not None:
        one.stack = traceback.StackSummary.from_list([frame for frame in one.stack if not _is_ours(frame.filename)])
        one = one.__cause__ or one.__context__
    return "".join(trace.format()).rstrip()


def missing_methods(cls: type, definition: CodeLine) -> BuildError:
    """The error for a builder class that cannot be instantiated, because it lacks ``features()`` or ``splits()``."""
    missing = sorted(cls.__abstractmethods__)  # type: ignore[attr-defined]  # every builder class is an ABC
    advice = tfds_advice(definition.path, cls.__name__)
    if advice is not None:
        return _tfds_error(cls.__name__, definition, advice)
    hints = []
    for name in missing:
        near = difflib.get_close_matches(name, [method for method, value in vars(cls).items() if callable(value)], n=1)
        hints.append(
            f"Rename {cls.__name__}.{near[0]} to {name}."
            if near
            else f"Add to the class: {_METHOD_LINES.get(name, f'def {name}(self): ...')}"
        )
    return BuildError(
        f"{cls.__name__} does not define {' and '.join(f'{name}()' for name in missing)} ({definition})",
        hint="\n".join(hints),
        details={"where": str(definition), "missing": missing},
    )


def not_a_builder(subject: str, found: object, *, path: str | None, name: str) -> BuildError:
    """The error for ``found``, called ``name`` in the file ``path``, which is not a subclass of DatasetBuilder."""
    advice = tfds_advice(path, name) if path is not None and isinstance(found, type) else None
    node = None if path is None else _class_named(path, name)
    place = None if path is None or node is None else CodeLine(path, node.lineno)
    if advice is not None and place is not None:
        return _tfds_error(name, place, advice)
    kind = f"the class {found.__name__}" if isinstance(found, type) else f"an object of type {type(found).__name__}"
    return BuildError(
        f"{subject}: expected a subclass of registry.DatasetBuilder, found {kind}" + (f" ({place})" if place else ""),
        hint=f"Define it as: class {name}(registry.DatasetBuilder):" if isinstance(found, type) else None,
        details={"where": "" if place is None else str(place)},
    )


def tfds_module_error(path: str, name: str) -> BuildError | None:
    """The error for a module that cannot import TFDS, if the class ``name`` in it is a TFDS builder; else None."""
    node, advice = _class_named(path, name), tfds_advice(path, name)
    return None if node is None or advice is None else _tfds_error(name, CodeLine(path, node.lineno), advice)


def tfds_advice(path: str, name: str) -> list[str] | None:
    """The lines to change in the TFDS builder class ``name`` of the file ``path``; None if it is not one.

    Each is ``line N: the new line``.
    """
    node = _class_named(path, name)
    methods = {} if node is None else {one.name: one.lineno for one in node.body if isinstance(one, ast.FunctionDef)}
    if node is None or not methods.keys() & {"_info", "_split_generators"}:
        return None
    lines = []
    if not any("DatasetBuilder" in ast.unparse(base) and "tfds" not in ast.unparse(base) for base in node.bases):
        lines.append(f"line {node.lineno}: class {name}(registry.DatasetBuilder):")
    return lines + [f"line {methods[old]}: {new}" for old, new in _TFDS_LINES.items() if old in methods]


def _tfds_error(name: str, place: CodeLine, advice: list[str]) -> BuildError:
    return BuildError(
        f"{name} is written for TFDS: expected a DatasetBuilder with features() and splits(), found _info() and "
        f"_split_generators() ({place})",
        hint="Change these lines, and import the features from registry.features:\n"
        + "\n".join(f"  {line}" for line in advice),
        details={"where": str(place), "lines": advice},
    )


def _class_at(place: CodeLine) -> ast.ClassDef | None:
    for node in _classes(place.path):
        if place.line in (node.lineno, *(decorator.lineno for decorator in node.decorator_list)):
            return node
    return None


def _class_named(path: str, name: str) -> ast.ClassDef | None:
    return next((node for node in _classes(path) if node.name == name), None)


def _classes(path: str) -> Iterator[ast.ClassDef]:
    """The classes in the source text of a file, or of a notebook's cell; none if it cannot be read or parsed."""
    try:
        tree = ast.parse("".join(linecache.getlines(path)))
    except (SyntaxError, ValueError, RecursionError):
        return
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def _error_place(error: BaseException) -> CodeLine | None:
    if isinstance(error, SyntaxError) and error.filename is not None and Path(error.filename).is_file():
        return CodeLine(error.filename, error.lineno or 1)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_ours(frame.filename)]
    # The file that the registry called, and its last line. Later frames belong to libraries.
    places = [CodeLine(frame.filename, frame.lineno or 1) for frame in frames if frame.filename == frames[0].filename]
    return places[-1] if places else None


def _is_ours(path: str) -> bool:
    if path.startswith(("<frozen importlib", _IMPORTLIB)):
        return True
    return path.startswith(_PACKAGE) and not path.startswith(_BUILDERS)


def _is_abc(path: str) -> bool:
    return path.startswith("<frozen abc") or Path(path).name == "abc.py"
