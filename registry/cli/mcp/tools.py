"""The tools for agents: each is a command with bounds, and answers with the document of its ``--format json``.

    arguments --a model of pydantic--> values --the function of the tool--> the document of a command --> Answer

Functions get a ``ToolSession``, which says which catalog they see and how much they may read, so the same tools serve
the owner of a catalog over stdio and the holders of tokens below a service. No tool opens a path or a URL that a model
names; ``registry.cli.mcp.publishing`` has the ones that change something.
"""

from __future__ import annotations

import logging
import os
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from inspect import Parameter, getdoc, signature, unwrap
from itertools import islice
from time import sleep
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, get_type_hints

import click
from pydantic import ConfigDict, Field, ValidationError, create_model

from registry import errors
from registry.cli import browse, resolve, stats
from registry.cli import sql as sql_command
from registry.cli.commands import Session
from registry.cli.faults import Failure, argument_hider, describe_failure
from registry.cli.head import open_rows, row_values
from registry.cli.mcp.answers import Answer, CapturedOutput, WholeText, error_answer
from registry.cli.pin.showing import pin_values
from registry.cli.progress import show_progress
from registry.cli.read import example_converter, filtered, jsonable
from registry.display import describe_file, shrink, text_of
from registry.envelope import Records
from registry.errors import (
    CatalogUnavailableError,
    NotFoundError,
    QueryError,
    RegistryError,
    StorageError,
    UsageError,
    require_extra,
    suggest,
)
from registry.escaping import size
from registry.features import Image
from registry.images import encode_png
from registry.masking import mask
from registry.pages.rendering import is_about_request
from registry.shards.isolated import WorkerEndedError, call_isolated

if TYPE_CHECKING:
    from pydantic import BaseModel

    from registry.api import Catalog
    from registry.model import DatasetVersion
    from registry.reading import Reader
    from registry.splits import Plan

_MOST_NUMBERS: Final = 64
_MOST_LIST: Final = 100
_PICTURE_SIDE: Final = 128
_MOST_PICTURES: Final = 10

_GRACE: Final = 2
"""Seconds after its time limit at which work is killed."""

_QUERY_LIMITS: Final = {"memory_limit": "256MB", "max_temp_directory_size": "1GB", "threads": "2"}

_MOST_HEAVY: Final = 2
"""How many heavy tools a process runs at a time, at most one for each token."""

_logger = logging.getLogger(__name__)

Text = Annotated[str, Field(min_length=1, max_length=500)]
Ref = Annotated[
    str,
    Field(
        min_length=1,
        max_length=500,
        description="name[/config][:request | @alias], such as mnist, mnist:3.0.1, 'mnist:3.*' or mnist@paper.",
    ),
]
Split = Annotated[
    str, Field(min_length=1, max_length=2_000, description="A split expression, such as train, train[:10%] or all.")
]
At = Annotated[
    Annotated[str, Field(max_length=60)] | None,
    Field(description="Look up as of the end of that day, or as of that moment, in UTC: 2026-01-31."),
]
"""Of the tools that look up a reference; see ``Tool.is_dated``."""

