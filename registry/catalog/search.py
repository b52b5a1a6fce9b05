"""Ranked full-text search: the same hits in the same order on both databases.

There is one document for each config. It describes one version: the canonical one, else the highest that is
neither yanked nor dropped, else the highest. A hit names the version that ``registry list`` names, so not a canonical
version that was withdrawn. A document matches if every searched word begins one of its words. The
score of a hit is a sum over words and fields: the value of the field if the word begins a word there, twice that value
if the whole word matches. ``SCORES`` are far apart: one match in a name counts more than all matches in tags, features,
description and details together, one match in tags or features more than all in description and details, and so on.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import sqlalchemy as sa

from registry.catalog.faults import REINDEX
from registry.catalog.names import names_column
from registry.catalog.rows import by_bytes, decode_metadata, read_canonical, read_identity, read_names
from registry.catalog.search_words import (
    FIELDS,
    SearchWords,
    document_words,
    matched_fields,
    name_words,
    parse_search,
    snippet,
)
from registry.catalog.selection import CANONICAL_NUMBER, NAMES, NUMBER, canonical_version, list_names
from registry.catalog.session import reading, write
from registry.catalog.tables import READABLE, builder, builder_config, dataset_version, search_document
from registry.catalog.urls import describe_url
from registry.catalog.values import SearchHit, stored_values
from registry.catalog.web_urls import first_step
from registry.errors import CatalogError, UsageError
from registry.model import VersionState, listed, version_status, whole_number

SCORES: Final = {"A": 64, "B": 16, "C": 4, "D": 1}
"""The value of a match in a name (A), in tags or features (B), in the description (C), and in details (D)."""

_EXACT: Final = 10_000
"""The score of a dataset whose whole name was searched: above any sum of words."""

_COLUMNS: Final = {"A": "name", "B": "tags features", "C": "description", "D": "details"}
_ALL: Final = "".join(SCORES)

_BLOCK: Final = 500
_MAX_LIMIT: Final = 2**31 - 1


def find_hits(connection: sa.Connection, text: str, *, limit: int = 20) -> tuple[SearchHit, ...]:
    """See ``CatalogBackend.search``; hits of withdrawn datasets come last, equal scores are sorted by name."""
    limit = whole_number(limit, "limit")
    if not 1 <= limit <= _MAX_LIMIT:
        raise UsageError(f"a search shows from 1 to {_MAX_LIMIT:,} hits, not {limit!s:.40}")
    asked = parse_search(text)
    kind = connection.dialect.name
    readable = sa.select(dataset_version.c.id).where(
        dataset_version.c.config_id == search_document.c.config_id, sa.text(READABLE)
    )
    ranked = (
        sa.select(
            search_document.c.config_id,
            _score(kind, asked).label("score"),
            (~readable.correlate(search_document).exists()).label("is_withdrawn"),
        )
        .join_from(search_document, builder_config, builder_config.c.id == search_document.c.config_id)
        .join(builder, builder.c.id == builder_config.c.builder_id)
        .where(_matches(kind, asked.words))
        .order_by("is_withdrawn", sa.desc("score"), *by_bytes(kind, builder.c.name, builder_config.c.name))
        .limit(limit)
        .subquery("ranked")
    )
    readable_canonical = (
        sa.select(dataset_version.c.id)
        .where(dataset_version.c.id == builder_config.c.canonical_version_id, sa.text(READABLE))
        .correlate(builder_config)
        .scalar_subquery()
    )
    query = (
        sa.select(
            search_document,
            ranked.c.score,
            ranked.c.is_withdrawn,
            *NAMES,
            *NUMBER,
            dataset_version.c.state,
            dataset_version.c.metadata_json,
            *CANONICAL_NUMBER,
        )
        .select_from(ranked)
        .join(search_document, search_document.c.config_id == ranked.c.config_id)
        .join(builder_config, builder_config.c.id == search_document.c.config_id)
        .join(builder, builder.c.id == builder_config.c.builder_id)
        .join(dataset_version, dataset_version.c.id == sa.func.coalesce(readable_canonical, *_best_of_config()))
        .outerjoin(canonical_version, canonical_version.c.id == builder_config.c.canonical_version_id)
        .order_by(ranked.c.is_withdrawn, ranked.c.score.desc(), *by_bytes(kind, builder.c.name, builder_config.c.name))
    )
    with stored_values():
        return tuple(_read_hit(row, asked) for row in connection.execute(query))


def explain_no_hits(connection: sa.Connection, text: str) -> str:
    """See ``CatalogBackend.explain_no_hits``: one or two sentences. Raises the errors of ``find_hits``."""
    asked = parse_search(text)
    names = list_names(connection)
    if not names:
        return f"The catalog is empty. {first_step(describe_url(connection.engine.url))}"
    kind = connection.dialect.name
    documents = sa.select(search_document.c.config_id)
    is_there = [documents.where(_matches(kind, (word,))).exists() for word in asked.words]
    found = connection.execute(
        sa.select(*(condition.label(f"word_{index}") for index, condition in enumerate(is_there)))
    ).one()
    missing = [word for word, is_found in zip(asked.words, found, strict=True) if not is_found]
    if not missing:
        return f"No dataset has all of these words: {', '.join(asked.words)}. Each of them alone has matches."
    unfound = [word for word in missing if any(part.startswith(word) for name in names for part in name_words(name))]
    if unfound:
        raise CatalogError(
            f"the search index of {describe_url(connection.engine.url)} is damaged: it lacks {unfound[0]!r}, a word in "
            "the name of a dataset",
            hint=REINDEX,
        )
    nearest = _nearest(missing, names)
    offer = f" Did you mean {', '.join(nearest)}?" if nearest else ""
    return f"Nothing matches {', '.join(repr(word) for word in missing)}.{offer}"


def refresh(connection: sa.Connection, *config_ids: int) -> None:
    """Write the documents of configs again, after one of their versions was published or changed its state.

    It is part of the caller's transaction. On PostgreSQL, other transactions that refresh the same config wait until it
    ends, so each sees what the one before it wrote.
    """
    is_chosen = builder_config.c.id.in_(config_ids)
    lock = sa.select(builder_config.c.id).where(is_chosen).order_by(builder_config.c.id)
    connection.execute(lock.with_for_update(key_share=True))
    rows = connection.execute(_shown().where(is_chosen).order_by(builder_config.c.id)).all()
    connection.execute(sa.delete(search_document).where(search_document.c.config_id.in_(config_ids)))
    if rows:
        connection.execute(sa.insert(search_document), [{"config_id": row.config_id, **_document(row)} for row in rows])


def stale_documents(connection: sa.Connection) -> Iterator[tuple[int, str]]:
    """Id and name of each config whose document is missing, or differs from what ``refresh`` would write."""
    query = _shown().outerjoin(search_document, search_document.c.config_id == builder_config.c.id)
    columns = [search_document.c[name].label(f"stored_{name}") for name in ("version_id", *FIELDS)]
    for row in connection.execute(query.add_columns(*columns), execution_options={"yield_per": _BLOCK}):
        stored = row._asdict()
        if any(stored[f"stored_{name}"] != value for name, value in _document(row).items()):
            yield row.config_id, f"{row.builder_name}/{row.config_name}".removesuffix("/")
    is_config = sa.exists().where(builder_config.c.id == search_document.c.config_id)
    for config_id in connection.execute(sa.select(search_document.c.config_id).where(~is_config)).scalars():
        yield config_id, f"config {config_id}, which does not exist"


def _best_of_config() -> tuple[sa.ScalarSelect[int], sa.ScalarSelect[int]]:
    """The highest version of a config that is neither yanked nor dropped, and the highest."""
    of_config = (
        sa.select(dataset_version.c.id)
        .where(dataset_version.c.config_id == builder_config.c.id)
        .order_by(*(part.desc() for part in NUMBER))
        .limit(1)
        .correlate(builder_config)
    )
    return of_config.where(sa.text(READABLE)).scalar_subquery(), of_config.scalar_subquery()


@cache
def _shown() -> sa.Select[Any]:
    """The version that the document of each config describes. An index finds it: a config may have many versions."""
    chosen = sa.func.coalesce(builder_config.c.canonical_version_id, *_best_of_config())
    return (
        sa.select(
            dataset_version.c.id,
            dataset_version.c.config_id,
            dataset_version.c.metadata_json,
            dataset_version.c.features_json,
            dataset_version.c.labels_json,
            *NAMES,
            names_column(),
        )
        .select_from(builder_config)
        .join(builder, builder.c.id == builder_config.c.builder_id)
        .join(dataset_version, dataset_version.c.id == chosen)
    )


def _document(row: sa.Row[*tuple[Any, ...]]) -> dict[str, Any]:
    words = document_words(
        row.builder_name,
        row.config_name,
        metadata_json=row.metadata_json,
        features_json=row.features_json,
        labels_json=row.labels_json,
        names=read_names(row),
    )
    return {"version_id": row.id, **words}


def _matches(kind: str, words: tuple[str, ...], weights: str = _ALL, *, whole: bool = False) -> sa.ColumnElement[bool]:
    """The condition that each of ``words`` begins (``whole``: is) a word in a field that has one of ``weights``.

    Words consist of letters and digits, and are quoted, so that no word is an operator.
    """
    if kind == "postgresql":
        from sqlalchemy.dialects.postgresql import TSQUERY

        ending = f":{'' if whole else '*'}{weights}"
        asked = " & ".join(f"'{word}'{ending}" for word in words)
        return sa.literal_column("search_document.vector").op("@@", is_comparison=True)(sa.cast(asked, TSQUERY))
    columns = " ".join(_COLUMNS[weight] for weight in weights)
    asked = " AND ".join(f'"{word}"{"" if whole else " *"}' for word in words)
    index = sa.table("search_index", sa.column("rowid"))
    is_match = sa.literal_column("search_index").op("MATCH", is_comparison=True)(f"{{{columns}}} : ({asked})")
    return search_document.c.config_id.in_(sa.select(index.c.rowid).where(is_match))


def _score(kind: str, search_words: SearchWords) -> sa.ColumnElement[int]:
    score: sa.ColumnElement[int] = sa.case(
        (search_document.c.name == search_words.joined, _EXACT),
        (
            search_document.c.name.startswith(f"{search_words.joined} "),
            _EXACT,
        ),  # the first word is the dataset's whole name
        else_=0,
    )
    for word in search_words.words:
        for weight, points in SCORES.items():
            for whole in (False, True):
                score += sa.case((_matches(kind, (word,), weight, whole=whole), points), else_=0)
    return score


def _read_hit(row: sa.Row[*tuple[Any, ...]], search_words: SearchWords) -> SearchHit:
    identity = read_identity(row)
    description = decode_metadata(row.metadata_json, "{}").description
    stored = row._asdict()
    return SearchHit(
        **identity,
        status=version_status(identity["version"], VersionState(row.state), read_canonical(row)),
        description=description,
        matched=matched_fields({field: stored[field] for field in FIELDS}, search_words.words),
        snippet=snippet(description, search_words.words),
        score=row.score,
        is_withdrawn=bool(row.is_withdrawn),
    )


def _nearest(missing: list[str], names: list[str]) -> list[str]:
    """For each missing word, the dataset whose name, or a part of it, is most similar."""
    import difflib  # needed only if nothing was found

    named = {next(name_words(name)): name for name in names}
    for name in names:
        for part in name_words(name):
            named.setdefault(part, name)
    result = (difflib.get_close_matches(word, named, n=1, cutoff=0.7) for word in missing)
    return list(dict.fromkeys(named[nearest[0]] for nearest in result if nearest))


INDEX: Final = "search_index"
VECTOR: Final = "vector"
VECTOR_INDEX: Final = "ix_search_document_vector"

OWN_TABLES: Final = frozenset({INDEX, *(f"{INDEX}_{part}" for part in ("data", "idx", "config"))})
"""FTS5's virtual table and its internal tables, which are not in our metadata."""

