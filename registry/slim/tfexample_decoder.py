"""Decoders of tf.train.Examples and SequenceExamples: features are parsed as declared, and handlers make items of them.

The names of ``tf_slim.data.tfexample_decoder`` are all here: decoders, handlers, and the features they declare.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from registry.errors import CorruptExampleError, FeatureNotFoundError, RegistryError, UsageError
from registry.features.codec import at_record
from registry.slim.boxes import BoundingBox, BoundingBoxSequence, KeypointsSequence, NumBoxesSequence
from registry.slim.data_decoder import DataDecoder, as_block, check_record, stack_each
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
from registry.slim.parsing import (
    Column,
    NeedsRowParsing,
    check_kinds,
    parse_block,
    parse_feature,
    parse_steps,
    stored_keys,
)
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
    """What both decoders do with handlers."""

    def __init__(self, features: Mapping[str, FeatureSpec], items_to_handlers: Mapping[str, ItemHandler]) -> None:
        check_mapping("items_to_handlers", items_to_handlers)
        for item, handler in items_to_handlers.items():
            if not isinstance(handler, ItemHandler):
                raise UsageError(
                    f"item {item!r:.80} has {handler!r:.200}, which is no ItemHandler",
                    hint="e.g. {'label': Tensor('image/class/label')}.",
                )
        self._features = dict(features)
        self._handlers = dict(items_to_handlers)

    def list_items(self) -> list[str]:
        """The names of the items, in the order in which their handlers were given."""
        return list(self._handlers)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {', '.join(self._handlers)}>"

    def inflates(self, items: Sequence[str]) -> bool:
        """Whether the handler of one of the items says so, or makes an array of a sparse feature."""
        keys = [key for item in items for key in self._handlers[item].keys]
        is_sparse = any(isinstance(self._features.get(key), SparseFeature) for key in keys)
        return is_sparse or any(self._handlers[item].inflates for item in items)

    def _keys_of(self, items: Sequence[str]) -> list[str]:
        """The features that the items are made of; FeatureNotFoundError for one that is not declared."""
        keys = dict.fromkeys(key for item in items for key in self._handlers[item].keys)
        for key in keys:
            if key not in self._features:
                user = next(item for item in items if key in self._handlers[item].keys)
                raise FeatureNotFoundError.of(
                    key, self._features, where=f"the features of this decoder, which item {user!r} is made of"
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
        keys_to_features: how each feature is stored: FixedLenFeature, VarLenFeature, SparseFeature, or
            FixedLenSequenceFeature with ``allow_missing=True``; TensorFlow's own will do, too.
        items_to_handlers: what makes each item.
        lazy: whether only the features of the items that are asked for are parsed. That is faster where there are many;
            and a record that lacks another feature, or holds it in another kind, is not an error then.

    Raises:
        UsageError: a feature that cannot be declared, or something else as a handler.

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
                    f"feature {key!r} is a FixedLenSequenceFeature, which in an Example needs allow_missing=True",
                    hint="In an Example an empty list and a missing one are the same.",
                )
        self._lazy = lazy
        self._local = _BlockDecoders()

    def decode(self, data: bytes, items: Sequence[str] | None = None) -> list[Any]:
        """The values of ``items`` in one record, in that order, repeats included; of all items if None or empty.

        Arrays of numbers, object arrays of ``bytes``, numpy scalars and ``bytes`` for single values, and
        ``SparseTensorValue``.

        Raises:
            CorruptExampleError: the record is no tf.train.Example, or does not hold what was declared.
            ItemNotFoundError: no such item (a KeyError, and a ValueError).
            FeatureNotFoundError: a handler needs a feature that is not declared (a KeyError).
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
        """The keys of the features, and those of which SparseFeatures are made."""
        return stored_keys(self._features)

    def stored_keys(self, data: bytes) -> Collection[str]:
        """The keys of the features that a record holds. Errors as ``decode``."""
        return decode_features(check_record(data)).keys()

    def decode_rows(self, block: RecordBlock, items: Sequence[str]) -> Iterator[list[Any]]:
        """What ``decode`` gives for each record of a block; features are parsed for all of them at once."""
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
        """As ``DataDecoder.decode_batch``; features are parsed for all records at once."""
        block = as_block(records)
        items = self.check_items(items)
        columns = self._parse(block, items) if block.num_records >= _MIN_VECTORIZED else None
        if columns is None:
            return super().decode_batch(block, items)
        made = {}
        try:
            for item in dict.fromkeys(items):
                rows = self._item_rows(item, columns, block.num_records)
                made[item] = rows if isinstance(rows, np.ndarray) else stack_each(iter(rows), block.num_records)
        except RegistryError:
            return super().decode_batch(block, items)  # which tells of the first record that is at fault
        return [made[item] for item in items]

    def _wanted(self, used: Sequence[str]) -> Mapping[str, FeatureSpec]:
        """The features that are parsed, where ``used`` ones are needed."""
        return {key: self._features[key] for key in used} if self._lazy else self._features

    def _parse(self, block: RecordBlock, items: Sequence[str]) -> dict[str, Column] | None:
        """The columns that the items need; None where records have to be decoded one by one."""
        used = self._keys_of(items)
        wanted = self._wanted(used)
        try:
            return parse_block(block, wanted, self._local.decoder_of(wanted), used=used)
        except NeedsRowParsing:
            return None

    def _item_rows(self, item: str, columns: Mapping[str, Column], num_records: int) -> Iterable[Any]:
        handler = self._handlers[item]
        return item_rows(item, handler, {key: columns[key] for key in handler.keys}, num_records)