Where = Annotated[
    Annotated[str, Field(max_length=2_000)] | None,
    Field(description="Only the rows that match, such as \"price > 10 and label in ('cat', 'dog')\"."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSession(Session):
    """A call of a tool: the catalog that it sees, and its limits.

    Attributes:
        opened: opens the catalog; None opens the one of ``url``.
        reopened: opens it in another process.
        most_bytes: how many bytes of records it may read. None sets no limit.
        holder: the token of the caller of a service; ``""`` for the owner.
        folders: folders whose files may be published.
        out: receives the document.
    """

    out: CapturedOutput
    opened: Callable[[], Catalog] | None = None
    reopened: Callable[[], Catalog] | None = None
    most_bytes: int | None = None
    holder: str = ""
    folders: tuple[str, ...] = ()

    @property
    def is_owner(self) -> bool:
        """Whether the tool runs on its user's machine, so that answers may contain local paths."""
        return not self.holder

    def connect(self, *references: str | None, create: bool | None = False) -> Catalog:
        """See ``Session.connect``."""
        return self.opened() if self.opened is not None else Session.connect(self, *references, create=create)

    def require_room(self, num_bytes: int) -> None:
        """Refuse to read more than the caller's limit.

        Raises:
            UsageError: the tool would read more.
        """
        if self.most_bytes is not None and num_bytes > self.most_bytes:
            raise UsageError(
                f"the server would have to read {size(num_bytes)} of records: the limit is {size(self.most_bytes)}",
                hint="Name a smaller slice, or read them on your machine: registry mcp --catalog URL",
                details={"num_bytes": num_bytes, "most_bytes": self.most_bytes},
            )


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A function that agents can call.

    Attributes:
        name: its name.
        function: gets a ToolSession and the values of the arguments, and presents a document.
        is_heavy: whether it may read many records, so that only few run at a time.
        is_dated: whether it looks up a reference, so that it accepts a moment.
        hints: hints of the protocol, such as ``destructive_hint``; None if the tool only reads.
    """

    name: str
    function: Callable[..., None]
    is_heavy: bool = False
    is_dated: bool = False
    hints: Mapping[str, bool] | None = None
    description: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "description", getdoc(self.function) or "")

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of the arguments."""
        return self.model.model_json_schema()

    @cached_property
    def model(self) -> type[BaseModel]:
        """The arguments. Unknown ones are refused."""
        hints = get_type_hints(self.function, include_extras=True)
        fields: dict[str, Any] = {
            name: (hints[name], ... if parameter.default is Parameter.empty else parameter.default)
            for name, parameter in signature(self.function).parameters.items()
            if name != "session"
        }
        if self.is_dated:
            fields["at"] = (At, None)
        return create_model(self.name, __config__=ConfigDict(extra="forbid"), **fields)

    def call(self, session: ToolSession, arguments: Mapping[str, Any]) -> Answer:
        """Run the tool. Failures become answers."""
        hide = argument_hider(value for value in arguments.values() if isinstance(value, str))
        try:
            values = self._read(arguments)
            if self.is_dated:
                session = replace(session, at=values.pop("at"))
            with _turns.take(session) if self.is_heavy else nullcontext():
                self.function(session, **values)
            return session.out.answer()
        except Exception as error:  # noqa: BLE001 (an agent gets each as an answer, and no traceback)
            failure = describe_failure(error)
            is_shown = session.is_owner or is_about_request(error)
            if not isinstance(error, RegistryError) or not is_shown:
                _report(error)
            failure = failure if is_shown else _HIDDEN
            return error_answer(failure.code, hide(failure.message), hide(failure.hint), hide(failure.details))

    def _read(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        try:
            model = self.model.model_validate(arguments)
        except ValidationError as error:
            faults = [f"{'.'.join(map(str, fault['loc']))[:80]}: {fault['msg']}" for fault in error.errors()[:5]]
            names = ", ".join(self.model.model_fields) or "none"
            raise UsageError(
                f"the arguments of {self.name} are invalid: {'; '.join(faults)}", hint=f"Its arguments are: {names}."
            ) from None
        return {name: getattr(model, name) for name in type(model).model_fields}


def run_command(command: click.Command, session: ToolSession, **values: Any) -> None:
    """Run the function of a command, without the options of the command line."""
    assert command.callback is not None  # noqa: S101 (each command has one)
    unwrap(command.callback)(session, **values)


def list_datasets(
    session: ToolSession,
    *,
    tag: Text | None = None,
    like: Annotated[str | None, Field(max_length=300, description="A pattern of names, such as mnist*.")] = None,
) -> None:
    """List the datasets of the catalog by name, with their canonical version, sizes and descriptions."""
    conditions = {"tags": () if tag is None else (tag,), "like": like, "owner": None, "state": None, "sort": "name"}
    run_command(browse.list_, session, every=False, **conditions)


def search(session: ToolSession, *, text: Text, limit: Annotated[int, Field(ge=1, le=100)] = 20) -> None:
    """Find datasets that match all words of a text: in names, tags, features, labels and descriptions."""
    run_command(browse.search, session, text=(text,), limit=limit, every=False)


def show(session: ToolSession, *, reference: Ref) -> None:
    """Show one dataset version: its splits, features, labels, licence, citation, state and description."""
    run_command(browse.show, session, reference=reference, why=False)
    if not session.is_owner:
        session.out.leave_out("folder")


def versions(session: ToolSession, *, dataset: Ref) -> None:
    """List every version of a dataset, highest first: which is canonical, deprecated or yanked, and why."""
    run_command(browse.versions, session, reference=dataset)


def diff(session: ToolSession, *, old: Ref, new: Ref, show: Annotated[int, Field(ge=0, le=20)] = 5) -> None:
    """Show what changed between two versions: features, metadata, and records that were added, removed or changed."""
    with session.connect() as catalog, show_progress(session.out) as progress:
        changes = catalog.diff(old, new, show=show, most_bytes=session.most_bytes, progress=progress)
    session.out.present("diff", changes.to_json())


def statistics(
    session: ToolSession, *, reference: Ref, split: Text | None = None, column: Text | None = None, at: At = None
) -> None:
    """Show statistics of the values of a version: ranges, means, classes, lengths, nulls, duplicates.

    They were computed when the version was published. Name a column for all of its details.
    """
    run_command(stats.stats, session, reference=reference, split=split, column=column, compute=False, processes=None)


def records(
    session: ToolSession,
    *,
    reference: Ref,
    split: Split | None = None,
    limit: Annotated[int, Field(ge=1, le=100)] = 10,
    columns: Annotated[list[Text] | None, Field(max_length=100, description="Only these features.")] = None,
    where: Where = None,
    pictures: Annotated[bool, Field(description="Add small pictures of the first column of images.")] = False,
) -> None:
    """Show the first rows of a slice. Classes are shown by name; images, sounds and large arrays are described.

    Without a split, the rows are those of train, or of the first split.
    """
    with session.connect_unless_pinned() as catalog:
        dataset, reader = open_rows(session, catalog, reference, split)
        num_rows = len(reader) if where is not None else min(limit, len(reader))
        session.require_room(_num_bytes(dataset.facts, reader.plan) * num_rows // max(len(reader), 1))
        reader = filtered(session, reader, where)
        reader = reader if columns is None else reader.select(columns)
        convert = example_converter(dataset.metadata, reader, names=True, files=True)
        first: list[Any] = []

        def rows() -> Iterator[Any]:
            for row in islice(reader.files_as_bytes(), limit):
                session.out.watch()
                if pictures and len(first) < _MOST_PICTURES:
                    first.append(row)
                yield _brief(row if convert is None else convert(row))

        session.out.present("head", row_values(dataset, reader, where, Records(rows())))
    session.out.pictures = tuple(_pictures(reader, first))


def resolve_split(session: ToolSession, *, reference: Ref, split: Split) -> None:
    """Show which records of which files a split expression selects, and explain each bound."""
    run_command(resolve.resolve, session, reference=reference, split=split, slicing=_NO_SLICING, why=True)


def query(
    session: ToolSession,
    *,
    sql: Annotated[str, Field(min_length=1, max_length=20_000, description="One SELECT statement, for DuckDB.")],
    limit: Annotated[int, Field(ge=1, le=500)] = 50,
) -> None:
    """Run one SELECT on records. A table is a quoted reference and split: FROM "digits:1.*[train]".

    Class labels are shown by name. The query cannot access files, the network or settings.
    """
    with require_extra("sql", package="duckdb", needed_for="a query in SQL"):
        import duckdb  # noqa: F401
    # Some SQL functions cannot be interrupted, such as a regular expression over one long text.
    request = _Query(replace(session, opened=session.reopened, reopened=None), sql, limit)
    try:
        out = call_isolated(_answer_query, request, path="the records", seconds=session.out.seconds_left + _GRACE)
    except StorageError:
        session.out.watch()  # it took too long
        raise
    except WorkerEndedError as error:
        raise QueryError("the query crashed the process that computed it", hint="Ask for less.") from error
    session.out.take(out)


def pin(
    session: ToolSession,
    *,
    reference: Ref,
    splits: Annotated[list[Split], Field(min_length=1, max_length=20, description="The slices to pin.")],
) -> None:
    """Pin slices of a version: return the text of a pin file, which names their records and proves them with digests.

    Nothing is written. The file makes it possible to read the same records years later.
    """
    with session.connect() as catalog, show_progress(session.out) as progress:
        dataset = session.look_up(catalog, reference)
        session.require_room(sum(_num_bytes(dataset.facts, dataset.resolve(split)) for split in splits))
        pins = dataset.pin(*splits, progress=progress)
    value = {"file": None, "digest": pins.digest, "pins": [pin_values(each) for each in pins.values()]}
    session.out.present("pin.create", {**value, "text": WholeText(pins.to_yaml())})


def explain_error(session: ToolSession, *, code: Annotated[str, Field(min_length=1, max_length=80)]) -> None:
    """Explain the code of an error of the registry: what it means, and what kind of error it is."""
    kinds = _error_kinds()
    if code not in kinds:
        raise NotFoundError(f"no error has the code {code!r}", hint=suggest(code, reversed(kinds)))
    parents = [kind.code for kind in kinds[code].__mro__[1:] if issubclass(kind, RegistryError)]
    value = {"code": code, "meaning": getdoc(kinds[code]), "kinds": [*dict.fromkeys(parents)]}
    session.out.present("error", {**value, "exit_code": kinds[code].exit_code})


TOOLS: Final = {
    tool.name: tool
    for tool in (
        Tool(name="list", function=list_datasets),
        Tool(name="search", function=search),
        Tool(name="show", function=show, is_dated=True),
        Tool(name="versions", function=versions, is_dated=True),
        Tool(name="diff", function=diff, is_heavy=True),
        Tool(name="statistics", function=statistics, is_heavy=True, is_dated=True),
        Tool(name="records", function=records, is_heavy=True, is_dated=True),
        Tool(name="resolve", function=resolve_split, is_dated=True),
        Tool(name="sql", function=query, is_heavy=True, is_dated=True),
        Tool(name="pin", function=pin, is_heavy=True, is_dated=True),
        Tool(name="explain_error", function=explain_error),
    )
}
"""The tools that only read."""


_NO_SLICING: Final = {"slicing": None, "rounding": None}
_HIDDEN: Final = Failure("failure", "the server could not read the data for this tool", "Ask an admin of the catalog.")


class _Query(NamedTuple):
    session: ToolSession
    sql: str
    limit: int


def _answer_query(request: _Query) -> CapturedOutput:
    """The output of a session with the rows of a query. It is called in a worker process."""
    from registry.interop.export_tables import json_value, plain_rows
    from registry.reading.frameworks.sql import Query

    session, sql, limit = request
    _end_with_parent()
    num_bytes = 0
    with session.connect_unless_pinned() as catalog:

        def open_table(name: str) -> Reader:
            nonlocal num_bytes
            reader = sql_command.open_table(session, catalog, name)
            num_bytes += _num_bytes(reader.readable.facts, reader.plan)
            session.require_room(num_bytes)
            return reader

        query = Query(sql, open_table, limits=_QUERY_LIMITS)
        timer = threading.Timer(session.out.seconds_left, query.interrupt)
        timer.start()
        try:
            schema, batches = query.rows()
            rows = (json_value(row) for batch in batches for row in plain_rows(batch))
            session.out.present("sql", {"columns": schema.names, "rows": Records(islice(rows, limit))})
            if next(rows, None) is not None:
                session.out.shortener.cut("data.rows", limit, None)
        except RegistryError:
            session.out.watch()  # it was interrupted
            raise
        finally:
            timer.cancel()
    return session.out


@cache
def _end_with_parent() -> None:
    """End this process when its parent has ended, even during work that cannot be interrupted."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class Turns:
    """Limits the number of heavy tools that run at a time, to one for each token, so that nobody blocks the others."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running: list[str] = []
        self._waiting: list[str] = []

    @contextmanager
    def take(self, session: ToolSession) -> Iterator[None]:
        """Wait for a turn, and keep it during the block.

        Raises:
            CatalogUnavailableError: the wait takes too long, or another call of the same token is waiting: waiting
                calls occupy threads.
        """
        holder = session.holder
        busy = CatalogUnavailableError("other tools are running", hint="Try again later.", details={"http_status": 503})

        def is_free() -> bool:
            return len(self._running) < _MOST_HEAVY and (session.is_owner or holder not in self._running)

        with self._changed:
            if not session.is_owner and holder in self._waiting:
                raise busy
            self._waiting.append(holder)
            try:
                if not self._changed.wait_for(is_free, session.out.seconds_left):
                    raise busy
            finally:
                self._waiting.remove(holder)
            self._running.append(holder)
        try:
            yield
        finally:
            with self._changed:
                self._running.remove(holder)
                self._changed.notify_all()


_turns: Final = Turns()


def _report(error: Exception) -> None:
    """Log an error whose details are hidden from the agent."""
    _logger.error("a tool failed: %s", mask("".join(traceback.format_exception(error))))


def _num_bytes(version: DatasetVersion, plan: Plan) -> int:
    """The approximate number of bytes of records that a plan of a version reads."""
    sizes = {split.name: split.num_bytes / max(split.num_examples, 1) for split in version.splits}
    return sum(int(sizes[span.split] * span.num_examples) for span in plan.ranges)


def _brief(value: Any) -> Any:
    """A value of an example as JSON: large arrays and bytes are described, and long lists are cut."""
    if isinstance(value, Mapping):
        return {name: _brief(item) for name, item in value.items()}
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return describe_file(value)
    if isinstance(value, str) or not hasattr(value, "__len__"):
        return jsonable(value)
    if getattr(value, "size", 0) > _MOST_NUMBERS:
        return text_of(value)
    items = [_brief(item) for item in islice(iter(value), _MOST_LIST)]
    return items if len(value) <= _MOST_LIST else [*items, f"… {len(value):,} in all"]


def _pictures(reader: Reader, rows: Sequence[Any]) -> Iterator[bytes]:
    """Small pictures of the first column of images."""
    images = ((name, feature) for name, feature in reader.features.items() if isinstance(feature, Image))
    for name, leaf in islice(images, 1):
        small = (shrink(leaf, row[name], _PICTURE_SIDE) for row in rows)
        yield from (encode_png(pixels) for pixels in small if pixels is not None)


def _error_kinds() -> dict[str, type[RegistryError]]:
    """The error classes by code; a class without its own code has the code of its base, which is defined before it."""
    kinds = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, RegistryError)]
    return {kind.code: kind for kind in reversed(kinds)}
