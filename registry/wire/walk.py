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

_MOST_FORMS: Final = 128
_MOST_HEAD_BYTES: Final = 256
_MOST_LESSONS: Final = 32
_MOST_STEPS: Final = 256
_FIELD_1: Final = 0x0A

_Places = npt.NDArray[np.int64]


class FormBook:
    """The forms that were met, in the order in which they are to be tried at each step."""

    def __init__(self) -> None:
        self._forms: list[Form] = []
        self._steps: list[list[Form]] = []

    def candidates(self, step: int) -> Iterator[Form]:
        """All forms, those first that were met at this step."""
        here = list(self._steps[step]) if step < len(self._steps) else []
        yield from here
        yield from [form for form in self._forms if form not in here]

    def met(self, step: int, form: Form) -> None:
        """Notes that ``form`` fitted at ``step``."""
        if step < _MOST_STEPS:
            while len(self._steps) <= step:
                self._steps.append([])
            if form not in self._steps[step]:
                self._steps[step].append(form)

    def learn(self, form: Form) -> bool:
        """Whether ``form`` is new and there is room for it."""
        if len(self._forms) >= _MOST_FORMS or len(form.fixed) > _MOST_HEAD_BYTES or form in self._forms:
            return False
        self._forms.append(form)
        return True


def walk_records(
    data: npt.NDArray[np.uint8],
    rows: _Places,
    starts: _Places,
    stops: _Places,
    book: FormBook,
    found: SpanCollector,
) -> None:
    """Adds the entries of ``rows``, whose records are ``data[start:stop]``, to ``found``."""
    places = _enter_features(data, starts, stops)
    odd = places < 0
    if odd.any():
        found.odd.append(rows[odd])
        rows, places, stops = rows[~odd], places[~odd], stops[~odd]
    step = 0
    while rows.size:
        more = places < stops
        if not more.all():
            rows, places, stops = rows[more], places[more], stops[more]
        if rows.size <= _FEW:
            _scan_rest(data, rows, places, stops, found)
            return
        rows, places, stops = _Step(data, rows, places, stops, book, found).walk(step)
        step += 1


class _Step:
    """One entry of each record: which of the forms it has, and where the next one starts."""

    def __init__(
        self,
        data: npt.NDArray[np.uint8],
        rows: _Places,
        places: _Places,
        stops: _Places,
        book: FormBook,
        found: SpanCollector,
    ) -> None:
        self._data = data
        self._rows = rows
        self._places = places
        self._stops = stops
        self._book = book
        self._found = found
        self._next: _Places | None = None
        self._open: npt.NDArray[np.bool_] | None = None
        self._windows = np.empty((rows.size, 0), np.uint8)

    def walk(self, step: int) -> tuple[_Places, _Places, _Places]:
        """The records that go on: rows, the places of their next entries, and where they end."""
        for form in self._book.candidates(step):
            if self._fit(form):
                self._book.met(step, form)
            if self._next is not None and self._open is None:
                return self._rows, self._next, self._stops
        for _ in range(_MOST_LESSONS):
            left = self._left()
            if left.size <= _FEW:
                break
            place = int(self._places[left[0]])
            try:
                form = scan_entry(self._data[place : self._stops[left[0]]].tobytes(), 0).form
            except OtherFormError:
                break
            if not self._book.learn(form):
                break
            if self._fit(form):
                self._book.met(step, form)
        left = self._left()
        _scan_rest(self._data, self._rows[left], self._places[left], self._stops[left], self._found)
        if self._next is None or self._open is None:
            done = np.full(self._rows.size, self._next is not None)
        else:
            done = ~self._open
        places = self._places if self._next is None else self._next
        return self._rows[done], places[done], self._stops[done]

    def _left(self) -> _Places:
        if self._open is not None:
            return np.flatnonzero(self._open)
        return np.arange(self._rows.size if self._next is None else 0)

    def _fit(self, form: Form) -> bool:
        """Takes the entries that have this form; whether there were any."""
        size = len(form.words) * 8
        if self._windows.shape[1] < size:
            self._windows = take_windows(self._data, self._places, max(32, size))
        words = self._windows.view("<u8")
        word, mask, same = form.words[0]
        hit = (words[:, word] & mask) == same
        if self._open is not None:
            hit &= self._open
        at = None if hit.all() else np.flatnonzero(hit)
        if at is not None and not at.size:
            return False
        windows = self._windows if at is None else self._windows[at]
        words = windows.view("<u8")
        places, stops = (self._places, self._stops) if at is None else (self._places[at], self._stops[at])
        own, agree = form.read_lengths(windows)
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
            places, own, after = places[kept], own[kept], after[kept]
        head = len(form.fixed)
        self._found.add(
            form, self._rows if at is None else self._rows[at], places + head, own - (head - form.num_entry_bytes)
        )
        if at is None:
            self._next, self._open = after, None
            return True
        if self._next is None or self._open is None:
            self._next = self._places.copy()
            self._open = np.ones(self._rows.size, np.bool_)
        self._next[at] = after
        self._open[at] = False
        if not self._open.any():
            self._open = None
        return True


def _enter_features(data: npt.NDArray[np.uint8], starts: _Places, stops: _Places) -> _Places:
    """Where each record's first entry stands; the end for a record without any; -1 for another form."""
    sizes = stops - starts
    places = np.where(sizes == 0, starts, -1)
    windows = take_windows(data, starts, 8)
    tagged = windows[:, 0] == _FIELD_1
    length = np.zeros(starts.size, np.int64)
    going = tagged
    for width in range(1, 6):
        octet = windows[:, width]
        length |= (octet & np.uint8(0x7F)).astype(np.int64) << (7 * (width - 1))
        ends = going & (octet < 0x80) & (length == sizes - 1 - width)
        places = np.where(ends, starts + 1 + width, places)
        going = going & (octet >= 0x80)
        if not going.any():
            break
    return places


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
