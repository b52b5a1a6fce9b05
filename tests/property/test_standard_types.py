"""Values and objects of the standard library are stored, or refused with a way out: no exception of theirs is leaked.

The classes are those of ``test_library_types``, for Python itself; some run code that fails when they are looked at.
"""

from __future__ import annotations

import array
import collections
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import io
import ipaddress
import itertools
import os
import pathlib
import re
import threading
import types
import uuid
import zoneinfo
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest
from support.judged_sources import judge_object

from registry.errors import SourceError
from registry.intake.objects import open_object
from registry.intake.python_values import KINDS


def fail(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError("by zero")


def failing(method: str, base: type = object) -> Any:
    """An object one of whose methods fails, by a name that a reader may look up."""
    return type(f"Bad{method.strip('_').title()}", (base,), {method: fail})()


class FailingZone(dt.tzinfo):
    utcoffset = dst = tzname = fail


class UnprintableError(Exception):
    __str__ = __repr__ = fail


Pair = collections.namedtuple("Pair", "a b")
Kind = enum.Enum("Kind", "A B")
Number = enum.IntEnum("Number", "A B")
Flags = enum.Flag("Flags", "A B")


@dataclasses.dataclass
class Record:
    a: int = 1


METHODS: Final = (
    *("__iter__", "__len__", "__array__", "__repr__", "__str__", "__getattr__", "__eq__", "__bool__", "__float__"),
    *("__getitem__", "__call__", "__hash__", "__fspath__", "__arrow_c_stream__", "__arrow_c_array__", "__index__"),
    *("detach", "nbytes", "dtype", "shape"),
)

VALUES: Final[list[Any]] = [
    *(array.array("i", [1]), array.array("d"), collections.deque([1]), range(3), memoryview(b"a")),
    *(memoryview(array.array("i", [1, 2])), memoryview(b"abcd").cast("B", (2, 2)), Pair(1, 2), Record(), Record),
    *(Kind.A, Number.A, Flags.A, fractions.Fraction(1, 3), 1j, types.MappingProxyType({"a": 1}), uuid.UUID(int=1)),
    *(pathlib.PurePath("a"), ipaddress.IPv4Address("1.2.3.4"), {1}, frozenset([1]), iter([1]), (one for one in [1])),
    *(dt.datetime(2020, 1, 1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")), dt.time(1, tzinfo=dt.UTC)),
    *(dt.datetime(2020, 1, 1, tzinfo=FailingZone()), dt.datetime.max, dt.timedelta.max, dt.UTC),  # noqa: DTZ901
    *(collections.OrderedDict(a=1), collections.Counter("a"), collections.ChainMap({"a": 1}), collections.UserList()),
    *(collections.UserDict(a=1), collections.UserString("a"), re.compile("a"), io.BytesIO(b"a"), io.StringIO("a")),
    *(threading.Lock(), map(int, ["1"]), zip([1], [2], strict=True), slice(1), ..., NotImplemented, type, len, enum),
    *(decimal.Decimal("NaN"), decimal.Decimal("1e400"), bytearray(b"a"), 10**400, "\ud800", types.SimpleNamespace(a=1)),
    *(failing(method) for method in METHODS),
    *(failing(method, list) for method in ("__len__", "__iter__")),
    *(failing(method, dict) for method in ("__iter__", "get", "items", "__getitem__")),
]

WAYS: Final[dict[str, Callable[[Any], Any]]] = {
    "a value": lambda value: [{"x": value}, {"x": value}],
    "a later value": lambda value: [{"x": 1}, {"x": value}],
    "in a list": lambda value: [{"x": [value]}],
    "in a dict": lambda value: [{"x": {"b": value}}],
    "a column of values": lambda value: {"x": [value, value]},
    "a column": lambda value: {"x": value, "b": [1]},
    "in an array": lambda value: {"x": np.array([value, None], object)},
    "a row": lambda value: [value, value],
    "in a row": lambda value: [(value, 1)],
    "a yielded row": lambda value: itertools.chain([value]),
    "a source": lambda value: value,
    "a split": lambda value: {"train": value},
    "a later split": lambda value: {"train": [{"x": 1}], "test": value},
    "a function's result": lambda value: lambda: value,
}


def describe(value: Any) -> str:
    return f"{type(value).__name__}"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_value_of_the_standard_library_is_stored_or_refused(way: str) -> None:
    for value in VALUES:
        try:
            given = WAYS[way](value)
        except Exception:  # noqa: BLE001, S112 (NumPy itself looks at it)
            continue
        if isinstance(given, str | os.PathLike):
            continue
        judge_object(given, f"{describe(value)} as {way}", column=None)


@pytest.mark.parametrize("name", sorted(KINDS | {"NaTType"}))
def test_a_class_that_has_the_name_of_a_kind_is_refused_as_any_other(name: str) -> None:
    value = type(name, (), {})()
    if name in ("NoneType", "NAType", "NaTType", "MaskedConstant"):  # missing values have types of their own
        assert judge_object([{"x": 1, "y": value}], name, column=None) is None
        return
    source = open_object([{"x": value, "y": 1}])
    bad = [one for part in source.parts for rows in part.read() for one in rows.bad]
    assert [one.reason for one in bad] == [
        f"values of the type {name} cannot be stored; convert them to text, numbers or bytes"
    ]


def test_batches_that_fail_are_reported_with_the_error_as_their_cause() -> None:
    def batches(good: int) -> Iterator[Any]:
        for _ in range(good):
            yield pa.record_batch({"a": [1]})
        raise ZeroDivisionError("division by zero")

    for good in (0, 2):
        reader = pa.RecordBatchReader.from_batches(pa.schema([("a", pa.int64())]), batches(good))
        message = judge_object(reader, "a stream", column=None)
        assert message in (
            "data cannot be read from a pyarrow RecordBatchReader: ZeroDivisionError: division by zero",
            "the arrow data cannot be read: ZeroDivisionError: division by zero",
        )
    with pytest.raises(SourceError) as caught:
        open_object(pa.RecordBatchReader.from_batches(pa.schema([("a", pa.int64())]), batches(0)))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert caught.value.hint == "The traceback shows the line that failed."


def test_an_exception_without_a_text_is_named_by_its_type() -> None:
    class Rows:
        def __len__(self) -> int:
            raise UnprintableError

        def __getitem__(self, place: int) -> Any:
            raise UnprintableError

    message = judge_object(Rows(), "unprintable", column=None)
    assert message.endswith("Rows: UnprintableError")


@pytest.mark.parametrize("values", [{1, 2}, frozenset([1]), collections.deque([1, 2])])
def test_a_column_without_slices_is_refused(values: Any) -> None:
    with pytest.raises(SourceError) as caught:
        open_object({"x": values, "y": [1]})
    assert caught.value.message == f"column 'x': expected an array or a list, found {type(values).__name__}"