SQLITE_INDEX: Final = (
    f"CREATE VIRTUAL TABLE {INDEX} USING fts5({', '.join(FIELDS)}, content='search_document', "
    "content_rowid='config_id', tokenize='ascii', prefix='1 2 3', detail='column', columnsize=0)"
)

# PostgreSQL gives each word a weight: A name, B tags and features, C description, D details. Positions are not used.
_LABELS: Final = {"name": "1A", "tags": "2B", "features": "3B", "description": "4C", "details": "5D"}
POSTGRES_VECTOR: Final = (
    "("
    + " || ' ' || ".join(
        f"coalesce(replace(nullif({field}, '') || ' ', ' ', ':{label} '), '')" for field, label in _LABELS.items()
    )
    + ")::tsvector"
)

_SHOWN: Final = 5
REPAIR_INDEX: Final = "repair it with: registry db reindex"
"""The end of each line about the search index."""


def index_triggers_sqlite() -> dict[str, str]:
    """The ``CREATE TRIGGER`` statements that keep ``search_index`` up to date, by the trigger's name."""
    columns = ", ".join(("rowid", *FIELDS))

    def values(row: str) -> str:
        return ", ".join(f"{row}.{column}" for column in ("config_id", *FIELDS))

    add = f"INSERT INTO {INDEX}({columns}) VALUES ({values('NEW')})"  # noqa: S608 (names of ours)
    # This FTS5 table stores no copy of the words, so a deletion has to pass the words that were indexed.
    remove = f"INSERT INTO {INDEX}({INDEX}, {columns}) VALUES ('delete', {values('OLD')})"  # noqa: S608 (the same)
    actions = {"insert": add, "delete": remove, "update": f"{remove}; {add}"}
    return {
        f"search_document_{verb}": f"CREATE TRIGGER search_document_{verb} AFTER {verb.upper()} ON search_document "
        f"BEGIN {action}; END"
        for verb, action in actions.items()
    }


