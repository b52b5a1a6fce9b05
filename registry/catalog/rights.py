"""The rights that the roles of a PostgreSQL catalog need: checked before a long command starts, and granted to a role.

    reader     SELECT on every table
    publisher  also what a publication writes; no UPDATE or DELETE of published rows or of the log
    curator    also what withdraws and describes versions, moves aliases, renames, protects and records locations, and
               what the server of a shared catalog writes
    admin      a member of the role that owns the tables, which migrates them

An SQLite catalog has no roles: the permissions of its file and folder decide.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, get_args

import sqlalchemy as sa

from registry.catalog.events import check_clock
from registry.catalog.session import reading, write
from registry.catalog.urls import describe_url
from registry.errors import CatalogPermissionError, NotFoundError, UsageError, suggest
from registry.model import listed

Level = Literal["reader", "publisher", "curator", "admin"]
LEVELS: Final[tuple[Level, ...]] = get_args(Level)


class Right(NamedTuple):
    """A privilege on a table, or on some of its columns."""

    privilege: str
    table: str
    columns: tuple[str, ...] = ()

    def __str__(self) -> str:
        columns = f" ({', '.join(self.columns)})" if self.columns else ""
        return f"{self.privilege}{columns} on {self.table}"


def _rights(privileges: str, tables: str) -> tuple[Right, ...]:
    return tuple(Right(privilege, table) for table in tables.split() for privilege in privileges.split())


_PUBLISHER: Final = (
    *_rights("INSERT", "builder builder_config dataset_version version_experiment split shard fingerprint attachment"),
    *_rights("INSERT", "version_ledger event search_document reservation"),
    *_rights("UPDATE DELETE", "reservation search_document"),
    Right("UPDATE", "builder_config", ("canonical_version_id", "is_default")),
    Right("UPDATE", "builder", ("created_at",)),  # to lock rows; the registry never changes it
    Right("UPDATE", "experiment", ("created_at",)),
)
_CURATOR: Final = (
    Right("UPDATE", "dataset_version", ("state", "state_message", "superseded_by", "metadata_json")),
    *_rights("INSERT UPDATE DELETE", "alias protection"),
    *_rights("INSERT", "alias_event version_location dataset_name"),
    Right("UPDATE", "builder", ("name",)),
    *_rights("INSERT UPDATE", "experiment"),
    # A publisher could give itself a token of any role.
    *_rights("INSERT", "access_token refusal kept_answer"),
    Right("UPDATE", "access_token", ("last_used_at", "revoked_at", "revoked_by")),
    *_rights("DELETE", "access_token refusal kept_answer"),
    *_rights("INSERT UPDATE DELETE", "webhook"),
    Right("UPDATE", "kept_answer", ("kept_at",)),  # to lock rows; the registry never changes it
)
WRITES: Final[Mapping[Level, tuple[Right, ...]]] = {
    "reader": (),
    "publisher": _PUBLISHER,
    "curator": (*_PUBLISHER, *_CURATOR),
}
"""What each level may write, beside reading every table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """The rights of one role.

    Attributes:
        role: its name.
        level: what it may do.
        statements: the SQL that gives it these rights; running it again changes nothing.
    """

    role: str
    level: Level
    statements: tuple[str, ...]


def require_publisher(engine: sa.Engine) -> None:
    """Check that this process may publish, before hours of work are spent. Nothing is written.

    Raises:
        ClockError: the clock that would stamp the publication contradicts the event log.
        CatalogPermissionError: the role lacks rights, the server is a standby, or the SQLite file is read-only.
    """
    where = describe_url(engine.url)
    if engine.dialect.name == "sqlite":
        _require_writable_file(Path(engine.url.database or ""), where)
        with reading(engine) as connection:
            check_clock(connection)
        return
    asked = {str(right): _has("current_user", right) for right in _PUBLISHER}
    standby, transactions = "pg_is_in_recovery()", "current_setting('transaction_read_only')"
    columns = ", ".join(("current_user", standby, transactions, *asked.values()))
    with reading(engine) as connection:
        role, is_standby, read_only, *found = connection.exec_driver_sql(f"SELECT {columns}").one()
        check_clock(connection)
    if is_standby or read_only == "on":
        raise CatalogPermissionError(
            f"{where} is read-only: {'the server is a standby' if is_standby else 'its transactions are read-only'}",
            hint="Name the primary server in the URL, or switch default_transaction_read_only off.",
            details={"role": role, "missing": []},
        )
    missing = [name for name, is_given in zip(asked, found, strict=True) if not is_given]
    if missing:
        raise CatalogPermissionError(
            f"{where}: the role {role!r} may not publish: it lacks {listed(missing, 3)}",
            hint=f"The owner of the database can grant these rights with: {grant_command(role, 'publisher')}",
            details={"role": role, "missing": missing},
        )


