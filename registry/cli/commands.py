"""Defines commands with the common options, and the ``Session`` that those options describe.

``session_command`` parses the options and passes a ``Session`` to the function of the command.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from shlex import quote
from textwrap import dedent, indent
from typing import TYPE_CHECKING, Any, Final, cast

import click

from registry.cli.engine import ENGINE_OPTIONS, chosen_engine
from registry.cli.output import Output
from registry.environment import read_variable
from registry.errors import RegistryError, RegistryWarning, VerificationError, hints_spelled_by
from registry.masking import has_secret
from registry.model import Reference, rename_note

if TYPE_CHECKING:  # sqlalchemy is loaded when a catalog is opened
    from registry.api import Catalog, Dataset
    from registry.catalog import AliasChange, LocationChange
    from registry.splits import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The values of the common options: catalog, data directory, output format, and how to look up."""

    url: str | None
    data_dir: str | None
    out: Output
    at: str | None = None
    locked: bool = False
    given_by: str = "--catalog"

    @property
    def catalog_url(self) -> str:
        """The catalog that ``connect`` opens: the named one, or the default."""
        from registry.api import catalog_url

        return catalog_url(self.url)

    @property
    def is_sqlite(self) -> bool:
        """Whether the catalog is an SQLite file; otherwise, it is on a server that others may use."""
        from registry.catalog import sqlite_path

        return sqlite_path(self.catalog_url) is not None

    @property
    def pasted_options(self) -> str:
        """``--catalog`` and ``--data-dir`` for a command in a hint, with a space before each.

        Options that are set in the environment are left out. A URL with a password is never printed: the command in the
        hint reads it from the environment.
        """
        options = ""
        if self.url and self.url != read_variable("REGISTRY_CATALOG"):
            options += ' --catalog "$REGISTRY_CATALOG"' if has_secret(self.url) else f" --catalog {quote(self.url)}"
        if self.data_dir and self.data_dir != read_variable("REGISTRY_DATA_DIR"):
            secret = has_secret(self.data_dir)
            options += ' --data-dir "$REGISTRY_DATA_DIR"' if secret else f" --data-dir {quote(self.data_dir)}"
        return options

    def connect(self, *references: str | None, create: bool | None = False) -> Catalog:
        """Open the catalog. A missing SQLite file is an error: its path may be mistyped. See ``registry.connect``.

        Prints a note for each of ``references`` with a former name of a dataset, as ``look_up`` does.
        """
        from registry.api import connect

        with self.name_origin() if self.url is not None else nullcontext():
            catalog = connect(self.url, data_dir=self.data_dir, create=create)
        for reference in filter(None, references):
            with suppress(RegistryError):  # the command itself reports it
                name = Reference.parse(reference).name
                if (note := rename_note(catalog.present_name(name), name)) is not None:
                    self.out.note(f"note: {note}")
        return catalog

    @contextmanager
    def connect_to_publish(self, *, dry_run: bool = False, announce: bool = False) -> Iterator[Catalog]:
        """Open the catalog, which the first write creates. A dry run creates nothing, and sees an empty catalog.

        ``announce`` is for commands that publish nothing: a note says that the catalog is new, because its path may be
        mistyped.
        """
        from registry.catalog.absent import is_created, to_publish

        with self.connect(create=None) as catalog, to_publish(catalog.backend, dry_run=dry_run):
            yield catalog
            if announce and is_created(catalog.backend):
                self.out.note(f"note: created the catalog {catalog.url}")

    def name_origin(self) -> AbstractContextManager[None]:
        """Make errors of the catalog say which option or variable names it, or that it is the default."""
        from registry.api import locations

        return locations.name_origin(self.url, given_by=self.given_by)

    def connect_unless_pinned(self) -> AbstractContextManager[Catalog | None]:
        """The opened catalog, or None if look-ups are locked to a pin file, which needs no catalog."""
        from registry.api.lock import current_lock

        lock = current_lock()
        return self.connect() if lock is None or lock.pins is None else nullcontext()

    @contextmanager
    def dataset(self, reference: str) -> Iterator[Dataset]:
        """A block with the dataset that ``reference`` names; see ``look_up``."""
        with self.connect_unless_pinned() as catalog:
            yield self.look_up(catalog, reference)

    def look_up(self, catalog: Catalog | None, reference: str) -> Dataset:
        """The dataset that ``reference`` names. Prints a note if the version is experimental, deprecated or yanked."""
        from registry.api import locked
        from registry.api.loading import find_dataset

        with locked() if self.locked else nullcontext():
            dataset = find_dataset(reference, at=self.at, catalog=catalog)
        self.out.notes(dataset.notes)
        return dataset


