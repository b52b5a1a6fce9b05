"""A foreign pin causes no request until its reader agrees, for any host and any redirect."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support import http_servers
from support.http_servers import running
from support.pinned_samples import pin, publish_samples, read_all

import registry
from registry.api import Catalog
from registry.cli.main import run
from registry.errors import FetchNotAllowedError, NotStoredError, UsageError
from registry.pins import PinFile, Places
from registry.pins.restore import restore
from registry.storage import Allowed
from registry.storage.guarded_http import RefusedConnection, _Resolver

FIRST = "animals-train.tfrecord-00000-of-00004"


class Server:
    """A web server of this process that counts: serves a folder, or redirects to ``sends_to``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sends_to: str | None = None
        self.requests: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.address}"


@contextmanager
def serving(folder: Path) -> Iterator[Server]:
    found = Server(folder)

    class Handler(http_servers.Handler):
        def do_GET(self) -> None:
            found.requests.append(f"{self.command} {self.path}")
            found.headers.append(dict(self.headers))
            path = found.folder / self.path.lstrip("/")
            if found.sends_to is not None:
                self.answer(302, {"Location": f"{found.sends_to}{self.path}"})
            elif not path.is_file():
                self.send_error(404)
            else:
                self.answer(200, body=path.read_bytes())

        do_HEAD = do_GET

    with running(Handler) as found.port:
        yield found


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalog]:
    with publish_samples(tmp_path_factory.mktemp("published")) as opened:
        yield opened


@pytest.fixture
def files(catalog: Catalog) -> Path:
    return Path(catalog.data_dir) / "animals" / "1.0.0"


@pytest.fixture
def server(files: Path) -> Iterator[Server]:
    with serving(files) as found:
        yield found


