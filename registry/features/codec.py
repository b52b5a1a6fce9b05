"""Encodes the examples of a schema as records and decodes records, one at a time or in blocks.

    example -> flat values by key -> tf.train.Example bytes (registry.wire)
    bytes -> flat values by key -> example
    data, offsets, lengths -> ExampleBlock -> columns(): one array for each leaf; examples(): the same as ``decode``

Keys follow TFDS: nested names joined by ``/``; inside one Sequence, one flat list; inside several Sequences,
``k/ragged_flat_values`` and ``k/ragged_row_lengths_0..``, the lengths of the levels below the outermost one. Entry
``i`` of a block's column always equals the leaf of example ``i``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Sequence as AnySequence
from dataclasses import dataclass, replace
from itertools import chain, count, repeat
from operator import setitem
from typing import Any, Final, NamedTuple

from registry.errors import RegistryError, at_record
from registry.features.block_flattener import BlockFlattener, UnusualExampleError
from registry.features.column_reader import ColumnReader, RawReader
from registry.features.containers import Dataset, FeaturesDict, Sequence, columns_of
from registry.features.feature import BlockColumn, Feature, RawFeature
from registry.features.flatten import flatten_example
from registry.features.nested import NestedExamples, NestedNode, plain_tree
from registry.wire import (
    BlockDecoder,
    EncodedBlock,
    FlatBlock,
    FlatValue,
    RecordDecoder,
    decode_example,
    encode_block,
    encode_example,
)
from registry.wire.gather import SMALL_TEXT, Octets, Places, check_pieces, constant, cut_views

_MIN_VECTORIZED: Final = 13
_MIN_VECTORIZED_UNLIKE: Final = 65
"""Fewer records than this are decoded one by one, which was measured to be faster (the second number applies to records
of different lengths)."""

_SMALL_RECORD: Final = 4096
"""Single records of at most this size in bytes are copied before they are decoded, because slices of bytes cost less
than memoryviews."""

_MIN_TOGETHER: Final = 8
"""Fewer examples than this are encoded one by one, which was measured to be faster."""

_CHUNK_EXAMPLES: Final = 512
_CHUNK_BYTES: Final = 2**20
"""Most examples, and most bytes, that are created at a time. A chunk fits the processor's cache, and an example that is
kept holds only its chunk in memory."""


class FlatRecords(NamedTuple):
    """Consecutive records of a split as flat columns.

    Attributes:
        start: the index of the first record in its split.
        num_records: the number of records.
        flats: the flat values of each leaf, in schema order.
        records: each record as bytes, if the class of a feature is unknown; otherwise empty.
    """

    start: int
    num_records: int
    flats: AnySequence[FlatBlock]
    records: AnySequence[bytes] = ()


def codec_of(features: FeaturesDict) -> Codec:
    """The codec of ``features``. The first call creates it, and later calls for the same object return it.

    >>> codec = codec_of(FeaturesDict({"id": "int64", "name": "str"}))
    >>> codec.decode(codec.encode({"id": 7, "name": "x"}))["name"]
    b'x'
    """
    # A cache by value would be wrong: equal schemas may order their features differently, and examples keep that order.
    kept = features.__dict__
    if "_codec" not in kept:
        kept["_codec"] = Codec(features)
    codec: Codec = kept["_codec"]
    return codec


class Codec:
    """Encodes and decodes the examples of one schema. ``codec_of`` creates it.

    Attributes:
        features: the schema.
        columns: a reader for each leaf, in schema order.
        tree: the nested dict of an example, with the index in ``columns`` for each leaf and a ``NestedNode`` for each
            Dataset.
        has_unknown: whether the class of a feature is unknown. Its keys can only be found among all keys of a record.
        block_decoder: decodes blocks of records to flat columns, and remembers the layout of records between blocks.
        decodes_files: whether a feature decodes files, such as images.
    """

    def __init__(self, features: FeaturesDict) -> None:
        columns = columns_of(features)
        known = frozenset(key for column in columns for part in column.leaf.parts for key in column.keys(part))
        self.features = features
        self.columns = tuple(ColumnReader.of(column, known) for column in columns)
        self.tree: Mapping[str, Any] = _tree_of(features, (), count())
        self.has_unknown = any(isinstance(reader, RawReader) for reader in self.columns)
        self.block_decoder = BlockDecoder(known)
        self._decoder = RecordDecoder()
        self.decodes_files = any(column.leaf.decodes_files for column in columns)

    def __reduce__(self) -> tuple[Callable[[FeaturesDict], Codec], tuple[FeaturesDict]]:
        return codec_of, (self.features,)

    def encode(self, example: Mapping[str, Any]) -> bytes:
        """Encode ``example`` as a record: a serialized tf.train.Example, the same bytes on every run and machine.

        Raises:
            FeatureError: a name is missing or unknown, or a value does not fit; ``details['feature']`` is its path.
            MissingExtraError: encoding a JPEG requires Pillow, which is not installed.
        """
        return encode_example(self.flatten(example))

    def encode_block(self, examples: AnySequence[Mapping[str, Any]]) -> EncodedBlock:
        """Encode many examples at once. The records are the same, byte for byte, as those of ``encode``.

        The block ends before the first example that cannot be encoded; its ``fault`` is the error that ``encode``
        raises for it, which may also be an error of a feature class from another package.

        >>> block = codec_of(FeaturesDict({"id": "int64"})).encode_block([{"id": 7}, {"id": "x"}, {"id": 8}])
        >>> block.num_records, str(block.fault)
        (1, "feature 'id': expected dtype int64, found 'x'")

        Args:
            examples: the examples. Arrays in them must not change until the call returns.
        """
        if len(examples) < _MIN_TOGETHER:
            return self._encode_each(examples)
        try:
            flattener = BlockFlattener(self.features, examples)
        except UnusualExampleError:
            return self._encode_each(examples)
        if flattener.fault is not None:
            return self.encode_block(examples[: flattener.num_sound])._replace(fault=flattener.fault)
        return encode_block(len(examples), flattener.blocks)

    def _encode_each(self, examples: AnySequence[Mapping[str, Any]]) -> EncodedBlock:
        records: list[bytes] = []
        fault: Exception | None = None
        try:
            for example in examples:
                records.append(self.encode(example))  # noqa: PERF401 - keeps the records before an error
        except Exception as error:  # noqa: BLE001 - a feature class of another package may raise any error
            fault = error
        return EncodedBlock.of(records, fault)

    def decode(self, record: bytes | memoryview, *, copy: bool = True) -> dict[str, Any]:
        """Decode ``record`` to an example: a dict of arrays, NumPy scalars, ``bytes``, ``Ragged``, and nested dicts.

        Args:
            record: a tf.train.Example.
            copy: without it, large texts and tensors stored as bytes are views of ``record``, as in ``decode_block``.

        Raises:
            CorruptExampleError: the record is not a tf.train.Example, or does not hold these features.
            MissingExtraError: decoding an image requires Pillow, which is not installed.
        """
        return fill_tree(self.tree, self._decode_one(record, copy=copy))

    def _decode_one(self, record: bytes | memoryview, *, copy: bool) -> list[Any]:
        """The value of each leaf in ``record``."""
        if self.has_unknown or len(record) <= (_SMALL_RECORD if copy else SMALL_TEXT):
            record = bytes(record)
        flat = decode_example(record) if self.has_unknown else self._decoder.decode(record)
        if isinstance(record, bytes):
            return [column.read(flat) for column in self.columns]
        return [column.read_view(flat, copy=copy) for column in self.columns]

    def flatten(self, example: Mapping[str, Any]) -> dict[str, FlatValue]:
        """The flat values of ``example`` by key, which ``encode`` serializes.

        Raises:
            FeatureError: a name is missing or unknown, or a value does not fit; ``details['feature']`` is its path.
        """
        return flatten_example(self.features, example)

    def restore(self, flat: Mapping[str, FlatValue]) -> dict[str, Any]:
        """The example of these flat values. As in TFDS, keys that belong to no feature are ignored.

        Raises:
            CorruptExampleError: the flat values do not fit the features.
        """
        return fill_tree(self.tree, [column.read(flat) for column in self.columns])

    def decode_block(self, data: Octets, offsets: Places, lengths: Places, *, copy: bool = True) -> ExampleBlock:
        """Decode many records at once.

        Args:
            data: contiguous 1-d uint8; it may be a read-only view of a mapped file.
            offsets: int64, the first byte of each record in ``data``; in any order, and records may repeat.
            lengths: int64, the number of bytes of each record.
            copy: without it, large texts are memoryviews of ``data``, and tensors stored as bytes read-only arrays that
                share its memory. All other values are writable copies that do not keep ``data`` alive.

        Returns:
            The examples. The block ends before the first record that cannot be decoded; its ``fault`` is the error.
        """
        least = _MIN_VECTORIZED if self.decodes_files or constant(lengths) is not None else _MIN_VECTORIZED_UNLIKE
        if self.has_unknown or offsets.size < least:
            return self._decode_each(data, offsets, lengths, copy=copy)
        flat = self.block_decoder.decode(data, offsets, lengths)
        columns = self._read_columns(repeat(flat, len(self.columns)), flat.num_records, flat.fault, copy=copy)
        # Decode the sound records again without the bad one, which may have changed the form of their columns.
        if len(columns) < flat.num_records:
            size = len(columns)
            columns.leaves = self.decode_block(data, offsets[:size], lengths[:size], copy=copy).leaves
        return columns

    def flat_records(self, data: Octets, offsets: Places, lengths: Places, *, start: int = 0) -> FlatRecords:
        """Flatten many records for folds.

        Args:
            data: see ``decode_block``.
            offsets: see ``decode_block``.
            lengths: see ``decode_block``.
            start: the index of the first record in its split.

        Raises:
            CorruptExampleError: a record is not a tf.train.Example.
        """
        flat = self.block_decoder.decode(data, offsets, lengths)
        if flat.fault is not None:
            raise flat.fault
        records = list(map(bytes, cut_views(data.data, offsets, lengths))) if self.has_unknown else []
        return FlatRecords(start, flat.num_records, [flat] * len(self.columns), records)

    def restore_block(self, blocks: AnySequence[FlatBlock], num_records: int, *, copy: bool = True) -> ExampleBlock:
        """The examples of ``num_records`` rows from a columnar file, given as a block for each of ``columns``.

        The block ends before the first row that is not a valid example, as in ``decode_block``.

        Args:
            blocks: the values of each flat column, in the order of ``columns``.
            num_records: number of rows in each block.
            copy: whether arrays are copies; otherwise they may share memory with ``blocks``.
        """
        if not num_records:
            return ExampleBlock(self.tree, [reader.column_of([]) for reader in self.columns], 0)
        return self._read_columns(blocks, num_records, None, copy=copy)

    def _read_columns(
        self, blocks: Iterable[FlatBlock], num_sound: int, fault: RegistryError | None, *, copy: bool
    ) -> ExampleBlock:
        columns: list[BlockColumn] = []
        for reader, flat in zip(self.columns, blocks, strict=True):
            column = reader.read_block(flat, copy=copy)
            if column is None:
                values, error = reader.read_each(flat, num_sound)
                num_sound, fault = len(values), error or fault
                column = reader.column_of(values)
            columns.append(column)
        return ExampleBlock(self.tree, columns, num_sound, None if fault is None else at_record(fault, num_sound))

    def join_blocks(self, blocks: AnySequence[ExampleBlock], rows: AnySequence[Places], *, copy: bool) -> ExampleBlock:
        """Join blocks without faults. Texts and tensors stored as bytes are not copied before the result is used.

        Args:
            blocks: blocks that were decoded with ``copy=False``, or with the same ``copy`` if their lists may be views.
            rows: for each block, the places of its examples in the result.
            copy: as in ``decode_block``.
        """
        leaves = [
            reader.join_blocks([block.leaves[at] for block in blocks], rows, copy=copy)
            for at, reader in enumerate(self.columns)
        ]
        return ExampleBlock(self.tree, leaves, sum(map(len, blocks)))

    def _decode_each(self, data: Octets, offsets: Places, lengths: Places, *, copy: bool) -> ExampleBlock:
        """``decode_block``, one record at a time."""
        check_pieces(data, offsets, lengths)
        view = data.data.toreadonly()
        use_views = not self.has_unknown and (not copy or int(lengths.max(initial=0)) > _SMALL_RECORD)
        rows: list[list[Any]] = []
        fault = None
        for record in cut_views(view, offsets, lengths):
            try:
                rows.append(self._decode_one(record, copy=not use_views))
            except RegistryError as error:
                fault = at_record(error, len(rows))
                break
        columns: list[BlockColumn] = []
        for at, reader in enumerate(self.columns):
            values = [row[at] for row in rows]
            columns.append(reader.column_of_views(values, copy=copy) if use_views else reader.column_of(values))
        return ExampleBlock(self.tree, columns, len(rows), fault)


@dataclass(slots=True, eq=False)
class ExampleBlock:
    """The decoded examples of a block of records, returned by ``Codec.decode_block``.

    ``len()`` is the number of sound examples: all of them, or those before the first record that could not be decoded.

    Attributes:
        tree: the tree of the codec.
        leaves: the column of each leaf.
        num_examples: the number of sound examples.
        fault: the error of the next record, if it could not be decoded. ``columns`` and ``examples`` raise it.
    """

    tree: Mapping[str, Any]
    leaves: AnySequence[BlockColumn]
    num_examples: int
    fault: RegistryError | None = None

    def __len__(self) -> int:
        return self.num_examples

    @property
    def sound(self) -> ExampleBlock:
        """The examples before the first bad record, without the fault."""
        return replace(self, fault=None)

    def columns(self) -> dict[str, Any]:
        r"""For each feature, one array of its values in all examples, nested like an example.

        The first dimension counts examples, and ``column[i]`` equals the value in example ``i``:

        - an array (n, \*shape) of the feature's dtype if the value has the same shape in every example;
        - an object array (n,) of ``bytes`` for text, (n, \*shape) for arrays of text;
        - an object array (n,) of arrays if their shapes differ, or of ``Ragged`` for a Sequence of Sequences;
        - for a Dataset, the columns of a Sequence;
        - for a feature of an unknown class, an object array (n,) of its stored values;
        - for an optional feature whose missing values are read as None, always a masked array (``numpy.ma``) of these
          shapes and dtypes, masked where an example has None, with a mask for every entry.

        Raises:
            CorruptExampleError: a record could not be decoded; ``details["record"]`` is its index in the block.
        """
        if self.fault is not None:
            raise self.fault
        return fill_tree(plain_tree(self.tree), [column.array(self.num_examples) for column in self.leaves])

    def examples(self) -> Iterator[dict[str, Any]]:
        """The examples, equal to ``Codec.decode`` of each record.

        Raises:
            CorruptExampleError: a record could not be decoded; raised after the examples before it.
        """
        return chain.from_iterable(self.example_lists())

    def example_lists(self) -> Iterator[list[dict[str, Any]]]:
        """The examples in lists of up to 512, so that they are in the processor's cache when they are used.

        Raises:
            CorruptExampleError: a record could not be decoded; raised after the examples before it.
        """
        row_bytes = sum(column.row_bytes for column in self.leaves)
        size = max(1, min(_CHUNK_EXAMPLES, _CHUNK_BYTES // max(1, row_bytes)))
        for start in range(0, self.num_examples, size):
            stop = min(start + size, self.num_examples)
            yield make_dicts(self.tree, [column.rows(start, stop) for column in self.leaves], stop - start)
        if self.fault is not None:
            raise self.fault


def fill_tree(tree: Mapping[str, Any], values: list[Any]) -> dict[str, Any]:
    """The nested dict ``tree``, with each index replaced by its value."""
    return {name: values[at] if type(at) is int else _fill(at, values) for name, at in tree.items()}


def _fill(at: Any, values: list[Any]) -> Any:
    if isinstance(at, NestedNode):
        inner = plain_tree(at.tree)
        return NestedExamples(values[inner] if type(inner) is int else fill_tree(inner, values), at.tree, at.path)
    return fill_tree(at, values)


def _tree_of(feature: Feature, names: tuple[str, ...], places: Iterator[int], *, is_nested: bool = True) -> Any:
    """The tree of an example of ``feature``: dicts by name, and for each leaf the next index from ``places``.

    A Dataset becomes a ``NestedNode``. Inside a Sequence, or with an unknown feature in it, its values cannot be
    divided into examples, so it is treated as a Sequence.
    """
    if isinstance(feature, FeaturesDict):
        return {name: _tree_of(feature[name], (*names, name), places, is_nested=is_nested) for name in feature}
    if isinstance(feature, Dataset):
        is_nested = is_nested and not any(isinstance(column.leaf, RawFeature) for column in columns_of(feature))
        tree = _tree_of(feature.feature, names, places, is_nested=is_nested)
        return NestedNode(tree, "/".join(names)) if is_nested else tree
    if isinstance(feature, Sequence):
        return _tree_of(feature.feature, names, places, is_nested=False)
    return next(places)


def make_dicts(tree: Mapping[str, Any], columns: AnySequence[list[Any]], count: int) -> list[dict[str, Any]]:
    """``count`` nested dicts of the form ``tree``, filled with the values of ``columns``."""
    lists = [columns[at] if type(at) is int else _make_inner(at, columns, count) for at in tree.values()]
    match list(tree):  # measured: building dicts from four keys at a time is fastest
        case []:
            return [{} for _ in range(count)]
        case [a]:
            return [{a: x} for x in lists[0]]
        case [a, b]:
            return [{a: x, b: y} for x, y in zip(*lists, strict=True)]
        case [a, b, c]:
            return [{a: x, b: y, c: z} for x, y, z in zip(*lists, strict=True)]
        case [a, b, c, d, *more]:
            dicts = [{a: w, b: x, c: y, d: z} for w, x, y, z in zip(*lists[:4], strict=True)]
            for name, values in zip(more, lists[4:], strict=True):
                deque(map(setitem, dicts, repeat(name), values), maxlen=0)
            return dicts
    raise AssertionError(tree)


def _make_inner(tree: Any, columns: AnySequence[list[Any]], count: int) -> list[Any]:
    if not isinstance(tree, NestedNode):
        return make_dicts(tree, columns, count)
    inner = plain_tree(tree.tree)
    rows = columns[inner] if type(inner) is int else make_dicts(inner, columns, count)
    return [NestedExamples(row, tree.tree, tree.path) for row in rows]
