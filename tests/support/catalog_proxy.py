"""A catalog behind a socket: every call and every result goes through pickle, as through a network.

Whatever is not a picklable value, or holds a connection, fails on the way. Shard lengths that load more are sent as the
name of their split, and bound to the client, as every implementation of the protocol has to do.
"""

from __future__ import annotations

import io
import pickle
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any, cast

from registry.catalog import CatalogBackend, LoadedShardLengths

GROUPS = ("access", "aliases", "configs", "experiments", "lifecycle", "locations", "log", "reservations", "shards")


class _Answers(pickle.Pickler):
    """Results on their way to the client."""

    def persistent_id(self, value: object) -> tuple[Any, ...] | None:
        if isinstance(value, LoadedShardLengths):
            return value.split_id, value.name, len(value), value.num_examples
        return None


class _Received(pickle.Unpickler):
    """Results that the client has received; ``shards`` loads the lengths of their splits."""

    def __init__(self, data: bytes, shards: Any) -> None:
        super().__init__(io.BytesIO(data))
        self.shards = shards

    def persistent_load(self, named: tuple[Any, ...]) -> LoadedShardLengths:
        split_id, name, num_shards, num_examples = named
        return LoadedShardLengths(
            self.shards, split_id=split_id, name=name, num_shards=num_shards, num_examples=num_examples
        )


class ProxyCatalog:
    """The client: each thread has a connection of its own. Callbacks are not sent: the protocol allows that."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._local = threading.local()
        for name in GROUPS:
            setattr(self, name, _Group(self, name))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in ("url", "file"):
            return self.call(name)
        return lambda *given, **options: self.call(name, *given, **options)

    def call(self, name: str, *given: Any, **options: Any) -> Any:
        options.pop("advance", None)
        if not hasattr(self._local, "connection"):
            self._local.connection = Client(self._address, "AF_UNIX")
        self._local.connection.send_bytes(pickle.dumps((name, given, options)))
        is_error, result = _Received(self._local.connection.recv_bytes(), self.shards).load()
        if is_error:
            raise result
        return result

    def __enter__(self) -> ProxyCatalog:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class _Group:
    def __init__(self, catalog: ProxyCatalog, name: str) -> None:
        self._catalog, self._name = catalog, name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *given, **options: self._catalog.call(f"{self._name}.{name}", *given, **options)


@contextmanager
def serve(catalog: CatalogBackend, folder: Path) -> Iterator[CatalogBackend]:
    """A client of ``catalog``, which answers over a socket in ``folder``."""
    listener = Listener(str(folder / "catalog.socket"), "AF_UNIX", backlog=64)

    def accept() -> None:
        with suppress(OSError):  # closed
            while True:
                threading.Thread(target=answer, args=(listener.accept(),), daemon=True).start()

    def answer(connection: Connection) -> None:
        with suppress(EOFError, OSError):
            while True:
                name, given, options = pickle.loads(connection.recv_bytes())  # noqa: S301 (sent by the client above)
                buffer = io.BytesIO()
                _Answers(buffer).dump(perform(catalog, name, given, options))
                connection.send_bytes(buffer.getvalue())

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield cast("CatalogBackend", ProxyCatalog(str(folder / "catalog.socket")))
    finally:
        listener.close()


def perform(catalog: CatalogBackend, name: str, given: tuple[Any, ...], options: dict[str, Any]) -> tuple[bool, Any]:
    """Whether the call failed, and its result or its error."""
    try:
        found: Any = catalog
        for part in name.split("."):
            found = getattr(found, part)
        result = found if name in ("url", "file") else found(*given, **options)
        pickle.dumps(result)  # what cannot be sent is the error of this call
    except BaseException as error:  # noqa: BLE001 (whatever it is, the client raises it)
        return True, error
    return False, result
