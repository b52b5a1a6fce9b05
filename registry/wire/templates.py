"""Which records are alike but for their content? Records of one length, compared with one of them.

A template is a record of which only the content counts as free. A record of the same length that has the same bytes at
all other places has its content where the template has it. That costs a comparison for each eight of these bytes, for
all records at once, and the content is found without being looked at.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from registry.wire.entries import Entry, OtherFormError, scan_record
from registry.wire.gather import as_rows, constant, constant_step, take
from registry.wire.spans import SpanCollector

_FEW: Final = 12
_FEWEST: Final = 64
"""To compare up to a few records with a template costs more than to read each; to make one pays from many on."""

_MOST_LENGTHS: Final = 64
_MOST_ORDERS: Final = 8
_MOST_MET: Final = 4096
_SMALL_RECORD: Final = 512
"""Records up to so many bytes are copied whole to compare them, where they are not equally far apart."""

_Bytes = npt.NDArray[np.uint8]
_Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Template:
    """A record's entries, and what is the same in all records that fit it.

    ``checks`` are words of eight bytes: where one starts, which of its bits count, and what they are.
    """

    entries: tuple[Entry, ...]
    checks: tuple[tuple[int, np.uint64, np.uint64], ...]

    @classmethod
    def of(cls, record: bytes) -> Template | None:
        """The template of ``record``; None for one that has no common form, or a key twice."""
        try:
            entries = scan_record(record)
        except OtherFormError:
            return None
        if len(record) < 8 or len({entry.form.key for entry in entries}) < len(entries):
            return None
        free = np.zeros(len(record), np.bool_)
        for entry in entries:
            free[entry.start : entry.stop] = True
        bits = np.where(free, 0, 0xFF).astype(np.uint8).tobytes()
        checks: list[tuple[int, np.uint64, np.uint64]] = []
        stop = 0
        for place in np.flatnonzero(~free).tolist():
            if place >= stop:
                start = min(place, len(record) - 8)
                stop = start + 8
                mask = int.from_bytes(bits[start:stop], "little")
                same = int.from_bytes(record[start:stop], "little") & mask
                checks.append((start, np.uint64(mask), np.uint64(same)))
        return cls(tuple(entries), tuple(checks))


class TemplateBook:
    """The templates that were made, by the length of their records."""

    def __init__(self) -> None:
        self._templates: dict[int, list[Template]] = {}
        self._unlike: set[int] = set()  # sizes of which too few records were like the last one
        self._met: Counter[int] = Counter()  # records of sizes without a template: many blocks may hold a few of them

    def find(self, data: _Bytes, starts: _Places, sizes: _Places, found: SpanCollector) -> _Places:
        """Adds the entries of records that fit a template to ``found``; gives the rows of the others."""
        rows = np.arange(starts.size)
        size = constant(sizes)
        if size is not None:
            return self._find_alike(data, rows, starts, size, found)
        some = sizes[:_FEWEST]
        if np.unique(some).size * 4 > some.size:  # of many lengths
            return rows
        left = []
        lengths, counts = np.unique(sizes, return_counts=True)
        few = np.ones(starts.size, np.bool_)
        for place in np.flatnonzero(counts > _FEW).tolist()[:_MOST_LENGTHS]:
            alike = sizes == lengths[place]
            few &= ~alike
            left.append(self._find_alike(data, rows[alike], starts[alike], int(lengths[place]), found))
        return np.sort(np.concatenate([rows[few], *left]))

    def _find_alike(self, data: _Bytes, rows: _Places, starts: _Places, size: int, found: SpanCollector) -> _Places:
        """The same for records of one ``size``."""
        if rows.size <= _FEW or size < 8:
            return rows
        most = rows.size
        templates = self._templates.get(size)
        if templates is None:
            self._met[size] += rows.size
            if len(self._templates) >= _MOST_LENGTHS or len(self._met) > _MOST_MET or self._met[size] < _FEWEST:
                return rows
            templates = self._templates[size] = []
        for template in templates:
            if rows.size:
                rows, starts = _take_fitting(template, data, rows, starts, size, found)
        while rows.size > _FEW and size not in self._unlike and len(templates) < _MOST_ORDERS:
            made = Template.of(data[starts[0] : starts[0] + size].tobytes())
            before = rows.size
            if made is not None:
                rows, starts = _take_fitting(made, data, rows, starts, size, found)
            if made is None or (before - rows.size) * _MOST_ORDERS * 2 < most:
                self._unlike.add(size)
            else:
                templates.append(made)
        return rows


def _take_fitting(
    template: Template, data: _Bytes, rows: _Places, starts: _Places, size: int, found: SpanCollector
) -> tuple[_Places, _Places]:
    """Adds the entries of the records that fit; gives the others."""
    fits = _fitting(template, data, starts, size)
    if fits.all():
        fitting, at, others = rows, starts, np.zeros(0, np.bool_)
    else:
        fitting, at, others = rows[fits], starts[fits], ~fits
    if fitting.size:
        for form, start, stop in template.entries:
            found.add(form, fitting, at + start, np.full(at.size, stop - start))
    return (rows[others], starts[others]) if others.size else (rows[:0], starts[:0])


def _fitting(template: Template, data: _Bytes, starts: _Places, size: int) -> npt.NDArray[np.bool_]:
    """Which records have the bytes that are the same."""
    step = constant_step(starts)
    first = int(starts[0])
    source = data
    if step is None and size <= _SMALL_RECORD:
        source = as_rows(take(data, starts, size), np.uint8)
        step, first = size, 0
    fits = np.ones(starts.size, np.bool_)
    for start, mask, same in template.checks:
        if step is None:
            words = np.ndarray(data.size - 7, "<u8", buffer=data, strides=(1,))[starts + start]
        else:
            words = np.ndarray(starts.size, "<u8", buffer=source, offset=first + start, strides=(step,))
        fits &= (words if mask == _ALL else words & mask) == same
    return fits


_ALL: Final = np.uint64(2**64 - 1)
