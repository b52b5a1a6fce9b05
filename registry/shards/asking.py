"""Queries a store about many files at a time. One request after another would take minutes for 10,000 objects."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import TypeVar

from registry.engines import Piece, choose_engine
from registry.errors import StorageError
from registry.storage import Store

T = TypeVar("T")


def ask_each(
    store: Store, ask: Callable[[str], T], names: Iterable[str], *, doing: str
) -> Generator[tuple[str, T | StorageError], None, None]:
    """Yield each name with the result of ``ask``, such as ``store.size``, or with its error, in order.

    A store of another machine gets several requests at the same time. If the caller closes the generator, few of the
    other requests are sent.
    """

    def answer(name: str) -> T | StorageError:
        try:
            return ask(name)
        except StorageError as error:
            return error

    is_local = store.local_root is not None
    pieces = (Piece(answer, name) for name in names)
    with choose_engine(num_bytes=0 if is_local else None, is_local=is_local, is_unlocked=True) as engine:
        yield from engine.run(pieces, doing=doing, failure=StorageError)


def ask_sizes(store: Store, names: Iterable[str]) -> Generator[tuple[str, int | StorageError], None, None]:
    """Yield each name with the size of the file in bytes, or with an error; see ``ask_each``."""
    return ask_each(store, store.size, names, doing="asked for sizes")


def find_sizes(store: Store, names: Iterable[str]) -> dict[str, int]:
    """Return the size of each file, in bytes.

    Raises:
        StorageError: a file is missing, or the store does not answer.

    >>> from registry.storage import open_store
    >>> store = open_store("memory://sizes")
    >>> store.write_bytes("one", b"abc")
    >>> find_sizes(store, ["one"])
    {'one': 3}
    """
    result = {}
    for name, size in ask_sizes(store, names):
        if isinstance(size, StorageError):
            raise size
        result[name] = size
    return result


def list_sizes(store: Store) -> dict[str, int]:
    """Return the size of each file that ``store.list()`` names, in bytes: for a bucket, from a second listing.

    Raises:
        StorageError: the store cannot be listed.
    """
    names = store.list()
    # The scan of a disk returns the sizes of links, not of the files that they point to.
    scanned = {} if store.local_root is not None else {entry.name: entry.num_bytes for entry in store.scan()}
    result = {name: scanned[name] for name in names if name in scanned}
    result |= find_sizes(store, [name for name in names if name not in scanned])
    return {name: result[name] for name in names}