_LOCKED: Final = click.option(
    "--locked", is_flag=True, help="Refuse REF unless it names one version exactly.  [also: $REGISTRY_LOCKED]"
)
_AT: Final = click.option(
    "--at", metavar="DATE", help="Look up as of the end of that day, or as of that moment, in UTC."
)
_FORMAT: Final = click.option(
    "--format",
    "output_format",
    type=click.Choice(["human", "json"]),
    default="human",
    help="Print tables, or one JSON value for scripts.",
)
_DATA_DIR: Final = click.option(
    "--data-dir",
    metavar="DIR",
    help="Data directory with the shards.  [default: $REGISTRY_DATA_DIR, else the one that the catalog records]",
)
_CATALOG: Final = click.option(
    "--catalog",
    "url",
    metavar="URL",
    help="SQLite file, or URL of a database, a service or a site.  [default: $REGISTRY_CATALOG, else a file in your "
    "data folder]",
)


def session_command(
    name: str,
    *,
    group: click.Group | None = None,
    at: bool = False,
    locked: bool = False,
    catalog: bool = True,
    engine: str | None = None,
    decodes: bool = False,
    data_dir: Callable[[Any], Any] | None = None,
    output_format: Callable[[Any], Any] | None = None,
    **attributes: Any,
) -> Callable[[Callable[..., Any]], click.Command]:
    """Define a click command with ``--catalog``, ``--data-dir`` and ``--format``, whose function gets a Session first.

    Its help page is the docstring of the function, see ``documented``.

    Args:
        name: the name of the command.
        group: the group to which the command is added, if any.
        at: add ``--at``, for commands that look up a reference.
        locked: add ``--locked``, for commands that look up a reference.
        catalog: add ``--catalog`` and ``--data-dir``; False for commands that open no catalog.
        engine: the activity of the command, e.g. ``building``, if a cluster can do it: add ``--engine`` and its
            settings.
        decodes: the command always decodes records, and runs no code of others: see ``_import_numpy``.
        data_dir: the ``--data-dir`` option to add instead of the common one, even without a catalog.
        output_format: the ``--format`` option to add instead of the common one.
        attributes: passed to ``click.command``.
    """
    doing, format_option = engine, output_format or _FORMAT

    def decorate(function: Callable[..., Any]) -> click.Command:
        @functools.wraps(function)
        def wrapped(
            output_format: str,
            url: str | None = None,
            data_dir: str | None = None,
            at: str | None = None,
            locked: bool = False,
            **arguments: Any,
        ) -> Any:
            out = Output(as_json=output_format == "json")
            session = Session(url=url, data_dir=data_dir, out=out, at=at, locked=locked)
            chosen = nullcontext() if doing is None else chosen_engine(out, doing, arguments)
            spelling = functools.partial(_spell_option, click.get_current_context().command.params)
            with _warnings_as_notes(out), hints_spelled_by(spelling), chosen:
                if decodes:
                    _import_numpy()
                return function(session, **arguments)

        wanted = (
            (_LOCKED, locked),
            (_AT, at),
            (format_option, True),
            *((option, engine is not None) for option in ENGINE_OPTIONS),
            (data_dir or _DATA_DIR, catalog or data_dir is not None),
            (_CATALOG, catalog),
        )
        for option, is_wanted in wanted:  # in reverse: help lists the last decorator first
            wrapped = option(wrapped) if is_wanted else wrapped
        result = cast("click.Command", documented(click.command, name, **attributes)(wrapped))
        if group is not None:
            group.add_command(result)
        return result

    return decorate