def is_our_item(thing: sa.schema.SchemaItem, name: str | None, kind: str, reflected: bool, _compared: object) -> bool:
    """Whether Alembic may compare ``thing``: the search index of ``search_document`` is not in our metadata."""
    if not reflected:
        return True
    if kind == "column" and isinstance(thing, sa.Column) and thing.table.name == search_document.name:
        return name != VECTOR
    return name != VECTOR_INDEX if kind == "index" else True


def is_our_name(name: str | None, kind: str, _parents: object) -> bool:
    """Whether Alembic may look at a table of this name."""
    return kind != "table" or name not in OWN_TABLES


def missing_parts(connection: sa.Connection) -> Iterator[str]:
    """Yield a line for each part of the search index that is missing or wrong."""
    if connection.dialect.name == "sqlite":
        found = connection.execute(
            sa.text("SELECT sql FROM sqlite_master WHERE type = 'table' AND name = :name"), {"name": INDEX}
        ).scalar()
        if found is None:
            yield f"search index is missing: {INDEX}; {REPAIR_INDEX}"
        elif found != SQLITE_INDEX:
            yield f"search index differs: {INDEX}; {REPAIR_INDEX}"
        return
    column = connection.exec_driver_sql(
        "SELECT a.attgenerated::text, a.atttypid::regtype::text FROM pg_attribute a"
        " WHERE a.attrelid = to_regclass('search_document') AND a.attname = 'vector' AND NOT a.attisdropped"
    ).first()
    if column is None:
        yield f"search index is missing: {search_document.name}.{VECTOR}"
    elif tuple(column) != ("s", "tsvector"):
        yield f"search index differs: {search_document.name}.{VECTOR}"
    index = connection.exec_driver_sql(
        "SELECT m.amname, i.indisvalid AND i.indpred IS NULL, a.attname FROM pg_index i"
        " JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am m ON m.oid = c.relam"
        " LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]"
        " WHERE i.indrelid = to_regclass('search_document') AND c.relname = 'ix_search_document_vector'"
    ).first()
    if index is None:
        yield f"search index is missing: {VECTOR_INDEX}"
    elif tuple(index) != ("gin", True, VECTOR):
        yield f"search index differs: {VECTOR_INDEX}"


