"""Converts a reader for TensorFlow: a generator yields blocks, and TensorFlow splits them into examples.

A leaf of one shape is one dense tensor of a block. Any other leaf is a flat tensor of all values with the offset of
each example; TensorFlow cuts it and restores the shapes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from registry.errors import UsageError
from registry.features import Dataset, FeaturesDict, RawFeature
from registry.features.containers import Column, columns_of
from registry.features.feature import TEXT
from registry.reading.frameworks.arrays import no_examples, read_features, values_of

if TYPE_CHECKING:
    from registry.reading.examples import ExampleReader


def read_dataset(reader: ExampleReader, *, batch_size: int | None, drop_remainder: bool) -> tf.data.Dataset:
    """The examples as a tf.data.Dataset; see ``Reader.to_tf_dataset``."""
    features = read_features(reader)
    _refuse_optional(features)
    leaves = [_form_of(leaf) for leaf in columns_of(features) if not isinstance(leaf.leaf, RawFeature)]
    others = [form.leaf.path for form in leaves if not isinstance(form, _Dense)]
    if batch_size is not None and others:
        raise UsageError(
            f"feature {others[0]!r} differs in shape from example to example, so a batch of it is not a tensor",
            hint="Leave batch_size out, and write reader.to_tf_dataset().ragged_batch(32), or .padded_batch(32).",
            details={"feature": others[0]},
        )
    tree = _without_raw(no_examples(features), iter(columns_of(features)))
    epochs = count()

    def blocks() -> Iterator[tuple[npt.NDArray[Any], ...]]:
        for columns in _iterate(reader.reopened(), next(epochs), batch_size, drop_remainder=drop_remainder):
            yield tuple(array for form in leaves for array in form.arrays(values_of(form.leaf.names, columns)))

    signature = tuple(spec for form in leaves for spec in form.specs)
    result = tf.data.Dataset.from_generator(blocks, output_signature=signature)
    if others:
        result = result.flat_map(lambda *block: _examples(leaves, block).map(lambda *flat: _nest(tree, iter(flat))))
    else:
        result = result.map(lambda *flat: _nest(tree, iter(flat)))
        result = result if batch_size is not None else result.unbatch()
    number = _num_items(reader, batch_size, drop_remainder=drop_remainder)
    return result.apply(tf.data.experimental.assert_cardinality(number)).prefetch(tf.data.AUTOTUNE)


class _Dense:
    """A leaf that has one shape in all examples."""

    def __init__(self, leaf: Column) -> None:
        self.leaf = leaf
        self.specs = [tf.TensorSpec((None, *leaf.lengths, *leaf.leaf.shape), _dtype(leaf))]

    def arrays(self, column: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
        """The arrays that the generator yields for a block."""
        return [_with_bytes(column)]

    def example(self, parts: list[Any], place: Any) -> Any:
        """The tensor of example ``place``."""
        return parts[0][place]


class _Shaped:
    """A leaf that differs in shape: all values, the offset of each example, and the shapes."""

    def __init__(self, leaf: Column) -> None:
        if (
            Dataset.word in leaf.words and None in leaf.leaf.shape
        ):  # no other framework stacks the examples of a Dataset
            raise UsageError(
                f"feature {leaf.path!r} belongs to the examples of a Dataset and may differ in shape, so TensorFlow "
                "cannot stack them",
                hint="Iterate over the reader, which yields these examples one by one; or declare their common shape.",
                details={"feature": leaf.path},
            )
        self.leaf = leaf
        self._shape = (*leaf.lengths, *leaf.leaf.shape)
        self.specs = [tf.TensorSpec((None,), _dtype(leaf)), _NUMBERS, tf.TensorSpec((None, len(self._shape)), tf.int64)]

    def arrays(self, column: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
        """The arrays that the generator yields for a block."""
        for value in column:
            if value.ndim != len(self._shape):
                raise UsageError(
                    f"feature {self.leaf.path!r}: the sequence of an example has values that differ in shape, "
                    "which TensorFlow cannot stack",
                    details={"feature": self.leaf.path},
                )
        shapes = np.array([value.shape for value in column], np.int64)
        values = np.concatenate([value.reshape(-1) for value in column])
        return [_with_bytes(values), _starts(shapes.prod(axis=1)), shapes]

    def example(self, parts: list[Any], place: Any) -> Any:
        """The tensor of example ``place``."""
        values, starts, shapes = parts
        return tf.ensure_shape(tf.reshape(values[starts[place] : starts[place + 1]], shapes[place]), self._shape)


class _Nested:
    """A Sequence of Sequences: all values, and for each level the row lengths of all examples."""

    def __init__(self, leaf: Column) -> None:
        if None in leaf.leaf.shape:
            raise UsageError(
                f"feature {leaf.path!r} is ragged and its values differ in shape: TensorFlow has no tensor for that",
                details={"feature": leaf.path},
            )
        self.leaf = leaf
        self.specs = [tf.TensorSpec((None, *leaf.leaf.shape), _dtype(leaf)), _NUMBERS]
        self.specs += [_NUMBERS] * (2 * (len(leaf.lengths) - 1))

    def arrays(self, column: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
        """The arrays that the generator yields for a block."""
        rows = [value.flat_values for value in column]
        result = [_with_bytes(np.concatenate(rows)), _starts([len(row) for row in rows])]
        for levels in zip(*[value.row_lengths for value in column], strict=True):
            result += [np.concatenate(levels), _starts([len(level) for level in levels])]
        return result

    def example(self, parts: list[Any], place: Any) -> Any:
        """The RaggedTensor of example ``place``."""
        values, *lengths = [
            part[starts[place] : starts[place + 1]] for part, starts in zip(parts[::2], parts[1::2], strict=True)
        ]
        return tf.RaggedTensor.from_nested_row_lengths(values, lengths, validate=False)


def _refuse_optional(features: FeaturesDict) -> None:
    """Refuse a feature that may be None; the hint shows how to choose a value."""
    optional = {
        column.path: "''" if column.leaf.dtype == TEXT else 0 for column in columns_of(features) if column.may_read_none
    }
    for path, value in optional.items():
        raise UsageError(
            f"feature {path!r} is optional: its value may be None, which a tensor cannot represent",
            hint=f"Choose a value for None: reader.fill_missing({{{path!r}: {value}}}), or TFDS's value, with "
            "reader.missing_as_tfds(). Or leave the feature out, with reader.select(...).",
            details={"feature": path, "optional": list(optional)[:100]},
        )


_NUMBERS = tf.TensorSpec((None,), tf.int64)


def _form_of(leaf: Column) -> _Dense | _Shaped | _Nested:
    if len(leaf.lengths) > 1:
        return _Nested(leaf)
    return _Shaped(leaf) if None in (*leaf.lengths, *leaf.leaf.shape) else _Dense(leaf)


def _examples(leaves: list[Any], block: tuple[Any, ...]) -> tf.data.Dataset:
    """The examples of a block, each as the tensors of its leaves."""

    def example(place: Any) -> tuple[Any, ...]:
        parts = iter(block)
        return tuple(form.example([next(parts) for _ in form.specs], place) for form in leaves)

    dense = next((at for at, form in enumerate(leaves) if isinstance(form, _Dense)), None)
    first = sum(len(form.specs) for form in leaves[:dense]) if dense is not None else 1
    size = tf.shape(block[first], tf.int64)[0] - (0 if dense is not None else 1)
    return tf.data.Dataset.range(size).map(example)


def _iterate(
    reader: ExampleReader, iteration: int, batch_size: int | None, *, drop_remainder: bool
) -> Iterator[dict[str, Any]]:
    """The blocks or batches of iteration number ``iteration``, which reads the epochs after the one before."""
    repeat = reader.read_config.repeat
    for epoch in count(iteration) if repeat is None else range(iteration * repeat, (iteration + 1) * repeat):
        if not len(reader):
            return
        reader.seek(epoch)
        if batch_size is None:
            yield from reader.blocks()
        else:
            yield from reader.batches(batch_size, drop_remainder=drop_remainder)


def _num_items(reader: ExampleReader, batch_size: int | None, *, drop_remainder: bool) -> int:
    size = batch_size or 1
    per_epoch = len(reader) // size if drop_remainder else -(-len(reader) // size)
    if reader.read_config.repeat is None and per_epoch:
        return int(tf.data.INFINITE_CARDINALITY)
    return per_epoch * (reader.read_config.repeat or 1)


def _nest(tree: Any, flat: Iterator[Any]) -> Any:
    return {name: _nest(inner, flat) for name, inner in tree.items()} if isinstance(tree, dict) else next(flat)


def _without_raw(tree: Any, leaves: Iterator[Column]) -> Any:
    """``tree`` without features of unknown kinds, whose values have no type."""
    if not isinstance(tree, dict):
        return None if isinstance(next(leaves).leaf, RawFeature) else tree
    result = {name: _without_raw(inner, leaves) for name, inner in tree.items()}
    return {name: inner for name, inner in result.items() if inner is not None}


def _dtype(leaf: Column) -> Any:
    return tf.string if leaf.leaf.dtype == TEXT else tf.as_dtype(leaf.leaf.dtype)


def _with_bytes(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """``array`` with ``bytes`` in place of views of mapped files, which a reader with ``copy=False`` gives."""
    if array.dtype != TEXT or not array.size or isinstance(array.flat[0], bytes):
        return array
    return np.fromiter(map(bytes, array.flat), object, array.size).reshape(array.shape)


def _starts(lengths: Any) -> npt.NDArray[np.int64]:
    starts = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    return starts