@pytest.fixture
def stranger(catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Writes a foreign pin file into an empty folder without its data."""
    monkeypatch.setenv("REGISTRY_DATA_DIR", str(tmp_path / "nothing"))
    monkeypatch.setenv("REGISTRY_CATALOG", str(tmp_path / "catalog.db"))
    monkeypatch.delenv("REGISTRY_ALLOWED_HOSTS", raising=False)

    def write(*locations: str, split: str = "train[:5]", file_locations: tuple[str, ...] = ()) -> str:
        pins = pin(catalog, {"train": ("animals:1.0.0", split)}, locations=locations, file_locations=file_locations)
        path = tmp_path / "theirs" / "dataset.lock.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(pins.to_yaml())
        return str(path)

    return write


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Host names and the addresses to which the test's resolver maps them; resolving any other name fails."""
    known = {"127.0.0.1": "127.0.0.1"}
    real = socket.getaddrinfo

    def look_up(host: Any, port: Any, *arguments: Any, **options: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        assert name in known, f"{name} was looked up"
        return real(known[name], port, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return known


ACTIONS: dict[str, Callable[[PinFile, Path], Any]] = {
    "read": lambda pins, _: list(pins["train"].read()),
    "verify": lambda pins, _: pins["train"].verify(),
    "restore": lambda pins, folder: restore(pins, None, folder / "restored"),
    "dry run": lambda pins, folder: restore(pins, None, folder / "restored", dry_run=True),
    "store": lambda pins, _: pins["train"].store().size(FIRST),
}


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("is_file", [False, True])
def test_a_pin_of_a_stranger_asks_nobody(
    server: Server, stranger: Callable[..., str], tmp_path: Path, action: str, is_file: bool
) -> None:
    place = {"file_locations": (server.url,)} if is_file else {}
    pins = registry.load_pin(stranger(*([] if is_file else [server.url]), **place))
    # Only actions that fetch files request single ones.
    expected = NotStoredError if is_file and action not in ("restore", "dry run") else FetchNotAllowedError
    with pytest.raises(expected):
        ACTIONS[action](pins, tmp_path)
    assert server.requests == []


@pytest.mark.parametrize("action", ACTIONS)
def test_fetch_does_not_cover_addresses_of_ones_own_machine(
    server: Server, stranger: Callable[..., str], tmp_path: Path, action: str
) -> None:
    places = [f"http://{host}:{server.port}" for host in ("127.0.0.1", "localhost", "localhost.", "127.1")]
    places += [f"http://{host}:{server.port}" for host in ("0x7f000001", "2130706433", "[::ffff:127.0.0.1]", "0.0.0.0")]  # noqa: S104
    pins = registry.load_pin(stranger(*places), fetch=True)
    with pytest.raises(FetchNotAllowedError, match="fetch=True does not cover this place"):
        ACTIONS[action](pins, tmp_path)
    assert server.requests == []


@pytest.mark.parametrize("action", ACTIONS)
def test_a_name_that_resolves_to_the_local_machine_gets_no_request(
    server: Server, stranger: Callable[..., str], tmp_path: Path, names: dict[str, str], action: str
) -> None:
    names["public.example"] = "127.0.0.1"
    pins = registry.load_pin(
        stranger(f"http://public.example:{server.port}"), fetch=True, allow_hosts=["public.example"]
    )
    with pytest.raises(FetchNotAllowedError) as caught:
        ACTIONS[action](pins, tmp_path)
    assert "public.example resolves to 127.0.0.1, an address that is not public and that you have not allowed" in str(
        caught.value
    )
    assert "allow_hosts=['127.0.0.1']" in str(caught.value.hint)
    assert server.requests == []


@pytest.mark.parametrize("action", ACTIONS)
def test_a_named_host_gets_a_request(server: Server, stranger: Callable[..., str], tmp_path: Path, action: str) -> None:
    path = stranger(server.url)
    ACTIONS[action](registry.load_pin(path, allow_hosts=[server.address]), tmp_path)
    assert server.requests
    assert not any({"Authorization", "Cookie", "Referer"} & set(headers) for headers in server.headers)


def test_each_call_may_agree_for_itself(
    server: Server, stranger: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, catalog: Catalog
) -> None:
    path = stranger(server.url)
    pins = registry.load_pin(path)
    allow = [server.address]
    assert len(list(pins["train"].read(allow_hosts=allow))) == 5
    assert pins["train"].verify(allow_hosts=allow).is_sound
    assert restore(pins, None, tmp_path / "restored", allow_hosts=allow).copied
    with registry.locked(path, allow_hosts=allow):
        assert len(list(registry.load("animals:1.0.0", split="train[:5]"))) == 5
    with pytest.raises(FetchNotAllowedError):
        pins["train"].verify()
    monkeypatch.setenv("REGISTRY_ALLOWED_HOSTS", f"example.org, {server.address}")
    assert registry.load_pin(path)["train"].verify().is_sound
    monkeypatch.setenv("REGISTRY_ALLOWED_HOSTS", "a b/c")
    with pytest.raises(UsageError, match=r"^\$REGISTRY_ALLOWED_HOSTS: 'b/c' is not a host(?m:$)"):
        registry.load_pin(path)


@pytest.mark.parametrize("action", ["read", "verify", "restore"])
@pytest.mark.parametrize("target", ["127.0.0.1", "localhost", "127.1", "[::ffff:127.0.0.1]", "other.example"])
def test_a_redirect_is_checked_against_the_consent(
    server: Server,
    files: Path,
    stranger: Callable[..., str],
    tmp_path: Path,
    names: dict[str, str],
    action: str,
    target: str,
) -> None:
    names |= {"public.example": "127.0.0.1", "other.example": "127.0.0.1", "localhost": "127.0.0.1"}
    names |= {"127.1": "127.0.0.1", "::ffff:127.0.0.1": "127.0.0.1"}
    with serving(files) as other:
        server.sends_to = f"http://{target}:{other.port}"
        path = stranger(f"http://public.example:{server.port}")
        allow = ["public.example", server.address]
        pins = registry.load_pin(path, fetch=target != "other.example", allow_hosts=allow)
        with pytest.raises(FetchNotAllowedError) as caught:
            ACTIONS[action](pins, tmp_path)
        assert other.requests == []
        assert server.requests
        assert "the server redirects to http://" in str(caught.value)
        more = ["other.example"] if target == "other.example" else ["localhost"] if target == "localhost" else []
        pins = registry.load_pin(path, allow_hosts=[*allow, other.address, *more])
        if target != "127.1" and ":" not in target:  # which the library takes for no host, or not to the same server
            ACTIONS[action](pins, tmp_path)
            assert other.requests


def test_https_is_not_left_for_http() -> None:
    from yarl import URL

    from registry.storage.guarded_http import _Connector

    async def connect() -> None:
        connector = _Connector(Allowed.of(fetch=True), is_secure=True)
        try:
            request = type("Request", (), {"url": URL("http://example.org/x")})
            await connector.connect(request, [], None)
        finally:
            await connector.close()

    with pytest.raises(RefusedConnection) as caught:
        asyncio.run(connect())
    assert str(caught.value) == (
        "the server redirects from https to http://example.org/x, which others could change in transit"
    )


def test_of_several_addresses_the_public_ones_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(*_: Any, **__: Any) -> list[Any]:
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 80))
            for address in ("10.0.0.1", "8.8.8.8", "127.0.0.1")
        ]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)

    async def resolve() -> list[str]:
        resolver = _Resolver(Allowed.of(fetch=True), lambda _host, _port: "http")
        return [one["host"] for one in await resolver.resolve("example.org", 80)]

    assert asyncio.run(resolve()) == ["8.8.8.8"]


