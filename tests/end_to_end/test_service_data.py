"""Bytes of a data directory that is a folder of the server of a catalog: read over HTTP, by those who may."""

from __future__ import annotations

import base64
import errno
import hashlib
import http.client
import os
import pickle
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from support import http_servers, warm_python
from support.http_servers import running
from support.prepared_samples import animals, prepare
from support.ready_catalogs import copy_built
from support.services import TestServer, make_token

import registry
from registry.catalog import DataDirectory, Holder, Reservation
from registry.catalog.service import ServiceCatalog
from registry.catalog.service.store import ServiceStore, use_service_data
from registry.catalog.web import WebCatalog
from registry.cli.main import run
from registry.errors import (
    CatalogPermissionError,
    NotStoredError,
    ReplacedError,
    ShardMismatchError,
    StorageError,
    VerificationError,
    VersionTooSmallError,
)
from registry.model import Attachment, Reference, Role, SplitFingerprint, Version
from registry.publishing.proof import Prover
from registry.publishing.publish import Candidate
from registry.server.config import ServiceConfig
from registry.server.data import ServedData, open_served_data
from registry.storage import LocalStore, open_store


@pytest.fixture(scope="module")
def server() -> Iterator[TestServer]:
    started = TestServer()
    yield started
    started.stop()


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The client's machine, whose cache and data folder are empty."""
    monkeypatch.setenv("REGISTRY_CACHE_DIR", str(tmp_path / "reader" / "cache"))
    monkeypatch.setenv("REGISTRY_CACHE_BYTES", "1GB")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "reader" / "data"))
    for name in ("REGISTRY_DATA_DIR", "REGISTRY_TOKEN", "REGISTRY_CATALOG"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "reader"


def build(folder: Path) -> None:
    (folder / "server").mkdir()
    with registry.connect(folder / "server" / "catalog.db", create=True) as opened:
        opened.add({"number": range(100), "word": [f"w{number % 7}" for number in range(100)]}, name="numbers")


@pytest.fixture
def home(tmp_path: Path, server: TestServer) -> Iterator[registry.Catalog]:
    """The catalog on the machine of the server, which ``server`` offers."""
    copy_built(build, tmp_path)
    with registry.connect(tmp_path / "server" / "catalog.db", create=True) as opened:
        data = tmp_path / "server" / "datasets"
        server.service.catalog = opened.backend  # type: ignore[assignment]  # it is in SQLite
        server.service.data = ServedData(
            LocalStore(data), DataDirectory(recorded="datasets", place=str(data)), server.url
        )
        yield opened
        server.service.data = None


@pytest.fixture
def login(home: registry.Catalog, monkeypatch: pytest.MonkeyPatch) -> str:
    """The token of a reader of every dataset, which the client uses."""
    token = make_token(home.backend, "ann", Role.READER)
    monkeypatch.setenv("REGISTRY_TOKEN", token)
    return token


def ask(url: str, path: str, token: str | None = None, method: str = "GET", **headers: str) -> tuple[Any, bytes]:
    """The answer to a request of this exact path below the service, and its body."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if token is not None:
        sent["Authorization"] = f"Bearer {token}"
    connection.putrequest(method, f"/api/v1/data/{path}", skip_accept_encoding=True)
    for name, value in sent.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body


def shard_of(home: registry.Catalog) -> tuple[str, bytes]:
    """The path of the first shard of the dataset below the data directory, and its bytes."""
    name = f"numbers/1.0.0/{home.dataset('numbers').facts.splits[0].filename(0)}"
    return name, (Path(home.data_dir) / name).read_bytes()


def test_everything_that_reads_works(server: TestServer, home: registry.Catalog, login: str, tmp_path: Path) -> None:
    with registry.connect(server.url) as catalog:
        dataset = catalog.dataset("numbers")
        assert catalog.data_dir == f"{server.url}api/v1/data"
        assert sorted(row["number"] for row in dataset.read("train")) == list(range(100))
        assert dataset.read("train")[17] == home.dataset("numbers").read("train")[17]
        assert dataset.verify(deep=True).faults == ()
        assert dataset.attachments == home.dataset("numbers").attachments
        with registry.connect(tmp_path / "copy" / "catalog.db", create=True) as target:
            assert str(catalog.copy(None, target)) == "<CopyReport: 1 copied>"
            assert len(target.dataset("numbers").read("train")) == 100


def test_an_admin_restores_a_dropped_version_whose_files_are_there(
    server: TestServer, home: registry.Catalog, login: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, _ = shard_of(home)
    admin = make_token(home.backend, "root", Role.ADMIN)
    home.lifecycle.drop("numbers:1.0.0", reason="wrong")
    assert [ask(server.url, name, token)[0].status for token in (login, admin)] == [404, 404]
    assert [ask(server.url, name, token, "HEAD")[0].status for token in (login, admin)] == [404, 200]
    monkeypatch.setenv("REGISTRY_TOKEN", admin)
    with registry.connect(server.url) as catalog:
        file = Path(home.data_dir) / name
        file.rename(file.with_name("moved"))
        with pytest.raises(ShardMismatchError, match="cannot be restored: 1 of its 1 files are missing"):
            catalog.lifecycle.undo("drop", "numbers:1.0.0")
        file.with_name("moved").rename(file)
        catalog.lifecycle.undo("drop", "numbers:1.0.0")
        assert len(catalog.dataset("numbers:1.0.0").read("train")) == 100


def test_the_service_notes_the_default_config_for_tfds(
    server: TestServer, home: registry.Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_TOKEN", make_token(home.backend, "pat", Role.PUBLISHER))
    file = Path(home.data_dir) / "pairs" / ".config" / "metadata.json"
    with registry.connect(server.url) as catalog:
        catalog.publish(prepare(tmp_path / "plain", name="pairs", config="plain"))
        assert not file.exists()
        catalog.lifecycle.set_default_config("pairs/plain")
        assert file.read_text() == '{"default_config_name": "plain"}'
        file.unlink()
        catalog.publish(prepare(tmp_path / "2.0.0", "2.0.0", name="pairs", config="plain"))  # a warning is an error
        assert file.read_text() == '{"default_config_name": "plain"}'
        catalog.publish(prepare(tmp_path / "large", name="pairs", config="large"))
        assert file.read_text() == '{"default_config_name": "plain"}'
        catalog.lifecycle.set_default_config("pairs/large", dry_run=True)
        assert file.read_text() == '{"default_config_name": "plain"}'
        catalog.lifecycle.set_default_config("pairs/large")
        assert file.read_text() == '{"default_config_name": "large"}'
    assert not (Path(home.data_dir) / "numbers" / ".config").exists()


def test_a_pin_is_verified_with_a_service_that_only_the_variable_names(
    server: TestServer, home: registry.Catalog, login: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "dataset.lock.yaml"
    with registry.connect(server.url) as catalog:
        catalog.dataset("numbers").pin("train[:10%]").save(path)
    monkeypatch.setenv("REGISTRY_CACHE_DIR", str(tmp_path / "other" / "cache"))
    assert run(["pin", "verify", str(path)]) == 1  # nobody says where the files are
    monkeypatch.setenv("REGISTRY_CATALOG", server.url)
    assert run(["pin", "verify", str(path)]) == 0
    home.lifecycle.yank("numbers:1.0.0", reason="wrong labels")
    with redirect_stderr(StringIO()) as notes:
        assert run(["pin", "read", str(path), "train", "--limit", "1"]) == 0
    assert "wrong labels" in notes.getvalue()
    monkeypatch.setenv("REGISTRY_CATALOG", "http://127.0.0.1:9/")  # nobody is there, and the files are local
    monkeypatch.setenv("REGISTRY_TRIES", "1")
    with redirect_stderr(StringIO()) as notes:
        assert run(["pin", "verify", str(path), "--data-dir", home.data_dir]) == 0
    assert "note: http://127.0.0.1:9/ is not used for the pins: cannot read" in notes.getvalue()


def test_pins_of_a_service_are_read_where_its_url_is_allowed(
    server: TestServer, home: registry.Catalog, login: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "numbers.lock.yaml"
    with registry.connect(server.url) as catalog:
        dataset = catalog.dataset("numbers")
        dataset.pin("train[:10%]", locations=[dataset.folder]).save(path)
    monkeypatch.setenv("REGISTRY_CACHE_BYTES", "0")
    script = "import registry, sys; pin = registry.load_pin(sys.argv[1], fetch=True, allow_hosts=sys.argv[2:])['train']"
    program = [sys.executable, "-c", f"{script}; pin.verify(); print(len(pin.read()))", str(path)]
    environment = {**os.environ, "REGISTRY_CATALOG": server.url}
    refused = warm_python.run(program, check=False, env=environment, capture_output=True, text=True)
    assert "not allowed" in refused.stderr
    host = urlsplit(server.url).netloc
    done = warm_python.run([*program, host], check=False, env=environment, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("10\n", "")


def test_another_process_asks_for_the_token_again(
    server: TestServer, home: registry.Catalog, login: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_CACHE_BYTES", "0")
    with registry.connect(server.url) as catalog:
        reader = catalog.dataset("numbers").read("train")
        content = pickle.dumps(reader)
        again = pickle.dumps(catalog)
    assert login.encode() not in content + again
    script = "import pickle, sys; print(len(list(pickle.load(sys.stdin.buffer))))"
    program = [sys.executable, "-c", script]
    environment = dict(os.environ)
    done = warm_python.run(program, check=False, env=environment, input=content, capture_output=True)
    assert (done.stdout, done.stderr) == (b"100\n", b"")
    environment.pop("REGISTRY_TOKEN")
    refused = warm_python.run(program, check=False, env=environment, input=content, capture_output=True)
    assert b"it needs an access token" in refused.stderr


def test_workers_read_with_the_token(server: TestServer, home: registry.Catalog, login: str) -> None:
    with registry.connect(server.url) as catalog:
        report = catalog.dataset("numbers").verify(deep=True, processes=2)
        assert report.faults == ()


def test_descriptions_and_attachments_are_files(server: TestServer, home: registry.Catalog, login: str) -> None:
    """The suite of conformance checks ranges, conditions and digests of shards."""
    description, body = ask(server.url, "numbers/1.0.0/dataset_info.json", login)
    assert (description.status, description.headers["Repr-Digest"]) == (200, None)
    attachment = home.dataset("numbers").attachments[0]
    answer, body = ask(server.url, f"numbers/1.0.0/{attachment.place}", login)
    assert hashlib.sha256(body).hexdigest() == attachment.sha256
    assert answer.headers["Repr-Digest"] == (f"sha-256=:{base64.b64encode(bytes.fromhex(attachment.sha256)).decode()}:")


def test_only_files_of_published_versions_exist(
    server: TestServer, home: registry.Catalog, login: str, tmp_path: Path
) -> None:
    folder = Path(home.data_dir) / "numbers" / "1.0.0"
    path, content = shard_of(home)
    (tmp_path / "server" / "secret.txt").write_text("treasure")
    (Path(home.data_dir) / "notes.txt").write_text("treasure")
    (folder / "link.txt").symlink_to(tmp_path / "server" / "secret.txt")
    (folder / "linked").symlink_to(tmp_path / "server")
    (folder / ".owner.json").write_text("treasure")
    (folder / ".reservation.json").write_text("treasure")
    (folder / "incomplete.0a1b2c3d_x").write_text("treasure")
    (folder / ".attachments" / "orphan").write_text("treasure")
    os.mkfifo(folder / "pipe")
    (folder / "inner").mkdir()
    other = Path(home.data_dir) / "numbers" / "2.0.0"  # no row names it
    shutil.copytree(folder, other, symlinks=True, ignore=lambda *_: ["pipe"])
    version = "numbers/1.0.0"
    hostile = [
        *("", "/", "numbers", "numbers/", "notes.txt", "../catalog.db", "%2e%2e/catalog.db", "/etc/passwd"),
        *("//etc/passwd", f"{version}/../../../catalog.db", f"{version}/%2e%2e/%2e%2e/%2e%2e/catalog.db"),
        *(f"{version}/..%2f..%2f..%2fcatalog.db", f"{version}/..%5c..%5ccatalog.db", f"{version}/./{path[14:]}"),
        *(f"{version}//{path[14:]}", f"{version}/%00", f"{path}%00", f"{path}%00.txt", f"{version}/link.txt"),
        *(f"{version}/linked/secret.txt", f"{version}/linked/", f"{version}/.owner.json", f"{version}/inner"),
        *(f"{version}/.reservation.json", f"{version}/incomplete.0a1b2c3d_x", f"{version}/.attachments/orphan"),
        *(f"{version}/pipe", f"{version}/missing", "numbers/2.0.0/dataset_info.json", f"{path}/x", f"{path}/"),
        *(f"{version}/%ff%fe", f"{version}/{'x' * 5000}", "a/" * 3000 + "x", f"{version}/file:%2f%2f%2fetc%2fpasswd"),
        *("https:%2f%2fhost/x", f"{version}/%252e%252e/x", f"{version}/..;/x", f"{version}/.attachments"),
    ]
    for name in hostile:
        for method in ("GET", "HEAD"):
            answer, body = ask(server.url, name, login, method)
            listing = b"[]" if name.endswith("/") and answer.status == 200 else None
            assert answer.status == 404 or body == listing or (method == "HEAD" and name.endswith("/")), (name, body)
            assert b"treasure" not in body
            assert str(tmp_path).encode() not in body
    assert ask(server.url, path, login)[1] == content


def test_a_token_reads_only_what_it_covers(server: TestServer, home: registry.Catalog) -> None:
    home.add({"number": range(3)}, name="hidden")
    token = make_token(home.backend, "bob", Role.READER, "numbers")
    name = f"hidden/1.0.0/{home.dataset('hidden').facts.splits[0].filename(0)}"
    path = shard_of(home)[0]
    assert ask(server.url, path, token)[0].status == 200
    assert [ask(server.url, part, token)[0].status for part in (name, "hidden/1.0.0/")] == [404, 404]
    assert ask(server.url, f"numbers/1.0.0/../../{name}", token)[0].status == 404
    assert [ask(server.url, name, text)[0].status for text in (None, "shb_wrong", f"{token}x")] == [401] * 3
    assert ask(server.url, name, None, "HEAD")[0].status == 401
    home.lifecycle.yank("numbers:1.0.0", reason="wrong labels")
    assert ask(server.url, path, token)[0].status == 200
    home.lifecycle.drop("numbers:1.0.0", reason="private data")
    assert ask(server.url, path, token)[0].status == 404


def test_no_other_server_gets_the_token(
    server: TestServer, home: registry.Catalog, login: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    class Handler(http_servers.Handler):
        def do_GET(self) -> None:
            seen.append(f"{self.path} {self.headers.get('Authorization')}")
            if self.path.startswith("/there/"):
                place = f"http://127.0.0.1:{self.server.server_port}/elsewhere/signed?X=1"  # type: ignore[attr-defined]
                self.answer(307 if self.command == "GET" else 302, {"Location": place})
            else:
                self.answer(200)

        do_HEAD = do_GET

    monkeypatch.setenv("REGISTRY_TRIES", "1")
    with running(Handler) as port:
        url = f"http://127.0.0.1:{port}/there/"
        use_service_data(url, lambda _: login)
        with pytest.raises(StorageError):
            open_store(f"{url}api/v1/data/numbers").open("1.0.0/x")
        assert seen == [f"/there/api/v1/data/numbers/1.0.0/x Bearer {login}"]
        with open_store(f"http://127.0.0.1:{port}/theres/api/v1/data/numbers").open("x") as file:
            assert file.read(1) == b""  # a store of another kind, without a token
        assert login not in " ".join(seen[1:])
        seen.clear()
        file = open_store(f"{url}api/v1/data/numbers").open_known("x", num_bytes=1, entity_tag='"tag"')
        with file, pytest.raises(ReplacedError):  # the other server has an empty file
            file.read(1)
    assert seen == [f"/there/api/v1/data/numbers/x Bearer {login}", "/elsewhere/signed?X=1 None"]


def test_a_file_that_is_replaced_meanwhile_is_not_read_on(
    server: TestServer, home: registry.Catalog, login: str
) -> None:
    path, content = shard_of(home)
    with registry.connect(server.url) as catalog:
        store = open_store(catalog.dataset("numbers").folder)
        assert isinstance(store, ServiceStore)
    name = path.rpartition("/")[2]
    with store.open(name) as file:
        assert file.read(4) == content[:4]
        (_, view), *_ = file.read_ranges([(2, 9)])
        assert bytes(view) == content[2:9]
        (Path(home.data_dir) / path).unlink()
        (Path(home.data_dir) / path).write_bytes(content[::-1])
        with pytest.raises(ReplacedError):
            list(file.read_ranges([(0, 4)]))
    with pytest.raises(registry.errors.VerificationError), registry.connect(server.url) as catalog:
        catalog.dataset("numbers").read("train")[0]
    assert [store.exists(name), store.exists("missing"), store.child("sub").exists("x")] == [True, False, False]
    with pytest.raises(NotStoredError, match=r"^cannot read http://127.0.0.1:\d+/api/v1/data/numbers/1.0.0/missing: "):
        store.open("missing")
    assert name in store.list()
    with pytest.raises(StorageError, match="the token has the role reader"):
        store.remove(name)


@pytest.fixture
def publisher(home: registry.Catalog, monkeypatch: pytest.MonkeyPatch) -> str:
    """The token of a publisher of every dataset, which the client uses."""
    token = make_token(home.backend, "ci", Role.PUBLISHER)
    monkeypatch.setenv("REGISTRY_TOKEN", token)
    return token


def garbage(home: registry.Catalog) -> set[str]:
    """The kinds of garbage in the data directory, which is removed."""
    removed = home.collect_garbage(older_than="0s").require_all().of("removed")
    return {leftover.kind for leftover in removed} - {"cache", "temporary"}


def test_versions_are_added_and_published_over_the_service(
    server: TestServer, home: registry.Catalog, publisher: str, tmp_path: Path
) -> None:
    with registry.connect(server.url) as catalog:
        assert str(catalog.add({"number": range(50)}, name="others").reference) == "others:1.0.0"
        assert sorted(row["number"] for row in catalog.dataset("others").read("train")) == list(range(50))
        assert str(catalog.add({"number": range(60)}, name="others").reference) == "others:2.0.0"
        assert str(catalog.add({"number": range(60)}, name="others").reference) == "others:2.0.0"
        assert not catalog.publish(Path(home.data_dir) / "others" / "2.0.0").newly
    assert sorted(row["number"] for row in home.dataset("others").read("train")) == list(range(60))
    assert home.dataset("others:1.0.0").verify(deep=True).faults == ()
    assert (home.backend.reservations.list(), garbage(home)) == ((), set())
    assert {event.actor for event in home.log() if event.dataset == "others"} == {"ci"}
    files = sorted(path.name for path in (Path(home.data_dir) / "others" / "2.0.0").iterdir())
    assert files == [
        ".attachments",
        "dataset_info.json",
        "features.json",
        "metadata.json",
        "others-train.tfrecord-00000-of-00001",
    ]


def test_folders_are_published_and_builders_run_over_the_service(
    server: TestServer, home: registry.Catalog, publisher: str, tmp_path: Path
) -> None:
    with registry.connect(tmp_path / "own" / "catalog.db", create=True) as own, registry.connect(server.url) as catalog:
        own.build("digits")
        publication = catalog.publish(own.dataset("digits").folder.removeprefix("file://"))
        assert (publication.newly, str(publication.version.reference)) == (True, "digits:1.0.0")
        assert own.copy("digits", catalog).require_all()
    assert len(home.dataset("digits").read("train")) == 1797
    shutil.rmtree(Path(home.data_dir) / "digits" / "1.0.0")
    with registry.connect(server.url) as catalog:
        publication = catalog.build("digits", rebuild=True)  # the files are there again
        assert (publication.newly, home.dataset("digits").verify(deep=True).faults) == (False, ())
    assert home.backend.reservations.list() == ()


def test_the_first_publication_records_the_folder_of_the_server(
    server: TestServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with registry.connect(tmp_path / "new" / "catalog.db", create=True) as home:
        data = tmp_path / "new" / "datasets"
        server.service.catalog = home.backend  # type: ignore[assignment]  # it is in SQLite
        server.service.data = open_served_data(home.backend, None, server.url)
        monkeypatch.setenv("REGISTRY_TOKEN", make_token(home.backend, "ci", Role.PUBLISHER))
        with registry.connect(server.url) as catalog:
            catalog.add({"number": range(9)}, name="numbers")
        recorded = home.backend.locations.data_dir()
        assert (recorded.recorded, recorded.place) == ("datasets", str(data))
        assert len(home.dataset("numbers").read("train")) == 9
        server.service.data = None


def test_a_version_elsewhere_on_the_server_is_read_from_its_copy_in_the_data_directory(
    server: TestServer, home: registry.Catalog, login: str, tmp_path: Path
) -> None:
    with registry.connect(tmp_path / "own" / "catalog.db", create=True) as own:
        own.add({"number": range(5)}, name="far")
        folder = Path(own.dataset("far").folder.removeprefix("file://"))
    home.import_tfds(folder, copy=False)
    elsewhere = folder.rename(tmp_path / "server" / "elsewhere")  # as for a client on another machine
    shard = f"far/1.0.0/{home.dataset('far').facts.splits[0].filename(0)}"
    with registry.connect(server.url) as catalog, pytest.raises(NotStoredError):
        list(catalog.dataset("far").read("train"))
    assert ask(server.url, shard, login)[0].status == 404
    shutil.copytree(elsewhere, Path(home.data_dir) / "far" / "1.0.0")
    with registry.connect(server.url) as catalog:
        assert sorted(row["number"] for row in catalog.dataset("far").read("train")) == list(range(5))
        assert catalog.dataset("far").verify(deep=True).faults == ()
    few = make_token(home.backend, "bob", Role.READER, "numbers")
    assert [ask(server.url, shard, token)[0].status for token in (login, few)] == [200, 404]


def put(url: str, path: str, token: str | None, content: bytes, **headers: str) -> int:
    digest = base64.b64encode(hashlib.sha256(content).digest()).decode()
    sent = {"Repr_Digest": f"sha-256=:{digest}:", "Content_Length": str(len(content)), **headers}
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    connection.putrequest("PUT", f"/api/v1/data/{path}")
    if token is not None:
        connection.putheader("Authorization", f"Bearer {token}")
    for name, value in sent.items():
        if value:
            connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    connection.send(content)
    status = connection.getresponse().status
    connection.close()
    return status


def reserve(server: TestServer, token: str, reference: str, location: str) -> Reservation:
    """Reserve the place of a version over HTTP, as the publisher of this process."""
    with ServiceCatalog(server.url, token=lambda _: token) as client:
        holder = Holder.of_this_process("somebody else")
        reservation, _ = client.reservations.reserve(location, Reference.parse(reference), "0" * 64, holder)
        assert isinstance(reservation, Reservation)
        return reservation


def test_only_a_reserved_place_takes_files(server: TestServer, home: registry.Catalog, tmp_path: Path) -> None:
    ci, other = (make_token(home.backend, name, Role.PUBLISHER, "numbers", "lab_*") for name in ("ci", "other"))
    reader = make_token(home.backend, "ann", Role.READER)
    home.add({"number": range(3)}, name="hidden")
    path, _ = shard_of(home)
    url = f"{server.url}api/v1/data"
    place = "lab_one/1.0.0"
    assert put(server.url, f"{place}/x", ci, b"x") == 409  # it is not reserved
    reservation = reserve(server, ci, "lab_one:1.0.0", f"{url}/{place}")
    assert reservation.location == f"{url}/{place}"
    (kept,) = home.backend.reservations.list()
    assert (kept.location, kept.holders[0].actor) == (str(Path(home.data_dir) / place), "ci")
    assert [put(server.url, f"{place}/x", token, b"x") for token in (None, reader, other, ci, ci)] == [
        *(401, 403, 409),
        *(201, 200),
    ]
    assert put(server.url, f"{place}/x", ci, b"other", If_None_Match="*") == 412
    assert put(server.url, f"{place}/x", ci, b"other") == 412
    assert ask(server.url, f"{place}/x", ci)[1] == b"x"
    assert [ask(server.url, f"{place}/x", token)[0].status for token in (other, reader)] == [404, 404]
    assert ask(server.url, f"{place}/", ci)[1] == b'["x"]'
    assert put(server.url, f"{place}/a%20b/c%3f", ci, b"") == 201
    hostile = [
        *(path, "hidden/1.0.0/x", "numbers/1.0.0/x", "numbers/1.0.0/dataset_info.json", "x", "lab_one/x", place),
        *(f"{place}/", f"{place}/../2.0.0/x", f"{place}/%2e%2e/x", f"{place}/..%2fx", f"{place}/%00", f"{place}//x"),
        *("/etc/passwd", "../catalog.db", f"{place}/../../../catalog.db", f"{place}/.owner.json", "lab_one/2.0.0/x"),
        *(f"{place}/incomplete.0a1b2c3d_x", f"{place}/incomplete.0a1b2c3d_x/y", f"{place}/.finished.json"),
        *(f"{place}0/x", f"numbers/1.0.0/.attachments/{'0' * 64}_x", f"{place}/{'y' * 300}", f"{place}/x/y"),
    ]
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "server").rglob("*") if file.is_file()}
    for name in hostile:
        assert put(server.url, name, ci, b"evil") in (403, 404, 409, 412, 422), name
        if not name.startswith((f"{place}/x", f"{place}/y", "numbers/1.0.0/.attachments")):
            assert ask(server.url, name, ci, "DELETE")[0].status in (403, 404, 409, 422), name
    after = {file: file.stat().st_mtime_ns for file in (tmp_path / "server").rglob("*") if file.is_file()}
    assert {file for file in before.keys() | after.keys() if before.get(file) != after.get(file)} <= {
        tmp_path / "server" / f"catalog.db{end}" for end in ("", "-wal", "-shm")
    }
    for text in ("", "sha-256=:x:", "md5=:AAAA:", f"sha-256=:{'A' * 43}=:"):
        assert put(server.url, f"{place}/z", ci, b"z", Repr_Digest=text) == 400, text
    assert put(server.url, f"{place}/z", ci, b"z", Content_Encoding="gzip") == 415
    server.service.data._most_bytes = 10  # type: ignore[union-attr]
    assert [put(server.url, f"{place}/z", ci, bytes(size)) for size in (11, 10)] == [400, 201]
    link = Path(home.data_dir) / place / "out"
    link.symlink_to(tmp_path)
    assert put(server.url, f"{place}/out/evil", ci, b"") in (404, 422)
    assert not (tmp_path / "evil").exists()
    (Path(home.data_dir) / place / "empty").mkdir()
    assert ask(server.url, f"{place}/empty", ci, "DELETE")[0].status == 409
    assert [ask(server.url, f"{place}/z", token, "DELETE")[0].status for token in (other, ci, ci)] == [409, 200, 200]
    # A reservation of the place of another version gives no right to it.
    places = (f"{url}/hidden/3.0.0", str(Path(home.data_dir) / "hidden" / "4.0.0"), f"{url}/../../x")
    for place in places:
        with pytest.raises(CatalogPermissionError, match="not in the folder of its dataset"):
            reserve(server, ci, "lab_two:1.0.0", place)
    assert [put(server.url, name, ci, b"") for name in ("hidden/3.0.0/x", "hidden/4.0.0/x")] == [409, 409]


def test_an_upload_that_is_cut_leaves_nothing(server: TestServer, home: registry.Catalog, publisher: str) -> None:
    reserve(server, publisher, "lab:1.0.0", f"{server.url}api/v1/data/lab/1.0.0")
    content = bytes(2**20)
    digest = base64.b64encode(hashlib.sha256(content).digest()).decode()
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=30)
    connection.putrequest("PUT", "/api/v1/data/lab/1.0.0/x")
    connection.putheader("Authorization", f"Bearer {publisher}")
    connection.putheader("Content-Length", str(len(content)))
    connection.putheader("Repr-Digest", f"sha-256=:{digest}:")
    connection.endheaders()
    connection.send(content[: 2**19])
    folder = Path(home.data_dir) / "lab" / "1.0.0"
    wait(lambda: folder.exists() and any(folder.iterdir()))
    connection.close()
    wait(lambda: not any(folder.iterdir()))
    assert put(server.url, "lab/1.0.0/x", publisher, content) == 201


def begin_put(url: str, path: str, token: str, content: bytes) -> http.client.HTTPConnection:
    """A connection of a publisher that has sent the head of a PUT, and the first byte of the file."""
    digest = base64.b64encode(hashlib.sha256(content).digest()).decode()
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    connection.putrequest("PUT", f"/api/v1/data/{path}")
    connection.putheader("Authorization", f"Bearer {token}")
    connection.putheader("Content-Length", str(len(content)))
    connection.putheader("Repr-Digest", f"sha-256=:{digest}:")
    connection.endheaders(content[:1])
    return connection


def test_slow_publishers_hold_no_thread_and_half_of_the_places(home: registry.Catalog, server: TestServer) -> None:
    crowded = TestServer(ServiceConfig(in_flight=120, requests_per_minute=0))
    crowded.service.catalog, crowded.service.data = server.service.catalog, server.service.data
    token, content, folder = (
        make_token(home.backend, "ci", Role.PUBLISHER),
        b"slow",
        Path(home.data_dir) / "lab" / "1.0.0",
    )
    reserve(server, token, "lab:1.0.0", f"{server.url}api/v1/data/lab/1.0.0")
    slow = [
        begin_put(crowded.url, f"lab/1.0.0/{number}", token, content) for number in range(60)
    ]  # a worker has 40 threads
    wait(lambda: folder.exists() and len(list(folder.iterdir())) == 60)
    try:
        assert put(crowded.url, "lab/1.0.0/x", token, b"x") == 503
        path, shard = shard_of(home)
        assert [ask(crowded.url, path, token)[1] for _ in range(3)] == [shard] * 3
        for connection in slow:
            connection.send(content[1:])
            assert connection.getresponse().status == 201
        assert put(crowded.url, "lab/1.0.0/x", token, b"x") == 201
        assert {file.read_bytes() for file in folder.iterdir()} == {content, b"x"}
    finally:
        for connection in slow:
            connection.close()
        crowded.stop()


def test_files_of_publishers_leave_room_on_the_disk(
    server: TestServer, home: registry.Catalog, publisher: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = shutil.disk_usage(home.data_dir)._replace(free=1000)
    reserve(server, publisher, "lab:1.0.0", f"{server.url}api/v1/data/lab/1.0.0")
    folder = Path(home.data_dir) / "lab" / "1.0.0"
    monkeypatch.setattr("registry.server.data.shutil.disk_usage", lambda _: free)
    first = begin_put(server.url, "lab/1.0.0/first", publisher, bytes(600))
    wait(lambda: folder.exists() and any(folder.iterdir()))
    assert put(server.url, "lab/1.0.0/second", publisher, bytes(600)) == 507
    first.send(bytes(599))
    assert first.getresponse().status == 201
    first.close()
    assert put(server.url, "lab/1.0.0/second", publisher, bytes(600)) == 201
    server.service.data._free_bytes = 990  # type: ignore[union-attr]
    store = ServiceStore(server.url, lambda _: publisher, "lab/1.0.0")
    with pytest.raises(StorageError, match="the disk of the service is almost full") as caught:
        store.write_bytes("third", bytes(11))
    assert (caught.value.details["errno"], caught.value.hint) == (errno.ENOSPC, "Ask an admin of the service.")
    assert store.list() == ["first", "second"]


def wait(is_done: Callable[[], bool]) -> None:
    """Until something is done in another thread; the test ends after its time."""
    for _ in range(3000):
        if is_done():
            return
        time.sleep(0.01)
    raise AssertionError("it is not done")


def test_a_version_whose_files_differ_is_not_published(
    server: TestServer, home: registry.Catalog, publisher: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = WebCatalog._call

    def damage(catalog: WebCatalog, call: str, *args: Any, **kwargs: Any) -> Any:
        if call == "publish":
            shard = next((Path(home.data_dir) / "others" / "1.0.0").glob("*tfrecord*"))
            shard.write_bytes(shard.read_bytes()[::-1])
        return publish(catalog, call, *args, **kwargs)

    monkeypatch.setattr(WebCatalog, "_call", damage)
    with registry.connect(server.url) as catalog, pytest.raises(VerificationError, match="sha256 mismatch"):
        catalog.add({"number": range(50)}, name="others")
    monkeypatch.undo()
    monkeypatch.setenv("REGISTRY_TOKEN", publisher)
    assert [row.dataset for row in home.datasets()] == ["numbers"]


def test_a_number_that_the_program_of_a_publisher_does_not_prove_is_refused(
    server: TestServer, home: registry.Catalog, publisher: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Prover, "require", lambda prover, version, fingerprints, _: prover.prove(version, fingerprints))
    with registry.connect(server.url) as catalog:
        catalog.publish(prepare(tmp_path / "first"))
        with pytest.raises(VersionTooSmallError, match=r"animals:1\.1\.0 is too small a number") as caught:
            catalog.publish(prepare(tmp_path / "second", "1.1.0", {"train": animals(30)}))
        assert caught.value.details["smallest"] == "2.0.0"
        assert catalog.publish(prepare(tmp_path / "third", "1.0.1", shards=2)).newly
        assert catalog.publish(prepare(tmp_path / "fourth", "2.0.0", {"train": animals(30)})).newly
    assert [str(row.version) for row in home.versions("animals")] == ["2.0.0", "1.0.1", "1.0.0"]


def test_a_version_that_comes_between_the_proof_and_the_row_is_noticed_although_a_client_names_no_neighbours(
    server: TestServer, home: registry.Catalog, publisher: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    require = ServedData.require_uploaded
    call = WebCatalog._call

    def name_none(catalog: WebCatalog, name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "publish":
            kwargs["details"] = replace(kwargs["details"], proved_between=None)
        return call(catalog, name, *args, **kwargs)

    def prove_and_publish_another(data: ServedData, *args: Any) -> Any:
        details = require(data, *args)
        monkeypatch.setattr(ServedData, "require_uploaded", require)
        home.publish(prepare(tmp_path / "between", "1.0.1", shards=2))
        return details

    home.publish(prepare(tmp_path / "first"))
    monkeypatch.setattr(WebCatalog, "_call", name_none)
    monkeypatch.setattr(ServedData, "require_uploaded", prove_and_publish_another)
    with registry.connect(server.url) as catalog:
        publication = catalog.publish(prepare(tmp_path / "second", "2.0.0", {"train": animals(30)}))
    assert publication.proof is not None
    assert [str(number) for number in publication.proof.neighbours if number is not None] == ["1.0.1"]


def test_fingerprints_that_lack_a_feature_prove_nothing(
    server: TestServer, home: registry.Catalog, publisher: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Prover, "require", lambda prover, version, fingerprints, _: prover.prove(version, fingerprints))

    def without_name(candidate: Candidate) -> dict[str, SplitFingerprint]:
        return {
            name: replace(split, features={path: it for path, it in split.features.items() if path != "name"})
            for name, split in candidate.folded.fingerprints.items()
        }

    with registry.connect(server.url) as catalog:
        catalog.publish(prepare(tmp_path / "first"))
        monkeypatch.setattr(Candidate, "fingerprints", property(without_name))
        with pytest.raises(VersionTooSmallError, match=r"animals:1\.0\.1 was published without fingerprints"):
            catalog.publish(prepare(tmp_path / "second", "1.0.1", shards=2))
        assert catalog.publish(prepare(tmp_path / "third", "2.0.0", shards=2)).newly
        monkeypatch.undo()
        monkeypatch.setenv("REGISTRY_TOKEN", publisher)
        assert catalog.publish(prepare(tmp_path / "fourth", "3.0.0", {"train": animals(30)})).newly


def test_a_file_that_is_not_there_is_not_attached(
    server: TestServer, home: registry.Catalog, publisher: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = Attachment.of("card", "card.md", b"# Numbers")
    with registry.connect(server.url) as catalog:
        dataset, there = catalog.dataset("numbers"), Path(home.data_dir) / "numbers" / "1.0.0" / noted.place
        with pytest.raises(ShardMismatchError, match=r"nothing was attached to numbers:1\.0\.0: .*no such file"):
            catalog.backend.attach(dataset.facts, noted, actor="ann")
        there.parent.mkdir(exist_ok=True)
        there.write_bytes(b"# numbers")
        with pytest.raises(ShardMismatchError, match="sha256 mismatch"):
            catalog.backend.attach(dataset.facts, noted, actor="ann")
        there.write_bytes(b"# Numbers")
        assert catalog.backend.attach(dataset.facts, noted, actor="ann")
        assert not catalog.backend.attach(dataset.facts, noted, actor="ann")
        dataset.provenance.source.attach(Attachment.of("card", "more.md", b"# More"), b"# More")
    assert [file.name for file in home.dataset("numbers").attachments if file.kind == "card"] == ["card.md", "more.md"]


def test_only_an_admin_names_places_of_other_files(server: TestServer, home: registry.Catalog, publisher: str) -> None:
    home.add({"number": range(3)}, name="hidden")
    few = make_token(home.backend, "bob", Role.PUBLISHER, "numbers", "mine")
    limited = make_token(home.backend, "eve", Role.ADMIN, "numbers", "mine")
    version, exactly = home.dataset("numbers").facts, Reference.parse("numbers:1.0.0")
    (split,) = version.splits
    shards = {split.name: home.backend.shards.between(version, split.name, 0, split.num_shards)}
    holder = Holder.of_this_process("x")
    for token in (few, limited):
        with ServiceCatalog(server.url, token=partial(return_first, token)) as client:
            for location in ("hidden/1.0.0", "/etc", "../x", "file:///etc", f"{server.url}api/v1/data/hidden/1.0.0"):
                stolen = replace(version, name="mine", location=location)
                with pytest.raises(CatalogPermissionError, match="in the folder of its dataset"):
                    client.publish(stolen, shards, promote=None, actor="x")
                with pytest.raises(CatalogPermissionError, match="in the folder of its dataset"):
                    client.locations.add(exactly, location, actor="x")
                with pytest.raises(CatalogPermissionError, match="in the folder of its dataset"):
                    client.reservations.reserve(location, Reference.parse("mine:1.0.0"), "0" * 64, holder)
    with ServiceCatalog(server.url, token=partial(return_first, publisher)) as client:
        for location in ("hidden/1.0.0", "mine/1.0.0"):  # it may read them: but there are other files, or none
            with pytest.raises(VerificationError, match=r"mine:1\.0\.0 was not published: .*: no such file"):
                client.publish(replace(version, name="mine", location=location), shards, promote=None, actor="x")
    client = ServiceCatalog(server.url, token=partial(return_first, limited))
    with client, pytest.raises(CatalogPermissionError, match="in the folder of its dataset"):
        client.locations.relocate(exactly, "numbers/1.0.0", "hidden/1.0.0", actor="x")
    name = f"hidden/1.0.0/{home.dataset('hidden').facts.splits[0].filename(0)}"
    assert [ask(server.url, name, token)[0].status for token in (publisher, few, limited)] == [200, 404, 404]


def return_first(token: str, _url: str) -> str:
    return token


SCRIPT = """
import os, sys, registry
from registry.catalog.service.store import ServiceStore
put, left = ServiceStore._put, int(sys.argv[2])
def dying(*args, **kwargs):
    global left
    left -= 1
    if left == 0:
        os._exit(9)
    return put(*args, **kwargs)
ServiceStore._put = dying
with registry.connect(sys.argv[1]) as catalog:
    print(catalog.add({"number": range(50)}, name="others").reference)
"""


def add_in_process(url: str, dies_at: int) -> subprocess.Popen[str]:
    program = [sys.executable, "-c", SCRIPT, url, str(dies_at)]
    return warm_python.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_killed_publisher_leaves_what_the_next_run_finishes_and_gc_removes(
    server: TestServer, home: registry.Catalog, publisher: str
) -> None:
    with add_in_process(server.url, 4) as killed:
        assert (killed.wait(), killed.communicate()) == (9, ("", ""))
    with registry.connect(server.url) as catalog:
        assert str(catalog.add({"number": range(50)}, name="others").reference) == "others:1.0.0"
    assert (home.dataset("others").verify(deep=True).faults, home.backend.reservations.list()) == ((), ())
    home.lifecycle.drop("others:1.0.0", reason="again")
    with add_in_process(server.url, 4) as killed:
        killed.wait()
    with registry.connect(server.url) as catalog:
        catalog.add({"number": range(9)}, name="fourth")
    with warm_python.Popen([sys.executable, "-c", SCRIPT.replace("others", "dead"), server.url, "4"]) as killed:
        assert killed.wait() == 9
    place = Path(home.data_dir) / "dead" / "1.0.0"
    assert (place / ".reservation.json").exists()
    assert garbage(home) == {"reservation"}
    wait(lambda: not any(file.is_file() for file in place.rglob("*")))  # what was cut is removed when it is noticed
    assert not any(held.dataset == "dead" for held in home.backend.reservations.list())


def test_two_publishers_of_the_same_version_both_succeed(
    server: TestServer, home: registry.Catalog, publisher: str
) -> None:
    runs = [add_in_process(server.url, 0) for _ in range(2)]
    results = [run.communicate() for run in runs]
    assert results == [("others:1.0.0\n", "")] * 2
    assert (home.dataset("others").verify(deep=True).faults, home.backend.reservations.list()) == ((), ())


def test_readers_of_a_bucket_need_no_rights_of_their_own(
    server: TestServer, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with registry.connect(tmp_path / "catalog.db", data_dir=f"{bucket}/data", create=True) as home:
        home.add({"number": range(100)}, name="numbers")
        server.service.catalog = home.backend  # type: ignore[assignment]  # it is in SQLite
        own = DataDirectory(recorded=f"{bucket}/data", place=f"{bucket}/data")
        server.service.data = ServedData(open_store(f"{bucket}/data"), own, server.url, signs=True)
        reader, publisher = (make_token(home.backend, f"the {role}", role) for role in (Role.READER, Role.PUBLISHER))
        version = home.dataset("numbers").facts
        (split,) = version.splits
        name = f"numbers/1.0.0/{split.filename(0)}"
        monkeypatch.setenv("REGISTRY_TOKEN", publisher)
        with registry.connect(server.url) as catalog:
            assert catalog.data_dir == f"{bucket}/data"
            assert str(catalog.add({"number": range(9)}, name="others").reference) == "others:1.0.0"
        script = "import registry, sys; data = registry.connect(sys.argv[1]).dataset('numbers')\n"
        script += "print(data.folder, data.read('train')[7]['number'], len(list(data.read('train'))))\n"
        script += "print(data.verify(deep=True).faults, data.attachments[0].name)"
        environment = {name: text for name, text in os.environ.items() if not name.startswith("AWS_")}
        done = warm_python.run(
            [sys.executable, "-c", script, server.url],
            env={**environment, "REGISTRY_TOKEN": reader},
            capture_output=True,
            text=True,
            check=False,
        )
        number = home.dataset("numbers").read("train")[7]["number"]
        folder = f"{server.url}api/v1/data/numbers/1.0.0"
        assert (done.stdout, done.stderr) == (f"{folder} {number} 100\n() statistics.json\n", "")
        answer, body = ask(server.url, name, reader)
        assert (answer.status, body, "X-Amz-Expires=300" in answer.headers["Location"]) == (307, b"", True)
        assert [ask(server.url, path, reader)[0].status for path in ("numbers/1.0.0/../x", "x/1.0.0/y")] == [404, 404]
        others = open_store(f"{bucket}/data/others/1.0.0")
        shard = next(file for file in others.list() if "tfrecord" in file)
        open_store(f"{bucket}/data/numbers/1.0.1").create_from(split.filename(0), others, shard)
        shards = {split.name: home.backend.shards.between(version, split.name, 0, 1)}
        later = replace(version, version=Version(1, 0, 1), location="numbers/1.0.1", content_digest="1" * 64)
        client = ServiceCatalog(server.url, token=partial(return_first, publisher))
        with client, pytest.raises(VerificationError, match="size mismatch"):  # the bytes are those of another dataset
            client.publish(later, shards, promote=None, actor="x")
        server.service.data = None
