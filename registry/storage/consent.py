"""Decides which URLs and addresses from somebody else's file may be contacted, by what the reader has allowed.

The author of a pin chooses its locations. A request reveals to the host who reads which files, and a host name may
resolve to a machine in the reader's own network. Therefore, no host is contacted until the reader allows it, and an
address that is not public only if the reader named it. Pure except for ``inet_aton``; ``guarded_http`` applies the
rules to connections.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias
from urllib.parse import unquote, urlsplit

from registry.errors import FetchNotAllowedError, UsageError, WrongTypeError
from registry.masking import mask

_Address: TypeAlias = IPv4Address | IPv6Address
_Network: TypeAlias = IPv4Network | IPv6Network

_HTTP: Final = ("http", "https")
_COVERED: Final = frozenset({*_HTTP, "s3", "s3a", "gs", "gcs", "az", "memory", "file"})
"""Schemes that ``--fetch`` allows. Other fsspec protocols must be named: their addresses are not checked."""

_NUMERIC: Final = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)(?:\.(?:0x[0-9a-f]*|[0-9]+)){0,3}")
_METADATA: Final = frozenset({"168.63.129.16"})
"""Public-looking addresses of cloud metadata services; other metadata services are link-local or private."""

_NOT_PUBLIC: Final = tuple(
    map(
        ip_network,
        (
            *("192.0.0.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.175.48.0/24"),
            *("64:ff9b:1::/48", "100::/64", "2620:4f:8000::/48", "3fff::/20", "5f00::/16", "fec0::/10"),
        ),
    )
)
"""What IANA's registries of special-purpose addresses have beside those that Python 3.11 knows."""

