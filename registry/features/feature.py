"""The base of every feature, the feature that is not known, and the faults of both.

A feature is the type of one entry of an example. It is stored as *flat values*, what a tf.train.Example can hold: a 1-d
int64 array, a 1-d float32 array or a list of bytes. A leaf (``Tensor``, ``Text``, ``Image``) turns a value into flat
values and back; the containers (``FeaturesDict``, ``Sequence``) arrange leaves. ``codec`` walks the tree, and
``registry.wire`` makes the bytes of a record.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from registry.errors import CorruptExampleError, FeatureError
from registry.wire import FlatValue, WireKind

if TYPE_CHECKING:
    from typing import Self

    from registry.features.block_columns import BlockColumn, BlockParts
    from registry.features.text import ClassLabel


Shape: TypeAlias = tuple[int | None, ...]
"""Number of values in each dimension; None where it differs from example to example."""

_MAX_FILE: Final = 2**30

TEXT: Final = np.dtype(object)
"""The dtype of text and bytes: NumPy has no other one that holds bytes of any length and content."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Feature:
    """The type of one entry of an example: immutable, compared by value.

    Every feature has ``shape`` (a tuple, None for an unknown dimension) and ``dtype`` (of NumPy; ``object`` for text
    and bytes); for a dict of features both are dicts. ``description`` and ``value_range`` are for people.
    ``unknown_fields`` are those of its features.json that are not known here; they are written as they were read.
    """

    description: str = ""
    value_range: str = ""
    unknown_fields: Mapping[str, Any] | None = field(default=None, hash=False, repr=False)

    if TYPE_CHECKING:  # fields in some features, properties in others; a property here would become a field's default

        @property
        def shape(self) -> Any:
            """Number of values in each dimension."""

        @property
        def dtype(self) -> Any:
            """Dtype of the decoded values."""

    def __repr__(self) -> str:
        given = ((one, getattr(self, one.name)) for one in fields(self) if one.init and one.repr)
        shown = ", ".join(f"{one.name}={_shown(value)}" for one, value in given if value != one.default)
        return f"{type(self).__name__}({shown})"


@dataclass(frozen=True, slots=True)
class Part:
    """One flat value of a leaf.

    ``suffix`` follows the feature's path in its key; one value takes ``size`` entries (None: it differs).
    """

    suffix: str
    kind: WireKind
    size: int | None


class Leaf(Feature, ABC):
    """A feature that stores values itself. Pure: a value to one flat value for each of ``parts``, and back."""

    @property
    @abstractmethod
    def parts(self) -> tuple[Part, ...]:
        """What is stored, in the order of ``flatten``."""

    @abstractmethod
    def flatten(self, value: Any, path: str) -> tuple[FlatValue, ...]:
        """The flat values of one value. Raises FeatureError, with ``path``, where the value does not fit."""

    @abstractmethod
    def restore(self, flat: tuple[FlatValue, ...], count: int | None, path: str) -> Any:
        """The value of ``flat``; with ``count``, an array of that many values, along a new first dimension.

        ``flat`` has the kinds of ``parts``; sizes are checked here. Raises CorruptExampleError, with ``path``.
        """

    @property
    def may_be_absent(self) -> bool:
        """Whether a value may be None, which stores nothing; only outside of every Sequence."""
        return False

    @property
    def may_read_none(self) -> bool:
        """Whether a value that is absent reads as None, and as a masked one in a column."""
        return False

    @property
    def class_label(self) -> ClassLabel | None:
        """The label whose names are in a file beside the records, if the feature has one."""
        return None

    def with_label_names(self, names: tuple[str, ...]) -> Self:  # noqa: ARG002
        """This feature with ``names`` for the classes of its ``class_label``."""
        return self

    def restore_absent(self) -> Any:
        """The value that a missing one decodes to."""
        raise NotImplementedError(type(self).__name__)

    def restore_block(self, parts: BlockParts, path: str) -> BlockColumn | None:  # noqa: ARG002
        """The values of a block, equal to what ``restore`` gives for each record; None to have each restored alone.

        None, too, where a record may not be sound: restored alone, it says what is wrong.
        """
        return None

    def restore_content(self, flat: tuple[FlatValue, ...], count: int | None, path: str) -> Any:
        """What two values are compared by: the decoded value, unless decoding it differs from machine to machine."""
        return self.restore(flat, count, path)

    def flatten_many(self, values: Sequence[Any] | npt.NDArray[Any], path: str) -> tuple[FlatValue, ...]:
        """The flat values of many values, one after the other."""
        columns = [self.flatten(value, path) for value in values]
        return tuple(
            _concatenate([column[place] for column in columns], part.kind) for place, part in enumerate(self.parts)
        )


def _shown(value: Any) -> str:
    """``value`` in a feature's repr; of the thousand names of a label the first few."""
    if isinstance(value, np.dtype):
        return "text" if value == TEXT else value.name
    if isinstance(value, tuple) and len(value) > 12:
        return f"({', '.join(map(repr, value[:10]))}, ... {len(value)} in all)"
    return repr(value)


def empty_flat(kind: WireKind) -> FlatValue:
    """A flat value of no entries."""
    return [] if kind == "bytes" else np.empty(0, np.int64 if kind == "int64" else np.float32)


