"""Converts the values of the catalog protocol to JSON and back, by the annotations of calls and of frozen values.

    codec(DatasetVersion).dump(version)  ->  {"name": "digits", "version": "1.0.0", "splits": [...], ...}
    codec(DatasetVersion).load(values, reader)  ->  the version, built by its constructor, which checks it

Only the types that annotations name are ever built, so no message chooses a class. Versions and references are text,
moments are ISO 8601, durations are seconds, bytes are base64. Fields with their default are left out. A client ignores
fields that it does not know, so that a newer server can add some; a server refuses them.
"""

from __future__ import annotations

import base64
import dataclasses
import math
import re
import types
import typing
from collections import abc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cache, partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, Literal

from registry.errors import PreparedFormatError, RegistryError, UsageError
from registry.model import AbstractShardLengths, Reference, ShardLengths, Version, VersionRequest

if TYPE_CHECKING:
    from registry.catalog.backend import ShardCalls

_MOST_DEPTH: Final = 40
_PLAIN: Final = (bool, int, float, str, type(None))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How values are read.

    Attributes:
        shards: loads the lengths of splits that are sent as the number of their split.
        is_strict: whether unknown fields are an error.
    """

    shards: ShardCalls
    is_strict: bool = True


class Mismatch(Exception):  # noqa: N818 (``load_value`` turns it into a UsageError)
    """A value that is not of the annotated type; ``path`` names it from the inside outwards."""

    def __init__(self, expected: str) -> None:
        super().__init__(expected)
        self.expected = expected
        self.path: list[str] = []


@dataclass(frozen=True, slots=True)
class Codec:
    """How the values of one type travel.

    Attributes:
        dump: a value as plain JSON.
        load: the value of plain JSON; raises Mismatch, or an error of the value's constructor.
        schema: its JSON Schema; references to values are ``#/components/schemas/<class>``.
        is_text: whether it travels as a string, so that a query of a URL needs no quotes around it.
    """

    dump: Callable[[Any], Any]
    load: Callable[[Any, Reading], Any]
    schema: Mapping[str, Any]
    is_text: bool = False


def load_value(kind: Any, value: Any, reading: Reading, name: str) -> Any:
    """The value of type ``kind`` that plain JSON describes; ``name`` is that of the argument or the result.

    Raises:
        UsageError: the JSON is not such a value; or another error of the constructor of a value.
    """
    try:
        return codec(kind).load(value, reading)
    except Mismatch as error:
        place = "".join([name, *reversed(error.path)])
        raise UsageError(
            f"{place} must be {error.expected}",
            hint="The description of the interface lists the arguments of each call: openapi.json",
            details={"argument": place},
        ) from None


def load_json(content: bytes, name: str) -> Any:
    """The values of a JSON text; ``name`` is that of the text.

    Raises:
        UsageError: it is not JSON, or programs would read it differently: an object has a key twice, a number is not
            finite, or text has half of a surrogate pair.
    """
    from registry.json_node import parse_json

    try:
        return parse_json(content.decode(), name).value
    except UnicodeDecodeError:
        raise UsageError(f"{name} is not JSON in UTF-8", details={"argument": name}) from None
    except PreparedFormatError as error:
        raise UsageError(error.message, details={"argument": name}) from None


hints_of = cache(typing.get_type_hints)
"""The annotations of a function or a class, resolved."""


@cache
def codec(kind: Any) -> Codec:
    """The codec of an annotation of the protocol."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return Codec(_dump_json, lambda value, _: value, {})
    if origin in (typing.Union, types.UnionType):
        return _union(inner)
    if origin is Literal:
        return Codec(lambda value: value, partial(_literal, inner), {"enum": [*inner]}, isinstance(inner[0], str))
    if kind in _SCALARS:
        return _SCALARS[kind]
    if origin in (typing.Required, typing.NotRequired):
        return codec(inner[0])
    if kind is AbstractShardLengths or kind is ShardLengths:
        return Codec(_dump_lengths, _load_lengths, _LENGTHS)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return Codec(lambda value: value.value, partial(_enum, kind), {"enum": [one.value for one in kind]}, True)
    if dataclasses.is_dataclass(kind) or hasattr(kind, "_fields"):
        return _record(kind)
    if origin in (tuple, list, set, frozenset, abc.Sequence, abc.Collection):
        return _array(origin, inner)
    if origin in (dict, abc.Mapping):
        return _mapping(*inner)
    raise AssertionError(f"no value of the type {kind} can be sent")


