"""The backend of a catalog whose SQLite file does not exist: reading it is an error, and publishing creates it.

    connect("lab.db")  ->  AbsentCatalog  --dataset("digits")-->  CatalogNotFoundError, and no file
                                          --build("digits")--->  an empty catalog, until a write creates the file

A mistyped path in Python therefore leaves nothing behind, as on the command line, and a script that publishes needs no
flag. A publication that is refused, or fails before it writes, leaves nothing behind either.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, cast

from registry.catalog import masked_url, open_catalog, sqlite_path
from registry.catalog.policy import READS
from registry.catalog.wrapper import CatalogWrapper, pass_call
from registry.errors import CatalogNotFoundError, SchemaBehindError

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory

    from registry.catalog.backend import CatalogBackend

P = ParamSpec("P")
R = TypeVar("R")


class OpenCatalog(Protocol):
    """Opens the catalog; with ``create``, its file is created if it does not exist."""

    def __call__(self, *, create: bool) -> CatalogBackend: ...


class AbsentCatalog(CatalogWrapper):
    """Passes calls to the catalog as soon as its file exists, regardless of who created it. Before that, calls raise.

    Attributes:
        url: see ``CatalogBackend.url``.
        file: see ``CatalogBackend.file``.
        is_created: whether this object created the file.
    """

    def __init__(self, url: str, open_file: OpenCatalog) -> None:
        """``url`` is the SQLite file, which does not exist, or is empty."""
        self.url = masked_url(url)
        self.file = sqlite_path(url)
        self.is_created = False
        self._path = (self.file or Path()).absolute()
        self._open_file = open_file
        self._lock = RLock()
        self._opened: CatalogBackend | None = None
        self._empty: CatalogBackend | None = None
        self._folder: TemporaryDirectory[str] | None = None
        self._blocks: list[bool] = []  # for each active block, whether it may create the file

    @contextmanager
    def publishing(self, *, dry_run: bool) -> Iterator[None]:
        """Behave like an empty catalog in this block. The first write creates the file, unless it is a dry run.

        A call that publishes may contain other calls, such as a preview: the outermost block decides.
        """
        with self._lock:
            if not self._blocks and self._opened is None:
                from tempfile import TemporaryDirectory  # slow to import, and rarely needed

                self._folder = TemporaryDirectory(prefix="registry-")
                self._empty = open_catalog(f"{self._folder.name}/catalog.db")
            self._blocks.append(not dry_run and (not self._blocks or any(self._blocks)))
        try:
            yield
        finally:
            with self._lock:
                self._blocks.pop()
                if not self._blocks and self._empty is not None and self._folder is not None:
                    empty, self._empty = self._empty, None
                    empty.close()
                    self._folder.cleanup()

    def require_publisher(self) -> None:
        """See ``CatalogBackend.require_publisher``. Also checks that the file can be created."""
        if not self._is_there():
            above = next(folder for folder in self._path.parents if folder.exists())
            places = [self._path, above] if self._path.exists() else [above]
            if above.is_dir() and all(os.access(place, os.W_OK) for place in places):
                return
        self._open(create=True).require_publisher()

    def close(self) -> None:
        """Close the connections, if there are any."""
        if self._opened is not None:
            self._opened.close()

    def _call(self, call: str, *args: Any, **kwargs: Any) -> Any:
        if self._empty is None or self._is_there():
            return pass_call(self._open(create=False), call, *args, **kwargs)
        if call in READS or not any(self._blocks):
            return pass_call(self._empty, call, *args, **kwargs)
        if "." in call and not call.startswith("reservations."):  # a call that an empty catalog refuses creates no file
            pass_call(self._empty, call, *args, **kwargs)
        return pass_call(self._open(create=True), call, *args, **kwargs)

    def _is_there(self) -> bool:
        """Whether the file exists now: another process may have published in the meantime."""
        if self._opened is None and self._path.exists():
            try:
                self._open(create=False)
            except (CatalogNotFoundError, SchemaBehindError) as error:
                if error.details.get("revision") is not None:  # a catalog of an older release was put there
                    raise
        return self._opened is not None

    def _open(self, *, create: bool) -> CatalogBackend:
        with self._lock:
            if self._opened is None:
                self._opened = self._open_file(create=create)
                self.is_created = create
            return self._opened


def absent_catalog(url: str, open_file: OpenCatalog) -> CatalogBackend:
    """A backend for the SQLite file at ``url``, which does not exist, or is empty."""
    return cast("CatalogBackend", AbsentCatalog(url, open_file))


def is_created(backend: CatalogBackend) -> bool:
    """Whether ``backend`` created its file."""
    absent: object = backend
    return isinstance(absent, AbsentCatalog) and absent.is_created


def to_publish(backend: CatalogBackend, *, dry_run: bool = False) -> AbstractContextManager[None]:
    """A block that publishes to ``backend``. Its first write creates a missing SQLite file; a dry run never does."""
    absent: object = backend
    return absent.publishing(dry_run=dry_run) if isinstance(absent, AbsentCatalog) else nullcontext()


def publishes(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a method of ``Catalog`` that publishes, unless its argument ``dry_run`` is True."""
    return _in_block(function, is_preview=False)


def previews(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a method of ``Catalog`` that previews a publication: no file is created."""
    return _in_block(function, is_preview=True)


def _in_block(function: Callable[P, R], *, is_preview: bool) -> Callable[P, R]:
    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        catalog: Any = args[0]
        with to_publish(catalog.backend, dry_run=is_preview or bool(kwargs.get("dry_run", False))):
            return function(*args, **kwargs)

    return call
