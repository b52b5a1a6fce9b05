"""Clients of a service that answers what no service of ours answers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support import http_servers
from support.http_servers import running

from registry.api.locations import access_token
from registry.catalog.service import ServiceCatalog
from registry.catalog.service.sign_in import sign_in_with_browser
from registry.catalog.service.store import ServiceStore
from registry.catalog.service_index import make_service_index
from registry.catalog.site import SiteOptions
from registry.catalog.web import WebCatalog
from registry.errors import CatalogError, NotFoundError, RegistryError, StorageError, UsageError
from registry.model import new_secret


class HostileServer:
    """Answers each request with the same status, headers and body, except for ``site.json`` if it has an ``index``."""

    def __init__(self) -> None:
        self.status, self.body = 200, b"null"
        self.headers: Mapping[str, str] = {}
        self.is_endless = False
        self.index: bytes | None = None
        hostile = self

        class Handler(http_servers.Handler):
            def do_GET(self) -> None:
                self.body()
                is_index = hostile.index is not None and self.path.endswith("/site.json")
                self.send_response(200 if is_index else hostile.status)
                for name, value in hostile.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                with suppress(OSError):
                    self.wfile.write(hostile.index or b"" if is_index else hostile.body)
                    while hostile.is_endless:
                        self.wfile.write(bytes(2**16))

            do_POST = do_PUT = do_HEAD = do_DELETE = do_GET

        self.handler, self.url = Handler, ""


@pytest.fixture
def hostile() -> Iterator[HostileServer]:
    started = HostileServer()
    with running(started.handler) as port:
        started.url = f"http://127.0.0.1:{port}/"
        yield started
        started.is_endless = False


DEEP = b"[" * 200_000


@pytest.mark.parametrize("status", [200, 404])
def test_an_answer_that_is_too_deep_is_an_error_of_the_registry(hostile: HostileServer, status: int) -> None:
    hostile.status, hostile.body = status, DEEP
    with ServiceCatalog(hostile.url, token=lambda _: None) as catalog, pytest.raises(CatalogError):
        catalog.now()


@pytest.mark.parametrize("fault", [DEEP, b"{", b"[]"])
def test_a_malformed_fault_in_a_stream_is_an_error_of_the_registry(hostile: HostileServer, fault: bytes) -> None:
    hostile.body = b"\xff" * 4 + len(fault).to_bytes(4, "big") + fault
    with ServiceCatalog(hostile.url, token=lambda _: None) as catalog, pytest.raises(CatalogError, match="malformed"):
        list(catalog.backup())


def test_a_moment_that_no_clock_shows_in_utc_is_an_error_of_the_registry(hostile: HostileServer) -> None:
    hostile.body = b'"0001-01-01T00:00:00+14:00"'
    with ServiceCatalog(hostile.url, token=lambda _: None) as catalog, pytest.raises(RegistryError, match="moment"):
        catalog.now()


@pytest.mark.parametrize("headers", [{}, {"Content-Length": "9" * 5000, "ETag": "1"}, {"Content-Length": "3"}])
def test_a_file_without_usable_headers_is_an_error_of_storage(
    hostile: HostileServer, headers: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_TRIES", "1")
    hostile.headers, hostile.body = headers, b""
    with pytest.raises(StorageError):
        ServiceStore(hostile.url, lambda _: None).size("digits/1.0.0/train")


@pytest.mark.parametrize("listing", [DEEP, b"[1]", b"7", b"{"])
def test_a_malformed_list_of_files_is_an_error_of_storage(hostile: HostileServer, listing: bytes) -> None:
    hostile.body = listing
    with pytest.raises(StorageError, match="malformed"):
        ServiceStore(hostile.url, lambda _: None).list("digits")


PERSON = {"name": "x", "client_id": "x", "scope": "openid", "authorization_endpoint": "https://login.example/"}


@pytest.mark.parametrize(
    "answer",
    [
        None,
        {"issuers": 1},
        {"issuers": [1, {}, {**PERSON, "name": []}, {**PERSON, "scope": ""}]},
        *(
            {"issuers": [{**PERSON, "authorization_endpoint": address}]}
            for address in ("javascript:alert(1)", "file:///etc/passwd", "http://login.example/", "https://a b/", 5)
        ),
    ],
)
def test_a_service_leads_the_browser_only_to_encrypted_pages(hostile: HostileServer, answer: Any) -> None:
    hostile.body = json.dumps(answer).encode()
    with pytest.raises(UsageError, match="the service offers no browser sign-in"):
        sign_in_with_browser(hostile.url, None, pytest.fail)


@pytest.mark.parametrize("body", [DEEP, b"{", b"\xff"])
def test_a_malformed_list_of_issuers_is_an_error_of_the_registry(hostile: HostileServer, body: bytes) -> None:
    hostile.body = body
    with pytest.raises(CatalogError, match="malformed"):
        sign_in_with_browser(hostile.url, None, pytest.fail)


def test_an_answer_that_never_ends_is_not_read_to_its_end(hostile: HostileServer) -> None:
    hostile.status, hostile.headers, hostile.is_endless = 206, {"ETag": '"1"'}, True
    file = ServiceStore(hostile.url, lambda _: None).open_known("digits/1.0.0/train", num_bytes=10, entity_tag='"1"')
    with file:
        assert len(file.read(4)) == 4


URLS = ("http://192.0.2.1/x", "file:///etc/passwd", "/etc/passwd", "https://", "https://ann:secret@bucket.example/x", 7)


@pytest.mark.parametrize("url", URLS)
def test_no_file_is_sent_to_a_url_that_is_not_safe(hostile: HostileServer, url: object) -> None:
    hostile.body = json.dumps({"url": url, "etag": None}).encode()
    with pytest.raises(StorageError, match="malformed" if url == 7 else "no file is sent to") as caught:
        ServiceStore(hostile.url, lambda _: None).write_bytes("digits/1.0.0/train", bytes(2**20 + 1))
    assert "secret" not in str(caught.value)


def test_a_service_elsewhere_sends_no_file_to_this_machine(hostile: HostileServer) -> None:
    store = ServiceStore("https://catalog.example/", lambda _: None)
    with pytest.raises(StorageError, match=r"no file is sent to http://127\.0\.0\.1"):
        store._bucket_of(f"{hostile.url}x", "x")


NOTHING = b'{"url": null, "etag": null, '
OFFERS = [b"[]", b"{}", b"7", b'"x"', b'{"url": 7, "etag": 7}', DEEP, b'{"url": "https://[", "etag": null}']
OFFERS += [NOTHING + more for more in (b'"store": []}', b'"store": "x"}', b'"upload": ""}', b'"upload": "x"}')]
OFFERS += [NOTHING + b'"upload": "x", "part_bytes": %s}' % size for size in (b"1", b'"x"', b"2e30", b"1073741824")]


@pytest.mark.parametrize("answer", OFFERS)
def test_a_malformed_offer_is_an_error_of_storage(hostile: HostileServer, answer: bytes) -> None:
    hostile.body = answer
    with pytest.raises(StorageError, match="malformed"):
        ServiceStore(hostile.url, lambda _: None).write_bytes("digits/1.0.0/train", bytes(2**20 + 1))


def test_a_bucket_gets_no_token_and_leads_nowhere(hostile: HostileServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_TRIES", "1")
    seen: list[tuple[str, str | None]] = []

    class Bucket(http_servers.Handler):
        def do_PUT(self) -> None:
            self.body()
            seen.append((self.path, self.headers["Authorization"]))
            self.answer(307, {"Location": f"{hostile.url}elsewhere"})

    with running(Bucket) as port:
        url = f"http://127.0.0.1:{port}/data/x?signed=1"
        hostile.body = json.dumps({"url": url, "etag": None}).encode()
        store = ServiceStore(hostile.url, lambda _: new_secret()[1])
        with pytest.raises(StorageError, match="the bucket answered 307"):
            store.write_bytes("digits/1.0.0/train", bytes(2**20 + 1))
    assert seen == [("/data/x?signed=1", None)]


@pytest.mark.parametrize("place", ["/home/ann", "file:///home/ann", "simplecache::file:///home/ann"])
def test_a_service_elsewhere_does_not_choose_a_folder_of_the_client(place: str) -> None:
    class Server:
        def call(self, *_: Any, **__: Any) -> Any:
            return {"recorded": place, "place": place}

    for url, refused in (("https://catalog.example/", True), ("http://localhost:8080/", False)):
        catalog = ServiceCatalog(url, token=lambda _: None)
        vars(catalog)["_server"] = Server()
        if refused:
            with pytest.raises(CatalogError, match="data directory of this machine") as caught:
                catalog.locations.data_dir()
            assert json.dumps(place) in json.dumps(caught.value.details)
        else:
            assert catalog.locations.data_dir() is not None


def test_the_token_of_the_usual_service_goes_to_no_other_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = new_secret()[1]
    monkeypatch.setattr("registry.api.logins._keyring", lambda: None)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("REGISTRY_TOKEN", text)
    for usual in ("", str(tmp_path / "catalog.db"), "HTTPS://catalog.example:443", "https://catalog.example/a/"):
        monkeypatch.setenv("REGISTRY_CATALOG", usual)
        assert access_token("https://catalog.example/") == text
        others = ("https://catalog.example.org/", "https://catalog.example:444/", "http://catalog.example/")
        assert {access_token(url) for url in others} == {None if usual.lower().startswith("https") else text}


def test_a_service_without_this_version_of_the_interface_is_named(tmp_path: Path, hostile: HostileServer) -> None:
    """Also if this machine knows that the URL is a service, so that it does not read ``site.json`` first."""
    problem = {"title": "NotFoundError", "detail": "there is nothing at this address", "code": "not_found"}
    hostile.status, hostile.body = 404, json.dumps(problem | {"hint": None, "details": {}}).encode()
    present = make_service_index("shardbook 9.0.0", None)
    newer = json.dumps(json.loads(present) | {"api": [2]}).encode()
    options = SiteOptions(cache=tmp_path / "cache", heads=tmp_path / "heads")
    for index, is_known, kind, message in (
        (newer, False, CatalogError, "has version 2 of the interface, and this release needs version 1"),
        (present, False, NotFoundError, "there is nothing at this address"),
        (newer, True, CatalogError, "has version 2 of the interface, and this release needs version 1"),
        (b"{", True, NotFoundError, "there is nothing at this address"),
        (None, True, NotFoundError, "there is nothing at this address"),
    ):
        hostile.index = index
        with WebCatalog(hostile.url, options) as catalog:
            assert catalog.is_service == is_known
            with pytest.raises(kind, match=message):
                catalog.datasets()
