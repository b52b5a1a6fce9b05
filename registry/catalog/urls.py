"""URLs of catalogs: parses them, and shows them without passwords. ``session.py`` connects to what they name."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from registry.errors import UsageError

_FORMS: Final = "Write sqlite:///catalog.db, the path of a file, or postgresql://user@host/database."

_DRIVERS: Final = {
    "sqlite": "sqlite+pysqlite",
    "sqlite+pysqlite": "sqlite+pysqlite",
    "postgresql": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
}

_NETWORK_FILESYSTEM: Final = re.compile(
    r"nfs\d?|cifs|smb\w*|9p|afs|ceph|lustre|gpfs|beegfs|glusterfs|pvfs2|orangefs|virtiofs|fuse(?!blk).*"
)


def parse_url(url: str | os.PathLike[str]) -> sa.URL:
    """Parse the URL of a catalog; a plain path is an SQLite file.

    Raises:
        UsageError: not a URL, or a kind of database that is not supported. The message does not repeat the text,
            because it may hold a password.
    """
    text = os.fspath(url)
    if re.match(r"(sqlite|postgres(ql)?)(\+\w+)?:(?!//)", text):
        raise UsageError("the catalog's URL lacks '//' after the colon", hint=_FORMS)
    if "://" not in text:
        if not text or "\0" in text:
            raise UsageError("the path of the catalog is empty or holds a NUL", hint=_FORMS)
        return sa.URL.create("sqlite+pysqlite", database=text)
    try:
        parsed = sa.make_url(text)
    except (sa.exc.ArgumentError, ValueError):
        raise UsageError("the catalog's URL does not parse", hint=_FORMS) from None
    if parsed.drivername not in _DRIVERS:
        kind = parsed.drivername if re.fullmatch(r"[\w+]{1,40}", parsed.drivername) else "of that kind"
        hint = "Begin the URL with postgresql:// instead of postgres://." if kind == "postgres" else _FORMS
        raise UsageError(f"catalogs cannot be stored in a database {kind!r}", hint=hint)
    parsed = parsed.set(drivername=_DRIVERS[parsed.drivername])
    if is_sqlite(parsed) and parsed.host:
        raise UsageError(
            "an SQLite URL has three slashes before a relative path, and four before an absolute one", hint=_FORMS
        )
    if is_sqlite(parsed) and (
        parsed.database in (None, "", ":memory:") or parsed.query or str(parsed.database).startswith("file:")
    ):
        raise UsageError("an SQLite catalog is a file, without URL options", hint=_FORMS)
    return parsed


def is_sqlite(url: sa.URL) -> bool:
    """Whether the database is an SQLite file."""
    return url.get_backend_name() == "sqlite"


def sqlite_path(url: str | os.PathLike[str]) -> Path | None:
    """The file of an SQLite catalog, or None for a catalog on a server."""
    parsed = parse_url(url)
    return Path(parsed.database or "") if is_sqlite(parsed) else None


def describe_url(url: sa.URL) -> str:
    """``url`` for messages: passwords are shown as ``***``, also those among its options.

    >>> describe_url(parse_url("postgresql://ann:secret@host/data?sslpassword=secret"))
    'postgresql://ann:***@host/data?sslpassword=***'
    """
    hidden = {key: "***" if "pass" in key.lower() else value for key, value in url.query.items()}
    shown = url.set(drivername=url.get_backend_name(), query=hidden)
    return shown.render_as_string(hide_password=True).replace("%2A%2A%2A", "***")


def quote_catalog(shown: str) -> str:
    """The option ``--catalog`` for a command in a hint; ``shown`` is the URL as ``describe_url`` gives it.

    A URL with a masked password cannot be pasted, so the command then reads the URL from the environment.

    >>> quote_catalog("sqlite:////srv/my catalog.db")
    "--catalog 'sqlite:////srv/my catalog.db'"
    >>> quote_catalog("postgresql://ann:***@host/data")
    '--catalog "$REGISTRY_CATALOG"'
    """
    return '--catalog "$REGISTRY_CATALOG"' if "***" in shown else f"--catalog {shlex.quote(shown)}"


def network_filesystem(path: Path, *, mounts: Path = Path("/proc/self/mountinfo")) -> str | None:
    """The type of the network file system that holds ``path``, or None for a local one.

    Reads Linux's ``mountinfo`` (proc(5)); without it, every path counts as local.
    """
    try:
        lines = mounts.read_text("utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    place = path.resolve()
    best, found = -1, ""
    for line in lines:
        before, separator, after = line.partition(" - ")
        fields = before.split(" ")
        if not separator or len(fields) < 5:
            continue
        mount = Path(re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[4]))
        # Later lines are mounted over earlier ones.
        if len(mount.parts) >= best and place.is_relative_to(mount):
            best, found = len(mount.parts), after.split(" ")[0]
    return found if _NETWORK_FILESYSTEM.fullmatch(found) else None
