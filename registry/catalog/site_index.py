"""The index of a site, ``site.json``: which snapshot of a catalog the site has, and where its data is.

A site is a folder of files on a web server. Its index is written last, and names the snapshot by its digest, so that a
reader never combines two states of the site. An index may come from anybody: ``parse_site_index`` accepts no path on
the reader's machine, and a bounded size. ``registry.pins.signature`` signs an index.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, NoReturn
from urllib.parse import unquote

from registry.errors import PreparedFormatError, SiteFormatError, UsageError
from registry.json_node import JsonNode, parse_json
from registry.masking import has_secret, may_hide_secret
from registry.model import is_absolute

SCHEMA: Final = "registry.site/1"

INDEX_NAME: Final = "site.json"
"""The path of the index in a site."""

MAX_INDEX_BYTES: Final = 2**16
"""Longer documents are not parsed; a client need not read more."""

ANONYMOUS: Final = "anonymous"
"""Whoever did something in a snapshot without the names of people."""

_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_KEYID: Final = re.compile(r"sha256:[0-9a-f]{64}")
_SIGNATURE_BYTES: Final = 64
_LONGEST_TEXT: Final = 2000
_SERVERS: Final = re.compile(r"(?:https?|s3a?|gs|az)://[^\s/]+(?:/.*)?")
_HINT: Final = "The site is damaged, or is not one. Ask its publisher to write it again: registry site"


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteSignature:
    """A signature of an index: the name of the key (``sha256:`` and 64 hex digits) and 64 bytes of Ed25519."""

    keyid: str
    sig: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteIndex:
    """The values of ``site.json``.

    Attributes:
        sha256: the digest of the snapshot, an SQLite file; 64 hex digits.
        num_bytes: its size.
        compressed_sha256: the digest of ``path``, the snapshot compressed with gzip.
        compressed_bytes: its size.
        head: the hash of the last event of the snapshot's log; 64 zeros if it has no events.
        num_events: the number of its events.
        made_at: when this state of the site was first written. A site that is written again without a change keeps it.
        made_by: the software and its version.
        data_url: the data directory: a URL, or a path relative to the site; ends with ``/``. None if the site names
            none.
        signature: covers all other fields; None for an index that is not signed.
    """

    sha256: str
    num_bytes: int
    compressed_sha256: str
    compressed_bytes: int
    head: str
    num_events: int
    made_at: datetime
    made_by: str
    data_url: str | None
    signature: SiteSignature | None = None

    def __post_init__(self) -> None:
        require_data_url(self.data_url)

    @property
    def path(self) -> str:
        """The path of the compressed snapshot in the site. Other bytes have another path."""
        return f"catalog/{self.compressed_sha256[:16]}.db.gz"

    @property
    def signed_bytes(self) -> bytes:
        """The canonical JSON of all fields but the signature."""
        document = replace(self, signature=None)._values()
        return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")

    def to_json(self) -> bytes:
        """The document; equal indexes have the same bytes. Its last key is its own digest, which finds damage."""
        values = {**self._values(), "digest": self._digest}
        return f"{json.dumps(values, indent=2, ensure_ascii=True)}\n".encode("ascii")

    @property
    def _digest(self) -> str:
        return hashlib.sha256(self.signed_bytes).hexdigest()

    def made_as(self, previous: SiteIndex | None) -> SiteIndex:
        """This index, with the time of ``previous`` if all else is equal. The result is not signed."""
        unsigned = replace(self, signature=None)
        if previous is None:
            return unsigned
        earlier = replace(unsigned, made_at=previous.made_at)
        return earlier if earlier == replace(previous, signature=None) else unsigned

    def _values(self) -> dict[str, Any]:
        values: dict[str, Any] = {
            "schema": SCHEMA,
            "catalog": {
                "path": self.path,
                "sha256": self.sha256,
                "num_bytes": self.num_bytes,
                "compressed_sha256": self.compressed_sha256,
                "compressed_bytes": self.compressed_bytes,
            },
            "head": self.head,
            "num_events": self.num_events,
            "made_at": self.made_at.astimezone(UTC).isoformat(),
            "made_by": self.made_by,
            "data_url": self.data_url,
        }
        if self.signature is not None:
            sig = base64.b64encode(self.signature.sig).decode("ascii")
            values["signature"] = {"keyid": self.signature.keyid, "sig": sig}
        return values


def require_data_url(url: str | None) -> None:
    """Refuse what cannot be the data directory of a site; None says that there is none.

    Raises:
        UsageError: it has a password, or could lead a reader to the reader's own files.
    """
    if url is None:
        return
    if has_secret(url) or may_hide_secret(url):
        raise UsageError("the URL of the data contains a password or token", hint="Readers of the site would see it.")
    if not url.endswith("/") or not url.isprintable() or re.search(r"[\\?#]", url):
        raise UsageError(f"the URL of the data, {url!r:.200}, must end with '/', without a query or fragment")
    is_url = is_absolute(url) and not is_local(url)
    is_inside = ":" not in url and all(unquote(part) not in ("", ".", "..") for part in url.split("/")[:-1])
    if not is_url and not is_inside:
        raise UsageError(
            "expected the URL of a web server or bucket, or a relative path inside the site such as 'data/', found "
            f"{url!r:.200}"
        )


def is_local(location: str) -> bool:
    """Whether a location is neither on a web server nor in a bucket, nor below the data directory.

    Such as an absolute path. A site must not make its readers open files of their own machines, and fsspec has many
    protocols that do.

    >>> is_local("/data/mnist"), is_local("file:///data/mnist"), is_local("s3://data/mnist"), is_local("mnist/1.0.0")
    (True, True, False, False)
    """
    return is_absolute(location) and (_SERVERS.fullmatch(location) is None or "::" in location)


def parse_site_index(data: bytes, source: str = INDEX_NAME) -> SiteIndex:
    """Parse the bytes of an index. No signature is checked.

    Args:
        data: the bytes.
        source: the URL or path of the document, for messages.

    Raises:
        SiteFormatError: it is not an index, has unknown or missing fields, or is longer than ``MAX_INDEX_BYTES``. The
            message names the key.
    """
    try:
        return _parse(data, source)
    except PreparedFormatError as error:
        raise SiteFormatError(error.message, hint=_HINT, details=error.details) from error


def _parse(data: bytes, source: str) -> SiteIndex:
    root = JsonNode(None, "", source)
    if len(data) > MAX_INDEX_BYTES:
        root.fail(f"it is longer than {MAX_INDEX_BYTES:,} bytes")
    try:
        root = parse_json(data.decode("utf-8"), source)
    except UnicodeDecodeError as error:
        root.fail(f"it is not UTF-8: {error.reason} at byte {error.start}", cause=error)
    schema = root.entries().get("schema")
    if schema is None or schema.value != SCHEMA:
        root.fail(f"it is not the index of a site: expected the schema {SCHEMA}")
    names = "schema", "catalog", "head", "num_events", "made_at", "made_by", "data_url", "digest"
    nodes = _require_keys(root, *names, optional="signature")
    catalog = _require_keys(
        nodes["catalog"], "path", "sha256", "num_bytes", "compressed_sha256", "compressed_bytes", optional=""
    )
    signature = _signature(nodes["signature"]) if "signature" in nodes else None
    data_url = nodes["data_url"]
    try:
        require_data_url(None if data_url.value is None else _line(data_url))
    except UsageError as error:
        data_url.fail(error.message)
    index = SiteIndex(
        sha256=_pattern(catalog["sha256"], _SHA256),
        num_bytes=_count(catalog["num_bytes"]),
        compressed_sha256=_pattern(catalog["compressed_sha256"], _SHA256),
        compressed_bytes=_count(catalog["compressed_bytes"]),
        head=_pattern(nodes["head"], _SHA256),
        num_events=_count(nodes["num_events"]),
        made_at=_moment(nodes["made_at"]),
        made_by=_line(nodes["made_by"]),
        data_url=data_url.value,
        signature=signature,
    )
    if catalog["path"].value != index.path:
        catalog["path"].fail(f"expected {index.path}")
    if nodes["digest"].value != index._digest:
        nodes["digest"].fail("the document was changed: it has another digest")
    return index


def _require_keys(node: JsonNode, *names: str, optional: str) -> dict[str, JsonNode]:
    entries = node.entries()
    for name in names:
        if name not in entries:
            node.fail(f"{name!r} is missing")
    for name, entry in entries.items():
        if name not in names and name != optional:
            entry.fail("the key is unknown")
    return entries


def _signature(node: JsonNode) -> SiteSignature:
    nodes = _require_keys(node, "keyid", "sig", optional="")
    keyid, text = _pattern(nodes["keyid"], _KEYID), _line(nodes["sig"])
    try:
        sig = base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        nodes["sig"].fail("it is not standard base64", cause=error)
    if len(sig) != _SIGNATURE_BYTES or base64.b64encode(sig).decode() != text:
        nodes["sig"].fail(f"expected {_SIGNATURE_BYTES} bytes in standard base64")
    return SiteSignature(keyid=keyid, sig=sig)


def _pattern(node: JsonNode, pattern: re.Pattern[str]) -> str:
    if not pattern.fullmatch(node.text()):
        _refuse(node, f"expected {pattern.pattern}")
    return node.text()


def _count(node: JsonNode) -> int:
    if type(node.value) is not int or node.integer() < 0:
        _refuse(node, "expected a whole number that is not negative")
    return node.integer()


def _line(node: JsonNode) -> str:
    if not 0 < len(node.text()) <= _LONGEST_TEXT or not node.text().isprintable():
        _refuse(node, f"expected one line of at most {_LONGEST_TEXT} characters")
    return node.text()


def _moment(node: JsonNode) -> datetime:
    try:
        moment = datetime.fromisoformat(node.text())
        if moment.tzinfo is None:
            _refuse(node, "expected a moment with its time zone")
        return moment.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        if isinstance(error, PreparedFormatError):
            raise
        _refuse(node, "expected a moment as in 2026-11-21T00:00:00+00:00")


def _refuse(node: JsonNode, problem: str) -> NoReturn:
    node.fail(f"{problem}, found {node.value!r:.80}")