def _text(build: Callable[[str], Any], expected: str, dump: Callable[[Any], str] = str, **schema: Any) -> Codec:
    def load(value: Any, _: Reading) -> Any:
        if not isinstance(value, str):
            raise Mismatch(expected)
        try:
            return build(value)
        except RegistryError:
            raise
        except ValueError:
            raise Mismatch(expected) from None

    return Codec(dump, load, {"type": "string", **schema}, is_text=True)


def _reference(text: str) -> Reference:
    """The reference, with the name as it was sent: some datasets were published with capital letters."""
    result = Reference.parse(text)
    name = re.split("[/:@]", text, maxsplit=1)[0]
    return result if result.name == name else replace(result, name=name)


def _moment(text: str) -> datetime:
    result = datetime.fromisoformat(text)
    if result.tzinfo is None:
        raise ValueError
    try:
        result.astimezone(UTC)  # as databases keep it
    except OverflowError as error:
        raise ValueError from error
    return result


def _scalar(kind: type, expected: str, name: str) -> Codec:
    def load(value: Any, _: Reading) -> Any:
        if type(value) is int and kind is float and abs(value) < 2**1000:
            return float(value)
        if type(value) is not kind:
            raise Mismatch(expected)
        return value

    return Codec(lambda value: value, load, {"type": name})


def _seconds(value: Any, _: Reading) -> timedelta:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise Mismatch("a number of seconds")
    try:
        return timedelta(seconds=value)
    except OverflowError:
        raise Mismatch("a number of seconds") from None


_SCALARS: Final[dict[Any, Codec]] = {
    str: _text(str, "text", lambda value: str(value) if isinstance(value, Version | Reference) else value),
    bool: _scalar(bool, "true or false", "boolean"),
    int: _scalar(int, "a whole number", "integer"),
    float: _scalar(float, "a number", "number"),
    type(None): Codec(lambda _: None, lambda value, _: _literal((None,), value, _), {"type": "null"}),
    datetime: _text(_moment, "a moment as ISO 8601 with its zone", datetime.isoformat, format="date-time"),
    timedelta: Codec(timedelta.total_seconds, _seconds, {"type": "number", "description": "seconds"}),
    bytes: _text(
        lambda text: base64.b64decode(text, validate=True),
        "base64",
        lambda value: base64.b64encode(value).decode(),
        contentEncoding="base64",
    ),
    Version: _text(Version.parse, "a version", pattern=r"^\d+\.\d+\.\d+$"),
    VersionRequest: _text(VersionRequest.parse, "a request for a version"),
    Reference: _text(_reference, "a reference", examples=["digits:1.0.0"]),
}


def _literal(allowed: tuple[Any, ...], value: Any, _: Reading) -> Any:
    if isinstance(value, _PLAIN) and any(type(value) is type(one) and value == one for one in allowed):
        return value
    raise Mismatch(" or ".join("null" if one is None else repr(one) for one in allowed))


def _enum(kind: type[Enum], value: Any, _: Reading) -> Any:
    try:
        return kind(value)
    except (ValueError, TypeError):
        raise Mismatch(" or ".join(repr(one.value) for one in kind)) from None


