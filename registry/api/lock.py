"""Locks look-ups: every reference must name one version exactly, or be in a pin file.

A reproducible result must not depend on what ``mnist:3.*`` means today. ``with registry.locked():`` locks a block,
``$REGISTRY_LOCKED`` a whole program with all its threads, and ``--locked`` one command. With a pin file, every look-up
is answered from its pins, without the catalog, and anything else is refused. ``Catalog.look_up`` uses ``current_lock``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from registry.argument_types import typed_arguments
from registry.environment import malformed_setting, read_variable
from registry.errors import LockedError, UsageError
from registry.lazy import lazy_types
from registry.model import describe_moment

if TYPE_CHECKING:  # pydantic is loaded when a pin file is read
    from registry.model import Reference
    from registry.pins import PinFile
else:
    lazy_types(globals(), {"registry.pins": "PinFile"})

LOCKED_VARIABLE: Final = "REGISTRY_LOCKED"

_ON: Final = frozenset({"1", "true", "yes", "on"})
_OFF: Final = frozenset({"", "0", "false", "no", "off"})


class Lock(NamedTuple):
    """The condition on look-ups in a locked block: the reference must be exact or, with ``pins``, pinned."""

    pins: PinFile | None = None


_lock: ContextVar[Lock | None] = ContextVar("registry_lock", default=None)


@typed_arguments
@contextmanager
def locked(
    pins: PinFile | str | os.PathLike[str] | None = None,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    fetch: bool = False,
    allow_hosts: Iterable[str] = (),
) -> Iterator[Lock]:
    """Refuse every look-up in this block that does not name one version exactly, or is not in ``pins``.

    Blocks nest, and apply to the task or thread that entered them. A thread that is started inside a block is not
    locked unless it runs in a copy of the context (``contextvars.copy_context().run``). To lock a whole program, set
    ``$REGISTRY_LOCKED`` to 1.

        with registry.locked():
            mnist = catalog.dataset("mnist/plain:3.0.1")
            catalog.dataset("mnist")   # LockedError: the hint names the version that it gives today

        with registry.locked("dataset.lock.yaml"):
            registry.load("mnist:3.*", split="train[:80%]")   # the pinned records; no catalog is opened
            registry.load("mnist:3.*", split="test")          # LockedError, if that is not pinned

    Args:
        pins: a pin file, or its path. A reference resolves to a matching pinned version, and only slices within its
            pinned records can be read. Datasets that were looked up before are not locked. ``$REGISTRY_LOCKED`` may
            also name a pin file.
        data_dir: folder with the shards of the pins; see ``load_pin``.
        fetch: allow requests to locations that the pins name; see ``load_pin``.
        allow_hosts: allow requests to these hosts; see ``load_pin``.

    Raises:
        NotStoredError, StorageError: the pin file does not exist, or cannot be read.
        PinFormatError, PinChangedError: the pin file is malformed, or was edited.
        UsageError: ``data_dir``, ``fetch`` or ``allow_hosts`` is given without ``pins``,
            or an allowed host is not a valid host, bucket or folder.
        LockedError: a look-up in the block uses a reference without a version, with a wildcard, a range or an alias, or
            without the config of a dataset that has configs; or, with ``pins``, a reference that is not pinned.
    """
    if pins is None and data_dir is not None:
        raise UsageError("data_dir needs a pin file: it is the folder of the pinned shards")
    if fetch or allow_hosts:
        if pins is None:
            raise UsageError("fetch and allow_hosts need a pin file: they allow locations of the pinned shards")
        opened = _open_pins(pins, data_dir)
        pins = opened and opened.with_places(opened.places.allowing(fetch=fetch, hosts=allow_hosts))
    outer = current_lock()
    entered = Lock(pins=_open_pins(pins, data_dir) if pins is not None or outer is None else outer.pins)
    token = _lock.set(entered)
    try:
        yield entered
    finally:
        _lock.reset(token)


def is_locked() -> bool:
    """Whether look-ups are locked here.

    >>> import registry
    >>> with registry.locked():
    ...     registry.is_locked()
    True

    Raises:
        UsageError: ``$REGISTRY_LOCKED`` is neither on, nor off, nor a pin file.
    """
    return current_lock() is not None


def current_lock() -> Lock | None:
    """The lock of the innermost block, else of ``$REGISTRY_LOCKED``, or None.

    Raises:
        UsageError: ``$REGISTRY_LOCKED`` is neither on, nor off, nor a pin file.
        NotStoredError, PinFormatError, PinChangedError: it names a pin file that cannot be used.
    """
    entered = _lock.get()
    if entered is not None:
        return entered
    value = read_variable(LOCKED_VARIABLE).strip()
    if value.endswith((".yaml", ".yml")):
        return Lock(pins=_pins_of_program(value))
    if value.lower() not in _ON | _OFF:
        hint = "Set it to 1 to lock every look-up, to the path of a pin file (.yaml), or to 0."
        raise malformed_setting(LOCKED_VARIABLE, value, "1, 0 or the path of a pin file", hint=hint)
    return Lock() if value.lower() in _ON else None


@cache
def _pins_of_program(path: str) -> PinFile | None:
    return _open_pins(path, None)


def _open_pins(
    pins: PinFile | str | os.PathLike[str] | None, data_dir: str | os.PathLike[str] | None
) -> PinFile | None:
    if pins is None or not isinstance(pins, str | os.PathLike):
        return pins
    from registry.api.locations import open_pin_file

    return open_pin_file(pins, data_dir)


def refuse_moving(reference: Reference, given: Reference | None, moment: datetime | None) -> LockedError:
    """The error for a reference that is not exact. ``given`` is the version it resolves to at ``moment``, or None."""
    when = "Today it resolves to" if moment is None else f"At {describe_moment(moment)} it resolved to"
    return LockedError(
        f"{reference} does not name one version exactly, and look-ups are locked",
        hint=f"{when} {given}. Write that." if given else "Name one version, e.g. mnist:3.0.1 or mnist/plain:3.0.1.",
        details={"reference": str(reference), "exactly": None if given is None else str(given)},
    )