def wrong_contents(engine: sa.Engine) -> Iterator[str]:
    """Yield a line if documents differ from the published versions, and one if the index differs from the documents."""
    with reading(engine) as connection:
        stale = sorted(name for _, name in stale_documents(connection))
    if stale:
        yield f"search documents are out of date: {listed(stale, _SHOWN)}; {REPAIR_INDEX}"
    yield from index_faults(engine)


def rebuild_index(engine: sa.Engine) -> int:
    """Repair every document and the search index, in one transaction; returns the number of outdated documents."""
    return write(engine, rebuild_documents)


def rebuild_documents(connection: sa.Connection) -> int:
    """Repair every document and the search index; returns the number of outdated documents."""
    if connection.dialect.name == "sqlite":
        # First, because the triggers cannot delete from an index that does not contain what they pass to it.
        rebuild = f"INSERT INTO {INDEX}({INDEX}) VALUES ('rebuild')"  # noqa: S608 (a name of ours)
        try:
            if any(missing_parts(connection)):
                _create_again(connection)
            connection.exec_driver_sql(rebuild)
        except sa.exc.DatabaseError:  # its own tables are damaged
            _create_again(connection)
            connection.exec_driver_sql(rebuild)
    stale = sorted(config_id for config_id, _ in stale_documents(connection))
    for start in range(0, len(stale), _BLOCK):
        refresh(connection, *stale[start : start + _BLOCK])
    return len(stale)