def _dump_json(value: Any, depth: int = 0) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if depth < _MOST_DEPTH and isinstance(value, Mapping):
        return {str(key): _dump_json(item, depth + 1) for key, item in value.items()}
    if depth < _MOST_DEPTH and isinstance(value, (list, tuple)):
        return [_dump_json(item, depth + 1) for item in value]
    raise UsageError(f"a value of the type {type(value).__name__} cannot be stored as JSON")


def _origin(kind: Any) -> Any:
    return typing.get_origin(kind)


def _union(kinds: tuple[Any, ...]) -> Codec:
    """Literals come first; then each type is tried, the one of text last."""
    order = sorted(kinds, key=lambda kind: (_origin(kind) is not Literal, kind is str))
    if {str, Reference} == set(kinds):  # text that a person wrote names a dataset otherwise than a reference
        text = codec(Reference)
        parse = Reference.parse
        return replace(text, dump=lambda value: str(value if isinstance(value, Reference) else parse(value)))
    codecs = {kind: codec(kind) for kind in order}

    def dump(value: Any) -> Any:
        for kind in order:
            literals = typing.get_args(kind) if _origin(kind) is Literal else ()
            if value in literals if literals else isinstance(value, _origin(kind) or kind):
                return codecs[kind].dump(value)
        return codecs[order[-1]].dump(value)  # which the server refuses, unless it is text

    def load(value: Any, reading: Reading) -> Any:
        expected = []
        for kind in order:
            try:
                return codecs[kind].load(value, reading)
            except Mismatch as error:
                if error.path or len(order) == 1:
                    raise
                expected.append(error.expected)
        raise Mismatch(" or ".join(expected))

    schemas = [codecs[kind].schema for kind in order]
    is_text = all(codecs[kind].is_text for kind in order if kind is not type(None))
    return Codec(dump, load, schemas[0] if len(schemas) == 1 else {"anyOf": schemas}, is_text)


def _array(origin: Any, inner: tuple[Any, ...]) -> Codec:
    is_fixed = origin is tuple and inner[-1:] != (...,)
    items = [codec(kind) for kind in (inner if is_fixed else inner[:1])]
    build = {set: set, frozenset: frozenset, list: list}.get(origin, tuple)

    def dump(value: Any) -> Any:
        return [item.dump(part) for item, part in zip(items if is_fixed else repeat(items[0]), value)]  # noqa: B905

    def load(value: Any, reading: Reading) -> Any:
        if not isinstance(value, list) or (is_fixed and len(value) != len(items)):
            raise Mismatch(f"an array of {len(items)} items" if is_fixed else "an array")
        pairs = zip(items if is_fixed else repeat(items[0]), value)  # noqa: B905
        return build([_at(f"[{place}]", item.load, part, reading) for place, (item, part) in enumerate(pairs)])

    schema: dict[str, Any] = {"type": "array"}
    if is_fixed:
        schema |= {"prefixItems": [item.schema for item in items], "minItems": len(items), "maxItems": len(items)}
    else:
        schema["items"] = items[0].schema
    return Codec(dump, load, schema)


def _mapping(key: Any, value: Any) -> Codec:
    """An object, if the keys are text."""
    keys, values = codec(key), codec(value)
    if not keys.is_text:
        raise AssertionError(f"no mapping of {key} can be sent")

    def load(content: Any, reading: Reading) -> Any:
        if not isinstance(content, dict):
            raise Mismatch("an object")
        return {
            _at(f"[{name!r:.80}]", keys.load, name, reading): _at(f"[{name!r:.80}]", values.load, part, reading)
            for name, part in content.items()
        }

    return Codec(
        lambda content: {keys.dump(name): values.dump(part) for name, part in content.items()},
        load,
        {"type": "object", "additionalProperties": values.schema},
    )


