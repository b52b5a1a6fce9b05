"""Which places that a stranger named may be asked: what the reader agreed to, held against URLs and addresses.

A pin names places, and whoever wrote it chose them. A request tells its host who reads what, and a host name may lead
to a machine of the reader's own network. So nothing is asked until the reader agrees, and an address that is not
public is asked only where the reader named it. Pure, but for ``inet_aton``; ``guarded_http`` applies it to connections.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias
from urllib.parse import unquote, urlsplit

from registry.errors import FetchNotAllowedError, UsageError
from registry.masking import mask

_Address: TypeAlias = IPv4Address | IPv6Address
_Network: TypeAlias = IPv4Network | IPv6Network

_HTTP: Final = ("http", "https")
_COVERED: Final = frozenset({*_HTTP, "s3", "s3a", "gs", "gcs", "az", "memory", "file"})
"""What ``--fetch`` covers. Other protocols of fsspec have to be named: nobody checks the addresses of theirs."""

_NUMERIC: Final = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)(?:\.(?:0x[0-9a-f]*|[0-9]+)){0,3}")
_METADATA: Final = frozenset({"168.63.129.16"})
"""Addresses of clouds' metadata services that look public; the others are link-local or private."""

_NOT_PUBLIC: Final = tuple(map(ip_network, ("64:ff9b:1::/48", "100::/64", "fec0::/10", "192.88.99.0/24")))
_EMBEDDING: Final = (IPv6Network("64:ff9b::/96"), IPv6Network("::/96"))
"""Their last 32 bits are an IPv4 address, which a gateway, or the machine itself, connects to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """One host that the reader named: ``scheme`` and ``port`` are None where any will do; or a folder of files."""

    host: str = ""
    scheme: str | None = None
    port: int | None = None
    network: _Network | None = None
    folder: str | None = None


@dataclass(frozen=True, slots=True)
class Allowed:
    """The places of a pin that its reader agreed to.

    Attributes:
        fetch: every place that the pin names, unless its address is not public.
        entries: hosts, ports, addresses, networks, buckets and folders that were named.
        typed: hosts and ports of URLs that the reader typed, such as that of the pin file: wherever they lead.

    >>> Allowed.of(hosts=["example.org"]).covers("https://example.org/digits")
    True
    >>> Allowed.of(fetch=True).covers("sftp://example.org/digits")
    False
    """

    fetch: bool = False
    entries: frozenset[_Entry] = frozenset()
    typed: frozenset[tuple[str, int]] = frozenset()

    @classmethod
    def of(cls, *, fetch: bool = False, hosts: Iterable[str] = ()) -> Allowed:
        """What ``--fetch`` and ``--allow-host`` say.

        Args:
            fetch: as the attribute.
            hosts: each ``host``, ``host:port``, an address, a network (``10.0.0.0/8``), ``scheme://host`` or bucket
                (``s3://bucket``), or a folder (``file:///data``).

        Raises:
            UsageError: a text that is none of these.
        """
        if isinstance(hosts, str):
            raise UsageError(
                "allowed hosts are a list, and this is one text", hint='Write allow_hosts=["example.org"].'
            )
        return cls(fetch, frozenset(map(_parse, hosts)))

    def __or__(self, other: Allowed) -> Allowed:
        return Allowed(self.fetch or other.fetch, self.entries | other.entries, self.typed | other.typed)

    def with_typed(self, url: str) -> Allowed:
        """The same, and the host of ``url``, which the reader typed."""
        found = _host_of(url)
        if found is None:
            return self
        host, port = found
        typed = {found, (host, 443)} if port == 80 else {found}  # a server may ask for https
        return self | Allowed(typed=frozenset(typed))

    def covers(self, url: str) -> bool:
        """Whether the place may be asked, as far as its URL or path tells; addresses are checked when they are known.

        Paths on shares of other machines (``//server/share``) are asked for nobody: on some systems that is a request.
        """
        scheme, _, rest = url.partition("://")
        scheme = scheme.lower() if "://" in url else "file"
        if scheme == "file":
            path = _path_of(url)
            return path is not None and (self.fetch or any(_is_below(path, one.folder) for one in self.entries))
        if scheme not in _HTTP:
            host = rest.partition("/")[0].lower()
            return (self.fetch and scheme in _COVERED) or any(
                (one.scheme, one.host) == (scheme, host) for one in self.entries
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
            one.host == host or (literal is not None and one.network is not None and literal in one.network)
            for one in self._entries_for(scheme, port)
        )

    def covers_address(self, scheme: str, host: str, port: int, address: str) -> bool:
        """Whether a connection may be made to ``address``, to which ``host`` leads.

        An address that is not public has to be named itself, for whoever owns a name chooses where it leads. Only
        ``localhost`` belongs to this machine.
        """
        if is_public(address) or (canonical_host(host), port) in self.typed:
            return True
        name, found = canonical_host(host), _plain_address(address)
        is_own = name == "localhost" and found.is_loopback
        return any(
            (is_own and one.host == name) or (one.network is not None and found in one.network)
            for one in self._entries_for(scheme, port)
        )

    def require(self, url: str) -> None:
        """Refuse a place that is not covered.

        Raises:
            FetchNotAllowedError: it may not be asked.
        """
        if not self.covers(url):
            raise FetchNotAllowedError(
                f"{mask(url)} was not asked: only a pin names it, and you have not allowed it",
                details={"path": mask(url), "allow": entry_for(url)},
            )

    def _entries_for(self, scheme: str, port: int) -> Iterator[_Entry]:
        return (one for one in self.entries if one.port in (None, port) and one.scheme in (None, scheme))


def entry_for(url: str) -> str | None:
    """What ``--allow-host`` takes to agree to the place ``url``; None where nothing does, as a share of a network.

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
    shown = f"[{host}]" if ":" in host else host
    return shown if port == _default_port(scheme.lower()) else f"{shown}:{port}"


def needs_name(url: str) -> bool:
    """Whether ``--fetch`` does not cover a place: an address that is not public, ``localhost``, or a rare protocol."""
    return not Allowed(fetch=True).covers(url)


def is_public(address: str) -> bool:
    """Whether an address is one of the Internet, wherever it leads: not one of this machine, network or provider.

    >>> is_public("8.8.8.8"), is_public("::ffff:127.0.0.1"), is_public("169.254.169.254")
    (True, False, False)

    Raises:
        ValueError: the text is no address.
    """
    found = _plain_address(address)
    inner: list[_Address] = [found]
    if isinstance(found, IPv6Address):
        inner += [one for one in (found.ipv4_mapped, found.sixtofour, *(found.teredo or ())) if one is not None]
        if any(found in network for network in _EMBEDDING):
            inner.append(IPv4Address(int(found) & 0xFFFFFFFF))
    return all(
        one.is_global
        and not (one.is_multicast or one.is_unspecified or one.is_reserved)
        and str(one) not in _METADATA
        and not any(one in network for network in _NOT_PUBLIC)
        for one in inner
    )


def canonical_host(host: str) -> str:
    """One spelling for a host: small letters, no dot at its end, numbers as an address.

    >>> canonical_host("LOCALHOST."), canonical_host("127.1"), canonical_host("0x7f000001"), canonical_host("[::1]")
    ('localhost', '127.0.0.1', '127.0.0.1', '::1')
    """
    text = host.strip("[]").rstrip(".").lower()
    try:
        return str(_plain_address(text))
    except ValueError:
        pass
    if _NUMERIC.fullmatch(text):  # what the system's resolver takes for an address, too
        try:
            return socket.inet_ntoa(socket.inet_aton(text))
        except OSError:
            return text
    try:
        return text.encode("idna").decode() if not text.isascii() else text
    except UnicodeError:
        return text


def _plain_address(text: str) -> _Address:
    """The address without its zone, and the IPv4 address that an IPv6 one stands for."""
    found = ip_address(text.partition("%")[0])
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return found if mapped is None else mapped


def _parse(text: str) -> _Entry:
    entry = text.strip()
    try:
        if "://" in entry:
            return _parse_url(entry)
        if "/" in entry:
            network = ip_network(entry)
            return _Entry(host=str(network), network=network)
        try:
            return _named(entry.strip("[]"))  # an address, of which IPv6 has colons of its own
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


def _named(host: str, *, scheme: str | None = None, port: int | None = None) -> _Entry:
    name = canonical_host(host)
    if ":" in host or _is_address(name):
        return _Entry(host=name, scheme=scheme, port=port, network=ip_network(_plain_address(name)))
    if scheme is None and port is None and not re.fullmatch(r"[^\s/?#@,:*\[\]]+", name):
        raise ValueError(host)
    return _Entry(host=name, scheme=scheme, port=port)


def _parse_url(entry: str) -> _Entry:
    scheme, _, rest = entry.partition("://")
    scheme = scheme.lower()
    if scheme == "file":
        path = _path_of(entry)
        if path is None:
            raise ValueError(entry)
        return _Entry(folder=path)
    parts = urlsplit(entry)
    if not rest or parts.username is not None or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError(entry)
    if scheme in _HTTP:
        return _named(parts.hostname or "", scheme=scheme, port=parts.port or _default_port(scheme))
    return _Entry(host=rest.rstrip("/").lower(), scheme=scheme)


def _host_of(url: str) -> tuple[str, int] | None:
    """Host and port of an http URL, or None where it has none that can be read."""
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
    """The path of a ``file:`` URL, or of a path; None for a share of another machine, or a way out of a folder."""
    scheme, separator, rest = location.partition("://")
    path = location
    if separator and scheme.lower() == "file":
        path = unquote(rest.removeprefix("localhost") if rest.startswith("localhost/") else rest)
    if not path.startswith("/") or path.startswith("//") or "\\" in path or ".." in path.split("/"):
        return None
    return path.rstrip("/") or "/"


def _is_below(path: str, folder: str | None) -> bool:
    return folder is not None and (path == folder or path.startswith(f"{folder.rstrip('/')}/"))