def grant_command(role: str, level: Level) -> str:
    """The command that grants the rights of ``level``, for hints."""
    from shlex import quote

    return f"registry db grant {quote(role)} --as {level}"


def grant(engine: sa.Engine, role: str, level: Level, *, dry_run: bool = False) -> Grant:
    """Give ``role`` the rights of ``level``, also on tables of later migrations. No right of a role is taken away.

    Raises:
        NotFoundError: the server has no such role.
        UsageError: an SQLite catalog, or an unknown level.
        CatalogPermissionError: this role may not grant rights.
    """
    where = describe_url(engine.url)
    if engine.dialect.name == "sqlite":
        raise UsageError(
            f"{where} is an SQLite file, which has no roles: the permissions of the file and its folder decide",
            hint="Let a group write: chgrp GROUP on the file and its folder, then chmod g+w. "
            "For roles, use a PostgreSQL catalog.",
        )
    if level not in LEVELS:
        raise UsageError(f"no level {str(level)[:60]!r}", hint=suggest(str(level), LEVELS))

    def action(connection: sa.Connection) -> Grant:
        roles = connection.exec_driver_sql("SELECT rolname FROM pg_roles WHERE rolname !~ '^pg_' ORDER BY 1").scalars()
        if role not in (known := list(roles)):
            raise NotFoundError(
                f"no role {role[:200]!r} in {where}",
                hint=f"{suggest(role, known)} To create one, run as a superuser: CREATE ROLE name LOGIN",
                details={"name": role[:200], "known": known[:100]},
            )
        result = Grant(role=role, level=level, statements=tuple(_statements(connection, role, level)))
        for statement in () if dry_run else result.statements:
            connection.exec_driver_sql(statement.replace("%", "%%"))  # the driver reads "%" as a parameter
        return result

    if dry_run:
        with reading(engine) as connection:
            return action(connection)
    try:
        return write(engine, action)
    except CatalogPermissionError as error:
        # Since PostgreSQL 16, a role does not administer itself: the owner cannot make others its members.
        who = "A superuser of the server" if level == "admin" else "The owner of the database"
        error.rephrase(hint=f"{who} has to run: {grant_command(role, level)}")
        raise


def renew(engine: sa.Engine) -> list[Grant]:
    """After a migration, give every role what it lacks on new tables; returns the roles that lacked something.

    Raises:
        CatalogPermissionError: this role may not grant rights.
    """
    if engine.dialect.name == "sqlite":
        return []
    with reading(engine) as connection:
        lacking = [(role, level) for role, level in _levels(connection) if any(_missing(connection, role, level))]
    return [grant(engine, role, level) for role, level in lacking]


def missing_rights(connection: sa.Connection) -> Iterator[str]:
    """One line for each role to which this catalog gave rights, and which lacks some of its level (PostgreSQL)."""
    for role, level in _levels(connection):
        lacking = listed(list(_missing(connection, role, level)), 3)
        if lacking:
            yield f"the {level} {role!r} lacks rights: {lacking}; give them with: {grant_command(role, level)}"


def _levels(connection: sa.Connection) -> list[tuple[str, Level]]:
    """The roles that were granted rights, and the level that these rights show."""
    query = """
        SELECT r.rolname, string_agg(c.relname || ' ' || a.privilege_type, ',')
        FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a JOIN pg_roles r ON r.oid = a.grantee
        WHERE c.oid IN (to_regclass('dataset_version'), to_regclass('alias')) AND a.grantee <> c.relowner
        GROUP BY r.rolname ORDER BY r.rolname
    """
    levels: list[tuple[str, Level]] = []
    for role, text in connection.exec_driver_sql(query):
        granted = set(text.split(","))
        if "alias INSERT" in granted:
            levels.append((role, "curator"))
        elif "dataset_version INSERT" in granted:
            levels.append((role, "publisher"))
        elif "dataset_version SELECT" in granted:
            levels.append((role, "reader"))
    return levels


