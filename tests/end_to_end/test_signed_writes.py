"""Publishers who send files to a bucket by URLs that the service signs, without rights of their own."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import pytest
from support import http_servers, warm_python
from support.clouds import Cloud, on_clouds
from support.gcs_server import GcsServer
from support.http_servers import running
from support.s3_server import S3Server
from support.services import TestServer, make_token

import registry
from registry.catalog import DataDirectory, Holder
from registry.catalog.service import ServiceCatalog
from registry.catalog.service.requests import ServiceServer
from registry.catalog.service.store import ServiceStore
from registry.catalog.web import WebCatalog
from registry.errors import (
    AlreadyStoredError,
    CatalogRefusedError,
    LeftoverWarning,
    StorageError,
    UsageError,
    VerificationError,
)
from registry.model import Attachment, Reference, Role
from registry.server.data import ServedData
from registry.storage import LocalStore, open_store
from registry.storage.multipart import abort_upload, list_unfinished
from registry.storage.network import TransientFault
from registry.storage.object_store import ObjectStore
from registry.storage.signed_upload import (
    CONDITIONS,
    S3Signer,
    Upload,
    open_signer,
    part_headers,
    upload_headers,
)

LARGE = 2**20 + 1
"""Bytes of a file that does not go through the service."""


@pytest.fixture(scope="module")
def server() -> Iterator[TestServer]:
    started = TestServer()
    yield started
    started.stop()


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine of a client, whose cache and data folder are empty."""
    monkeypatch.setenv("REGISTRY_CACHE_DIR", str(tmp_path / "client" / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "client" / "data"))
    for name in ("REGISTRY_DATA_DIR", "REGISTRY_TOKEN", "REGISTRY_CATALOG"):
        monkeypatch.delenv(name, raising=False)


def serve(server: TestServer, home: registry.Catalog, place: str) -> None:
    """Let the server answer for a catalog and its data directory in a bucket."""
    server.service.catalog = home.backend  # type: ignore[assignment]  # it is in SQLite
    own = DataDirectory(recorded=place, place=place)
    server.service.data = ServedData(open_store(place), own, server.url, signs=True, signs_writes=True)


