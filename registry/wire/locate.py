"""Locates the content of each key in all records of a block, by templates and by a walk in step.

A template is a record whose content may vary. A record of the same length with the same bytes everywhere else has its
content at the same positions. That costs one comparison for every eight of these bytes, for all records at once, and
the content need not be read.

The other records are walked entry by entry, all in step. At each step, the heads of the next entries of all records are
compared with the known forms; an entry of an unknown form is parsed in Python, and its form is added. So records of any
size, with keys in any order, are located together. ``block.py`` calls this module and decodes the contents.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from registry.wire.entries import Entry, Form, SpanCollector, scan_entries, scan_entry, scan_record
from registry.wire.gather import Octets, Places, as_rows, constant, constant_step, take, take_windows
from registry.wire.varint import FIELD_1, OtherFormError

_MIN_VECTORIZED: Final = 13
"""Fewer records than this are read one by one, which is faster than a step over all of them (measured)."""

_MIN_TEMPLATE: Final = 64
"""Among records of several lengths, a template is created only for at least this number of one length, because creating
it also takes time."""

_MOST_LENGTHS: Final = 64
_MOST_ORDERS: Final = 8
_MOST_MET: Final = 4096
_SMALL_RECORD: Final = 512
"""Records of up to this size in bytes are copied before they are compared, if their distances differ."""

_ALL: Final = np.uint64(2**64 - 1)

_MANY: Final = 512
"""From this number on, the records of one form are walked as a separate group (measured)."""

_MOST_FORMS: Final = 512
_MOST_HEAD_BYTES: Final = 256
_MOST_LESSONS: Final = 64
_MOST_PLACES: Final = 1024

_Group = tuple[Form | None, Places, Places, Places]
"""Records that are walked together: the form of their last entry if they share it, their rows, the positions of their
next entries, and their ends."""


@dataclass(frozen=True, slots=True)
class Template:
    """The entries of a record, and the bytes that all records matching it have in common.

    Each of ``checks`` is a word of eight bytes: its position, a mask of its constant bits, and the value of those bits.
    """

    entries: tuple[Entry, ...]
    checks: tuple[tuple[int, np.uint64, np.uint64], ...]

    @classmethod
    def of(cls, record: bytes) -> Template | None:
        """The template of ``record``, or None if it is not in the common form or has a key twice."""
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
    """The templates that were created, by the length of their records."""

    def __init__(self) -> None:
        self._templates: dict[int, list[Template]] = {}
        self._unlike: set[int] = set()  # sizes for which the last template matched too few records
        self._met: Counter[int] = Counter()  # number of records seen, by size, for sizes without a template

    def find(self, data: Octets, starts: Places, sizes: Places, spans: SpanCollector) -> Places:
        """Add the entries of records that match a template to ``spans``; returns the rows of the others."""
        rows = np.arange(starts.size)
        size = constant(sizes)
        if size is not None:
            self._met[size] += _MIN_TEMPLATE
            return self._find_alike(data, rows, starts, size, spans)
        some = sizes[:_MIN_TEMPLATE].tolist()  # np.unique would import numpy.ma
        if len(set(some)) * 4 > len(some):  # too many lengths for templates
            return rows
        left = []
        lengths, counts = np.unique(sizes, return_counts=True)
        few = np.ones(starts.size, np.bool_)
        for place in np.flatnonzero(counts >= _MIN_VECTORIZED).tolist()[:_MOST_LENGTHS]:
            alike = np.flatnonzero(sizes == lengths[place])
            few[alike] = False
            left.append(self._find_alike(data, alike, starts[alike], int(lengths[place]), spans))
        return np.sort(np.concatenate([rows[few], *left]))

    def _find_alike(self, data: Octets, rows: Places, starts: Places, size: int, spans: SpanCollector) -> Places:
        """Do the same for records of one ``size``."""
        if rows.size < _MIN_VECTORIZED or size < 8:
            return rows
        most = rows.size
        templates = self._templates.get(size)
        if templates is None:
            self._met[size] += rows.size
            if len(self._templates) >= _MOST_LENGTHS or len(self._met) > _MOST_MET or self._met[size] < _MIN_TEMPLATE:
                return rows
            templates = self._templates[size] = []
        for template in templates:
            if rows.size:
                rows, starts = _take_fitting(template, data, rows, starts, size, spans)
        while rows.size >= _MIN_VECTORIZED and size not in self._unlike and len(templates) < _MOST_ORDERS:
            made = Template.of(data[starts[0] : starts[0] + size].tobytes())
            before = rows.size
            if made is not None:
                rows, starts = _take_fitting(made, data, rows, starts, size, spans)
            if made is None or (before - rows.size) * _MOST_ORDERS * 2 < most:
                self._unlike.add(size)
            else:
                templates.append(made)
        return rows


def _take_fitting(
    template: Template, data: Octets, rows: Places, starts: Places, size: int, spans: SpanCollector
) -> tuple[Places, Places]:
    """Add the entries of the records that match; returns the rows and starts of the others."""
    fits = _fitting(template, data, starts, size)
    if fits.all():
        fitting, at, others = rows, starts, np.zeros(0, np.bool_)
    else:
        fitting, at, others = rows[fits], starts[fits], ~fits
    if fitting.size:
        for form, start, stop in template.entries:
            spans.add(form, fitting, at + start, np.full(at.size, stop - start))
    return (rows[others], starts[others]) if others.size else (rows[:0], starts[:0])


def _fitting(template: Template, data: Octets, starts: Places, size: int) -> npt.NDArray[np.bool_]:
    """Which records match ``template``."""
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


class FormBook:
    """The known forms, and where they were found: by the step and the form of the entry before.

    Only those are tried. Any other form is parsed once at each place: to try all forms there would take as long as all
    forms of a record with hundreds of features.
    """

    def __init__(self) -> None:
        self._forms: set[Form] = set()
        self._met: dict[tuple[int, Form | None], list[Form]] = {}

    def likely(self, step: int, before: Form | None) -> list[Form]:
        """The forms that were found at this step, after this form."""
        return list(self._met.get((step, before), ()))

    def met(self, step: int, before: Form | None, form: Form) -> None:
        """Record that ``form`` was found at ``step``, after the form ``before``."""
        if len(self._met) < _MOST_PLACES:
            here = self._met.setdefault((step, before), [])
            if form not in here:
                here.append(form)

    def learn(self, form: Form) -> bool:
        """Add ``form``; returns whether it is known now: a new one must not exceed the limits."""
        if form not in self._forms and len(self._forms) < _MOST_FORMS and len(form.fixed) <= _MOST_HEAD_BYTES:
            self._forms.add(form)
        return form in self._forms


def walk_records(
    data: Octets, rows: Places, starts: Places, stops: Places, book: FormBook, spans: SpanCollector
) -> None:
    """Add the entries of ``rows``, whose records are ``data[start:stop]``, to ``spans``."""
    places = _enter_features(data, starts, stops)
    odd = places < 0
    if odd.any():
        spans.odd.append(rows[odd])
        rows, places, stops = rows[~odd], places[~odd], stops[~odd]
    groups: list[_Group] = [(None, rows, places, stops)]
    step = 0
    while groups:
        after: list[_Group] = []
        for before, *group in groups:
            more = group[1] < group[2]
            rows, places, stops = group if more.all() else (numbers[more] for numbers in group)
            if rows.size < _MIN_VECTORIZED:
                _scan_rest(data, rows, places, stops, spans)
            else:
                after += _Step(data, rows, places, stops, spans).walk(book, step, before)
        groups = _merge_small(after)
        step += 1


def _merge_small(groups: list[_Group]) -> list[_Group]:
    """``groups``, with the small ones merged into one."""
    small = [group[1:] for group in groups if group[1].size < _MANY]
    if len(small) < 2:
        return groups
    rows, places, stops = map(np.concatenate, zip(*small, strict=True))
    return [*(group for group in groups if group[1].size >= _MANY), (None, rows, places, stops)]


@dataclass(slots=True, eq=False)
class _Step:
    """One step of a group: finds the form of each record's next entry, and where the entry after it starts."""

    _data: Octets
    _rows: Places
    _places: Places
    _stops: Places
    _found: SpanCollector
    _windows: npt.NDArray[np.void] | None = None
    _groups: list[_Group] = field(default_factory=list)

    def walk(self, book: FormBook, step: int, before: Form | None) -> list[_Group]:
        """Take the step; returns the records that have further entries, in a group for each form."""
        for form in book.likely(step, before):
            if self._fit(form):
                book.met(step, before, form)
                if self._rows.size < _MIN_VECTORIZED:
                    break
        for _ in range(_MOST_LESSONS):
            if self._rows.size < _MIN_VECTORIZED:
                break
            try:
                form = scan_entry(self._data[self._places[0] : self._stops[0]].data, 0).form
            except OtherFormError:
                break
            if not book.learn(form):
                break
            if self._fit(form):
                book.met(step, before, form)
        _scan_rest(self._data, self._rows, self._places, self._stops, self._found)
        return self._groups

    def _fit(self, form: Form) -> bool:
        """Move the records whose next entry has this form to a group; returns whether there were any."""
        size = len(form.words) * 8
        if self._windows is None or self._windows.itemsize < size:
            self._windows = take_windows(self._data, self._places, max(32, size))
        windows, at = self._windows, None
        word, mask, same = form.words[0]
        hit = (_words(windows)[:, word] & mask) == same
        if not hit.all():
            at = np.flatnonzero(hit)
            if not at.size:
                return False
            windows = windows[at]
        places, stops = (self._places, self._stops) if at is None else (self._places[at], self._stops[at])
        words = _words(windows)
        own, agree = form.read_lengths(words.view(np.uint8))
        for word, mask, same in form.words[1:]:
            agree &= (words[:, word] & mask) == same
        after = places + own
        after += form.num_entry_bytes
        agree &= after <= stops
        if not agree.all():
            kept = np.flatnonzero(agree)
            if not kept.size:
                return False
            at = kept if at is None else at[kept]
            places, stops, own, after = places[kept], stops[kept], own[kept], after[kept]
        rows = self._rows if at is None else self._rows[at]
        head = len(form.fixed)
        self._found.add(form, rows, places + head, own - (head - form.num_entry_bytes))
        self._groups.append((form, rows, after, stops))
        left = np.zeros(0, np.int64)
        if at is not None:
            others = np.ones(self._rows.size, np.bool_)
            others[at] = False
            left = np.flatnonzero(others)
        self._rows, self._places, self._stops = self._rows[left], self._places[left], self._stops[left]
        self._windows = self._windows[left]
        return True


