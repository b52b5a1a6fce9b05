"""The progress of a long call: what a ``progress`` callback receives, and the counter that calls it.

The Python API and the command line share ``Progress``. Inner layers only report counts, through the function that
``count_progress`` returns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

Unit: TypeAlias = Literal["records", "bytes", "rows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a long call is. Every long call of the API takes ``progress``, a function of one ``Progress``.

    A call has one or more stages, one after the other. ``done`` starts at 0 in each stage and never decreases. The
    function is called in the thread that made the call or, if the call uses threads, by one of them at a time.

    >>> print(Progress(stage="verifying", subject="digits:1.0.0", done=1200, total=1797))
    verifying digits:1.0.0: 1,200 of 1,797 records

    Attributes:
        stage: what is being done, e.g. ``encoding``, ``writing``, ``verifying``, ``hashing``.
        subject: what it is being done to: a version, a split or a file, or ``""``.
        done: units done in this stage so far.
        total: units in this stage, or None if the number is not known yet.
        unit: what is counted: ``records``, ``bytes`` or ``rows`` of the catalog.
    """

    stage: str
    subject: str = ""
    done: int
    total: int | None = None
    unit: Unit = "records"

    def __str__(self) -> str:
        what = f"{self.stage} {self.subject}".rstrip()
        return f"{what}: {self.done:,} {'' if self.total is None else f'of {self.total:,} '}{self.unit}"


ProgressCallback: TypeAlias = Callable[[Progress], None]
Advance: TypeAlias = Callable[[int], None]
"""Called with the number of units done since the last call."""


def count_progress(
    progress: ProgressCallback | None,
    stage: str,
    subject: str = "",
    *,
    total: int | None = None,
    unit: Unit = "records",
    announce: bool = False,
) -> Advance | None:
    """The function that inner layers call with counts, which calls ``progress`` with their sum; None for None.

    ``announce`` calls ``progress`` once before the first count, with 0 done.

    >>> advance = count_progress(print, "hashing", "train", total=10, unit="bytes")
    >>> advance(4), advance(6)
    hashing train: 4 of 10 bytes
    hashing train: 10 of 10 bytes
    (None, None)
    """
    if progress is None:
        return None
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        progress(Progress(stage=stage, subject=subject, done=done, total=total, unit=unit))

    if announce:
        advance(0)
    return advance