class TFSequenceExampleDecoder(_HandlerDecoder):
    """Decodes records that are tf.train.SequenceExamples.

    Args:
        keys_to_context_features: features of the whole record: FixedLenFeature or VarLenFeature.
        keys_to_sequence_features: lists of steps: FixedLenSequenceFeature or VarLenFeature.
        items_to_handlers: what makes each item.
        lazy: as ``TFExampleDecoder``.

    Raises:
        UsageError: a key is in both, a feature that cannot be declared, or something else as a handler.
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
                f"context and sequence keys are not unique: {', '.join(map(repr, both))} in both",
                hint="A handler names a feature by its key alone. Declare each where it is stored.",
            )
        self._context = check_features(keys_to_context_features, (FixedLenFeature, VarLenFeature))
        self._sequence = check_features(keys_to_sequence_features, (FixedLenSequenceFeature, VarLenFeature))
        super().__init__({**self._context, **self._sequence}, items_to_handlers)
        self._lazy = lazy

    def decode(self, data: bytes, items: Sequence[str] | None = None) -> list[Any]:
        """The values of ``items`` in one record, as ``TFExampleDecoder.decode``.

        A FixedLenSequenceFeature is an array (steps, *shape), a VarLenFeature of the sequence a ``SparseTensorValue``
        of the shape [steps, most values in a step].

        Raises:
            CorruptExampleError: the record is no tf.train.SequenceExample, or does not hold what was declared.
            ItemNotFoundError, FeatureNotFoundError: as ``TFExampleDecoder.decode``.
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
        """The keys of the features and feature lists that a record holds. Errors as ``decode``."""
        values = decode_sequence_example(check_record(data))
        return values.context.keys() | values.lists.keys()

    def _parse_context(self, key: str, values: Mapping[str, FlatValue | None]) -> Any:
        spec = self._context[key]
        if isinstance(spec, FixedLenFeature) and values.get(key, ()) is None:
            raise CorruptExampleError(
                f"feature {key!r} of the context is there, and holds values of no kind",
                hint="To do without it, leave its key out of the context.",
                details={"feature": key},
            )
        return parse_feature(key, spec, values)


class _BlockDecoders(threading.local):
    """What was learned of the form of records, by the keys that are read of them; each thread has its own."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], BlockDecoder] = {}

    def decoder_of(self, features: Mapping[str, FeatureSpec]) -> BlockDecoder:
        """The decoder for records of which these features are read."""
        keys = tuple(features)
        if keys not in self._known:
            self._known[keys] = BlockDecoder(stored_keys(features))
        return self._known[keys]

    def __reduce__(self) -> tuple[Any, ...]:
        return _BlockDecoders, ()


def _placed(rows: Iterable[Any]) -> Iterator[Any]:
    """The same; a fault says at which place."""
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
