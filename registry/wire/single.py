"""Decodes single tf.train.Examples, and remembers the heads of their entries, which makes the next ones faster."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from registry.wire.codec import FlatValue, decode_example, enter_field, read_items
from registry.wire.entries import Entry, Form, scan_entry
from registry.wire.varint import FIELD_1, OtherFormError, read_varint, read_varints

_STORED_FLOAT: Final = np.dtype("<f4")
_MOST_FORMS: Final = 64
_MOST_HEADS: Final = 1024


class RecordDecoder:
    """Decodes single records to the values of ``decode_example``, in a third of the time for records of known forms.

    The own length of an entry determines its whole head if its form is known, so one comparison checks the head.

    >>> from registry.wire import encode_example
    >>> RecordDecoder().decode(encode_example({"label": np.array([5]), "image": [b"png"]}))
    {'image': [b'png'], 'label': array([5])}
    """

    def __init__(self) -> None:
        self._after: dict[Form | None, list[tuple[Form, dict[int, bytes]]]] = {}  # forms, by the form before
        self._num_forms = 0

    def decode(self, record: bytes | memoryview) -> dict[str, Any]:
        """The flat values of a record. The items of a memoryview are memoryviews of it.

        Raises:
            CorruptExampleError: the bytes are not a tf.train.Example.
        """
        try:
            return {form.key: _read(form, record, start, stop) for form, start, stop in self._scan(record)}
        except (OtherFormError, IndexError, ValueError):
            flat: dict[str, Any] = decode_example(record)
            if isinstance(record, bytes):
                return flat
            return {
                key: [memoryview(item) for item in value] if isinstance(value, list) else value
                for key, value in flat.items()
            }

    def _scan(self, record: bytes | memoryview) -> list[Entry]:
        """The entries of ``record``; raises OtherFormError, IndexError or ValueError if it is in another form."""
        size = len(record)
        position = enter_field(record, FIELD_1, 0, size) if size else 0
        entries: list[Entry] = []
        before: Form | None = None
        while position < size:
            own = record[position + 1]
            if own >= 0x80:
                own, _ = read_varint(record, position + 1)
            for form, heads in self._after.get(before, ()):
                head = heads.get(own)
                if head is None:
                    head = form.head(own)
                    if len(heads) < _MOST_HEADS:
                        heads[own] = head
                start = position + len(head)
                if head and record[position:start] == head:
                    entry = Entry(form, position + len(form.fixed), position + form.num_entry_bytes + own)
                    break
            else:
                entry = scan_entry(record, position)
                if self._num_forms < _MOST_FORMS:
                    self._num_forms += 1
                    self._after.setdefault(before, []).append((entry.form, {}))
            before, position = entry.form, entry.stop
            entries.append(entry)
        if position > size:
            raise OtherFormError
        return entries


def _read(form: Form, record: bytes | memoryview, start: int, stop: int) -> FlatValue | list[Any]:
    """The flat value of an entry whose content is ``record[start:stop]``; raises as ``RecordDecoder._scan``."""
    if form.layout == "item":
        return [record[start:stop]]
    if form.layout == "list" or (form.layout == "empty" and form.kind == "bytes"):
        return read_items(record, start, stop)
    if form.layout == "unpacked":
        raise OtherFormError
    if form.kind == "int64":
        return read_varints(record, start, stop)
    return np.frombuffer(record[start:stop], _STORED_FLOAT).astype(np.float32)
