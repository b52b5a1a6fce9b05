"""Waits while the database or the store of a publication is away, so that finished work is not thrown away.

    step -> a fault that may pass -> pause -> the same step again -> ... -> result, or the last fault

A server that restarts or fails over is unavailable for seconds to minutes. Each step of a publication after the work
(proof, reservation, upload, row) can be repeated, because it detects the results of earlier attempts. Refusals are not
repeated.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

from registry.environment import malformed_setting, read_variable
from registry.errors import CatalogUnavailableError, StorageUnavailableError, UsageError, WaitingWarning, warn
from registry.model import Progress, ProgressCallback, parse_duration

T = TypeVar("T")

VARIABLE: Final = "REGISTRY_PUBLISH_TIMEOUT"
DEFAULT_SECONDS: Final = 600.0
_FIRST_PAUSE_SECONDS: Final = 0.5
_LONGEST_PAUSE_SECONDS: Final = 10.0
_REMIND_SECONDS: Final = 60.0


class Patience:
    """Repeats steps whose database or store does not answer.

    Attributes:
        seconds: the maximum length of an outage; 0 does not wait.
        away: the fault of the step that is being repeated or was given up; None if the last step succeeded.
        notes: the outages that have ended, for people.
    """

    def __init__(self, seconds: float = 0.0, progress: ProgressCallback | None = None) -> None:
        """``progress`` is called about once a second while a step waits."""
        self.seconds = seconds
        self.away: CatalogUnavailableError | StorageUnavailableError | None = None
        self.notes: list[str] = []
        self._progress = progress

    @classmethod
    def from_environment(cls, progress: ProgressCallback | None = None) -> Patience:
        """Read ``REGISTRY_PUBLISH_TIMEOUT``: seconds, or a duration such as ``10m``.

        Raises:
            UsageError: the variable is malformed.
        """
        text = read_variable(VARIABLE).strip()
        try:
            if text.replace(".", "", 1).isdecimal():
                return cls(float(text), progress)
            return cls(parse_duration(text).total_seconds() if text else DEFAULT_SECONDS, progress)
        except (UsageError, ValueError):
            hint = f"Set it to seconds or a duration, e.g. {VARIABLE}=10m, or unset it. 0 does not wait."
            raise malformed_setting(VARIABLE, text, "seconds or a duration", hint=hint) from None

    def take_notes(self) -> list[str]:
        """Return the notes, and clear them: each belongs to one publication."""
        notes, self.notes = self.notes, []
        return notes

    def call(self, step: Callable[[], T]) -> T:
        """Return the result of ``step``, repeating it while the database or the store does not answer.

        Raises:
            CatalogUnavailableError, StorageUnavailableError: the outage lasted longer than ``seconds``.
        """
        begun: float | None = None
        pause = _FIRST_PAUSE_SECONDS
        told_at = float("-inf")
        while True:
            try:
                result = step()
            except (CatalogUnavailableError, StorageUnavailableError) as error:
                now = time.monotonic()
                begun, self.away = now if begun is None else begun, error
                end = begun + self.seconds
                if now >= end:
                    raise
                if now - told_at >= _REMIND_SECONDS:
                    _warn(f"{error.message}; will keep trying for {_duration(end - now)}")
                    told_at = now
                # Half of the pause is random, so that many publishers do not return to a server at the same moment.
                self._wait(min(end, now + pause * random.uniform(0.5, 1)), begun, error)  # noqa: S311 (no secret)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            else:
                if begun is not None:
                    self.notes.append(f"waited {_duration(time.monotonic() - begun)} for {_peer(self.away)}")
                self.away = None
                return result

    def _wait(self, until: float, begun: float, error: CatalogUnavailableError | StorageUnavailableError) -> None:
        while (now := time.monotonic()) < until:
            if self._progress is not None:
                stage = f"waiting for {_peer(error)}"
                done, total = int(now - begun), int(self.seconds)
                self._progress(Progress(stage=stage, done=min(done, total), total=total, unit="seconds"))
            time.sleep(min(1.0, until - now))


def _peer(error: BaseException | None) -> str:
    return "the store" if isinstance(error, StorageUnavailableError) else "the catalog"


def _warn(text: str) -> None:
    with suppress(WaitingWarning):  # a filter that makes warnings errors must not end the publication
        warn(text, WaitingWarning)


def _duration(seconds: float) -> str:
    """A length of time for people.

    >>> _duration(9.6), _duration(119), _duration(600)
    ('10 s', '119 s', '10 minutes')
    """
    whole = round(seconds)
    return f"{whole} s" if whole < 120 else f"{round(whole / 60):,} minutes"