def stack_values(values: list[npt.NDArray[Any]], shape: Shape, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """One array of all values, along a new first dimension; a 1-d object array of arrays where their shapes differ."""
    if not values:
        return np.empty((0, *(size or 0 for size in shape)), dtype)
    if all(value.shape == values[0].shape for value in values):
        return np.stack(values)
    ragged = np.empty(len(values), object)
    ragged[:] = values
    return ragged


def fits_shape(actual: tuple[int, ...], declared: Shape) -> bool:
    """Whether an array of shape ``actual`` has the ``declared`` shape."""
    return len(actual) == len(declared) and all(
        size is None or size == found for size, found in zip(declared, actual, strict=True)
    )


def is_file(value: Any) -> bool:
    """Whether ``value`` is a file: its bytes, its path, or open for reading."""
    return isinstance(value, (str, bytes, os.PathLike)) or hasattr(value, "read")


def file_bytes(value: Any, path: str) -> bytes | None:
    """The bytes of the file that ``value`` is; None where it is not one.

    Raises:
        FeatureError: with the feature's ``path``; the file cannot be read, or was opened as text.
    """
    if isinstance(value, bytes):
        return value
    if isinstance(value, (str, os.PathLike)):
        file = Path(value)
        try:
            size = file.stat().st_size
            data = file.read_bytes() if size <= _MAX_FILE else b""
        except (OSError, ValueError) as error:
            raise feature_fault(path, f"{file} cannot be read: {error}") from error
        if size > _MAX_FILE:
            raise feature_fault(path, f"{file} has {size} bytes, more than {_MAX_FILE}")
        return data
    if not hasattr(value, "read"):
        return None
    data = value.read(_MAX_FILE)
    if not isinstance(data, bytes):
        raise feature_fault(path, "the file was opened as text", "Open it with 'rb'.")
    return data


def take_files(flat: tuple[FlatValue, ...], count: int | None, noun: str, path: str) -> FlatValue:
    """The files of a leaf that stores one for each value. Raises CorruptExampleError where they are not ``count``."""
    files, expected = flat[0], 1 if count is None else count
    if len(files) != expected:
        raise corrupt_fault(path, f"holds {len(files)} {noun}, where {expected} belong")
    return files


def is_text(value: Any) -> bool:
    """Whether ``value`` is a text that is not empty and that UTF-8 can write: without half surrogate pairs."""
    try:
        return isinstance(value, str) and bool(value.encode())
    except UnicodeEncodeError:
        return False


def feature_fault(path: str, problem: str, hint: str | None = None) -> FeatureError:
    """The error of a value that does not fit the feature at ``path``, or of a feature that contradicts itself."""
    return FeatureError(f"feature {path!r}: {problem}" if path else problem, hint=hint, details={"feature": path})


def corrupt_fault(path: str, problem: str) -> CorruptExampleError:
    """The error of a record that does not hold the feature at ``path``."""
    return CorruptExampleError(
        f"feature {path!r}: {problem}",
        hint="The record does not hold what features.json promises. `registry verify --deep` walks every record.",
        details={"feature": path, "problem": problem},
    )


def _concatenate(values: list[FlatValue], kind: WireKind) -> FlatValue:
    if kind == "bytes":
        return [item for value in values for item in value]
    return np.concatenate(values) if values else empty_flat(kind)


@dataclass(frozen=True, kw_only=True, repr=False)
class RawFeature(Leaf):
    """A feature of a class, or of a form, that is not known here. It can be read, not written.

    Decodes to what the record stores under its key: an array of int64 or float32, or an object array of ``bytes``.
    Where there is no such key: a dict of what is stored under each ``key/suffix``, by suffix, maybe empty.

    Attributes:
        class_name: TFDS's name of its class, or another package's.
        node: the object in features.json, which is written as it was.
    """

    class_name: str
    node: Mapping[str, Any] = field(hash=False, repr=False)
    shape: Shape = field(default=(None,), init=False)
    dtype: Any = field(default=TEXT, init=False)

    @property
    def parts(self) -> tuple[Part, ...]:
        """None that is known."""
        return ()

    def flatten(self, value: Any, path: str) -> NoReturn:  # noqa: ARG002 - as every leaf
        """Raises FeatureError."""
        raise feature_fault(
            path,
            f"values of the feature {self.class_name!r:.200} cannot be encoded, as it is not known here",
            "Declare it as one of registry.features, such as a Tensor of what it stores.",
        )

    def flatten_many(self, values: Any, path: str) -> NoReturn:
        """Raises FeatureError."""
        self.flatten(values, path)

    def restore(self, flat: tuple[FlatValue, ...], count: int | None, path: str) -> NoReturn:
        """Has no parts to restore from: see ``take``."""
        raise NotImplementedError(path)

    def take(self, flat: Mapping[str, FlatValue], path: str, others: frozenset[str]) -> Any:
        """What ``flat`` holds under ``path``; ``others`` are the keys of known features."""
        if path in flat and path not in others:
            return _as_array(flat[path])
        prefix = f"{path}/"
        keys = sorted(key for key in flat if key.startswith(prefix) and key not in others)
        return {key.removeprefix(prefix): _as_array(flat[key]) for key in keys}


def _as_array(value: FlatValue) -> Any:
    if isinstance(value, np.ndarray):
        return value
    array = np.empty(len(value), TEXT)
    array[:] = value
    return array


def describe_unknown(unknown: Mapping[str, str]) -> str | None:
    """What to tell of ``FeaturesDict.unknown_features()``; None where all are known.

    >>> describe_unknown({"video": "lab.features.Lidar"})
    "the feature 'video' (lab.features.Lidar) is not known here: it is read as the raw values that are stored"
    """
    if not unknown:
        return None
    named = [f"{path!r} ({class_name[:80]})" for path, class_name in list(unknown.items())[:3]]
    if len(unknown) == 1:
        return f"the feature {named[0]} is not known here: it is read as the raw values that are stored"
    more = f" and {len(unknown) - len(named)} more" if len(unknown) > len(named) else ""
    return f"the features {', '.join(named)}{more} are not known here: they are read as the raw values that are stored"
