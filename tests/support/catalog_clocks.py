"""Sets the clocks of this machine, of the database server, and of stores for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from unittest import mock

from registry.catalog import clock
from registry.storage import Store


@contextmanager
def set_clocks(ahead: timedelta = timedelta(), *, jumps: bool = False) -> Iterator[None]:
    """For the block, clocks of catalogs show a time ``ahead`` of the real one, since this process began.

    With ``jumps``, this process began with a correct clock.
    """
    began = datetime.now(UTC) + (timedelta() if jumps else ahead), clock._uptime()

    def show(*_: object) -> datetime:
        return datetime.now(UTC) + ahead

    with (
        mock.patch.object(clock, "_machine_clock", show),
        mock.patch.object(clock, "_server_clock", show),
        mock.patch.object(clock, "_file_clock", show),
        mock.patch.object(clock, "_start", began),
    ):
        yield


@contextmanager
def freeze_clocks(moment: datetime) -> Iterator[None]:
    """For the block, clocks of catalogs show ``moment``."""
    with (
        mock.patch.object(clock, "_machine_clock", return_value=moment),
        mock.patch.object(clock, "_server_clock", return_value=moment),
        mock.patch.object(clock, "_file_clock", return_value=moment),
        mock.patch.object(clock, "_refuse_jump"),
    ):
        yield


@contextmanager
def set_store_clock(ahead: timedelta) -> Iterator[None]:
    """For the block, the clocks of stores show a time ``ahead`` of the real one; the times of files stay."""
    with mock.patch.object(Store, "now", return_value=datetime.now(UTC) + ahead):
        yield


@contextmanager
def as_before() -> Iterator[None]:
    """For the block, events follow a wrong clock, as in older releases."""
    with mock.patch.object(clock, "TOLERANCE", timedelta.max):
        yield