def _create_again(connection: sa.Connection) -> None:
    try:
        connection.exec_driver_sql(f"DROP TABLE IF EXISTS {INDEX}")
    except sa.exc.DatabaseError:  # FTS5 cannot open it, so it cannot drop it, either
        connection.exec_driver_sql("PRAGMA writable_schema=ON")
        connection.exec_driver_sql(f"DELETE FROM sqlite_master WHERE name = '{INDEX}'")  # noqa: S608 (a name of ours)
        connection.exec_driver_sql("PRAGMA writable_schema=RESET")
    for name in sorted(OWN_TABLES - {INDEX}):
        connection.exec_driver_sql(f"DROP TABLE IF EXISTS {name}")
    connection.exec_driver_sql(SQLITE_INDEX)


def index_faults(engine: sa.Engine) -> list[str]:
    """A line if a part of the search index is missing, or if it differs from the documents.

    On SQLite it waits for other writers, because FTS5 checks itself only in a transaction that writes.
    """
    with reading(engine) as connection:
        faults = list(missing_parts(connection))
    if not faults and not _is_index_sound(engine):
        faults = [f"search index differs from its documents; {REPAIR_INDEX}"]
    return faults


def _is_index_sound(engine: sa.Engine) -> bool:
    if engine.dialect.name == "postgresql":
        with reading(engine) as connection:
            wrong = f"SELECT count(*) FROM search_document WHERE vector IS DISTINCT FROM {POSTGRES_VECTOR}"  # noqa: S608 (a constant)
            return connection.exec_driver_sql(wrong).scalar() == 0

    def compare(connection: sa.Connection) -> None:
        # FTS5 checks itself. The command is an INSERT, although it writes nothing, so it needs a write transaction.
        connection.exec_driver_sql(f"INSERT INTO {INDEX}({INDEX}, rank) VALUES ('integrity-check', 1)")  # noqa: S608 (a name of ours)

    try:
        write(engine, compare)
    except CatalogError as error:
        cause = getattr(getattr(error.__cause__, "orig", error.__cause__), "sqlite_errorname", "")
        if cause.startswith(("SQLITE_READONLY", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_CANTOPEN")):
            return True  # an index that cannot be written cannot be checked or repaired, but it can be searched
        if cause.startswith(("SQLITE_CORRUPT", "SQLITE_ERROR")) and "no such module" not in str(error.__cause__):
            return False
        raise
    return True
