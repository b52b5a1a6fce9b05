"""URLs of catalogs: parses them, and shows them without passwords. ``session.py`` connects to what they name."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final
from urllib.parse import unquote, unquote_plus

import sqlalchemy as sa

from registry.catalog.web_urls import is_site, site_url
from registry.errors import UsageError
from registry.masking import is_secret_name, mask

_FORMS: Final = (
    "Write sqlite:///catalog.db, the path of a file, postgresql://user@host/database, or https://host/path/."
)
_PORT: Final = "A port, as in host:5432, is a number from 1 to 65535."

_ESCAPES: Final = (
    "In a password, write %40 for @, %3A for :, %2F for /, %3F for ?, %23 for #, %25 for % and %20 for a space; or "
    "leave it out of the URL: ~/.pgpass or PGPASSWORD."
)

_DRIVERS: Final = frozenset({"sqlite", "sqlite+pysqlite", "postgresql", "postgresql+psycopg"})

# libpq 18's, for clients; a test compares them with the installed one.
OPTIONS: Final = frozenset(
    (
        *("application_name", "channel_binding", "client_encoding", "connect_timeout", "dbname"),
        *("fallback_application_name", "gssdelegation", "gssencmode", "gsslib", "host", "hostaddr", "keepalives"),
        *("keepalives_count", "keepalives_idle", "keepalives_interval", "krbsrvname", "load_balance_hosts"),
        *("max_protocol_version", "min_protocol_version", "oauth_client_id", "oauth_client_secret", "oauth_issuer"),
        *("oauth_scope", "options", "passfile", "password", "port", "require_auth", "requirepeer"),
        *("scram_client_key", "scram_server_key", "service", "ssl_max_protocol_version", "ssl_min_protocol_version"),
        *("sslcert", "sslcertmode", "sslcompression", "sslcrl", "sslcrldir", "sslkey", "sslkeylogfile", "sslmode"),
        *("sslnegotiation", "sslpassword", "sslrootcert", "sslsni", "target_session_attrs", "tcp_user_timeout"),
        *("user",),
    )
)
"""The options after ``?`` in the URL of a PostgreSQL catalog."""

_NUMBERS: Final = {
    *("port", "connect_timeout", "keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count"),
    "tcp_user_timeout",
}

_CONTROLS: Final = r"[\x00-\x1f\x7f]"

# A folder such as /data/host=3 is a path; host=3 at the beginning of a text, or behind a space, is a parameter.
_PARAMETERS: Final = (
    r"(?i)(?:^|[\s;&?,#'\"({])(?:host(?:addr)?|port|user(?:name)?|uid|dbname|database|server|service|sslmode"
    r"|data source|initial catalog|driver|dsn|conninfo)\s*=|[?&#;][\w%.+ -]*="
    r"|(?:passw\w*|secret\w*|token|(?<![^\W_])(?:pass|pwd))\s*="
)

_SERVER: Final = (
    r"(?:(?P<user>[^\s:@/?#]*)(?::(?P<password>[^\s@/?#]*))?@)?"
    r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[\w.%~-]*)(?::(?P<port>\d{0,5}))?"
    r"(?:/(?P<database>[^\s/:@?#=;&]*))?(?:\?(?P<query>[^\s@?#;]*))?"
)

_NETWORK_FILESYSTEM: Final = (
    r"nfs\d?|cifs|smb\w*|9p|afs|ceph|lustre|gpfs|beegfs|glusterfs|pvfs2|orangefs|virtiofs|fuse(?!blk).*"
)


def parse_url(url: str | os.PathLike[str]) -> sa.URL:
    """Parse the URL of a catalog; a plain path is an SQLite file.

    A text that is neither is refused, so that a mistyped URL never becomes the name of a file: its password would be
    shown as a part of that name.

    Raises:
        UsageError: not a URL, or a kind of database that is not supported. The message does not repeat the text,
            because it may contain a password.
    """
    text = os.fspath(url)
    if re.search(_CONTROLS, text) or not text:
        raise UsageError("the catalog's URL or path is empty, or contains a control character", hint=_FORMS)
    if is_site(text):
        raise UsageError(
            "the catalog is a site or a service, and this command needs its database",
            hint="Run it where the database is, and name that with --catalog: its file, or its postgresql:// URL.",
        )
    if re.match(r"(?:sqlite|https?|postgres(?:ql)?|pg(?:sql)?|psql)(?:\+\w+)?:/?(?!/)", text, re.IGNORECASE):
        raise UsageError("the catalog's URL lacks '//' after the colon", hint=_FORMS)
    if "://" not in text:
        return sa.URL.create("sqlite+pysqlite", database=_plain_path(text))
    scheme, _, rest = text.partition("://")
    if scheme.lower() not in _DRIVERS:
        kind = repr(scheme) if re.fullmatch(r"[\w+]{1,40}", scheme) else "of that kind"
        hint = "Begin the URL with postgresql:// instead of postgres://." if scheme.lower() == "postgres" else _FORMS
        raise UsageError(f"catalogs cannot be stored in a database {kind}", hint=hint)
    if scheme.lower().startswith("sqlite"):
        return sa.URL.create("sqlite+pysqlite", database=_sqlite_file(rest))
    return _server_url(rest)


def _sqlite_file(rest: str) -> str:
    """The path of an SQLite URL, from the text behind its ``://``."""
    if rest and not rest.startswith("/"):
        raise UsageError(
            "an SQLite URL has three slashes before a relative path, and four before an absolute one", hint=_FORMS
        )
    path, question, options = rest[1:].partition("?")
    if question:
        name = options.partition("=")[0]
        named = f", such as {name}" if re.fullmatch(r"[a-z_]{1,40}", name) else ""
        raise UsageError(f"an SQLite catalog is a file, without URL options{named}", hint=_FORMS)
    if path in ("", ":memory:") or path.startswith("file:"):
        raise UsageError("an SQLite catalog is a file, without URL options", hint=_FORMS)
    return _plain_path(sa.make_url(f"sqlite:///{path}").database or "")