_EMBEDDING: Final = (IPv6Network("64:ff9b::/96"), IPv6Network("::/96"))
"""Networks whose last 32 bits are an IPv4 address, to which a gateway or the machine itself connects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ConsentRule:
    """One host (``scheme`` and ``port`` None: any), or one folder, that the reader named."""

    host: str = ""
    scheme: str | None = None
    port: int | None = None
    network: _Network | None = None
    folder: str | None = None


@dataclass(frozen=True, slots=True)
class Allowed:
    """The locations of a pin that its reader has allowed.

    Attributes:
        fetch: allows every location of the pin whose address is public.
        entries: hosts, ports, addresses, networks, buckets and folders that the reader named.
        typed: hosts and ports of URLs that the reader typed, such as the URL of the pin file; allowed at any address.

    >>> Allowed.of(hosts=["example.org"]).covers("https://example.org/digits")
    True
    >>> Allowed.of(fetch=True).covers("sftp://example.org/digits")
    False
    """

    fetch: bool = False
    entries: frozenset[_ConsentRule] = frozenset()
    typed: frozenset[tuple[str, int]] = frozenset()

    @classmethod
    def of(cls, *, fetch: bool = False, hosts: Iterable[str] = ()) -> Allowed:
        """Make the value from ``--fetch`` and ``--allow-host``.

        Args:
            fetch: see the attribute.
            hosts: each is ``host``, ``host:port``, an address, a network (``10.0.0.0/8``), ``scheme://host``, a bucket
                (``s3://bucket``), or a folder (``file:///data``).

        Raises:
            UsageError: one of ``hosts`` has none of these forms.
        """
        if isinstance(hosts, str):
            raise UsageError("allow_hosts expects a list, found a str", hint=f"Write allow_hosts=[{hosts[:200]!r}].")
        wanted = list(hosts)
        for host in wanted:
            if not isinstance(host, str):
                raise WrongTypeError(f"allow_hosts must be a list of hosts as str, not {type(host).__name__}")
        return cls(fetch, frozenset(map(_parse, wanted)))

    def __or__(self, other: Allowed) -> Allowed:
        return Allowed(self.fetch or other.fetch, self.entries | other.entries, self.typed | other.typed)

    def with_typed(self, url: str) -> Allowed:
        """Return the same value, with the host of ``url``, which the reader typed, added."""
        found = _host_of(url)
        if found is None:
            return self
        host, port = found
        typed = {found, (host, 443)} if port == 80 else {found}  # a server may redirect to https
        return self | Allowed(typed=frozenset(typed))

    def covers(self, url: str) -> bool:
        """Whether a URL or path may be contacted, judged by its text; addresses are checked after they are resolved.

        Network shares (``//server/share``) are never allowed: opening one sends a request on some systems.
        """
        scheme, _, rest = url.partition("://")
        scheme = scheme.lower() if "://" in url else "file"
        if scheme == "file":
            path = _path_of(url)
            return path is not None and (self.fetch or any(_is_below(path, entry.folder) for entry in self.entries))
        if scheme not in _HTTP:
            host = rest.partition("/")[0].lower()
            return (self.fetch and scheme in _COVERED) or any(
                (entry.scheme, entry.host) == (scheme, host) for entry in self.entries
            )
        found = _host_of(url)
        if found is None:
            return False
        host, port = found
        if found in self.typed:
            return True
        is_own = host == "localhost" or host.endswith(".localhost") or (_is_address(host) and not is_public(host))
        literal = ip_address(host) if _is_address(host) else None
        return (self.fetch and not is_own) or any(
            entry.host == host or (literal is not None and entry.network is not None and literal in entry.network)
            for entry in self._entries_for(scheme, port)
        )

    def covers_address(self, scheme: str, host: str, port: int, address: str) -> bool:
        """Whether a connection may be made to ``address``, one of the addresses of ``host``.

        An address that is not public must be named itself, because the owner of a host name chooses its addresses. The
        exception is ``localhost``, which belongs to this machine; its name covers an address of it, too.
        """
        if is_public(address) or (canonical_host(host), port) in self.typed:
            return True
        name, result = canonical_host(host), _plain_address(address)
        is_own = result.is_loopback and name in ("localhost", str(result))
        return any(
            (is_own and entry.host == "localhost") or (entry.network is not None and result in entry.network)
            for entry in self._entries_for(scheme, port)
        )

    def require(self, url: str) -> None:
        """Raise an error if a URL is not allowed.

        Raises:
            FetchNotAllowedError: it is not allowed.
        """
        if not self.covers(url):
            raise FetchNotAllowedError(
                f"{mask(url)} was not contacted: it comes from a pin, and you have not allowed it",
                details={"path": mask(url), "allow": entry_for(url)},
            )

    def _entries_for(self, scheme: str, port: int) -> Iterator[_ConsentRule]:
        return (entry for entry in self.entries if entry.port in (None, port) and entry.scheme in (None, scheme))


def entry_for(url: str) -> str | None:
    """Return the value of ``--allow-host`` that allows ``url``, or None if nothing does, e.g. for a network share.

    >>> entry_for("https://example.org:8443/digits"), entry_for("s3://bucket/digits"), entry_for("/data/digits")
    ('example.org:8443', 's3://bucket', 'file:///data/digits')
    """
    scheme, _, rest = url.partition("://")
    if "://" not in url or scheme.lower() == "file":
        path = _path_of(url)
        return None if path is None else f"file://{path}"
    if scheme.lower() not in _HTTP:
        return mask(f"{scheme.lower()}://{rest.partition('/')[0].lower()}")
    found = _host_of(url)
    if found is None:
        return None
    host, port = found
    text = f"[{host}]" if ":" in host else host
    return text if port == _default_port(scheme.lower()) else f"{text}:{port}"


def needs_name(url: str) -> bool:
    """Whether ``--fetch`` does not allow a URL: an address that is not public, ``localhost``, or a rare protocol."""
    return not Allowed(fetch=True).covers(url)


def is_public(address: str) -> bool:
    """Whether an address is on the Internet, and not one of this machine, its network or its provider.

    >>> is_public("8.8.8.8"), is_public("::ffff:127.0.0.1"), is_public("169.254.169.254")
    (True, False, False)

    Raises:
        ValueError: the text is not an address.
    """
    found = _plain_address(address)
    inner: list[_Address] = [found]
    if isinstance(found, IPv6Address):
        inner += [
            mapped for mapped in (found.ipv4_mapped, found.sixtofour, *(found.teredo or ())) if mapped is not None
        ]
        if any(found in network for network in _EMBEDDING):
            inner.append(IPv4Address(int(found) & 0xFFFFFFFF))
    return all(
        mapped.is_global
        and not (mapped.is_multicast or mapped.is_unspecified or mapped.is_reserved)
        and str(mapped) not in _METADATA
        and not any(mapped in network for network in _NOT_PUBLIC)
        for mapped in inner
    )


def canonical_host(host: str) -> str:
    """Normalize a host: lower case, without a final dot, numeric forms as an address.

    >>> canonical_host("LOCALHOST."), canonical_host("127.1"), canonical_host("0x7f000001"), canonical_host("[::1]")
    ('localhost', '127.0.0.1', '127.0.0.1', '::1')
    """
    text = host.strip("[]").rstrip(".").lower()
    try:
        return str(_plain_address(text))
    except ValueError:
        pass
    if _NUMERIC.fullmatch(text):  # the system's resolver accepts these forms as addresses
        try:
            return socket.inet_ntoa(socket.inet_aton(text))
        except OSError:
            return text
    try:
        return text.encode("idna").decode() if not text.isascii() else text
    except UnicodeError:
        return text


def _plain_address(text: str) -> _Address:
    """Parse an address without its zone; an IPv4-mapped IPv6 address becomes the IPv4 address."""
    result = ip_address(text.partition("%")[0])
    mapped = result.ipv4_mapped if isinstance(result, IPv6Address) else None
    return result if mapped is None else mapped


def _parse(text: str) -> _ConsentRule:
    entry = text.strip()
    try:
        if "://" in entry:
            return _parse_url(entry)
        if "/" in entry:
            network = ip_network(entry)
            return _ConsentRule(host=str(network), network=network)
        try:
            return _named(entry.strip("[]"))  # first as an address: IPv6 contains colons
        except ValueError:
            parts = urlsplit(f"//{entry}")
            if parts.hostname is None or parts.username is not None or not re.fullmatch(r"[^\s/?#@,]+", entry):
                raise
            return _named(parts.hostname, port=parts.port)
    except ValueError:
        raise UsageError(
            f"{mask(entry)[:100]!r} is not a host",
            hint="Write example.org, example.org:8443, 10.0.0.0/8, s3://bucket or file:///folder.",
        ) from None


def _named(host: str, *, scheme: str | None = None, port: int | None = None) -> _ConsentRule:
    name = canonical_host(host)
    if ":" in host or _is_address(name):
        return _ConsentRule(host=name, scheme=scheme, port=port, network=ip_network(_plain_address(name)))
    if scheme is None and port is None and not re.fullmatch(r"[^\s/?#@,:*\[\]]+", name):
        raise ValueError(host)
    return _ConsentRule(host=name, scheme=scheme, port=port)


def _parse_url(entry: str) -> _ConsentRule:
    scheme, _, rest = entry.partition("://")
    scheme = scheme.lower()
    if scheme == "file":
        path = _path_of(entry)
        if path is None:
            raise ValueError(entry)
        return _ConsentRule(folder=path)
    parts = urlsplit(entry)
    if not rest or parts.username is not None or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError(entry)
    if scheme in _HTTP:
        return _named(parts.hostname or "", scheme=scheme, port=parts.port or _default_port(scheme))
    return _ConsentRule(host=rest.rstrip("/").lower(), scheme=scheme)


def _host_of(url: str) -> tuple[str, int] | None:
    """Host and port of an http URL, or None if they are missing or malformed."""
    try:
        parts = urlsplit(url)
        return (canonical_host(parts.hostname), parts.port or _default_port(parts.scheme)) if parts.hostname else None
    except ValueError:
        return None


def _default_port(scheme: str) -> int:
    return 443 if scheme == "https" else 80


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _path_of(location: str) -> str | None:
    """The path of a ``file:`` URL or a path; None for a network share, or a path with ``..``."""
    scheme, separator, rest = location.partition("://")
    path = location
    if separator and scheme.lower() == "file":
        path = unquote(rest.removeprefix("localhost") if rest.startswith("localhost/") else rest)
    if not path.startswith("/") or path.startswith("//") or "\\" in path or ".." in path.split("/"):
        return None
    return path.rstrip("/") or "/"


def _is_below(path: str, folder: str | None) -> bool:
    return folder is not None and (path == folder or path.startswith(f"{folder.rstrip('/')}/"))