@pytest.fixture
def home(
    tmp_path: Path, cloud: Cloud, bucket: str, server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[registry.Catalog]:
    """The catalog on the machine of the server, whose data directory is in a bucket."""
    if isinstance(cloud, GcsServer):
        monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", cloud.account())
    with registry.connect(tmp_path / "catalog.db", data_dir=f"{bucket}/data", create=True) as opened:
        opened.add({"number": range(100)}, name="numbers")
        serve(server, opened, f"{bucket}/data")
        yield opened
        server.service.data = None


@pytest.fixture
def publisher(home: registry.Catalog, monkeypatch: pytest.MonkeyPatch) -> str:
    """The token of a publisher of every dataset, which the client uses."""
    token = make_token(home.backend, "ci", Role.PUBLISHER)
    monkeypatch.setenv("REGISTRY_TOKEN", token)
    return token


SCRIPT = """
import os, sys, registry
from registry.catalog.service.store import ServiceStore
from registry.catalog.web import WebCatalog
url, name, dies, number_of_texts = sys.argv[1:]
call, offer = WebCatalog._call, ServiceStore._offer
def dying(catalog, name, *args, **kwargs):
    if name == "publish" and dies == "dies":
        os.kill(os.getpid(), 9)
    return call(catalog, name, *args, **kwargs)
def dying_offer(store, name, upload, more=""):
    if dies == "dies before the end of the parts" and "&upload=" in more and "&part=" not in more:
        os.kill(os.getpid(), 9)
    return offer(store, name, upload, more)
WebCatalog._call, ServiceStore._offer = dying, dying_offer
with registry.connect(url) as catalog:
    print(catalog.add({"text": [str(number) * 400 for number in range(int(number_of_texts))]}, name=name).reference)
    print(catalog.data_dir, len(list(catalog.dataset(name).read("train"))))
"""


def add_without_rights(url: str, name: str, dies: str = "", texts: int = 1500) -> subprocess.Popen[str]:
    """Add a dataset in a process that has no credentials of the bucket."""
    rights = ("AWS_", "GOOGLE_", "AZURE_", "AZURITE_")
    environment = {key: text for key, text in os.environ.items() if not key.startswith(rights)}
    program = [sys.executable, "-c", SCRIPT, url, name, dies, str(texts)]
    return warm_python.Popen(program, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ask(url: str, method: str, target: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
    """The status and the body of the answer to a request of exactly this target."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    connection.putrequest(method, target, skip_accept_encoding=True)
    for name, value in ({"Content-Length": str(len(body))} | headers).items():
        connection.putheader(name, value)
    connection.endheaders()
    with suppress(BrokenPipeError):  # it may answer before it has the body
        connection.send(body)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, content


def offer(server: TestServer, token: str | None, path: str, content: bytes, **changes: object) -> tuple[int, Any]:
    """What the service answers to somebody who wants to send a file."""
    values = {"num_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()} | changes
    query = "&".join(f"{name}={value}" for name, value in values.items())
    login = {} if token is None else {"Authorization": f"Bearer {token}"}
    status, body = ask(server.url, "POST", f"/api/v1/data/{path}?{query}", **login)
    return status, json.loads(body)


def send(url: str, content: bytes, kind: str = "s3", **changes: str) -> int:
    """The status that the bucket answers to a file for a signed URL; headers without a value are left out."""
    headers = upload_headers(kind, Upload.of(content))
    headers |= {name.replace("_", "-"): value for name, value in changes.items()}
    sent = {name: value for name, value in headers.items() if value}
    return ask(url, "PUT", url.partition("://")[2].partition("/")[1] + url.split("/", 3)[3], content, **sent)[0]


def reserve(server: TestServer, token: str, reference: str, location: str) -> None:
    """Reserve the place of a version, as the publisher of this process."""
    with ServiceCatalog(server.url, token=lambda _: token) as client:
        holder = Holder.of_this_process("x")
        client.reservations.reserve(location, Reference.parse(reference), "0" * 64, holder)


@on_clouds
def test_a_publisher_without_rights_sends_its_bytes_past_the_service(
    server: TestServer, home: registry.Catalog, publisher: str, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    write = ServedData.write

    def watched(data: ServedData, catalog: Any, path: str, headers: Any, *rest: Any) -> Any:
        sizes.append(int(headers["content-length"]))
        return write(data, catalog, path, headers, *rest)

    read: list[str] = []
    hash_of = ObjectStore.sha256

    def watched_hash(store: ObjectStore, name: str) -> str:
        read.append(name)
        return hash_of(store, name)

    with monkeypatch.context() as patches:
        patches.setattr(ServedData, "write", watched)
        patches.setattr(ObjectStore, "sha256", watched_hash)
        done = add_without_rights(server.url, "texts").communicate()
    assert done == (f"texts:1.0.0\n{server.url}api/v1/data 1500\n", "")
    (shard,) = [file for split in home.dataset("texts").facts.splits for file in [split.filename(0)]]
    assert read == ([] if cloud.scheme == "s3" else [f"texts/1.0.0/{shard}"])  # S3 has compared the sha256 itself
    assert max(sizes) < 2**20 < sum(split.num_bytes for split in home.dataset("texts").facts.splits)
    assert (home.dataset("texts").verify(deep=True).faults, home.backend.reservations.list()) == ((), ())
    assert {event.actor for event in home.log() if event.dataset == "texts"} == {"ci"}
    removed = home.collect_garbage(older_than="0s").require_all().of("removed")
    assert {leftover.kind for leftover in removed} <= {"cache", "temporary"}


@pytest.mark.parametrize("cloud", ["gcs_server"], indirect=True)
def test_a_file_that_is_replaced_while_others_are_read_is_not_published(
    server: TestServer, home: registry.Catalog, publisher: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hash_of = ObjectStore.sha256

    def replacing(store: ObjectStore, name: str) -> str:
        result, num_bytes = hash_of(store, name), store.size(name)
        if num_bytes > 2**20:
            store.write_bytes(name, bytes(num_bytes), overwrite=True)
        return result

    monkeypatch.setattr(ObjectStore, "sha256", replacing)
    failed = add_without_rights(server.url, "texts").communicate()[1]
    assert "texts:1.0.0 was not published: texts-train" in failed
    assert "sha256 mismatch" in failed
    assert [row.dataset for row in home.datasets()] == ["numbers"]


@on_clouds
def test_a_killed_publisher_leaves_what_gc_removes(
    server: TestServer, home: registry.Catalog, publisher: str, bucket: str
) -> None:
    with add_without_rights(server.url, "texts", "dies") as killed:
        assert (killed.wait(), killed.communicate()) == (-9, ("", ""))
    store = open_store(f"{bucket}/data/texts/1.0.0")
    assert any(store.size(name) > 2**20 for name in store.list())
    removed = home.collect_garbage(older_than="0s").require_all().of("removed")
    assert "reservation" in {leftover.kind for leftover in removed}
    assert (store.list(), home.backend.reservations.list()) == ([], ())
    assert add_without_rights(server.url, "texts").communicate()[0].startswith("texts:1.0.0\n")


@on_clouds
def test_two_publishers_of_the_same_version_both_succeed(
    server: TestServer, home: registry.Catalog, publisher: str
) -> None:
    results = [run.communicate() for run in [add_without_rights(server.url, "texts") for _ in range(2)]]
    assert results == [(f"texts:1.0.0\n{server.url}api/v1/data 1500\n", "")] * 2
    assert (home.dataset("texts").verify(deep=True).faults, home.backend.reservations.list()) == ((), ())


def test_a_maintainer_uploads_as_a_publisher_does(server: TestServer, home: registry.Catalog) -> None:
    token = make_token(home.backend, "ann", Role.MAINTAINER)
    reserve(server, token, "lab:1.0.0", f"{server.url}api/v1/data/lab/1.0.0")
    assert offer(server, token, "lab/1.0.0/x", b"content")[0] == 200


def test_a_url_takes_these_bytes_once_at_this_place(
    server: TestServer, home: registry.Catalog, publisher: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, reader = make_token(home.backend, "other", Role.PUBLISHER), make_token(home.backend, "ann", Role.READER)
    content, place = b"content", "lab/1.0.0"
    assert offer(server, publisher, f"{place}/x", content)[0] == 409  # it is not reserved
    reserve(server, publisher, "lab:1.0.0", f"{server.url}api/v1/data/{place}")
    assert [offer(server, token, f"{place}/x", content)[0] for token in (None, reader, other)] == [401, 403, 409]
    for name in ("numbers/1.0.0/x", f"{place}/../x", f"{place}/%2e%2e/x", "lab/2.0.0/x", f"{place}/.owner.json"):
        assert offer(server, publisher, name, content)[0] in (404, 409), name
    for change in ({"num_bytes": "-1"}, {"num_bytes": ""}, {"sha256": "0"}, {"num_bytes": 5000 * 2**30 + 1}):
        assert offer(server, publisher, f"{place}/x", content, **change)[0] == 400
    status, answer = offer(server, publisher, f"{place}/x", content)
    url = answer["url"]
    assert (status, answer["etag"], publisher in url, "X-Amz-Expires=300" in url) == (200, None, False, True)
    signed = "content-length%3Bcontent-type%3Bhost%3Bif-none-match%3Bx-amz-checksum-sha256"
    assert f"X-Amz-SignedHeaders={signed}" in url
    digest = base64.b64encode(hashlib.sha256(b"CONTENT").digest()).decode()
    assert send(url, b"CONTENT") == 403  # the sha256 is signed
    assert (
        send(
            url,
            b"CONTENT",
            x_amz_checksum_sha256=upload_headers("s3", Upload.of(content))["x-amz-checksum-sha256"],
        )
        == 400
    )
    assert send(url, content + b"!") == 403
    assert send(url, content, x_amz_checksum_sha256=digest) == 403
    assert send(url, content, If_None_Match="") == 403
    assert send(url, content, If_None_Match='"x"') == 403
    assert send(url, content, x_amz_acl="public-read") == 403
    assert send(url, content, Content_Type="text/html") == 403
    assert send(url.replace("lab/1.0.0/x", "numbers/1.0.0/x"), content) == 403
    assert send(url.replace("Expires=300", "Expires=999"), content) == 403
    assert [send(url, content), send(url, content)] == [200, 412]
    tag = f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'
    assert offer(server, publisher, f"{place}/x", content) == (200, {"url": None, "etag": tag, "store": "s3"})
    assert offer(server, publisher, f"{place}/x", b"other")[0] == 412
    empty = offer(server, publisher, f"{place}/empty", b"")[1]["url"]
    assert [send(empty, b"!"), send(empty, b""), send(empty, b"")] == [403, 200, 412]
    monkeypatch.setattr("registry.server.signed_writes.SIGNED_SECONDS", 1)
    late = offer(server, publisher, f"{place}/late", content)[1]["url"]
    time.sleep(2.1)
    assert send(late, content) == 403


@pytest.mark.parametrize("cloud", ["gcs_server"], indirect=True)
def test_a_url_of_google_takes_bytes_of_this_size_and_md5_once(
    server: TestServer, home: registry.Catalog, publisher: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, path, tag = b"content", "lab/1.0.0/x", Upload.of(b"content").md5
    reserve(server, publisher, "lab:1.0.0", f"{server.url}api/v1/data/lab/1.0.0")
    assert offer(server, publisher, path, content) == (200, {"url": None, "etag": None, "store": "gs"})
    for wrong in ({"md5": "0"}, {"upload": "x"}, {"upload": "x", "part": 1}):  # it gets no parts
        assert offer(server, publisher, path, content, **wrong)[0] == 400
    url = offer(server, publisher, path, content, md5=tag)[1]["url"]
    signed = "content-md5%3Bcontent-type%3Bhost%3Bx-goog-content-length-range%3Bx-goog-if-generation-match"
    assert (f"X-Goog-SignedHeaders={signed}" in url, "X-Goog-Expires=300" in url, publisher in url) == (
        True,
        True,
        False,
    )
    promised = upload_headers("gs", Upload.of(content))
    assert send(url, b"CONTENT", "gs") == 403  # the MD5 is signed
    assert send(url, b"CONTENT", "gs", Content_MD5=promised["Content-MD5"]) == 400
    for name in ("Content-MD5", "x-goog-content-length-range", CONDITIONS["gs"]):
        assert send(url, content, "gs", **{name: ""}) == 400, name
    assert send(url, content, "gs", x_goog_if_generation_match="1") == 403
    assert send(url, content, "gs", x_goog_content_length_range="0,9999") == 403
    assert send(url.replace("lab/1.0.0/x", "numbers/1.0.0/x"), content, "gs") == 403
    assert send(url.replace("Expires=300", "Expires=999"), content, "gs") == 403
    assert [send(url, content, "gs"), send(url, content, "gs")] == [200, 412]
    assert offer(server, publisher, path, content) == (200, {"url": None, "etag": f'"{tag}"', "store": "gs"})
    assert offer(server, publisher, path, b"CONTENT")[0] == 412
    monkeypatch.setattr("registry.server.signed_writes.SIGNED_SECONDS", -1)
    assert send(offer(server, publisher, f"{path}y", content, md5=tag)[1]["url"], content, "gs") == 400


@pytest.mark.azure
@pytest.mark.parametrize("cloud", ["azure_server"], indirect=True)
def test_a_url_of_azure_creates_one_blob(
    server: TestServer, home: registry.Catalog, publisher: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, path, md5 = b"content", "lab/1.0.0/x", Upload.of(b"content").md5
    reserve(server, publisher, "lab:1.0.0", f"{server.url}api/v1/data/lab/1.0.0")
    assert offer(server, publisher, path, content) == (200, {"url": None, "etag": None, "store": "az"})
    url = offer(server, publisher, path, content, md5=md5)[1]["url"]
    assert ("sp=c&" in url, "sr=b" in url, publisher in url) == (True, True, False)
    assert send(url, b"CONTENT", "az", Content_MD5=upload_headers("az", Upload.of(content))["Content-MD5"]) == 400
    for change in (("sp=c", "sp=w"), ("lab/1.0.0/x", "numbers/1.0.0/x"), ("sr=b", "sr=c"), ("se=20", "se=21")):
        assert send(url.replace(*change), content, "az") == 403, change
    assert ask(url, "GET", url.partition("://")[2].partition("/")[1] + url.split("/", 3)[3])[0] == 403
    assert [send(url, content, "az"), send(url, content, "az")] == [201, 403]
    assert send(url, content, "az", If_None_Match="") == 403
    for query in ("&comp=block&blockid=AAAA", "&comp=blocklist", "&comp=properties", "&comp=metadata", "&comp=tier"):
        assert send(url + query, content, "az") in (400, 403), query
    answer = offer(server, publisher, path, content)[1]
    assert (answer["url"], answer["etag"]) == (None, open_store(server.service.data.store.url).entity_tag(path))
    assert offer(server, publisher, path, b"CONTENT")[0] == 412
    monkeypatch.setattr("registry.server.signed_writes.SIGNED_SECONDS", 1)
    late = offer(server, publisher, f"{path}y", content, md5=md5)[1]["url"]
    time.sleep(2.1)
    assert send(late, content, "az") == 403


@on_clouds
def test_a_url_replaces_no_file_of_a_published_version(
    server: TestServer, home: registry.Catalog, publisher: str, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    urls: list[str] = []
    put = ServiceStore._put

    def watched(store: ServiceStore, name: str, *args: Any, **kwargs: Any) -> str:
        if "tfrecord" in name:  # the publisher keeps a URL for other bytes at the same place
            path = store._name(name)
            md5 = Upload.of(b"others").md5
            urls.append(offer(server, publisher, path, b"others", md5=md5)[1]["url"])
        return put(store, name, *args, **kwargs)

    monkeypatch.setattr(ServiceStore, "_put", watched)
    with registry.connect(server.url) as catalog:
        catalog.add({"number": range(9)}, name="others")
    assert [send(url, b"others", cloud.scheme) for url in urls] == [403 if cloud.scheme == "az" else 412]
    assert home.dataset("others").verify(deep=True).faults == ()
    shard = f"others/1.0.0/{home.dataset('others').facts.splits[0].filename(0)}"
    assert offer(server, publisher, shard, b"others")[0] == 409


def test_a_revoked_token_commits_nothing(
    server: TestServer, home: registry.Catalog, publisher: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = WebCatalog._call

    def revoked(catalog: WebCatalog, name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "publish":
            (token,) = (token for token in home.backend.access.tokens() if token.name == "ci")
            home.backend.access.revoke_token(token.id, actor="root")
        return call(catalog, name, *args, **kwargs)

    monkeypatch.setattr(WebCatalog, "_call", revoked)
    with pytest.raises(CatalogRefusedError, match="revoked"), registry.connect(server.url) as catalog:
        catalog.add({"text": [str(number) * 400 for number in range(1500)]}, name="texts")
    assert [row.dataset for row in home.datasets()] == ["numbers"]
    (held,) = home.backend.reservations.list()  # for `registry gc`, once this process has ended
    assert (held.reference, held.holders[0].actor) == ("texts:1.0.0", "ci")


@on_clouds
def test_a_file_that_is_there_without_its_answer_is_ours(
    server: TestServer, home: registry.Catalog, publisher: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("registry.storage.network._FIRST_PAUSE_SECONDS", 0.01)
    reserve(server, publisher, "lab:1.0.0", f"{server.url}api/v1/data/lab/1.0.0")
    store, sent = ServiceStore(server.url, lambda _: publisher, "lab/1.0.0"), []
    original = ServiceServer._send

    def losing(self: ServiceServer, method: str, *args: Any) -> Any:
        result = original(self, method, *args)
        if method == "PUT" and self.token_id == "":
            sent.append(result)
            if len(sent) == 1:
                raise TransientFault("the answer is lost")
        return result

    monkeypatch.setattr(ServiceServer, "_send", losing)
    store.write_bytes("x", bytes(LARGE))
    assert (len(sent), sent[1], store.sha256("x")) == (2, None, hashlib.sha256(bytes(LARGE)).hexdigest())
    store.write_bytes("x", bytes(LARGE))
    assert len(sent) == 2  # it is there
    with pytest.raises(AlreadyStoredError):
        store.write_bytes("x", b"1" * LARGE)


@on_clouds
def test_other_bytes_in_the_bucket_are_not_published(
    server: TestServer, home: registry.Catalog, publisher: str, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = ServiceStore._put

    def damage(store: ServiceStore, name: str, *args: Any, **kwargs: Any) -> str:
        tag = put(store, name, *args, **kwargs)
        if "tfrecord" in name:
            there = open_store(f"{bucket}/data/{store._root}")
            there.write_bytes(name, there.read_bytes(name)[::-1], overwrite=True)
        return tag

    monkeypatch.setattr(ServiceStore, "_put", damage)
    with registry.connect(server.url) as catalog, pytest.raises(VerificationError, match="sha256 mismatch: expected"):
        catalog.add({"number": range(9)}, name="others")
    assert [row.dataset for row in home.datasets()] == ["numbers"]


PART = 5 * 2**20
"""The smallest part that S3 takes, beside the last one."""


@pytest.fixture
def in_parts(
    server: TestServer, home: registry.Catalog, publisher: str, monkeypatch: pytest.MonkeyPatch
) -> ServiceStore:
    """A reserved place to which files of more than 6 MB are sent in parts."""
    monkeypatch.setattr("registry.storage.signed_upload.S3Signer.most_bytes", 6 * 10**6)
    monkeypatch.setattr("registry.storage.signed_upload._PART_BYTES", PART)
    monkeypatch.setattr("registry.storage.network._FIRST_PAUSE_SECONDS", 0.01)
    reserve(server, publisher, "lab:1.0.0", f"{server.url}api/v1/data/lab/1.0.0")
    return ServiceStore(server.url, lambda _: publisher, "lab/1.0.0")


def test_a_file_that_is_too_long_for_one_request_is_sent_in_parts(
    server: TestServer, in_parts: ServiceStore, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, sent, original = os.urandom(2 * PART + 7), [], ServiceServer._send

    def losing(self: ServiceServer, method: str, path: str, *args: Any) -> Any:
        result = original(self, method, path, *args)
        sent.append((method, path))
        lost = {
            1: method == "PUT" and self.token_id == "",
            2: method == "POST" and "part=" not in path and "upload=" in path,
        }
        if any(is_lost and len([it for it in sent if it[0] == "lost"]) < number for number, is_lost in lost.items()):
            sent.append(("lost", path))
            raise TransientFault("the answer is lost")
        return result

    with monkeypatch.context() as patches:
        patches.setattr(ServiceServer, "_send", losing)
        in_parts.write_bytes("x", content)
    assert len([path for method, path in sent if method == "lost"]) == 2
    assert len([path for method, path in sent if method == "PUT"]) == 4  # three parts, one of them twice
    there = open_store(f"{bucket}/data/lab/1.0.0")
    assert (there.list(), there.read_bytes("x") == content) == (["x"], True)
    assert list(list_unfinished(open_store(bucket), [])) == []
    assert server.service.data._facts("lab/1.0.0/x", len(content)) == (len(content), Upload.of(content).sha256)
    in_parts.write_bytes("x", content)  # it is there
    with pytest.raises(AlreadyStoredError):
        in_parts.write_bytes("x", content[::-1])


def test_the_parts_of_a_file_replace_none_and_take_known_bytes(
    server: TestServer, in_parts: ServiceStore, publisher: str, bucket: str
) -> None:
    content, path, there = os.urandom(PART + 7), "lab/1.0.0/x", open_store(f"{bucket}/data/lab/1.0.0")
    status, answer = offer(server, publisher, path, content * 2)
    assert (status, answer["url"], answer["part_bytes"]) == (200, None, PART)
    begun = {"upload": quote(answer["upload"], safe="")}
    url = offer(server, publisher, path, content[:PART], **begun, part=1)[1]["url"]
    part = part_headers(Upload.of(content[:PART]))
    target = url.partition("://")[2].partition("/")[1] + url.split("/", 3)[3]
    assert ask(url, "PUT", target, b"!" * PART, **part)[0] == 400
    assert ask(url, "PUT", target.replace("partNumber=1", "partNumber=2"), content[:PART], **part)[0] == 403
    assert ask(url, "PUT", target, content[:PART], **part)[0] == 200
    assert offer(server, publisher, path, content, **begun)[0] == 422  # a part is missing
    last = offer(server, publisher, path, content[PART:], **begun, part=2)[1]["url"]
    target = last.partition("://")[2].partition("/")[1] + last.split("/", 3)[3]
    assert ask(last, "PUT", target, content[PART:], **part_headers(Upload.of(content[PART:])))[0] == 200
    other = make_token(server.service.catalog, "other", Role.PUBLISHER)
    assert offer(server, other, path, content, **begun)[0] == 409
    for wrong in ({"part": 0}, {"part": "x"}, {"upload": "%00"}):
        assert offer(server, publisher, path, content, **begun | wrong)[0] == 400
    for lone in ("1", "x"):  # a URL of a part has no condition: without an upload, some stores would replace the file
        assert offer(server, publisher, path, content, part=lone)[0] == 400
    there.write_bytes("x", b"a rival was first")
    assert offer(server, publisher, path, content, **begun)[0] == 412
    assert there.read_bytes("x") == b"a rival was first"
    assert list(list_unfinished(open_store(bucket), [])) == []
    assert offer(server, publisher, path, content, **begun)[0] == 412


TEXTS = 5000
"""Texts in a shard of 7.6 MB, which is sent in two parts."""


@pytest.mark.parametrize("dies", ["dies", "dies before the end of the parts"])
def test_a_publisher_that_is_killed_after_its_parts_is_finished_by_the_next_and_leaves_no_parts_to_gc(
    server: TestServer, home: registry.Catalog, in_parts: ServiceStore, bucket: str, dies: str
) -> None:
    with add_without_rights(server.url, "texts", dies, TEXTS) as killed:
        assert (killed.wait(), killed.communicate()) == (-9, ("", ""))
    store = open_store(f"{bucket}/data/texts/1.0.0")
    before = {name: store.stamp(name) for name in store.list()}
    assert any(store.size(name) > 6 * 10**6 for name in before) == (dies == "dies")
    assert len([*list_unfinished(open_store(bucket), [])]) == (dies != "dies")
    done = add_without_rights(server.url, "texts", texts=TEXTS).communicate()
    assert done == (f"texts:1.0.0\n{server.url}api/v1/data {TEXTS}\n", "")
    assert before.items() <= {name: store.stamp(name) for name in store.list()}.items()  # nothing is sent twice
    assert home.dataset("texts").verify(deep=True).faults == ()
    removed = home.collect_garbage(older_than="0s").require_all().of("removed")
    assert len([leftover for leftover in removed if leftover.kind == "multipart"]) == (dies != "dies")
    assert list(list_unfinished(open_store(bucket), [])) == []


def test_gc_removes_what_a_publisher_leaves_that_was_killed_after_its_parts(
    server: TestServer, home: registry.Catalog, in_parts: ServiceStore, bucket: str
) -> None:
    with add_without_rights(server.url, "texts", "dies", TEXTS) as killed:
        killed.wait()
    store = open_store(f"{bucket}/data/texts/1.0.0")
    assert store.list() != []
    home.collect_garbage(older_than="0s").require_all()
    assert (store.list(), [held.reference for held in home.backend.reservations.list()]) == ([], ["lab:1.0.0"])


def test_gc_removes_the_parts_of_a_publisher_that_was_killed(
    server: TestServer, home: registry.Catalog, in_parts: ServiceStore, bucket: str
) -> None:
    """A store bills parts, and no listing shows them."""
    with add_without_rights(server.url, "texts", "dies before the end of the parts", TEXTS) as killed:
        killed.wait()
    assert len([*list_unfinished(open_store(bucket), [])]) == 1
    home.collect_garbage(older_than="0s").require_all()
    assert list(list_unfinished(open_store(bucket), [])) == []
    assert [held.reference for held in home.backend.reservations.list()] == ["lab:1.0.0"]


@pytest.mark.parametrize("loss", ["released", "cleared"])
def test_a_publisher_who_loses_its_reservation_leaves_no_parts(
    server: TestServer, home: registry.Catalog, in_parts: ServiceStore, publisher: str, bucket: str, loss: str
) -> None:
    content, path = os.urandom(PART + 10**6), "lab/1.0.0/x"
    begun = {"upload": quote(offer(server, publisher, path, content)[1]["upload"], safe="")}
    url = offer(server, publisher, path, content[:PART], **begun, part=1)[1]["url"]
    target, part = url.partition("://")[2].partition("/")[1] + url.split("/", 3)[3], content[:PART]
    assert ask(url, "PUT", target, part, **part_headers(Upload.of(part)))[0] == 200
    assert [(it.name, it.num_bytes) for it in list_unfinished(open_store(bucket), [])] == [("data/lab/1.0.0/x", PART)]
    if loss == "released":
        home.reservations.release("lab:1.0.0", force=True)
        home.collect_garbage(older_than="0s").require_all()
    else:
        home.reservations.clear("lab:1.0.0", force=True)
    assert offer(server, publisher, path, content[PART:], **begun, part=2)[0] == 409  # it is lost
    assert list(list_unfinished(open_store(bucket), [])) == []
    assert ask(url, "PUT", target, part, **part_headers(Upload.of(part)))[0] >= 400  # though the URL is still valid


def test_parts_that_nobody_may_remove_do_not_keep_a_place_reserved(
    server: TestServer, home: registry.Catalog, in_parts: ServiceStore, publisher: str, bucket: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    offer(server, publisher, "lab/1.0.0/x", os.urandom(PART + 10**6))

    def refuse(store: Any, *_: str) -> None:
        raise StorageError(f"cannot remove {store.url}: the unfinished uploads cannot be reached (ClientError)")

    monkeypatch.setattr("registry.storage.multipart.abort_upload", refuse)
    with pytest.warns(
        LeftoverWarning, match=r"^an upload in parts to .*/lab/1\.0\.0 is no longer needed but could not"
    ):
        home.reservations.clear("lab:1.0.0", force=True)
    assert len([*list_unfinished(open_store(bucket), [])]) == 1


def test_an_upload_that_ends_while_uploads_are_listed_is_left_out(
    server: TestServer, in_parts: ServiceStore, publisher: str, bucket: str
) -> None:
    store = open_store(bucket)
    for name in ("x", "y"):
        offer(server, publisher, f"lab/1.0.0/{name}", os.urandom(PART + 10**6))
    first, second = list_unfinished(store, [])
    notes: list[str] = []
    left = list_unfinished(store, notes)
    assert next(left) == first
    abort_upload(store, second.name, second.upload_id)
    assert ([*left], notes) == ([], [])


def test_two_publishers_who_send_the_same_parts_both_succeed_and_leave_no_parts(
    server: TestServer, home: registry.Catalog, in_parts: ServiceStore, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, both = S3Signer.begin, threading.Barrier(2)

    def at_once(signer: S3Signer, name: str, num_bytes: int) -> tuple[str, int]:
        if num_bytes:  # it is not the probe
            both.wait(60)
        return begin(signer, name, num_bytes)

    monkeypatch.setattr(S3Signer, "begin", at_once)
    runs = [add_without_rights(server.url, "texts", texts=TEXTS) for _ in range(2)]
    assert [run.communicate() for run in runs] == [(f"texts:1.0.0\n{server.url}api/v1/data {TEXTS}\n", "")] * 2
    assert (home.dataset("texts").verify(deep=True).faults, list(list_unfinished(open_store(bucket), []))) == ((), [])


@pytest.mark.parametrize("first", [1, 2])
def test_a_publisher_who_ends_its_parts_later_takes_the_file_of_the_first(
    server: TestServer, in_parts: ServiceStore, publisher: str, bucket: str, first: int
) -> None:
    """One has sent ``first`` parts when the other one ends its upload."""
    content, path = os.urandom(PART + 10**6), "lab/1.0.0/x"
    rivals = [quote(offer(server, publisher, path, content)[1]["upload"], safe="") for _ in range(2)]
    assert rivals[0] != rivals[1]
    pieces = {1: content[:PART], 2: content[PART:]}
    for upload, parts in zip(rivals, ([1, 2], [1, 2][:first]), strict=True):
        for number in parts:
            url = offer(server, publisher, path, pieces[number], upload=upload, part=number)[1]["url"]
            target = url.partition("://")[2].partition("/")[1] + url.split("/", 3)[3]
            assert ask(url, "PUT", target, pieces[number], **part_headers(Upload.of(pieces[number])))[0] == 200
    ended = offer(server, publisher, path, content, upload=rivals[0])
    assert ended[0] == 200
    if first == 1:
        assert offer(server, publisher, path, pieces[2], upload=rivals[1], part=2)[0] == 412
    else:
        assert offer(server, publisher, path, content, upload=rivals[1]) == ended
    assert list(list_unfinished(open_store(bucket), [])) == []
    assert open_store(f"{bucket}/data/lab/1.0.0").read_bytes("x") == content


SERVICE = """
import os, sys
from pathlib import Path
import uvicorn
from registry.server.config import ServiceConfig
from registry.server.data import ServedData
from registry.server.serve import _make_worker
from registry.storage import signed_upload
from registry.storage.signed_upload import S3Signer
folder, place, port, step = sys.argv[1:]
S3Signer.most_bytes, signed_upload._PART_BYTES = 6 * 10**6, 5 * 2**20
died = Path(folder, "died")
def kill(owner, name):
    method = getattr(owner, name)
    def call(*args, **kwargs):
        is_probe = name == "end" and "probe" in args[1]
        if step == f"before {name}" and not is_probe and not died.exists():
            died.touch()
            os._exit(9)
        result = method(*args, **kwargs)
        if step == f"after {name}" and not is_probe and not died.exists():
            died.touch()
            os._exit(9)
        return result
    setattr(owner, name, call)
kill(S3Signer, "end")
kill(ServedData, "require_uploaded")
url = f"http://127.0.0.1:{port}/"
limits = dict(requests_per_minute=0, failed_logins_per_minute=0)
config = ServiceConfig(catalog=f"{folder}/catalog.db", data_dir=place, signed_reads=True, signed_writes=True, **limits)
uvicorn.run(_make_worker(config, url, Path(folder), None), port=int(port), log_level="critical", ws="none")
"""


@pytest.mark.parametrize("step", ["before end", "after end", "before require_uploaded", "after require_uploaded"])
def test_a_service_that_is_killed_between_the_parts_and_the_row_is_asked_again(
    tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    for name, value in {"TRIES": "40", "RETRY_TIMEOUT": "60"}.items():
        monkeypatch.setenv(f"REGISTRY_{name}", value)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with registry.connect(tmp_path / "catalog.db", data_dir=f"{bucket}/data", create=True) as home:
        home.add({"number": range(9)}, name="numbers")
        monkeypatch.setenv("REGISTRY_TOKEN", make_token(home.backend, "ci", Role.PUBLISHER))
        program = [sys.executable, "-c", SERVICE, str(tmp_path), f"{bucket}/data", str(port), step]
        with warm_python.Popen(program) as service:
            adding = add_without_rights(f"http://127.0.0.1:{port}/", "texts", texts=TEXTS)
            assert service.wait(60) == 9
        with warm_python.Popen(program) as again:
            done = adding.communicate()
            again.terminate()
        assert done == (f"texts:1.0.0\nhttp://127.0.0.1:{port}/api/v1/data {TEXTS}\n", "")
        assert (home.dataset("texts").verify(deep=True).faults, home.backend.reservations.list()) == ((), ())
        assert list(list_unfinished(open_store(bucket), [])) == []
        assert [event.action for event in home.log() if event.dataset == "texts"] == ["publish"]


# Two blocks with the same MD5 (Xiaoyun Wang and others, https://eprint.iacr.org/2004/199).
_FIRST = bytes.fromhex(
    "d131dd02c5e6eec4693d9a0698aff95c2fcab58712467eab4004583eb8fb7f8955ad340609f4b30283e488832571415a"
    "085125e8f7cdc99fd91dbdf280373c5bd8823e3156348f5bae6dacd436c919c6dd53e2b487da03fd02396306d248cda0"
    "e99f33420f577ee8ce54b67080a80d1ec69821bcb6a8839396f9652b6ff72a70"
)
_SECOND = bytes.fromhex(
    "d131dd02c5e6eec4693d9a0698aff95c2fcab50712467eab4004583eb8fb7f8955ad340609f4b30283e4888325f1415a"
    "085125e8f7cdc99fd91dbd7280373c5bd8823e3156348f5bae6dacd436c919c6dd53e23487da03fd02396306d248cda0"
    "e99f33420f577ee8ce54b67080280d1ec69821bcb6a8839396f965ab6ff72a70"
)


@pytest.mark.parametrize("cloud", ["gcs_server"], indirect=True)
def test_a_file_that_is_replaced_by_one_of_the_same_md5_is_not_attached(
    server: TestServer, home: registry.Catalog, publisher: str, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    attachment, there = Attachment.of("columns", "x.npy", _FIRST), open_store(f"{bucket}/data/numbers/1.0.0")
    ServiceStore(server.url, lambda _: publisher, "numbers/1.0.0").write_bytes(attachment.place, _FIRST)
    before, hash_of = there.entity_tag(attachment.place), ObjectStore.sha256
    server.service.data._hashed.clear()  # type: ignore[union-attr]  # as that of another worker

    def replacing(store: ObjectStore, name: str) -> str:
        result = hash_of(store, name)
        store.write_bytes(name, _SECOND, overwrite=True)
        return result

    monkeypatch.setattr(ObjectStore, "sha256", replacing)
    with registry.connect(server.url) as catalog, pytest.raises(VerificationError, match="sha256 mismatch"):
        catalog.backend.attach(catalog.dataset("numbers").facts, attachment, actor="")
    assert there.entity_tag(attachment.place) == before


def test_a_file_in_parts_that_is_replaced_by_one_of_the_same_tag_is_not_attached(
    server: TestServer, in_parts: ServiceStore, publisher: str, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = [block + bytes(7 * 10**6) for block in (_FIRST, _SECOND)]
    attachment = Attachment.of("columns", "x.npy", contents[0])
    store, path = ServiceStore(server.url, lambda _: publisher, "numbers/1.0.0"), f"numbers/1.0.0/{attachment.place}"
    store.write_bytes(attachment.place, contents[0])
    before, hash_of = open_store(f"{bucket}/data").entity_tag(path), ObjectStore.sha256
    signer = server.service.data._signed._signer  # type: ignore[union-attr]
    assert isinstance(signer, S3Signer)

    def replacing(objects: ObjectStore, name: str) -> str:
        result = hash_of(objects, name)
        client, place = signer._client, signer._place(path)
        upload = client.create_multipart_upload(**place, ChecksumAlgorithm="SHA256")["UploadId"]
        for number, start in enumerate(range(0, len(contents[1]), PART), 1):
            part = {"PartNumber": number, "Body": contents[1][start : start + PART], "ChecksumAlgorithm": "SHA256"}
            client.upload_part(**place, UploadId=upload, **part)
        parts = [
            {"PartNumber": part["PartNumber"], "ETag": part["ETag"]}
            for part in client.list_parts(**place, UploadId=upload)["Parts"]
        ]
        client.complete_multipart_upload(**place, UploadId=upload, MultipartUpload={"Parts": parts})
        return result

    monkeypatch.setattr(ObjectStore, "sha256", replacing)
    with registry.connect(server.url) as catalog, pytest.raises(VerificationError, match="sha256 mismatch"):
        catalog.backend.attach(catalog.dataset("numbers").facts, attachment, actor="")
    assert open_store(f"{bucket}/data").entity_tag(path) == before


def test_a_store_that_replaces_a_file_by_parts_gets_none(
    server: TestServer, in_parts: ServiceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask_s3 = S3Signer._ask

    def lax(signer: S3Signer, doing: str, name: str, method: str, **options: Any) -> Any:
        options.pop("IfNoneMatch", None)
        return ask_s3(signer, doing, name, method, **options)

    monkeypatch.setattr(S3Signer, "_ask", lax)
    with pytest.raises(StorageError, match="Permission denied"):
        in_parts.write_bytes("x", bytes(7 * 10**6))


def test_a_long_attachment_is_sent_in_parts_and_compared(
    server: TestServer, in_parts: ServiceStore, publisher: str, bucket: str
) -> None:
    content, store = os.urandom(7 * 10**6), ServiceStore(server.url, lambda _: publisher, "numbers/1.0.0")
    attachment = Attachment.of("columns", "number.npy", content)
    store.write_bytes(attachment.place, content)
    assert open_store(f"{bucket}/data/numbers/1.0.0").read_bytes(attachment.place) == content
    with registry.connect(server.url) as catalog:
        version = catalog.dataset("numbers").facts
        assert catalog.backend.attach(version, attachment, actor="")
        with pytest.raises(VerificationError, match="no such file"):
            catalog.backend.attach(version, Attachment.of("columns", "other.npy", content), actor="")


def test_a_bucket_that_takes_no_part_is_reported_and_keeps_no_probe(
    server: TestServer, in_parts: ServiceStore, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    signed, long = server.service.data._signed, Upload(num_bytes=7 * 10**6, sha256="0" * 64)
    signed.require_safe()
    for url, raised in (
        ("http://127.0.0.1:9/x", "the bucket cannot be reached"),
        (server.url, "the store answered 405 to a part to a signed URL"),
    ):
        monkeypatch.setattr(S3Signer, "sign_part", lambda *_, url=url, **__: url)
        with pytest.raises(StorageError, match=raised):
            signed.offer("lab/1.0.0/x", long)
    assert [entry.name for entry in open_store(f"{bucket}/data").scan() if "probe" in entry.name] == []
    assert list(list_unfinished(open_store(bucket), [])) == []


def test_a_store_that_enforces_no_signature_signs_nothing(
    server: TestServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with S3Server(is_strict=False) as lax:
        for name, value in lax.environment().items():
            monkeypatch.setenv(name, value)
        lax.create_bucket("lax")
        with registry.connect(tmp_path / "catalog.db", data_dir="s3://lax/data", create=True) as home:
            home.add({"number": range(9)}, name="numbers")
            serve(server, home, "s3://lax/data")
            monkeypatch.setenv("REGISTRY_TOKEN", make_token(home.backend, "ci", Role.PUBLISHER))
            message = "the store answered 200 to an upload of other bytes than its headers promise"
            with pytest.raises(StorageError, match=message), registry.connect(server.url) as catalog:
                catalog.add({"text": [str(number) * 400 for number in range(1500)]}, name="texts")
            assert [row.dataset for row in home.datasets()] == ["numbers"]
        server.service.data = None


def test_a_folder_takes_no_signed_writes(tmp_path: Path) -> None:
    own = DataDirectory(recorded=str(tmp_path), place=str(tmp_path))
    store = LocalStore(tmp_path)
    with pytest.raises(UsageError) as caught:
        ServedData(store, own, "http://127.0.0.1/", signs_writes=True)
    assert caught.value.message == f"signed_writes requires a data directory in a bucket, not {store.url}"
    assert caught.value.hint == "Leave it out. Publishers then send the files through the service."


@pytest.mark.parametrize("key", [None, "no base64!"])
def test_azure_s_urls_need_the_key_of_the_account(monkeypatch: pytest.MonkeyPatch, key: str | None) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "lab")
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_KEY", raising=False)
    store = open_store("az://container/data")
    if key is not None:
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", key)
    with pytest.raises(UsageError) as caught:
        open_signer(store)
    assert (caught.value.message, caught.value.hint) == (
        "signed_writes to az://container/data requires the key of the account, which signs URLs, but it was not found",
        "Set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or leave signed_writes out.",
    )


@pytest.mark.parametrize("key", ["", "{}", '{"client_email": "a", "private_key": "b"}', "null", "{"])
def test_google_s_urls_need_the_key_of_a_service_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    for name in [name for name in os.environ if name.startswith("GOOGLE_")]:
        monkeypatch.delenv(name)
    if key:
        (tmp_path / "key.json").write_text(key)
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key.json"))
    with pytest.raises(UsageError) as caught:
        open_signer(open_store("gs://bucket/data"))
    assert (caught.value.message, caught.value.hint) == (
        "signed_writes to gs://bucket/data requires the key of a service account, which signs URLs, but it was not "
        "found",
        "Set GOOGLE_APPLICATION_CREDENTIALS to the file of one, or leave signed_writes out.",
    )


def test_the_credentials_of_a_role_sign(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Containers and instances get credentials that end, and no key."""
    moment = datetime.now(UTC) + timedelta(hours=1)
    credentials = {"AccessKeyId": "ASIA1", "SecretAccessKey": "secret", "Token": "of a role"}
    answer = json.dumps(credentials | {"Expiration": moment.strftime("%Y-%m-%dT%H:%M:%SZ")}).encode()

    class Handler(http_servers.Handler):
        def do_GET(self) -> None:
            self.answer(200, body=answer)

    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)  # it keeps the credentials of earlier tests
    with running(Handler) as port:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"http://127.0.0.1:{port}/")
        (tmp_path / "token").write_text("of the container")
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "token"))
        monkeypatch.setenv("AWS_REGION", "eu-central-1")
        store = open_store("s3://lab-data/data")
        urls = [store.sign("x", seconds=60), open_signer(store).sign("x", Upload.of(b"x"), seconds=60)]
    for url in urls:
        assert dict(parse_qsl(urlsplit(url).query))["X-Amz-Security-Token"] == "of a role"


def test_a_worker_whose_credentials_do_not_answer_is_started_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sqlite_template: Path
) -> None:
    """The exit code of a failed start would end the whole service."""
    from registry.server.config import ServiceConfig
    from registry.server.serve import _make_worker

    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    (tmp_path / "token").write_text("of the container")
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1:9/")
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    monkeypatch.setenv("REGISTRY_TRIES", "1")
    catalog = shutil.copy(sqlite_template, tmp_path / "catalog.db")
    config = ServiceConfig(catalog=str(catalog), data_dir="s3://lab-data/data", signed_reads=True)
    with pytest.raises(SystemExit) as caught:
        _make_worker(config, "https://lab.example/", tmp_path, None)
    assert caught.value.code == 1


def test_a_service_that_cannot_sign_for_readers_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", "/nowhere")
    place = "s3://lab-data/data"
    with pytest.raises(StorageError, match="no credentials were found") as caught:
        ServedData(open_store(place), DataDirectory(recorded=place, place=place), "https://lab.example/", signs=True)
    assert str(caught.value.hint).startswith("Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE.")
