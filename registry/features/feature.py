"""The base classes of features, ``RawFeature`` for unknown classes, and the errors of features.

A feature is the type of one entry of an example. It is stored as *flat values*, the types of a tf.train.Example: a 1-d
int64 array, a 1-d float32 array or a list of bytes. A leaf (``Tensor``, ``Text``, ``Image``) converts a value to flat
values and back; the containers (``FeaturesDict``, ``Sequence``) arrange leaves. ``codec`` walks the tree, and
``registry.wire`` encodes the flat values as the bytes of a record.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, Self, TypeAlias

from registry.errors import CorruptExampleError, FeatureError
from registry.lazy import lazy_types, np, npt

if TYPE_CHECKING:
    from registry.wire import FlatColumn, FlatValue, WireKind
    from registry.wire.gather import Octets, Places
else:
    lazy_types(globals(), {"registry.wire": "FlatColumn FlatValue WireKind", "registry.wire.gather": "Octets Places"})

Shape: TypeAlias = tuple[int | None, ...]
"""Size of each dimension; None if it differs from example to example."""

Counts: TypeAlias = "int | npt.NDArray[np.int64]"
"""A number for each of many values, or for all of them."""

_MAX_FILE: Final = 2**30

TEXT: Final = object
"""The dtype of text and bytes: the only NumPy dtype that holds bytes of any length and content."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Feature:
    """The type of one entry of an example: immutable, compared by value.

    Every feature has a ``shape`` (a tuple, with None for an unknown dimension) and a NumPy ``dtype`` (``object`` for
    text and bytes); for a dict of features both are dicts.

    Attributes:
        description: free text for readers.
        value_range: free text for readers: the range or the unit of the values.
        unknown_fields: fields of its features.json that this version does not know; they are written back unchanged.
    """

    description: str = ""
    value_range: str = ""
    unknown_fields: dict[str, Any] | None = field(default=None, hash=False, repr=False)

    # shape and dtype are fields of some subclasses and properties of others. A real property here would become the
    # default of a subclass's field, so they are declared for type checkers only.
    if TYPE_CHECKING:

        @property
        def shape(self) -> Any:
            """Size of each dimension."""

        @property
        def dtype(self) -> Any:
            """Dtype of the decoded values."""

    def __repr__(self) -> str:
        names = {"dtype": "dtype_name"} if "dtype_name" in self.__dict__ else {}
        options = ((it, getattr(self, names.get(it.name, it.name))) for it in fields(self) if it.init and it.repr)
        listing = ", ".join(f"{it.name}={_shown(it.name, value)}" for it, value in options if value != it.default)
        return f"{type(self).__name__}({listing})"


@dataclass(frozen=True, slots=True)
class BlockParts:
    """The stored values of one leaf in each of ``num_records`` records.

    Attributes:
        data: the bytes of the block, which offsets refer to.
        columns: the flat values of each part of the leaf, over all records.
        counts: the number of elements in each record if the leaf is in a Sequence; otherwise None.
        copy: whether values must not be views of ``data``.
    """

    num_records: int
    data: Octets
    columns: tuple[FlatColumn, ...]
    counts: int | Places | None
    copy: bool


class BlockColumn(Protocol):
    """The values of one leaf in the examples of a block."""

    @property
    def row_bytes(self) -> int:
        """Approximate number of bytes that ``rows`` allocates for each value."""

    def array(self, stop: int) -> npt.NDArray[Any]:
        """The values of the first ``stop`` examples, along the first dimension."""

    def rows(self, start: int, stop: int) -> list[Any]:
        """The values of examples ``start``..``stop``. They share no memory with the results of other calls."""


class LabelNames(Protocol):
    """A ``ClassLabel``, as other features see it."""

    @property
    def names(self) -> Any:
        """The names of the classes, or None."""

    @property
    def num_classes(self) -> int | None:
        """The number of classes; 0 if it is not known yet."""


@dataclass(frozen=True, slots=True)
class Part:
    """One flat value of a leaf.

    Attributes:
        suffix: appended to the feature's path to form the key in the record.
        kind: which list of a tf.train.Feature holds it.
        size: number of entries for one value; None if it differs.
    """

    suffix: str
    kind: WireKind
    size: int | None