def _record(kind: Any) -> Codec:
    """A dataclass or a named tuple. Its fields are resolved when they are first needed, because values are nested."""

    @cache
    def parts() -> dict[str, Codec]:
        hints = hints_of(kind)
        names = (
            [part.name for part in dataclasses.fields(kind) if part.init]
            if dataclasses.is_dataclass(kind)
            else kind._fields
        )
        return {name: codec(hints[name]) for name in names}

    @cache
    def defaults() -> dict[str, Any]:
        if hasattr(kind, "_fields"):
            return dict(kind._field_defaults)
        pairs = ((part.name, part.default, part.default_factory) for part in dataclasses.fields(kind))
        missing = dataclasses.MISSING
        return {
            name: default if factory is missing else factory()
            for name, default, factory in pairs
            if default is not missing or factory is not missing
        }

    def dump(value: Any) -> Any:
        usual, result = defaults(), {}
        for name, part in parts().items():
            content = getattr(value, name)
            if name not in usual or content != usual[name]:
                result[name] = part.dump(content)
        return result

    def load(content: Any, reading: Reading) -> Any:
        if not isinstance(content, dict):
            raise Mismatch(f"an object with the fields of {kind.__name__}")
        known = parts()
        if reading.is_strict and (unknown := content.keys() - known.keys()):
            raise Mismatch(f"{kind.__name__}, which has no field {min(unknown)!r:.80}")
        if absent := known.keys() - content.keys() - defaults().keys():
            raise Mismatch(f"{kind.__name__}, which needs the field {min(absent)!r}")
        return kind(
            **{
                name: _at(f".{name}", part.load, content[name], reading)
                for name, part in known.items()
                if name in content
            }
        )

    _RECORDS[kind.__name__] = (kind, parts, defaults)
    return Codec(dump, load, {"$ref": f"#/components/schemas/{kind.__name__}"})


_RECORDS: Final[dict[str, tuple[Any, Callable[[], dict[str, Codec]], Callable[[], dict[str, Any]]]]] = {}


def record_schemas() -> dict[str, Any]:
    """The JSON Schema of every value that a codec was made for, and of those in it, by the name of the class."""
    result: dict[str, Any] = {}
    while missing := [name for name in _RECORDS if name not in result]:
        for name in missing:
            kind, parts, defaults = _RECORDS[name]
            properties = {field: part.schema for field, part in parts().items()}
            required = [field for field in properties if field not in defaults()]
            text = (kind.__doc__ or "").strip().partition("\n\n")[0]
            result[name] = {"type": "object", "description": text, "properties": properties, "required": required}
    return result


def _at(place: str, load: Callable[[Any, Reading], Any], value: Any, reading: Reading) -> Any:
    try:
        return load(value, reading)
    except Mismatch as error:
        error.path.append(place)
        raise


_LENGTHS: Final = {
    "description": "The number of records in each shard. A server sends those of a long split as its number.",
    "anyOf": [
        {"type": "array", "items": {"type": "integer"}},
        {
            "type": "object",
            "properties": {
                "split_id": {"type": "integer"},
                "name": {"type": "string"},
                "num_shards": {"type": "integer"},
                "num_examples": {"type": "integer"},
            },
            "required": ["split_id", "name", "num_shards", "num_examples"],
        },
    ],
}


def _dump_lengths(value: AbstractShardLengths) -> Any:
    from registry.catalog.paging import LoadedShardLengths

    if isinstance(value, LoadedShardLengths):
        return {
            "split_id": value.split_id,
            "name": value.name,
            "num_shards": len(value),
            "num_examples": value.num_examples,
        }
    return [*value]


def _load_lengths(value: Any, reading: Reading) -> AbstractShardLengths:
    from registry.catalog.paging import LoadedShardLengths

    if isinstance(value, list):
        if not all(type(length) is int and 0 <= length < 2**63 for length in value):
            raise Mismatch("numbers of records")
        return ShardLengths(value)
    kinds = {"split_id": int, "name": str, "num_shards": int, "num_examples": int}
    if not isinstance(value, dict) or {key: type(item) for key, item in value.items()} != kinds:
        raise Mismatch("numbers of records, or the number of a split")
    return LoadedShardLengths(reading.shards, **value)