def _enter_features(data: Octets, starts: Places, stops: Places) -> Places:
    """The position of each record's first entry; its end if it has no entries; -1 if it is not in the common form."""
    sizes = stops - starts
    words = _words(take_windows(data, starts, 8))[:, 0]
    places = np.full(starts.size, -1)
    places[sizes == 0] = starts[sizes == 0]
    most = int(sizes.max())
    least = 2
    for width in range(1, 6):  # bytes of the length; in the common form, the size of the record determines it
        largest = width + (1 << 7 * width)
        if least <= most:
            here = (sizes >= least) & (sizes <= largest)
            length = (sizes - 1 - width).astype(np.uint64)
            expected = np.full(starts.size, FIELD_1, np.uint64)
            for byte in range(width):
                bits = length >> np.uint64(7 * byte) & np.uint64(0x7F)
                if byte < width - 1:
                    bits |= np.uint64(0x80)
                expected |= bits << np.uint64(8 * byte + 8)
            here &= words & np.uint64((1 << 8 * (width + 1)) - 1) == expected
            places = np.where(here, starts + 1 + width, places)
        least = largest + 1
    return places


def _words(windows: npt.NDArray[np.void]) -> npt.NDArray[np.uint64]:
    return windows.view("<u8").reshape(windows.size, windows.itemsize // 8)


def _scan_rest(data: Octets, rows: Places, places: Places, stops: Places, spans: SpanCollector) -> None:
    """Parse the entries from each of ``places`` on in Python."""
    odd = []
    for row, start, stop in zip(rows.tolist(), places.tolist(), stops.tolist(), strict=True):
        try:
            spans.add_record(row, scan_entries(data[start:stop].data, 0), start)
        except OtherFormError:
            odd.append(row)
    if odd:
        spans.odd.append(np.array(odd, np.int64))
