"""The backend of a catalog whose SQLite file does not exist: reading it is an error, and publishing creates it.

    connect("lab.db")  ->  AbsentCatalog  --dataset("digits")-->  CatalogNotFoundError, and no file
                                          --build("digits")--->  the file, which answers from then on

So a mistyped path in Python leaves nothing behind, as on the command line, and a script that publishes needs no flag.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from threading import Lock
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from registry.api.locations import make_catalog_folder, name_origin
from registry.catalog import masked_url, open_catalog

if TYPE_CHECKING:
    import os

    from registry.catalog import CatalogBackend

P = ParamSpec("P")
R = TypeVar("R")


class AbsentCatalog:
    """Passes calls to the catalog once its file exists, whoever created it; before that, they raise.

    Attributes:
        url: as ``CatalogBackend.url``.
    """

    def __init__(self, url: str, named: str | os.PathLike[str] | None) -> None:
        """``url`` is the file; ``named`` is what the caller passed to ``connect``, for the hint of the error."""
        self.url = masked_url(url)
        self._file = url
        self._named = named
        self._lock = Lock()
        self._opened: CatalogBackend | None = None
        self._empty: CatalogBackend | None = None

    @contextmanager
    def publishing(self, *, dry_run: bool) -> Iterator[None]:
        """Create the file; for a dry run, answer in this block as an empty catalog does, and create nothing."""
        if not dry_run or self._opened is not None or self._empty is not None:
            if not dry_run:
                self._open(create=True)
            yield
            return
        from tempfile import TemporaryDirectory  # slow to import, and rarely needed

        with TemporaryDirectory(prefix="registry-") as folder:
            self._empty = open_catalog(f"{folder}/catalog.db")
            try:
                yield
            finally:
                empty, self._empty = self._empty, None
                empty.close()

    def close(self) -> None:
        """Close the connections, if there are any."""
        if self._opened is not None:
            self._opened.close()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # e.g. asked by pickle
            raise AttributeError(name)
        return getattr(self._empty or self._open(create=False), name)

    def _open(self, *, create: bool) -> CatalogBackend:
        with self._lock:
            if self._opened is None:
                with name_origin(self._named):
                    if create:
                        make_catalog_folder(self._file)
                    self._opened = open_catalog(self._file, create=create)
            return self._opened


def absent_catalog(url: str, named: str | os.PathLike[str] | None) -> CatalogBackend:
    """A backend for the SQLite file at ``url``, which does not exist, or is empty."""
    return cast("CatalogBackend", AbsentCatalog(url, named))


def to_publish(backend: CatalogBackend, *, dry_run: bool = False) -> AbstractContextManager[None]:
    """A block that publishes to ``backend``: it creates the file of an SQLite catalog, unless it is a dry run."""
    absent: object = backend
    return absent.publishing(dry_run=dry_run) if isinstance(absent, AbsentCatalog) else nullcontext()


def publishes(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a method of ``Catalog`` that publishes, unless its argument ``dry_run`` is True."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        catalog: Any = args[0]
        with to_publish(catalog.backend, dry_run=bool(kwargs.get("dry_run", False))):
            return function(*args, **kwargs)

    return call


def previews(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a method of ``Catalog`` that computes what a publication would do: nothing is created."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        catalog: Any = args[0]
        with to_publish(catalog.backend, dry_run=True):
            return function(*args, **kwargs)

    return call
