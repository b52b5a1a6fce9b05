"""Decoders of tf.train.Examples and SequenceExamples: they parse declared features, and handlers turn them into items.

It has all names of ``tf_slim.data.tfexample_decoder``: decoders, handlers, and the declarations of features.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from registry.errors import CorruptExampleError, FeatureNotFoundError, RegistryError, UsageError, at_record
from registry.slim.boxes import BoundingBox, BoundingBoxSequence, KeypointsSequence, NumBoxesSequence
from registry.slim.data_decoder import DataDecoder, as_block, check_record, stack_items
from registry.slim.feature_specs import (
    FeatureSpec,
    FixedLenFeature,
    FixedLenSequenceFeature,
    SparseFeature,
    SparseTensorValue,
    VarLenFeature,
    check_features,
    check_mapping,
)
from registry.slim.image_handler import Image
from registry.slim.item_handlers import (
    BackupHandler,
    ItemHandler,
    ItemHandlerCallback,
    LookupTensor,
    SparseTensor,
    Tensor,
    item_rows,
    make_item,
)
from registry.slim.parsing import Column, check_kinds, parse_block, parse_feature, parse_steps, stored_keys
from registry.tfrecord import RecordBlock
from registry.wire import BlockDecoder, FlatValue, decode_features, decode_sequence_example

__all__ = [
    "BackupHandler",
    "BoundingBox",
    "BoundingBoxSequence",
    "FixedLenFeature",
    "FixedLenSequenceFeature",
    "Image",
    "ItemHandler",
    "ItemHandlerCallback",
    "KeypointsSequence",
    "LookupTensor",
    "NumBoxesSequence",
    "SparseFeature",
    "SparseTensor",
    "SparseTensorValue",
    "TFExampleDecoder",
    "TFSequenceExampleDecoder",
    "Tensor",
    "VarLenFeature",
]

_MIN_VECTORIZED: Final = 4
"""Fewer records are decoded one by one, which costs less."""


class _HandlerDecoder(DataDecoder):
    """The base of both decoders: it checks the handlers and calls them."""

    def __init__(self, features: Mapping[str, FeatureSpec], items_to_handlers: Mapping[str, ItemHandler]) -> None:
        check_mapping("items_to_handlers", items_to_handlers)
        for item, handler in items_to_handlers.items():
            if not isinstance(handler, ItemHandler):
                raise UsageError(
                    f"the handler of item {item!r:.80} must be an ItemHandler, not {handler!r:.200}",
                    hint="For example: {'label': Tensor('image/class/label')}.",
                )
        self._features = dict(features)
        self._handlers = dict(items_to_handlers)

    def list_items(self) -> list[str]:
        """The names of the items, in the order of their handlers."""
        return list(self._handlers)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {', '.join(self._handlers)}>"

    def _keys_of(self, items: Sequence[str]) -> list[str]:
        """The features that the items need. Raises FeatureNotFoundError if one is not declared."""
        keys = dict.fromkeys(key for item in items for key in self._handlers[item].keys)
        for key in keys:
            if key not in self._features:
                user = next(item for item in items if key in self._handlers[item].keys)
                raise FeatureNotFoundError.of(
                    key, self._features, where=f"the features of this decoder, which item {user!r} needs"
                )
        return list(keys)

    def _make_items(self, items: Sequence[str], parsed: Mapping[str, Any]) -> list[Any]:
        return [
            make_item(item, handler, {key: parsed[key] for key in handler.keys})
            for item, handler in ((item, self._handlers[item]) for item in items)
        ]


class TFExampleDecoder(_HandlerDecoder):
    """Decodes records that are tf.train.Examples.

    Args:
        keys_to_features: the declaration of each feature: FixedLenFeature, VarLenFeature, SparseFeature, or
            FixedLenSequenceFeature with ``allow_missing=True``, of this package or of TensorFlow.
        items_to_handlers: the handler of each item.
        lazy: parse only the features of the requested items. This is faster if there are many features. A record that
            lacks another feature, or stores it with another dtype, is then not an error.

    Raises:
        UsageError: a declaration is not one of these, or a handler is not an ItemHandler.
        WrongTypeError: an argument is not a dict.

    >>> decoder = TFExampleDecoder({"label": FixedLenFeature((), "int64")}, {"class": Tensor("label")})
    >>> from registry.wire import encode_example
    >>> decoder.decode(encode_example({"label": np.array([7])}), ["class"])
    [np.int64(7)]
    """

    def __init__(
        self, keys_to_features: Mapping[str, Any], items_to_handlers: Mapping[str, ItemHandler], *, lazy: bool = False
    ) -> None:
        allowed = (FixedLenFeature, VarLenFeature, SparseFeature, FixedLenSequenceFeature)
        super().__init__(check_features(keys_to_features, allowed), items_to_handlers)
        for key, spec in self._features.items():
            if isinstance(spec, FixedLenSequenceFeature) and not spec.allow_missing:
                raise UsageError(
                    f"feature {key!r} is a FixedLenSequenceFeature, which requires allow_missing=True in an Example",
                    hint="In an Example, an empty list and a missing list are the same. Add allow_missing=True.",
                )
        self._lazy = lazy
        self._local = _BlockDecoders()

    def decode(self, data: bytes, items: Sequence[str] | None = None) -> list[Any]:
        """The values of ``items`` in one record, in that order, with repetitions; of all items if None or empty.

        Values are arrays of numbers, object arrays of ``bytes``, NumPy scalars or ``bytes`` for single values, and
        ``SparseTensorValue``.

        Raises:
            CorruptExampleError: the record is not a tf.train.Example, or does not hold the declared features.
            ItemNotFoundError: there is no such item (a KeyError and a ValueError).
            FeatureNotFoundError: a handler needs a feature that is not declared (a KeyError).
            WrongTypeError: ``data`` is not bytes, or ``items`` not a list or tuple.
        """
        items = self.check_items(items)
        used = self._keys_of(items)
        values = decode_features(check_record(data))
        parsed: dict[str, Any] = {}
        for key, spec in self._wanted(used).items():
            if key in used or not isinstance(spec, SparseFeature):
                parsed[key] = parse_feature(key, spec, values)
            else:
                check_kinds(spec, values)
        return self._make_items(items, parsed)

    def declared_keys(self) -> list[str]:
        """The keys of the features, including the index and value keys of SparseFeatures."""
        return stored_keys(self._features)

    def stored_keys(self, data: bytes) -> Collection[str]:
        """The keys of the features in a record. Raises CorruptExampleError if it is not a tf.train.Example."""
        return decode_features(check_record(data)).keys()

    def decode_rows(self, block: RecordBlock, items: Sequence[str]) -> Iterator[list[Any]]:
        """The result of ``decode`` for each record of a block; features are parsed for all records at once."""
        if block.num_records < _MIN_VECTORIZED:
            yield from super().decode_rows(block, items)
            return
        items = self.check_items(items)
        columns = self._parse(block, items)
        if columns is None:
            yield from super().decode_rows(block, items)
            return
        rows = [_placed(self._item_rows(item, columns, block.num_records)) for item in items]
        yield from map(list, zip(*rows, strict=True)) if items else ([] for _ in range(block.num_records))

    def decode_batch(self, records: RecordBlock | Sequence[bytes], items: Sequence[str] | None = None) -> list[Any]:
        """``DataDecoder.decode_batch``, with features parsed for all records at once."""
        block = as_block(records)
        items = self.check_items(items)
        columns = self._parse(block, items) if block.num_records >= _MIN_VECTORIZED else None
        if columns is None:
            return super().decode_batch(block, items)
        result = {}
        try:
            for item in dict.fromkeys(items):
                rows = self._item_rows(item, columns, block.num_records)
                result[item] = rows if isinstance(rows, np.ndarray) else stack_items(list(rows))
        except RegistryError:
            return super().decode_batch(block, items)  # reports the first damaged record
        if any(len(column) != block.num_records for column in result.values()):
            return super().decode_batch(block, items)
        return [result[item] for item in items]

    def _wanted(self, used: Sequence[str]) -> Mapping[str, FeatureSpec]:
        """The features to parse: the ``used`` ones with ``lazy``, otherwise all."""
        return {key: self._features[key] for key in used} if self._lazy else self._features

    def _parse(self, block: RecordBlock, items: Sequence[str]) -> dict[str, Column] | None:
        """The columns that the items need; None if the records have to be decoded one by one."""
        used = self._keys_of(items)
        wanted = self._wanted(used)
        try:
            return parse_block(block, wanted, self._local.decoder_of(wanted), used=used)
        except CorruptExampleError:
            return None

    def _item_rows(self, item: str, columns: Mapping[str, Column], num_records: int) -> Iterable[Any]:
        handler = self._handlers[item]
        return item_rows(item, handler, {key: columns[key] for key in handler.keys}, num_records)


class TFSequenceExampleDecoder(_HandlerDecoder):
    """Decodes records that are tf.train.SequenceExamples.

    Args:
        keys_to_context_features: the declaration of each feature of the whole record: FixedLenFeature or VarLenFeature.
        keys_to_sequence_features: the declaration of each list of steps: FixedLenSequenceFeature or VarLenFeature.
        items_to_handlers: the handler of each item.
        lazy: parse only the features of the requested items. Errors in other features are then not detected.

    Raises:
        UsageError: a key is in both dicts, a declaration is not one of these, or a handler is not an ItemHandler.
        WrongTypeError: an argument is not a dict.
    """

    def __init__(
        self,
        keys_to_context_features: Mapping[str, Any],
        keys_to_sequence_features: Mapping[str, Any],
        items_to_handlers: Mapping[str, ItemHandler],
        *,
        lazy: bool = False,
    ) -> None:
        both = [key for key in keys_to_context_features if key in keys_to_sequence_features]
        if both:
            raise UsageError(
                f"context and sequence keys must be unique, found in both: {', '.join(map(repr, both))}",
                hint="A handler identifies a feature by its key. Declare each feature once, where it is stored.",
            )
        self._context = check_features(keys_to_context_features, (FixedLenFeature, VarLenFeature))
        self._sequence = check_features(keys_to_sequence_features, (FixedLenSequenceFeature, VarLenFeature))
        super().__init__({**self._context, **self._sequence}, items_to_handlers)
        self._lazy = lazy

    def decode(self, data: bytes, items: Sequence[str] | None = None) -> list[Any]:
        """The values of ``items`` in one record, in that order, with repetitions; of all items if None or empty.

        A FixedLenSequenceFeature is an array (steps, *shape). A VarLenFeature of the sequence is a
        ``SparseTensorValue`` of the shape [steps, maximum number of values in a step].

        Raises:
            CorruptExampleError: the record is not a tf.train.SequenceExample, or does not hold the declared features.
            ItemNotFoundError: there is no such item (a KeyError and a ValueError).
            FeatureNotFoundError: a handler needs a feature that is not declared (a KeyError).
            WrongTypeError: ``data`` is not bytes, or ``items`` not a list or tuple.
        """
        items = self.check_items(items)
        used = self._keys_of(items)
        values = decode_sequence_example(check_record(data))
        parsed: dict[str, Any] = {}
        for key in used if self._lazy else self._features:
            if key in self._context:
                parsed[key] = self._parse_context(key, values.context)
            else:
                parsed[key] = parse_steps(key, self._sequence[key], values.lists.get(key))
        return self._make_items(items, parsed)

    def declared_keys(self) -> list[str]:
        """The keys of the features and of the feature lists."""
        return list(self._features)

    def stored_keys(self, data: bytes) -> Collection[str]:
        """The keys of the features and feature lists in a record; CorruptExampleError if it is damaged."""
        values = decode_sequence_example(check_record(data))
        return values.context.keys() | values.lists.keys()

    def _parse_context(self, key: str, values: Mapping[str, FlatValue | None]) -> Any:
        spec = self._context[key]
        if isinstance(spec, FixedLenFeature) and values.get(key, ()) is None:
            raise CorruptExampleError(
                f"feature {key!r} of the context is present, but has no list of values",
                hint="If a record has no value for it, leave its key out of the context.",
                details={"feature": key},
            )
        return parse_feature(key, spec, values)


class _BlockDecoders(threading.local):
    """The block decoders by the keys that they read. Each thread has its own, because they remember record layouts."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], BlockDecoder] = {}

    def decoder_of(self, features: Mapping[str, FeatureSpec]) -> BlockDecoder:
        """The decoder that reads these features."""
        keys = tuple(features)
        if keys not in self._known:
            self._known[keys] = BlockDecoder(stored_keys(features))
        return self._known[keys]

    def __reduce__(self) -> tuple[Any, ...]:
        return _BlockDecoders, ()


def _placed(rows: Iterable[Any]) -> Iterator[Any]:
    """The same rows; a CorruptExampleError gets the index of its record."""
    if isinstance(rows, np.ndarray | list):
        yield from rows
        return
    given, place = iter(rows), 0
    while True:
        try:
            row = next(given)
        except StopIteration:
            return
        except CorruptExampleError as error:
            raise at_record(error, place) from error
        yield row
        place += 1
