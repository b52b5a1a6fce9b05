"""What do many records say? A block of tf.train.Examples as flat columns, decoded together.

    data, offsets, lengths -> where each key's content stands (templates, walk) -> columns (FlatBlock)

Every byte that is not content is compared, and content that could be malformed is checked, so that a block gives what
``decode_example`` gives for each of its records. A record of another valid form is written in the common one first; a
record that is none ends the block.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from registry.errors import CorruptExampleError
from registry.wire.codec import decode_example, encode_example
from registry.wire.columns import BytesColumn, FlatColumn, NumberColumn, read_floats, read_integers, read_items
from registry.wire.entries import Kind
from registry.wire.gather import check_pieces, take_ragged
from registry.wire.spans import SpanCollector, Spans
from registry.wire.templates import TemplateBook
from registry.wire.walk import FormBook, walk_records

_Bytes = npt.NDArray[np.uint8]
_Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FlatBlock:
    """The flat values of many records.

    Attributes:
        num_records: how many records there are: all, or those before the first that is no tf.train.Example.
        columns: the values by key and kind ("int64", "float", "bytes"). Records may hold one key in several kinds, or
            not at all; a Feature of no kind counts as bytes, of which it has none.
        data: what the places in a ``BytesColumn`` count in: the bytes that were given, or a copy.
        fault: why the record after these is no tf.train.Example.
    """

    num_records: int
    columns: Mapping[tuple[str, Kind], FlatColumn]
    data: _Bytes
    fault: CorruptExampleError | None = None


def decode_block(data: _Bytes, offsets: _Places, lengths: _Places, keys: Collection[str] | None = None) -> FlatBlock:
    """The flat values of the records ``data[offset : offset + length]``; of ``keys``, or of all that there are.

    ``data`` is a contiguous 1-d array of uint8, maybe a read-only view of a mapped file. Records stand in any order,
    and may repeat.

    >>> records = [encode_example({"label": np.array(labels)}) for labels in ([5], [7, 300])]
    >>> lengths = np.array([len(record) for record in records])
    >>> block = decode_block(np.frombuffer(b"".join(records), np.uint8), lengths.cumsum() - lengths, lengths)
    >>> block.columns["label", "int64"].values, block.columns["label", "int64"].counts
    (array([  5,   7, 300]), array([1, 2]))

    Raises:
        UsageError: the records do not lie in ``data``.
    """
    return BlockDecoder(keys).decode(data, offsets, lengths)


class BlockDecoder:
    """Decodes blocks of records that are much alike: what was learned of the form of some helps with the next."""

    def __init__(self, keys: Collection[str] | None = None) -> None:
        self._keys = None if keys is None else frozenset(keys)
        self._templates = TemplateBook()
        self._forms = FormBook()

    def decode(self, data: _Bytes, offsets: _Places, lengths: _Places) -> FlatBlock:
        """The flat values of a block; see ``decode_block``."""
        check_pieces(data, offsets, lengths)
        fault = None
        anew = np.zeros(offsets.size, np.bool_)
        while True:
            columns, odd = self._decode_common(data, offsets, lengths)
            if not odd.size:
                return FlatBlock(offsets.size, columns, data, fault)
            # Once more: beside what is written anew, others may be odd.
            if anew[odd].any():
                raise AssertionError("a record that was written in the common form is not found to be of it")
            anew[odd] = True
            data, offsets, lengths, found = _in_common_form(data, offsets, lengths, odd, self._keys)
            fault = found or fault

    def _decode_common(
        self, data: _Bytes, offsets: _Places, lengths: _Places
    ) -> tuple[dict[tuple[str, Kind], FlatColumn], _Places]:
        """The flat values, and the records that are not of the common form; if there are any, only these count."""
        found = SpanCollector(offsets.size, self._keys)
        rows = self._templates.find(data, offsets, lengths, found)
        if rows.size:
            walk_records(data, rows, offsets[rows], offsets[rows] + lengths[rows], self._forms, found)
        columns: dict[tuple[str, Kind], FlatColumn] = {}
        for (key, kind), spans in found.joined().items():
            column, odd = _read(data, kind, spans)
            if odd.size:
                found.odd.append(odd if spans.rows is None else spans.rows[odd])
            if self._keys is None or key in self._keys:
                columns[key, kind] = column
        odd_rows = np.unique(np.concatenate(found.odd)) if found.odd else np.empty(0, np.int64)
        return columns, odd_rows


def _read(data: _Bytes, kind: Kind, spans: Spans) -> tuple[NumberColumn | BytesColumn, _Places]:
    match kind:
        case "int64":
            return read_integers(data, spans)
        case "float":
            return read_floats(data, spans)
        case "bytes":
            return read_items(data, spans)


def _in_common_form(
    data: _Bytes, offsets: _Places, lengths: _Places, odd: _Places, keys: Collection[str] | None
) -> tuple[_Bytes, _Places, _Places, CorruptExampleError | None]:
    """The records in a buffer of their own, up to the first that is none; ``odd`` ones written anew, ``keys`` only."""
    fault = None
    written: list[bytes] = []
    for place in odd.tolist():
        start = int(offsets[place])
        try:
            flat = decode_example(data[start : start + int(lengths[place])].tobytes())
        except CorruptExampleError as error:
            fault = error
            odd, offsets, lengths = odd[odd < place], offsets[:place], lengths[:place]
            break
        written.append(encode_example({key: flat[key] for key in flat if keys is None or key in keys}))
    others = np.ones(offsets.size, np.bool_)
    others[odd] = False
    lengths_ = lengths.copy()
    lengths_[odd] = [len(record) for record in written]
    places = np.empty_like(offsets)
    places[others] = lengths[others].cumsum() - lengths[others]
    total = int(lengths[others].sum())
    places[odd] = total + lengths_[odd].cumsum() - lengths_[odd]
    pieces = [take_ragged(data, offsets[others], lengths[others]), np.frombuffer(b"".join(written), np.uint8)]
    return np.concatenate(pieces), places, lengths_, fault