def _missing(connection: sa.Connection, role: str, level: Level) -> Iterator[str]:
    asked: list[tuple[str, str]] = [("USAGE on the schema", "has_schema_privilege({role}, current_schema(), 'USAGE')")]
    for kind, name in _relations(connection):
        if kind == "r":
            asked.append((f"SELECT on {name}", _has("{role}", Right("SELECT", name))))
        elif level != "reader":
            asked.append((f"USAGE on {name}", f"has_sequence_privilege({{role}}, {_text(name)}, 'USAGE')"))
    asked += [(str(right), _has("{role}", right)) for right in WRITES[level]]
    columns = ", ".join(test for _, test in asked).replace("%", "%%").replace("{role}", "%(role)s")
    result = connection.exec_driver_sql(f"SELECT {columns}", {"role": role}).one()
    return (name for (name, _), is_given in zip(asked, result, strict=True) if not is_given)


def _relations(connection: sa.Connection) -> Sequence[Any]:
    return connection.exec_driver_sql(
        "SELECT relkind::text, relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace"
        " AND relkind IN ('r', 'S') ORDER BY relname"
    ).all()


def _has(role: str, right: Right) -> str:
    """The SQL expression that is true if a role has a right; a table that is missing counts as no right."""
    table = _text(right.table)
    tests = [f"has_column_privilege({role}, {table}, {_text(name)}, '{right.privilege}')" for name in right.columns]
    return " AND ".join(tests) or f"has_table_privilege({role}, {table}, '{right.privilege}')"


def _text(name: str) -> str:
    """A name of a relation as a text in SQL."""
    quoted = name if name.isidentifier() and name.islower() else quote_name(name)
    return "'" + quoted.replace("'", "''") + "'"


def quote_name(name: str) -> str:
    """A name as an identifier in SQL. SQLAlchemy's own doubles "%" for the driver, which nobody can paste."""
    return '"' + name.replace('"', '""') + '"'


def _statements(connection: sa.Connection, role: str, level: Level) -> Iterator[str]:
    quote = quote_name
    owner, schema, database = connection.exec_driver_sql(
        "SELECT pg_get_userbyid(relowner), current_schema(), current_database()"
        " FROM pg_class WHERE oid = to_regclass('dataset_version')"
    ).one()
    to = quote(role)
    if level == "admin":
        if role != owner:
            yield f"GRANT {quote(owner)} TO {to}"
        return
    inside, later = quote(schema), f"ALTER DEFAULT PRIVILEGES FOR ROLE {quote(owner)} IN SCHEMA {quote(schema)}"
    yield f"GRANT CONNECT ON DATABASE {quote(database)} TO {to}"
    yield f"GRANT USAGE ON SCHEMA {inside} TO {to}"
    yield f"GRANT SELECT ON ALL TABLES IN SCHEMA {inside} TO {to}"
    yield f"{later} GRANT SELECT ON TABLES TO {to}"
    yield f"REVOKE CREATE ON SCHEMA {inside} FROM PUBLIC"  # before PostgreSQL 15, everybody may create tables there
    if level == "reader":
        return
    yield f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {inside} TO {to}"
    yield f"{later} GRANT USAGE ON SEQUENCES TO {to}"
    by_privilege: dict[str, list[str]] = {}
    for right in WRITES[level]:
        columns = f" ({', '.join(right.columns)})" if right.columns else ""
        by_privilege.setdefault(right.privilege + columns, []).append(right.table)
    for privilege, tables in by_privilege.items():
        yield f"GRANT {privilege} ON {', '.join(f'{inside}.{table}' for table in tables)} TO {to}"


def _require_writable_file(path: Path, where: str) -> None:
    folder = path.absolute().parent
    # A writer creates files beside it; if the log of another connection is there, it uses that.
    is_folder_needed = not path.with_name(f"{path.name}-wal").exists()
    is_writable = os.access(path if path.exists() else folder, os.W_OK)
    if not is_writable or (is_folder_needed and not os.access(folder, os.W_OK)):
        raise CatalogPermissionError(
            f"{where} is read-only",
            hint="Check the permissions of the file and of its folder.",
            details={"path": str(path), "missing": []},
        )
