"""Reads JSON values together with their key paths, so that every error names the file and the key.

``features.json`` and ``dataset_info.json`` are proto3 JSON: camelCase names (snake_case is accepted too), default
values omitted or null, and 64-bit integers as text or as numbers. All errors are PreparedFormatErrors.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple, NoReturn

from registry.errors import PreparedFormatError

MAX_DEPTH: Final = 100
"""Maximum nesting that is accepted; a schema of 30 nested Sequences has 90 levels."""

_SAFE_DIGITS: Final = 19
"""Integers with fewer digits always fit in 64 bits."""

_INTEGER = re.compile(r"-?[0-9]{1,20}")
_HALF_PAIR: Final = re.compile(r"[\ud800-\udfff]|\\u[dD][89a-fA-F]")
"""What a document has that contains half of a surrogate pair: itself, or the escape of any half."""


class JsonNode(NamedTuple):
    """A JSON value, its path (``splits[0].numBytes``), its file, and its key as written in the file."""

    value: Any
    path: str
    source: str
    key: str = ""

    def fields(self) -> dict[str, JsonNode]:
        """The members of a message by camelCase name, without members that are null."""
        nodes: dict[str, JsonNode] = {}
        for node in self.entries().values():
            name = re.sub(r"_([a-z0-9])", lambda match: match[1].upper(), node.key)
            if name in nodes:
                node.fail(f"it is given twice, as {nodes[name].key!r} and {node.key!r}")
            if node.value is not None:
                nodes[name] = node
        return nodes

    def entries(self) -> dict[str, JsonNode]:
        """The members of an object by key."""
        if not isinstance(self.value, dict):
            self.fail(f"expected an object, found {_kind(self.value)}")
        prefix = f"{self.path}." if self.path else ""
        return {key: JsonNode(value, f"{prefix}{key}", self.source, key) for key, value in self.value.items()}

    def elements(self) -> list[JsonNode]:
        """The elements of a list."""
        if not isinstance(self.value, list):
            self.fail(f"expected a list, found {_kind(self.value)}")
        return [JsonNode(value, f"{self.path}[{place}]", self.source) for place, value in enumerate(self.value)]

    def text(self) -> str:
        """The value as text."""
        if not isinstance(self.value, str):
            self.fail(f"expected text, found {_kind(self.value)}")
        return self.value

    def boolean(self) -> bool:
        """The value as a bool."""
        if not isinstance(self.value, bool):
            self.fail(f"expected true or false, found {_kind(self.value)}")
        return self.value

    def integer(self) -> int:
        """The value as a 64-bit integer, written as a number or as text."""
        value = self.value
        if isinstance(value, str) and _INTEGER.fullmatch(value):
            value = int(value)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            self.fail(f"expected an integer, found {_kind(value)}")
        if not -(2**63) <= value < 2**63:
            self.fail(f"{value} has more than 64 bits")
        return value

    def number(self) -> int | float:
        """The value as a number; text is not accepted."""
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            self.fail(f"expected a number, found {_kind(self.value)}")
        return self.value

    def integers(self) -> Iterator[int]:
        """The elements of a list of 64-bit integers. It may have millions, so no JsonNode is created for each."""
        if not isinstance(self.value, list):
            self.fail(f"expected a list, found {_kind(self.value)}")
        for place, value in enumerate(self.value):
            if type(value) is int and -(2**63) <= value < 2**63:
                yield value
            elif isinstance(value, str) and len(value) < _SAFE_DIGITS and value.isascii() and value.isdigit():
                yield int(value)
            else:
                yield JsonNode(value, f"{self.path}[{place}]", self.source).integer()

    def fail(self, problem: str, *, hint: str | None = None, cause: Exception | None = None) -> NoReturn:
        """Raise a PreparedFormatError that names this file and key path."""
        where = f"{self.source}: {self.path}" if self.path else self.source
        raise PreparedFormatError(
            f"{where}: {problem}", hint=hint, details={"file": self.source, "key": self.path, "problem": problem}
        ) from cause


def parse_json(text: str, source: str) -> JsonNode:
    """Parse the JSON document ``text`` of the file ``source``.

    Raises:
        PreparedFormatError: the text is not JSON, or has duplicate keys, numbers that are not finite, lone surrogates,
            or more than 100 levels of nesting.
    """
    root = JsonNode(None, "", source)

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            root.fail(f"the key {_first_twice(name for name, _ in pairs)!r} is given twice")
        return result

    def refuse(constant: str) -> NoReturn:
        root.fail(f"{constant} is not a JSON number")

    def finite(number: str) -> float:
        result = float(number)
        if math.isinf(result):  # it would be written back as Infinity, which is not JSON
            root.fail(f"{number[:40]} is too large for a number")
        return result

    try:
        value = json.loads(text, object_pairs_hook=unique, parse_constant=refuse, parse_float=finite)
    except json.JSONDecodeError as error:
        root.fail(f"invalid JSON: {error.msg} in line {error.lineno}, column {error.colno}", cause=error)
    except RecursionError as error:
        root.fail(f"it is nested more than {MAX_DEPTH} levels deep", cause=error)
    except ValueError as error:
        if isinstance(error, PreparedFormatError):
            raise
        root.fail(f"invalid JSON: {error}", cause=error)
    if not _is_deep(value) and not _HALF_PAIR.search(text):
        return JsonNode(value, "", source)
    for node, depth in _walk(JsonNode(value, "", source)):
        if depth > MAX_DEPTH:
            node.fail(f"it is nested more than {MAX_DEPTH} levels deep")
        for text_here in (node.key, node.value):
            if isinstance(text_here, str) and not text_here.isascii() and re.search("[\ud800-\udfff]", text_here):
                node.fail("it contains half of a surrogate pair, which is not valid text")
    return JsonNode(value, "", source)


def _is_deep(value: Any) -> bool:
    """Whether a value may be nested too deeply. ``_walk`` says where, but makes a node with a path of each value."""
    level, depth = [value] if isinstance(value, (dict, list)) else [], 0
    while level and depth < MAX_DEPTH:
        inside = (it.values() if type(it) is dict else it for it in level)
        level = [it for items in inside for it in items if type(it) in (dict, list)]
        depth += 1
    return bool(level)


def _walk(node: JsonNode, depth: int = 0) -> Iterator[tuple[JsonNode, int]]:
    """Yield every value that ``parse_json`` has to check, with its depth. Lazy: a file of 64 MiB has millions."""
    yield node, depth
    is_object = isinstance(node.value, dict)
    inside = node.value.items() if is_object else enumerate(node.value if isinstance(node.value, list) else ())
    for key, value in inside:
        if is_object or isinstance(value, (dict, list)) or (isinstance(value, str) and not value.isascii()):
            path = f"{node.path}{'.' * bool(node.path)}{key}" if is_object else f"{node.path}[{key}]"
            yield from _walk(JsonNode(value, path, node.source, str(key) * is_object), depth + 1)


def _first_twice(names: Iterable[str]) -> str:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    raise AssertionError("no name occurs twice")


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
