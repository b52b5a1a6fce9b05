"""Where do the entries of many records stand? All records go from entry to entry in step.

At each step the heads of all records' next entries are compared with the forms that are known; what fits none of them
is read in Python, and teaches a new one. So records of any size, whose keys stand in any order, are found together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from registry.wire.entries import Form, OtherFormError, scan_entries, scan_entry
from registry.wire.gather import take_windows
from registry.wire.spans import SpanCollector

_FEW: Final = 12
"""Up to so many records are read one by one, which then costs less than a step, as measured."""

_MANY: Final = 512
"""From so many records of one form on, they go on as a group of their own, as measured."""

_MOST_FORMS: Final = 128
_MOST_HEAD_BYTES: Final = 256
_MOST_LESSONS: Final = 32
_MOST_PLACES: Final = 1024
_FIELD_1: Final = 0x0A

_Places = npt.NDArray[np.int64]
_Group = tuple[Form | None, _Places, _Places, _Places]
"""The form that some records had last, if it is the same; their rows; where their next entries stand, and they end."""


class FormBook:
    """The forms that were met, and which of them to try first at a step, after a form."""

    def __init__(self) -> None:
        self._forms: list[Form] = []
        self._met: dict[tuple[int, Form | None], list[Form]] = {}

    def candidates(self, step: int, before: Form | None) -> Iterator[Form]:
        """All forms, those first that were met here."""
        here = list(self._met.get((step, before), ()))
        yield from here
        yield from [form for form in self._forms if form not in here]

    def met(self, step: int, before: Form | None, form: Form) -> None:
        """Notes that ``form`` was met at ``step``, after the form ``before``."""
        if len(self._met) < _MOST_PLACES:
            here = self._met.setdefault((step, before), [])
            if form not in here:
                here.append(form)

    def learn(self, form: Form) -> bool:
        """Whether ``form`` is new and there is room for it."""
        if len(self._forms) >= _MOST_FORMS or len(form.fixed) > _MOST_HEAD_BYTES or form in self._forms:
            return False
        self._forms.append(form)
        return True


def walk_records(
    data: npt.NDArray[np.uint8], rows: _Places, starts: _Places, stops: _Places, book: FormBook, found: SpanCollector
) -> None:
    """Adds the entries of ``rows``, whose records are ``data[start:stop]``, to ``found``."""
    places = _enter_features(data, starts, stops)
    odd = places < 0
    if odd.any():
        found.odd.append(rows[odd])
        rows, places, stops = rows[~odd], places[~odd], stops[~odd]
    groups: list[_Group] = [(None, rows, places, stops)]
    step = 0
    while groups:
        after: list[_Group] = []
        for before, *group in groups:
            more = group[1] < group[2]
            rows, places, stops = group if more.all() else (numbers[more] for numbers in group)
            if rows.size <= _FEW:
                _scan_rest(data, rows, places, stops, found)
            else:
                after += _Step(data, rows, places, stops, found).walk(book, step, before)
        groups = _merge_small(after)
        step += 1


def _merge_small(groups: list[_Group]) -> list[_Group]:
    """The groups, the small ones in one."""
    small = [group[1:] for group in groups if group[1].size < _MANY]
    if len(small) < 2:
        return groups
    rows, places, stops = map(np.concatenate, zip(*small, strict=True))
    return [*(group for group in groups if group[1].size >= _MANY), (None, rows, places, stops)]


class _Step:
    """The next entry of each record of a group: which of the forms it has, and where the one after it starts."""

    def __init__(
        self, data: npt.NDArray[np.uint8], rows: _Places, places: _Places, stops: _Places, found: SpanCollector
    ) -> None:
        self._data = data
        self._rows = rows
        self._places = places
        self._stops = stops
        self._found = found
        self._windows: npt.NDArray[np.void] | None = None
        self._groups: list[_Group] = []

    def walk(self, book: FormBook, step: int, before: Form | None) -> list[_Group]:
        """The records that go on, in a group for each form."""
        for form in book.candidates(step, before):
            if self._fit(form):
                book.met(step, before, form)
                if self._rows.size <= _FEW:
                    break
        for _ in range(_MOST_LESSONS):
            if self._rows.size <= _FEW:
                break
            try:
                form = scan_entry(self._data[self._places[0] : self._stops[0]].tobytes(), 0).form
            except OtherFormError:
                break
            if not book.learn(form):
                break
            if self._fit(form):
                book.met(step, before, form)
        _scan_rest(self._data, self._rows, self._places, self._stops, self._found)
        return self._groups

    def _fit(self, form: Form) -> bool:
        """Takes the records whose next entry has this form out of those that are left; whether there were any."""
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


def _enter_features(data: npt.NDArray[np.uint8], starts: _Places, stops: _Places) -> _Places:
    """Where each record's first entry stands; the end for a record without any; -1 for another form."""
    sizes = stops - starts
    words = _words(take_windows(data, starts, 8))[:, 0]
    places = np.full(starts.size, -1)
    places[sizes == 0] = starts[sizes == 0]
    most = int(sizes.max())
    least = 2
    for width in range(1, 6):  # of the length, by the size of the record; another width is another form
        largest = width + (1 << 7 * width)
        if least <= most:
            here = (sizes >= least) & (sizes <= largest)
            length = (sizes - 1 - width).astype(np.uint64)
            expected = np.full(starts.size, _FIELD_1, np.uint64)
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


def _scan_rest(
    data: npt.NDArray[np.uint8], rows: _Places, places: _Places, stops: _Places, found: SpanCollector
) -> None:
    """The entries from each of ``places`` on, read in Python."""
    odd = []
    for row, start, stop in zip(rows.tolist(), places.tolist(), stops.tolist(), strict=True):
        try:
            found.add_record(row, scan_entries(data[start:stop].tobytes(), 0), start)
        except OtherFormError:
            odd.append(row)
    if odd:
        found.odd.append(np.array(odd, np.int64))