def _plain_path(text: str) -> str:
    """``text``, unless it looks like parameters of libpq (``host=db password=...``) or a URL without its scheme."""
    if re.search(_PARAMETERS, text):
        raise UsageError(
            "the catalog is named by parameters, such as host=...; a URL or a path is expected",
            hint=f"{_FORMS} Begin a path that contains such a text with './'.",
        )
    is_path = re.match(r"\.{0,2}/(?!/)", text) is not None
    if re.search(r":[^/]*@" if is_path else r":.*@|^//", text):
        raise UsageError("the catalog's URL does not begin with postgresql://", hint=_FORMS)
    return text


def _server_url(rest: str) -> sa.URL:
    """The URL of a PostgreSQL catalog, from the text behind its ``://``.

    ``[user[:password]@][host[:port]][/database][?name=value&...]``, strictly: a password that was not escaped would
    otherwise end somewhere in the host, the database or the options, and be shown with them.
    """
    match = re.fullmatch(_SERVER, rest)
    if match is None or (match["port"] and not 0 < int(match["port"]) < 65536):
        if re.match(r"[^?]*,", rest.rpartition("@")[2]):
            raise UsageError(
                "the catalog's URL names several hosts before the path",
                hint="Name them as options: postgresql://user@/database?host=first:5432&host=second:5432",
            )
        raise UsageError("the catalog's URL does not parse", hint=f"{_FORMS} {_PORT} {_ESCAPES}")
    query: dict[str, list[str]] = {}
    for pair in filter(None, (match["query"] or "").split("&")):
        name, _, value = pair.partition("=")
        if name not in OPTIONS:
            raise _unknown_option(name)
        if name == "user" and ":" in value:
            raise UsageError(
                "the option user of the catalog's URL contains a colon, as if a password followed",
                hint=f"A password is an option of its own, and %3A is a colon in a name. {_ESCAPES}",
                details={"option": name},
            )
        query.setdefault(name, []).append(unquote_plus(value))
    for name, values in query.items():
        if len(values) > 1 and name != "host":
            raise UsageError(f"the catalog's URL sets the option {name} twice", hint=f"Write {name}= once.")
    for name in _NUMBERS & query.keys():
        if not re.fullmatch(r"-?\d{1,9}" if name != "port" else r"\d{1,5}(,\d{1,5})*", query[name][0]):
            raise UsageError(
                f"the option {name} of the catalog's URL is not a whole number",
                hint=f"Write a number, e.g. {name}={'5432' if name == 'port' else '10'}.",
                details={"option": name},
            )
    parts = [_unquoted(match[name]) for name in ("user", "password", "host", "database")]
    if any("\0" in (text or "") for text in (*parts, *(part for those in query.values() for part in those))):
        raise UsageError("the catalog's URL contains a NUL", hint=_FORMS)
    names = [
        _unquoted(match["database"]),
        *(value for key in ("dbname", "host", "user") for value in query.get(key, ())),
    ]
    if any(re.search(r"=|:.*@", name or "") for name in names):
        raise UsageError("the catalog's URL contains another URL, or parameters such as host=...", hint=_FORMS)
    return sa.URL.create(
        "postgresql+psycopg",
        username=_unquoted(match["user"]),
        password=_unquoted(match["password"]),
        host=_unquoted((match["host"] or "").strip("[]")) or None,
        port=int(match["port"]) if match["port"] else None,
        database=_unquoted(match["database"]) or None,
        query={name: values[0] if len(values) == 1 else tuple(values) for name, values in query.items()},
    )


