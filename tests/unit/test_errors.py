"""Errors as values: they are pickled between processes without losing their content."""

from __future__ import annotations

import copy
import json
import pickle
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from registry import errors
from registry.errors import (
    CitationSyntaxError,
    CorruptRecordError,
    MissingExtraError,
    RegistryError,
    SplitSyntaxError,
    UsageError,
    VerificationError,
)

FOREIGN = {
    "name": b"label",
    "count": np.int64(3),
    "sizes": np.array([[1, 2]]),
    "path": Path("a/b.csv"),
    "at": datetime(2026, 11, 21, tzinfo=UTC),
    "by": {1: "s3://KEY:PW@bucket/x"},
    "limits": (np.float32("nan"), float("-inf"), np.longdouble(0.5)),
    "dtypes": [np.float32, np.dtype("int8")],
    "cause": ValueError("in http://ann:PW@host"),
    "reason": UsageError("wrong"),
}
"""Values that JSON does not have, or a secret."""


def every_kind(kind: type[RegistryError]) -> Iterator[type[RegistryError]]:
    yield kind
    for one in kind.__subclasses__():
        yield from every_kind(one)


def make(kind: type[RegistryError]) -> RegistryError:
    if issubclass(kind, SplitSyntaxError):
        return kind("expected a digit here", expression="train[:x]", start=7, stop=8)
    if issubclass(kind, CitationSyntaxError):
        return kind("expected a digit here", citation="digits@1.x", start=9, stop=10)
    if issubclass(kind, CorruptRecordError):
        return kind("wrong checksum", path="f", record=3, offset=99)
    if issubclass(kind, MissingExtraError):
        return kind(package="psycopg", extra="pg", needed_for="a PostgreSQL catalog")
    return kind("something is wrong", hint="Mend it.", details={"name": "x"})


@pytest.mark.parametrize("kind", list(every_kind(RegistryError)), ids=lambda kind: kind.__name__)
def test_an_error_is_the_same_in_another_process(kind: type[RegistryError]) -> None:
    error = make(kind)
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):  # noqa: S301 (our own)
        assert type(again) is kind
        assert (str(again), again.hint, again.details) == (str(error), error.hint, error.details)
        assert (again.code, again.exit_code) == (error.code, error.exit_code)


@pytest.mark.parametrize("kind", list(every_kind(RegistryError)), ids=lambda kind: kind.__name__)
def test_details_are_plain_json_whatever_a_caller_passed(kind: type[RegistryError]) -> None:
    error = make(kind)
    RegistryError.__init__(error, "wrong", details={**error.details, **FOREIGN})
    assert json.loads(json.dumps(error.details, allow_nan=False)) == error.details
    assert {name: error.details[name] for name in FOREIGN} == {
        "name": "label",
        "count": 3,
        "sizes": [[1, 2]],
        "path": "a/b.csv",
        "at": "2026-11-21T00:00:00+00:00",
        "by": {"1": "s3://***@bucket/x"},
        "limits": ["nan", "-inf", "0.5"],
        "dtypes": ["<class 'numpy.float32'>", "int8"],
        "cause": "in http://***@host",
        "reason": {"code": "usage", "message": "wrong", "hint": None},
    }


@pytest.mark.parametrize("kind", list(every_kind(VerificationError)), ids=lambda kind: kind.__name__)
def test_an_error_of_damaged_files_can_be_made_from_its_text(kind: type[RegistryError]) -> None:
    error = kind("Caught it in DataLoader worker process 0.")  # as torch does
    assert str(error) == "Caught it in DataLoader worker process 0."


def test_every_error_is_in_the_tree_of_the_docstring() -> None:
    drawn = errors.__doc__ or ""
    public = {kind.__name__ for kind in every_kind(RegistryError) if not kind.__name__.startswith("_")}
    assert [name for name in sorted(public) if name not in drawn] == []


def test_a_traceback_shows_the_hint() -> None:
    error = UsageError("wrong", hint="Do that.")
    assert traceback.format_exception_only(error)[-2:] == ["registry.errors.UsageError: wrong\n", "hint: Do that.\n"]


def test_a_warning_names_the_line_of_the_caller_however_deep_the_call_is() -> None:
    inside = {"__name__": "registry.inside", "warn": errors.warn, "contextmanager": contextmanager}
    exec(  # noqa: S102 (as if it were a module of the package)
        "@contextmanager\ndef block():\n    warn('careful')\n    yield\n\ndef call():\n    with block(): pass\n", inside
    )
    for call in (inside["call"], lambda: errors.warn("careful")):
        with pytest.warns(errors.RegistryWarning, match="^careful$") as caught:
            call()
        assert [each.filename for each in caught] == [__file__]


def test_no_module_counts_the_calls_above_a_warning_by_hand() -> None:
    package = Path(errors.__file__).parent
    assert [path.name for path in package.rglob("*.py") if "stacklevel=" in path.read_text()] == ["errors.py"]