def _import_numpy() -> None:
    """Import NumPy without the threads of OpenBLAS, unless the user sets their number.

    They are for products of matrices of floats, which the registry does not compute, and their start takes a quarter of
    the CPU time of ``registry read``. Programs and worker processes that the command starts do not see the variable.
    """
    if (name := "OPENBLAS_NUM_THREADS") not in os.environ:
        os.environ[name] = "1"
        try:
            import numpy  # noqa: F401, ICN001
        finally:
            del os.environ[name]


def _spell_option(parameters: Iterable[click.Parameter], name: str, value: Any) -> str | None:
    """How the command with these parameters spells an argument of Python: ``--from csv`` for ``kind="csv"``.

    Returns None if the command has no such option.

    >>> options = [click.Option(["--feature", "features"], multiple=True), click.Option(["--no-verify"])]
    >>> _spell_option(options, "features", {"unit price": "Text"}), _spell_option(options, "verify", False)
    ("--feature 'unit price=Text'", '--no-verify')
    >>> _spell_option(options, "features", {"": "skip"})
    "--feature '=skip'"
    >>> _spell_option([click.Option(["--key"])], "key=COLUMN", None), _spell_option([], "key", "id")
    ('--key COLUMN', None)
    """
    name, _, metavar = name.partition("=")
    options = {option.name: option for option in parameters if isinstance(option, click.Option)}
    if value is False and f"no_{name}" in options:
        name, value = f"no_{name}", True
    option = options.get(name)
    words = [] if option is None else option.secondary_opts if value is False else option.opts
    if option is None or not words:
        return None
    word = max(words, key=len)
    if value is None or isinstance(value, bool) or value in ([], {}):
        return f"{word} {metavar}".rstrip()
    texts = [str(value)]
    if isinstance(value, Mapping):
        texts = [f"{key}={item}" for key, item in value.items()] if option.multiple else [json.dumps(value)]
    elif isinstance(value, list):
        texts = value if option.multiple else [",".join(value)]
    # zsh expands a word that starts with "=", which quote leaves as it is.
    return " ".join(f"{word} '{text}'" if quote(text)[:1] == "=" else f"{word} {quote(text)}" for text in texts)


@contextmanager
def _warnings_as_notes(out: Output) -> Iterator[None]:
    """Print warnings of the library as notes, without file and line."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", RegistryWarning)
        show = warnings.showwarning

        def tell(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, RegistryWarning):
                out.note(f"note: {message}")
            else:
                show(message, category, *place, **more)

        warnings.showwarning = tell
        yield


def version_values(reference: Reference) -> dict[str, Any]:
    """The fields that identify a version in a result."""
    return {"dataset": reference.dataset, "version": reference.exact}


def change_values(change: AliasChange | LocationChange) -> dict[str, Any]:
    """The fields of a result that describe a change and whether it was made."""
    return {
        "before": change.before,
        "after": change.after,
        "changed": change.is_change and not change.is_dry_run,
        "would_change": change.is_change,
        "dry_run": change.is_dry_run,
    }


def joint_exit_code(exit_codes: Iterable[int]) -> int:
    """The exit code of a command that continued after failures: 5 if a verification failed, else the highest."""
    codes = set(exit_codes)
    return VerificationError.exit_code if VerificationError.exit_code in codes else max(codes, default=0)


def note_overlaps(out: Output, plan: Plan) -> None:
    """Print a note if ``plan`` reads records more than once."""
    if plan.overlaps:
        from registry.splits import print_ranges

        out.note(f"note: {plan.expression} reads some records more than once: {print_ranges(plan.overlaps)}")


def documented(make: Callable[..., Any], name: str, **attributes: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorate a function as a command or group whose help page is the docstring of the function.

    The section ``Examples:`` must be the last of the docstring, and is also the last of the page.

    Args:
        make: ``click.command`` or ``click.group``.
        name: the name of the command.
        attributes: passed to ``make``.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        text, heading, lines = (inspect.getdoc(function) or "").partition("\n\nExamples:\n")
        epilog = f"\b{heading[1:]}{indent(dedent(lines), '  ')}" if lines else None
        return make(name, help=text, epilog=epilog, **attributes)(function)

    return decorate