def test_the_connection_is_made_to_the_address_that_was_checked(
    server: Server, stranger: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up = []
    real = socket.getaddrinfo

    def rebinding(host: Any, port: Any, *arguments: Any, **options: Any) -> Any:
        if host != "public.example":
            return real(host, port, *arguments, **options)
        looked_up.append(host)
        # The check gets an allowed address, and every later look-up another one.
        return real("127.0.0.1" if len(looked_up) == 1 else "127.0.0.2", port, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    path = stranger(f"http://public.example:{server.port}")
    pins = registry.load_pin(path, allow_hosts=["public.example", server.address])
    assert pins["train"].store().size(FIRST)
    assert looked_up == ["public.example"]


def test_no_proxy_and_no_configured_password_is_used(
    server: Server, files: Path, stranger: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from fsspec.config import conf

    with serving(files) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("ALL_PROXY", proxy.url)
        headers = {"Authorization": "Basic c2VjcmV0"}
        monkeypatch.setitem(conf, "http", {"client_kwargs": {"headers": headers}, "headers": headers})
        pins = registry.load_pin(stranger(server.url), allow_hosts=[server.address])
        assert pins["train"].verify().is_sound
        assert proxy.requests == []
    assert server.requests
    assert not any("Authorization" in one for one in server.headers)


def test_what_is_here_is_read_without_asking(
    server: Server, files: Path, stranger: Callable[..., str], tmp_path: Path
) -> None:
    path = stranger(server.url)
    shutil.copytree(files, Path(path).parent / "data" / "animals" / "1.0.0")
    pins = registry.load_pin(path)
    assert len(read_all(pins, "train")) == 5
    assert pins["train"].verify().is_sound
    assert len(restore(pins, None, tmp_path / "restored").copied) == 1
    assert server.requests == []


def test_a_folder_that_a_pin_names_is_read_once_the_reader_agrees(
    files: Path, stranger: Callable[..., str], tmp_path: Path
) -> None:
    path = stranger(str(files))
    with pytest.raises(FetchNotAllowedError) as caught:
        registry.load_pin(path)["train"].verify()
    assert f"\n  {files}: not allowed: only the pin names this place" in str(caught.value)
    assert registry.load_pin(path, fetch=True)["train"].verify().is_sound
    assert registry.load_pin(path, allow_hosts=[f"file://{files.parent}"])["train"].verify().is_sound


@pytest.mark.parametrize("place", ["//server/share", "file:////server/share", "file://server/share"])
def test_a_share_of_another_machine_never_gets_a_request(stranger: Callable[..., str], place: str) -> None:
    with pytest.raises((NotStoredError, UsageError)) as caught:
        registry.load_pin(stranger(place), fetch=True)["train"].verify()
    is_refused = "fetch=True does not cover this place" in str(caught.value)
    assert is_refused or "neither a path nor a URL that parses" in str(caught.value)


def test_a_fetched_pin_sends_requests_only_to_its_own_host(
    server: Server, files: Path, stranger: Callable[..., str], tmp_path: Path
) -> None:
    with serving(files) as other:
        path = Path(stranger(other.url))
        server.folder = path.parent
        shutil.copytree(files, path.parent / "data" / "animals" / "1.0.0")
        assert registry.load_pin(f"{server.url}/{path.name}")["train"].verify().is_sound
        shutil.rmtree(path.parent / "data")
        with pytest.raises(FetchNotAllowedError):
            registry.load_pin(f"{server.url}/{path.name}")["train"].verify()
        pins = registry.load_pin(f"{server.url}/{path.name}")
        server.sends_to = other.url  # for the data that should be next to the pin
        with pytest.raises(FetchNotAllowedError):
            pins["train"].verify()
        assert other.requests == []


def test_the_command_line_says_what_would_be_asked(
    server: Server, files: Path, stranger: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = stranger("https://example.org/animals", "s3://bucket/animals")
    size = (files / FIRST).stat().st_size
    assert run(["pin", "verify", path]) == 6
    reported = capsys.readouterr()
    assert reported.out == ""
    assert reported.err == (
        f"error: the files of animals:1.0.0 train[:5] (1 file, {size} bytes) are not in any folder that "
        "was searched\n"
        f"  {(tmp_path / 'theirs/data/animals/1.0.0').as_uri()}: no {FIRST}\n"
        f"  {(tmp_path / 'nothing/animals/1.0.0').as_uri()}: no {FIRST}\n"
        "  https://example.org/animals: not allowed: only the pin names this place\n"
        "  s3://bucket/animals: not allowed: only the pin names this place\n"
        "hint: If you trust the author of the pin, add --allow-host example.org --allow-host s3://bucket (or --fetch, "
        "for every place that a pin names). If you have the files, name their folder with --data-dir DIR.\n"
    )
    path = stranger(server.url)
    assert run(["pin", "restore", path, "--to", str(tmp_path / "restored"), "--fetch"]) == 6
    reported = capsys.readouterr()
    assert reported.err.endswith(
        f"    {server.url}: not allowed: --fetch does not cover this place\n"
        f"hint: If you trust the author of the pin, add --allow-host {server.address}. "
        "If you have the files, name their folder with --data-dir DIR.\n"
    ), reported.err
    for command in (["verify"], ["read"], ["restore", "--to", "x"], ["bundle", "-o", str(tmp_path / "a.tar")]):
        arguments = [command[0], path, *(["train"] if command[0] == "read" else []), *command[1:]]
        assert run(["pin", *arguments]) == 6, command
    run(["db", "upgrade"])
    capsys.readouterr()
    assert run(["pin", "audit", path, "--format", "json"]) == 6
    audit = json.loads(capsys.readouterr().out)["data"]
    assert audit[0]["folder"] is None
    assert f"--allow-host {server.address}" in audit[0]["missing"]
    assert server.requests == []
    for command in (
        ["verify"],
        ["read"],
        ["restore", "--to", str(tmp_path / "y")],
        ["bundle", "-o", str(tmp_path / "a.tar")],
    ):
        arguments = [command[0], path, *(["train"] if command[0] == "read" else []), *command[1:]]
        assert run(["pin", *arguments, "--allow-host", server.address]) == 0, command
    assert run(["pin", "verify", path, "--allow-host", "a b"]) == 2


def test_pins_that_are_here_are_verified_although_others_may_not_be_fetched(
    server: Server,
    catalog: Catalog,
    files: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    wanted = {"here": ("animals:1.0.0", "train[:5]"), "there": ("animals:1.0.0", "train[35:]")}
    pins = pin(catalog, wanted, locations=[server.url], places=Places())
    here = tmp_path / "data" / "animals" / "1.0.0"
    here.mkdir(parents=True)
    shutil.copy(files / FIRST, here)
    monkeypatch.setenv("REGISTRY_DATA_DIR", str(tmp_path / "data"))
    path = tmp_path / "dataset.lock.yaml"
    path.write_text(pins.to_yaml())
    assert run(["pin", "verify", str(path)]) == 6
    reported = capsys.readouterr()
    assert reported.out.startswith("here: animals:1.0.0 train[:5]: 5 records as pinned")
    assert "the files of animals:1.0.0 train[35:] (1 file, " in reported.err
    (here / FIRST).write_bytes(bytes(len((files / FIRST).read_bytes())))
    assert run(["pin", "verify", str(path)]) == 5
    assert "the files of animals:1.0.0 train[35:] (1 file, " in capsys.readouterr().err
    assert server.requests == []