def _unquoted(text: str | None) -> str | None:
    return None if text is None else unquote(text)


def _unknown_option(name: str) -> UsageError:
    import difflib  # slow to import, and needed only after a mistake

    label = name if re.fullmatch(r"[A-Za-z_]{1,40}", name) else "that name"
    near = difflib.get_close_matches(name, OPTIONS, n=1)
    hint = f"Did you mean {near[0]}? " if near else ""
    return UsageError(
        f"the catalog's URL has no option {label}",
        hint=f"{hint}The options are those of libpq: {', '.join(sorted(OPTIONS))}.",
        details={"option": label, "accepted": sorted(OPTIONS)},
    )


def masked_url(url: str | os.PathLike[str]) -> str:
    """The URL of a catalog for messages, as ``CatalogBackend.url`` gives it: without its passwords."""
    return mask(site_url(url)) if is_site(url) else describe_url(parse_url(url))


def sqlite_path(url: str | os.PathLike[str]) -> Path | None:
    """The file of an SQLite catalog, or None for a catalog on another machine."""
    return None if is_site(url) else sqlite_file(parse_url(url))


def sqlite_file(url: sa.URL) -> Path | None:
    """The file of an SQLite catalog, or None for a catalog on a server."""
    return Path(url.database or "") if url.get_backend_name() == "sqlite" else None


def describe_url(url: sa.URL) -> str:
    """``url`` for messages: passwords are shown as ``***``, also those among its options.

    >>> describe_url(parse_url("postgresql://ann:secret@host/data?sslpassword=secret"))
    'postgresql://ann:***@host/data?sslpassword=***'

    The result can be parsed again, for a user with a space in the name, too:

    >>> describe_url(parse_url("postgresql://Ann%20Lee@host/data"))
    'postgresql://Ann%20Lee@host/data'
    """
    hidden = {key: "***" if _has_secret(key, value) else value for key, value in url.query.items()}
    masked = url.set(drivername=url.get_backend_name(), query=hidden)
    return masked.render_as_string(hide_password=True).replace("%2A%2A%2A", "***").replace(" ", "%20")


def _has_secret(option: str, value: str | tuple[str, ...]) -> bool:
    """Whether an option is a secret, or sets one, as ``options=-c app.password=...`` does."""
    names = re.findall(r"([\w.-]+)\s*=", str(value)) if option == "options" else []
    return option.startswith("scram") or any(is_secret_name(name) for name in (option, *names))


def network_filesystem(path: Path, *, mounts: Path = Path("/proc/self/mountinfo")) -> str | None:
    """The type of the network file system that holds ``path``, or None for a local one.

    Reads Linux's ``mountinfo`` (proc(5)); without it, every path counts as local.
    """
    try:
        lines = mounts.read_text("utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    place = f"{path.resolve()}/"
    best, result = "", ""
    for line in lines:
        before, separator, after = line.partition(" - ")
        fields = before.split(" ")
        if not separator or len(fields) < 5:
            continue
        mount = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[4]).rstrip("/") + "/"
        # Later lines are mounted over earlier ones.
        if len(mount) >= len(best) and place.startswith(mount):
            best, result = mount, after.split(" ")[0]
    return result if re.fullmatch(_NETWORK_FILESYSTEM, result) else None