class Leaf(Feature, ABC):
    """A feature that stores values itself: it converts a value to one flat value per part, and back."""

    @property
    @abstractmethod
    def parts(self) -> tuple[Part, ...]:
        """The stored flat values, in the order in which ``flatten`` returns them."""

    @abstractmethod
    def flatten(self, value: Any, path: str) -> tuple[FlatValue, ...]:
        """Convert one value to its flat values, one for each of ``parts``.

        Args:
            value: the value as a builder gives it.
            path: the feature's path, for errors.

        Raises:
            FeatureError: the value does not fit the feature.
        """

    @abstractmethod
    def restore(self, flat: tuple[FlatValue, ...], count: int | None, path: str) -> Any:
        """Convert flat values back to a value; with ``count``, to an array of ``count`` values along a new dimension 0.

        The caller has checked that ``flat`` has the kinds of ``parts``; this method checks the sizes.

        Args:
            flat: a flat value for each of ``parts``.
            count: number of values, or None for a single one.
            path: the feature's path, for errors.

        Raises:
            CorruptExampleError: the flat values do not fit the feature; the error names ``path``.
        """

    @property
    def may_be_absent(self) -> bool:
        """Whether a value may be None, which stores nothing. This only applies outside Sequences."""
        return False

    @property
    def may_read_none(self) -> bool:
        """Whether a missing value is read as None, and as a masked entry of a column."""
        return False

    @property
    def decodes_files(self) -> bool:
        """Whether a value takes long to decode, and ``restore_block`` uses all cores."""
        return False

    @property
    def reads_views(self) -> bool:
        """Whether ``restore`` also accepts memoryviews in place of bytes, and returns a view of them for one value."""
        return False

    @property
    def class_label(self) -> LabelNames | None:
        """The ClassLabel of the feature, whose names are in a file next to the records; None if it has no label."""
        return None

    @property
    def limits(self) -> str:
        """What values must be, besides their dtype and shape, e.g. ``in 0..9``; empty if every value is allowed."""
        return ""

    def outside(self, values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Which values are outside ``limits``.

        Args:
            values: an array of values along the first dimension; of their elements if their shapes differ.

        Returns:
            A mask for the first dimension, or for every element.
        """
        return np.zeros(len(values), np.bool_)

    def with_label_names(self, names: tuple[str, ...]) -> Self:  # noqa: ARG002
        """A copy of this feature whose ``class_label`` has ``names`` for its classes."""
        return self

    def with_decoding(self, decoding: Any, path: str) -> Self:  # noqa: ARG002
        """A copy of this feature that decodes its images by ``decoding``.

        Args:
            decoding: an ``ImageDecoding``.
            path: the path of the feature, for messages.

        Raises:
            FeatureError: it is not an image, or cannot be decoded in this way.
        """
        raise feature_fault(path, f"it is a {type(self).__name__}, and only images can be scaled and cropped")

    def restore_absent(self) -> Any:
        """The value that a missing value decodes to."""
        raise NotImplementedError(type(self).__name__)

    def restore_block(self, parts: BlockParts, path: str) -> BlockColumn | None:  # noqa: ARG002
        """Convert the flat values of a block of records to a column, equal to ``restore`` of each record.

        Returns None if the records have to be restored one by one: because the feature cannot do it in a block, or
        because a record may be damaged, so that ``restore`` reports the fault.

        Args:
            parts: the flat values of all records, for each of ``parts``.
            path: the feature's path.
        """
        return None

    def restore_content(self, flat: tuple[FlatValue, ...], count: int | None, path: str) -> Any:
        """The value by which two records are compared.

        It is the decoded value, or the stored bytes if decoders on different machines return different values.

        Args:
            flat: a flat value for each of ``parts``.
            count: number of values, or None for a single one.
            path: the feature's path, for errors.
        """
        return self.restore(flat, count, path)

    def flatten_many(self, values: Sequence[Any] | npt.NDArray[Any], path: str) -> tuple[FlatValue, ...]:
        """Convert several values to their flat values, one after the other.

        Args:
            values: values as a builder gives them.
            path: the feature's path, for errors.

        Raises:
            FeatureError: a value does not fit the feature.
        """
        columns = [self.flatten(value, path) for value in values]
        return tuple(
            _concatenate([column[place] for column in columns], part.kind) for place, part in enumerate(self.parts)
        )

    def flatten_block(
        self,
        values: Sequence[Any] | npt.NDArray[Any],  # noqa: ARG002 - used by subclasses
        path: str,  # noqa: ARG002
    ) -> tuple[tuple[FlatValue, Counts], ...] | None:
        """Convert the values of many examples to their flat values, if they have the same form.

        A subclass that overrides ``flatten`` or ``flatten_many`` must also override this method; otherwise it is not
        used.

        Args:
            values: values as a builder gives them; at least one.
            path: the feature's path.

        Returns:
            For each of ``parts``, the flat values one after the other, and the number of entries of each value. None if
            the values have to be converted one by one: because the feature cannot do it at once, because their forms
            differ so that the result might, or because a value may not fit, so that ``flatten`` reports it.
        """
        return None


def _shown(name: str, value: Any) -> str:
    """The option ``name`` in a feature's repr; a long tuple, such as the names of a label, is shortened."""
    if name == "dtype":
        return "text" if value == "string" else str(value)
    if isinstance(value, tuple) and len(value) > 12:
        return f"({', '.join(map(repr, value[:10]))}, ... {len(value)} in all)"
    return repr(value)


def empty_flat(kind: WireKind) -> FlatValue:
    """A flat value without entries."""
    return [] if kind == "bytes" else np.empty(0, np.int64 if kind == "int64" else np.float32)


def stack_values(values: list[npt.NDArray[Any]], shape: Shape, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """One array of all values along a new first dimension; a 1-d object array of arrays if their shapes differ."""
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
    """Whether ``value`` is a file: its bytes, its path, or an open file."""
    return isinstance(value, (str, bytes, os.PathLike)) or hasattr(value, "read")


def file_bytes(value: Any, path: str) -> bytes | None:
    """The bytes of the file ``value``; None if ``value`` is not a file.

    Raises:
        FeatureError: the file cannot be read, is larger than 1 GiB, or was opened as text; it names ``path``.
    """
    if isinstance(value, bytes):
        return value
    if isinstance(value, (str, os.PathLike)):
        file = Path(value)
        try:
            size = file.stat().st_size
            data = file.read_bytes() if size <= _MAX_FILE else b""
        except (OSError, ValueError) as error:
            raise feature_fault(path, f"cannot read {file}: {error}") from error
        if size > _MAX_FILE:
            raise feature_fault(path, f"expected a file of at most {_MAX_FILE} bytes, {file} has {size}")
        return data
    if not hasattr(value, "read"):
        return None
    data = value.read(_MAX_FILE)
    if not isinstance(data, bytes):
        raise feature_fault(
            path, "expected a binary file, found one that was opened as text", "Open it with mode 'rb'."
        )
    return data


def take_files(flat: tuple[FlatValue, ...], count: int | None, noun: str, path: str) -> FlatValue:
    """The files of a leaf that stores one file for each value.

    Raises:
        CorruptExampleError: the number of files is not ``count``.
    """
    files, expected = flat[0], 1 if count is None else count
    if len(files) != expected:
        raise corrupt_fault(path, f"expected {expected} {noun}, found {len(files)}")
    return files


def is_text(value: Any) -> bool:
    """Whether ``value`` is non-empty text that UTF-8 can encode, that is, without half surrogate pairs."""
    try:
        return isinstance(value, str) and bool(value.encode())
    except UnicodeEncodeError:
        return False


def feature_fault(path: str, problem: str, hint: str | None = None) -> FeatureError:
    """The error for a value that does not fit the feature at ``path``, or for an invalid feature."""
    return FeatureError(f"feature {path!r}: {problem}" if path else problem, hint=hint, details={"feature": path})


def corrupt_fault(
    path: str,
    problem: str,
    hint: str = "The record does not match features.json. `registry verify --deep` checks every record.",
) -> CorruptExampleError:
    """The error for a record that does not hold valid values of the feature at ``path``."""
    return CorruptExampleError(
        f"feature {path!r}: {problem}",
        hint=hint,
        details={"feature": path, "problem": problem},
    )


def _concatenate(values: list[FlatValue], kind: WireKind) -> FlatValue:
    if kind == "bytes":
        return [item for value in values for item in value]
    return np.concatenate(values) if values else empty_flat(kind)


@dataclass(frozen=True, kw_only=True, repr=False)
class RawFeature(Leaf):
    """A feature whose class, or whose form in features.json, is unknown. It can be read but not written.

    It decodes to the stored values: an int64 or float32 array, or an object array of ``bytes``. If the record has no
    value under the feature's own key, it decodes to a dict of the values under each ``key/suffix``, by suffix; the dict
    may be empty.

    Attributes:
        class_name: the name of its Python class, from TFDS or another package.
        node: its object in features.json, which is written back unchanged.
    """

    class_name: str
    node: Mapping[str, Any] = field(hash=False, repr=False)
    shape: Shape = field(default=(None,), init=False)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of text and bytes."""
        return np.dtype(TEXT)

    @property
    def parts(self) -> tuple[Part, ...]:
        """Empty, because its parts are unknown."""
        return ()

    def flatten(self, value: Any, path: str) -> NoReturn:  # noqa: ARG002 - as every leaf
        """Raises FeatureError."""
        raise feature_fault(
            path,
            f"cannot encode values of the unknown feature class {self.class_name!r:.200}",
            "Declare it as a known feature, e.g. registry.features.Tensor(shape=(None,), dtype='float32').",
        )

    def flatten_many(self, values: Any, path: str) -> NoReturn:
        """Raises FeatureError."""
        self.flatten(values, path)

    def restore(self, flat: tuple[FlatValue, ...], count: int | None, path: str) -> NoReturn:
        """Not available, because its parts are unknown: ``take`` reads it."""
        raise NotImplementedError(path)

    def take(self, flat: Mapping[str, FlatValue], path: str, others: frozenset[str]) -> Any:
        """Return the values that a record holds for this feature: an array, or a dict of arrays.

        Args:
            flat: the flat values of one record by key.
            path: the feature's path: its key, or the first part of its keys.
            others: the keys of known features, which are left out.
        """
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
    """Describe ``FeaturesDict.unknown_features()`` in a message. Returns None if all features are known.

    >>> describe_unknown({"video": "lab.features.Lidar"})
    "the class of feature 'video' (lab.features.Lidar) is unknown: its stored values are returned unchanged"
    """
    if not unknown:
        return None
    named = [f"{path!r} ({class_name[:80]})" for path, class_name in list(unknown.items())[:3]]
    if len(unknown) == 1:
        return f"the class of feature {named[0]} is unknown: its stored values are returned unchanged"
    more = f" and {len(unknown) - len(named)} more" if len(unknown) > len(named) else ""
    return f"the classes of features {', '.join(named)}{more} are unknown: their stored values are returned unchanged"
