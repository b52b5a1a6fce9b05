"""The catalog of a site: what it asks the server for, what it refuses, and what it does when nobody answers."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from support import TESTS, warm_python
from support.catalog_samples import publish
from support.levels import either
from support.sites import (
    CHANGED_AT,
    Client,
    Files,
    WebServer,
    changed,
    forked,
    make_site,
    snapshot,
    truncated,
    web_server,
)
from support.web_server import serve

from registry.catalog import CatalogBackend, EventFilter, load_shards, masked_url, open_catalog, schema, sqlite_path
from registry.catalog.site import catalog as site_catalog
from registry.catalog.site_index import MAX_INDEX_BYTES, parse_site_index
from registry.errors import (
    CatalogError,
    CatalogNotFoundError,
    CatalogPermissionError,
    CatalogRefusedError,
    CatalogUnavailableError,
    CatalogUnavailableWarning,
    DatasetNotFoundError,
    LogTamperedError,
    RegistryError,
    SchemaAheadError,
    SignatureError,
    SiteFormatError,
    SiteHistoryError,
    SiteMismatchError,
    StorageError,
    UsageError,
    VersionNotFoundError,
)
from registry.model import Reference, Version
from registry.pins.keys import load_private_key, load_public_key, new_key
from registry.pins.signature import sign_index, verify_index

INDEX = "p/site.json"


def beneath(files: Files, folder: str = "p") -> Files:
    """The files of a site in a folder of the server."""
    return {f"{folder}/{path}": content for path, content in files.items()}


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """A catalog after each of its first four changes: mnist:1.0.0, mnist:1.1.0, an alias, cifar:1.0.0."""
    file = tmp_path_factory.mktemp("states") / "catalog.db"
    result = []
    with open_catalog(file) as catalog:
        publish(catalog, "mnist:1.0.0")
        result.append(snapshot(file))
        publish(catalog, "mnist:1.1.0", content="more")
        result.append(snapshot(file))
        catalog.aliases.set("paper", Reference.parse("mnist:1.0.0"), expect=None, message="", actor="ann")
        result.append(snapshot(file))
        publish(catalog, "cifar:1.0.0")
        result.append(snapshot(file))
    return result


@pytest.fixture
def server() -> Iterator[WebServer]:
    with web_server() as started:
        yield started


@pytest.fixture
def client(server: WebServer, tmp_path: Path) -> Client:
    return Client(f"{server.url}p/", tmp_path)


def found(client: Client, reference: str = "mnist") -> str:
    """What a new process finds."""
    with client.open() as catalog:
        return str(catalog.find(reference).reference)


# Requests


def test_a_cold_look_up_needs_two_requests_and_a_warm_one_a_304(
    server: WebServer, client: Client, states: list[bytes]
) -> None:
    server.files = beneath(make_site(states[0]))
    assert found(client) == "mnist:1.0.0"
    (first, status), (second, _) = server.requests()
    assert (first, status) == (INDEX, 200)
    assert re.fullmatch(r"p/catalog/[0-9a-f]{16}\.db\.gz", second)
    assert found(client) == "mnist:1.0.0"
    assert server.requests() == [(INDEX, 304)]


def test_an_exact_version_that_is_in_the_cache_needs_no_request(
    server: WebServer, client: Client, states: list[bytes]
) -> None:
    server.files = beneath(make_site(states[0]))
    found(client)
    server.requests()
    with client.open() as catalog:
        version = catalog.find("mnist:1.0.0")
        assert load_shards(catalog.shards, version, "train")
        assert catalog.attachments(version) == ()
        assert catalog.fingerprints(version) == {}
        place = catalog.locations.data_dir()
        assert place.place == f"{server.url}p/data"
    assert server.requests() == []


def test_an_exact_version_that_is_not_in_the_cache_is_looked_up(
    server: WebServer, client: Client, states: list[bytes]
) -> None:
    server.files = beneath(make_site(states[0]))
    found(client)
    server.files = beneath(make_site(states[1]))
    server.requests()
    assert found(client, "mnist:1.1.0") == "mnist:1.1.0"
    assert [status for _, status in server.requests()] == [200, 200]
    with pytest.raises(VersionNotFoundError):
        found(client, "mnist:7.0.0")
    assert server.requests() == [(INDEX, 304)]


def test_one_open_catalog_asks_once_a_minute(
    server: WebServer, client: Client, states: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files = beneath(make_site(states[0]))
    with client.open() as catalog:
        before = catalog.find("mnist")
        catalog.versions("mnist")
        catalog.datasets()
        assert len(server.requests()) == 2
        server.files = beneath(make_site(states[3]))
        monkeypatch.setattr(site_catalog, "_FRESH_SECONDS", 0)
        assert catalog.find("mnist").version == Version(1, 1, 0)
        assert [status for _, status in server.requests()] == [200, 200]
        monkeypatch.undo()
        assert len(load_shards(catalog.shards, before, "train")) == 3  # a version of the snapshot before


def test_threads_share_the_look_up_of_a_cold_site(server: WebServer, client: Client, states: list[bytes]) -> None:
    server.files = beneath(make_site(states[3]))
    barrier = Barrier(8, timeout=60)
    with client.open() as catalog, ThreadPoolExecutor(8) as threads:

        def look_up(reference: str) -> str:
            barrier.wait()
            return str(catalog.find(reference).reference)

        references = ["mnist", "mnist:1.0.0", "mnist@paper", "cifar"] * 2
        assert (
            list(threads.map(look_up, references)) == ["mnist:1.1.0", "mnist:1.0.0", "mnist:1.0.0", "cifar:1.0.0"] * 2
        )
    assert len(server.requests()) == 2


def test_a_server_without_tags_is_asked_by_date(server: WebServer, client: Client, states: list[bytes]) -> None:
    server.has_tags = False
    server.files = beneath(make_site(states[0]))
    found(client)
    found(client)
    assert [status for _, status in server.requests()] == [200, 200, 304]


def test_a_date_of_this_second_is_not_trusted() -> None:
    now, before = "Sun, 29 Nov 2026 12:00:01 GMT", "Sun, 29 Nov 2026 12:00:00 GMT"
    assert site_catalog._conditions({"Date": now, "Last-Modified": before}) == {}
    later = {"Date": "Sun, 29 Nov 2026 12:00:02 GMT", "Last-Modified": before}
    assert site_catalog._conditions(later) == {"If-Modified-Since": before}
    assert site_catalog._conditions({"Date": "yesterday", "Last-Modified": before, "ETag": '"a"'}) == {
        "If-None-Match": '"a"'
    }


def test_a_site_that_is_written_again_during_the_look_up_is_read_again(
    server: WebServer, client: Client, states: list[bytes]
) -> None:
    old, new = beneath(make_site(states[0])), beneath(make_site(states[1]))
    server.files = {INDEX: old[INDEX], **{path: content for path, content in new.items() if path != INDEX}}
    usual = server.answer

    def answer(path: str, asked: Any) -> Any:
        result = usual(path, asked)
        server.files[INDEX] = new[INDEX]
        return result

    server.answer = answer  # type: ignore[method-assign]
    assert found(client) == "mnist:1.1.0"


def test_the_plain_server_of_the_standard_library_is_enough(tmp_path: Path, states: list[bytes]) -> None:
    for path, content in beneath(make_site(states[0]), "www/deep/folder").items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
    with serve(tmp_path / "www") as url:
        assert found(Client(f"{url}/deep/folder", tmp_path)) == "mnist:1.0.0"
        assert found(Client(f"{url}/deep/folder/index.html", tmp_path)) == "mnist:1.0.0"


def test_a_client_without_a_cache_reads_and_leaves_nothing(
    server: WebServer, client: Client, states: list[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    (tmp_path / "temporary").mkdir()
    server.files = beneath(make_site(states[0]))
    options = replace(client.open().options, cache=None)
    with site_catalog.SiteCatalog(client.url, options) as catalog:
        assert catalog.find("mnist").version == Version(1, 0, 0)
    del catalog
    assert list((tmp_path / "temporary").iterdir()) == []


def test_eight_processes_read_a_cold_site_at_the_same_time(
    server: WebServer, client: Client, states: list[bytes]
) -> None:
    server.files = beneath(make_site(states[3]))
    program = (
        "import sys; from pathlib import Path; from support.sites import Client\n"
        "catalog = Client(sys.argv[1], Path(sys.argv[2])).open()\n"
        "sys.stdin.readline()\n"
        "print(catalog.find('mnist').reference, len(catalog.datasets()), catalog.find('mnist:1.0.0').reference)\n"
    )
    processes = [
        warm_python.Popen(
            [sys.executable, "-c", program, client.url, str(client.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=TESTS,
        )
        for _ in range(8)
    ]
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    assert {process.communicate()[0] for process in processes} == {"mnist:1.1.0 2 mnist:1.0.0\n"}
    assert [process.returncode for process in processes] == [0] * 8
    assert len(list(client.cache.rglob("*.db"))) == 1
    assert len(list(client.heads.iterdir())) == 1


def test_the_cache_keeps_the_snapshot_before_and_no_older_one(
    server: WebServer, client: Client, states: list[bytes]
) -> None:
    for state in states:
        server.files = beneath(make_site(state))
        found(client)
        for file in client.cache.rglob("*.db"):
            os.utime(file, (CHANGED_AT, CHANGED_AT))
    assert len(list(client.cache.rglob("*.db"))) == 2


def test_a_damaged_cache_is_fetched_again(server: WebServer, client: Client, states: list[bytes]) -> None:
    server.files = beneath(make_site(states[0]))
    found(client)
    (file,) = client.cache.rglob("*.db")
    for damage in (b"", file.read_bytes()[:-1], b"x" * file.stat().st_size):
        file.write_bytes(damage)
        assert found(client, "mnist:1.0.0") == "mnist:1.0.0"
        assert file.stat().st_size == len(states[0])


# Without a network


def test_without_an_answer_the_cache_answers_with_its_date(
    server: WebServer, client: Client, states: list[bytes]
) -> None:
    server.files = beneath(make_site(states[0]))
    found(client)
    server.status = 503
    with client.open() as catalog:
        with pytest.warns(CatalogUnavailableWarning) as caught:
            assert catalog.find("mnist").version == Version(1, 0, 0)
        assert len(catalog.datasets()) == 1  # without a second warning, which would be an error
    assert re.fullmatch(
        rf"cannot read {client.url}site\.json: the server answered 503 Service Unavailable\n"
        rf"{client.url} is as this machine read it at 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC",
        str(caught[0].message),
    )
    assert len(caught) == 1


def test_without_an_answer_and_a_cache_it_is_an_error(client: Client, tmp_path: Path) -> None:
    with pytest.raises(CatalogUnavailableError, match="the server cannot be reached: Connection refused"):
        found(Client("http://127.0.0.1:1/", tmp_path))


@pytest.mark.parametrize("manner", ["silent", "error"])
def test_a_server_that_does_not_answer_in_time_is_unavailable(
    manner: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_READ_TIMEOUT", "0.2")
    monkeypatch.setenv("REGISTRY_TRIES", "2")
    with serve(tmp_path, manner) as url, pytest.raises(CatalogUnavailableError):
        found(Client(url, tmp_path))


@pytest.mark.parametrize("manner", ["cut", "stall", "drip"])
def test_a_server_that_breaks_off_or_sends_byte_by_byte_is_unavailable(
    manner: Any, tmp_path: Path, states: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_READ_TIMEOUT", "0.3")
    monkeypatch.setenv("REGISTRY_RETRY_TIMEOUT", "0.5")
    monkeypatch.setenv("REGISTRY_TRIES", "2")
    for path, content in make_site(states[0]).items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(content)
    with serve(tmp_path, manner) as url, pytest.raises(CatalogUnavailableError):
        found(Client(url, tmp_path))


def test_a_place_without_a_site_is_named(server: WebServer, client: Client) -> None:
    with pytest.raises(CatalogNotFoundError) as caught:
        found(client)
    assert (
        str(caught.value) == f"there is neither a service nor a site at {client.url}: the server has no site.json there"
    )


# Login and redirects


def test_a_login_goes_to_the_server_of_the_site_and_to_no_other(
    server: WebServer, tmp_path: Path, states: list[bytes]
) -> None:
    files = beneath(make_site(states[0]))
    with web_server() as other:
        server.login, server.files, other.files = "Basic YW5uOnB3QA==", files, files
        url = f"{server.url.replace('://', '://ann:pw%40@')}p/"
        server.redirects = {path: f"{other.url}{path}" for path in files if path != INDEX}
        client = Client(url, tmp_path)
        with client.open() as catalog:
            assert catalog.find("mnist").version == Version(1, 0, 0)
            assert catalog.url == masked_url(url) == f"{server.url.replace('://', '://***@')}p/"
            assert "pw" not in repr(catalog)
            place = catalog.locations.data_dir()
            assert place.place == f"{server.url}p/data"
        assert [headers.get("Authorization") for _, _, headers in other.seen] == [None]
        (head,) = client.heads.iterdir()
        assert "pw" not in head.read_text()
    server.redirects, server.login = {}, "Basic other"
    with pytest.raises(CatalogRefusedError) as caught:
        found(client)
    assert "pw" not in f"{caught.value} {caught.value.hint} {caught.value.details} {caught.value.__cause__}"


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://127.0.0.1/site.json", "gopher://a/", "data:,x"])
def test_a_redirect_leads_to_web_servers_only(server: WebServer, client: Client, target: str) -> None:
    server.redirects = {INDEX: target}
    with pytest.raises(CatalogError, match=r"the server redirects to .* which is not followed"):
        found(client)


def test_redirects_are_bounded(server: WebServer, client: Client) -> None:
    server.redirects = {INDEX: f"{server.url}{INDEX}"}
    with pytest.raises(CatalogError, match="redirects again and again"):
        found(client)
    assert len(server.requests()) == 6


@pytest.mark.parametrize(
    "url",
    ["https://", "https://host/?a=b", "https://host/#a", "https://ann:p/w@host/", "http://host:99999/", "http://h h/"],
)
def test_a_malformed_url_is_refused_and_not_repeated(url: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        Client(url, tmp_path).open()
    assert str(caught.value) == "the URL of the catalog does not parse"


# Read-only


def test_no_call_writes(server: WebServer, client: Client, states: list[bytes]) -> None:
    server.files = beneath(make_site(states[0]))
    exactly = Reference.parse("mnist:1.0.0")
    with client.open() as opened:
        catalog: Any = opened
        writes: list[Callable[[], object]] = [
            catalog.require_publisher,
            lambda: catalog.publish(None, {}, promote=True, actor="ann"),
            lambda: catalog.rename("mnist", "digits", actor="ann"),
            lambda: catalog.aliases.set("a", exactly, expect=None, message="", actor="ann", dry_run=True),
            lambda: catalog.lifecycle.drop(exactly, "wrong", actor="ann"),
            lambda: catalog.locations.set_data_dir(None, actor="ann"),
            lambda: catalog.reservations.release("mnist", "1.0.0"),
            lambda: catalog.log.correct_clock(actor="ann"),
            lambda: catalog.attach(None, actor="ann"),
            catalog.no_such_call,
        ]
        for write in writes:
            with pytest.raises(CatalogPermissionError, match=rf"a site is read-only, and {client.url} is one"):
                write()
    assert server.requests() == []


def test_every_call_of_the_protocol_that_only_reads_is_passed_on(
    server: WebServer, client: Client, states: list[bytes]
) -> None:
    """Which calls read, says their signature: those that write have an actor, except some about reservations."""
    from registry.catalog import backend

    unnamed = {f"reservations.{name}" for name in vars(backend.ReservationCalls) if name != "list"}
    unnamed |= {"require_publisher", "close", "access.authenticate", "access.note_refusal"}
    groups = {name: vars(backend)[kind] for name, kind in _groups().items()}
    calls = {
        f"{group}{name}"
        for group, kind in {"": CatalogBackend, **{f"{name}.": kind for name, kind in groups.items()}}.items()
        for name, function in vars(kind).items()
        if callable(function)
        and not name.startswith("_")
        and not {"actor", "options"} & set(function.__code__.co_varnames[: function.__code__.co_argcount + 9])
    }
    assert calls - unnamed == site_catalog.READS


def _groups() -> dict[str, str]:
    names = ("aliases", "configs", "experiments", "locations", "reservations")
    return {name: f"{name.removesuffix('es' if name == 'aliases' else 's').capitalize()}Calls" for name in names} | {
        "access": "AccessCalls",
        "lifecycle": "LifecycleCalls",
        "log": "LogCalls",
        "shards": "ShardCalls",
        "webhooks": "WebhookCalls",
    }


def test_commands_about_databases_refuse_a_site(tmp_path: Path) -> None:
    url = "https://ann:pw@host/p"
    assert sqlite_path(url) is None
    for call in (schema.status, schema.check, schema.upgrade, schema.reindex, schema.recorded_data_dir):
        with pytest.raises(UsageError, match="the catalog is a site or a service, and this command needs its database"):
            call(url)


# Trust


@pytest.mark.parametrize("step", either(3, 1))
def test_a_log_that_goes_on_is_accepted_and_one_that_was_rolled_back_or_forked_is_not(
    server: WebServer, tmp_path: Path, states: list[bytes], step: int
) -> None:
    """Truncated and rewritten at every event, or at every third."""
    newest = states[-1]
    num_events = _num_events(newest)
    for number in range(0, num_events, step):
        for has_cache in (True, False):
            client = Client(f"{server.url}p/", tmp_path / f"{number} {has_cache}")
            server.files = beneath(make_site(truncated(newest, number)))
            with client.open() as catalog:
                assert len(catalog.log.page(EventFilter())) == number
            server.files = beneath(make_site(newest))
            assert found(client) == "mnist:1.1.0"
            if not has_cache:
                shutil.rmtree(client.cache)
            server.files = beneath(make_site(truncated(newest, number)))
            with pytest.raises(SiteHistoryError) as caught:
                found(client)
            assert f"was rolled back to event {number}: event {num_events} of it" in str(caught.value)
            assert caught.value.details["kind"] == "rolled back"
            server.files = beneath(make_site(forked(newest, number + 1)))
            with pytest.raises(SiteHistoryError) as caught:
                found(client)
            place = f"event {number + 1}" if has_cache else f"event {num_events} or before"
            assert f"was forked at {place}: it has other events than before" in str(caught.value)
            if has_cache:
                assert found(client, "mnist:1.1.0") == "mnist:1.1.0"  # what was read before is kept
            file = Path(caught.value.details["file"])
            assert f"rm {file}" in (caught.value.hint or "").replace("'", "")
            file.unlink()
            assert found(client) == "mnist:1.1.0"


def _num_events(content: bytes) -> int:
    index = parse_site_index(make_site(content)["site.json"])
    return index.num_events


def test_a_log_that_is_forked_behind_the_known_head_is_not_seen_before_it_is_compared(
    server: WebServer, client: Client, states: list[bytes]
) -> None:
    """A fork that begins after the events that were read is a continuation for this machine."""
    server.files = beneath(make_site(states[0]))
    found(client)
    server.files = beneath(make_site(forked(states[3], _num_events(states[3]))))
    assert found(client) == "mnist:1.1.0"
    server.files = beneath(make_site(states[3]))
    with pytest.raises(SiteHistoryError, match="forked at event"):
        found(client)


def test_a_broken_chain_is_refused(server: WebServer, client: Client, states: list[bytes]) -> None:
    for statement in ("UPDATE event SET actor = 'eve' WHERE id = 1", "DELETE FROM event WHERE id = 1"):
        server.files = beneath(make_site(changed(states[3], statement)))
        with pytest.raises(LogTamperedError, match=rf"the event log of {client.url} is broken: "):
            found(client)
    assert not client.heads.exists()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE shard SET sha256 = replace(sha256, '1', '2')",
        "UPDATE shard SET num_bytes = num_bytes + 1 WHERE shard_index = 2",
        "UPDATE dataset_version SET features_json = replace(features_json, '10', '11')",
        "UPDATE dataset_version SET content_digest = replace(content_digest, '1', '2')",
        "DELETE FROM shard WHERE shard_index = 2",
    ],
)
def test_a_version_whose_rows_were_changed_without_the_log_is_refused(
    server: WebServer, client: Client, states: list[bytes], statement: str
) -> None:
    server.files = beneath(make_site(states[0]))
    found(client)
    server.files = beneath(make_site(changed(states[0], statement)))
    for _ in range(2):
        with pytest.raises(RegistryError) as caught:
            found(client)
        assert isinstance(caught.value, LogTamperedError | CatalogError)
        with client.open() as catalog, pytest.raises((LogTamperedError, CatalogError)):
            catalog.find_at(Reference.parse("mnist"), datetime.now(UTC))


def test_the_memory_of_heads_is_not_silently_lost(server: WebServer, client: Client, states: list[bytes]) -> None:
    server.files = beneath(make_site(states[3]))
    found(client)
    (file,) = client.heads.iterdir()
    for text in ("", "{}", "[" * 100_000, '{"event": 1, "hash": 2, "read_at": "now"}'):
        file.write_text(text)
        with pytest.raises(StorageError, match=r"which remembers the event log of .* is damaged"):
            found(client)


def test_two_processes_that_read_an_old_and_a_new_index_do_not_take_the_old_one_for_a_rollback(
    server: WebServer, client: Client, states: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files = beneath(make_site(states[0]))
    usual = site_catalog.SiteCatalog._adopt

    def adopt(catalog: Any, *given: Any) -> Any:
        monkeypatch.undo()
        server.files |= beneath(make_site(states[3]))
        assert found(client) == "mnist:1.1.0"  # another process reads on meanwhile
        return usual(catalog, *given)

    monkeypatch.setattr(site_catalog.SiteCatalog, "_adopt", adopt)
    assert found(client) == "mnist:1.0.0"
    (file,) = client.heads.iterdir()
    assert json.loads(file.read_text())["event"] == _num_events(states[3])


# Signatures


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    new_key(folder / "ours")
    new_key(folder / "others")
    return folder


def signed(files: Files, key: Path) -> Files:
    index = sign_index(parse_site_index(files["site.json"]), load_private_key(key))
    return {**files, "site.json": index.to_json()}


def trusting(client: Client, key: Path) -> Client:
    public = load_public_key(key)
    return replace(client, options={"check": lambda index: verify_index(index, [public])})


def test_a_key_requires_a_valid_signature_also_of_what_is_cached(
    server: WebServer, client: Client, states: list[bytes], keys: Path
) -> None:
    files = make_site(states[0])
    server.files = beneath(files)
    found(client)
    careful = trusting(client, keys / "ours.pub")
    with pytest.raises(SignatureError, match="the site is not signed"):
        found(careful, "mnist:1.0.0")
    server.files = beneath(signed(files, keys / "others"))
    with pytest.raises(SignatureError, match="expected a signature of"):
        found(careful)
    server.files = beneath(signed(files, keys / "ours"))
    assert found(careful) == "mnist:1.0.0"
    server.requests()
    assert found(careful, "mnist:1.0.0") == "mnist:1.0.0"
    assert server.requests() == []
    assert found(client) == "mnist:1.0.0"  # without a key


# Whatever is changed


@pytest.mark.parametrize("is_signed", [False, True])
@pytest.mark.parametrize("step", either(3, 1))
def test_every_flip_in_the_index_is_noticed(
    server: WebServer, tmp_path: Path, states: list[bytes], keys: Path, is_signed: bool, step: int
) -> None:
    files = make_site(states[0])
    client = Client(f"{server.url}p/", tmp_path)
    if is_signed:
        files, client = signed(files, keys / "ours"), trusting(client, keys / "ours.pub")
    right, chance, unnoticed = parse_site_index(files["site.json"]), random.Random(1), 0
    for place in range(0, len(files["site.json"]), step):
        content = bytearray(files["site.json"])
        content[place] ^= 1 << chance.randrange(8)
        server.files = beneath({**files, "site.json": bytes(content)})
        try:
            with client.open() as catalog:
                assert str(catalog.find("mnist").reference) == "mnist:1.0.0"
                index = catalog._current().index
        except (SiteFormatError, SiteMismatchError, SignatureError):
            continue
        # Space between the values, and without a signature what is for people, and the place of the data.
        unnoticed += 1
        if is_signed:
            assert index == right
        assert replace(index, made_at=right.made_at, made_by=right.made_by, data_url=right.data_url) == right
    assert unnoticed < (60 if is_signed else 110) // step


@pytest.mark.parametrize("library", ["isal", "zlib"])
def test_every_flip_and_cut_of_the_catalog_is_noticed(
    server: WebServer, client: Client, states: list[bytes], library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if library == "zlib":
        monkeypatch.setitem(sys.modules, "isal", None)
    files = make_site(states[0])
    name = next(path for path in files if path != "site.json")
    content, chance = files[name], random.Random(2)
    changes = [b"", content + b"\0", content + content, content[1:], make_site(states[1]).popitem()[1]]
    changes += [content[: chance.randrange(len(content))] for _ in range(40)]
    for place in (*range(20), *range(len(content) - 10, len(content)), *chance.sample(range(len(content)), 120)):
        flipped = bytearray(content)
        flipped[place] ^= 1 << chance.randrange(8)
        changes.append(bytes(flipped))
    for change in changes:
        server.files = beneath({**files, name: change})
        with pytest.raises(SiteMismatchError):
            found(client)
    assert list(client.cache.rglob("*.db")) == []
    assert not client.heads.exists()
    server.files = beneath(files)
    assert found(client) == "mnist:1.0.0"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sha256", "1" * 64),
        ("num_bytes", 1),
        ("num_bytes", 10**7),
        ("num_bytes", 2**62),
        ("compressed_bytes", 1),
        ("compressed_bytes", 10**7),
        ("compressed_bytes", 2**62),
        ("head", "2" * 64),
        ("num_events", 7),
        ("num_events", 10**9),
    ],
)
def test_an_index_that_does_not_fit_is_named_and_the_cached_one_is_kept(
    server: WebServer, client: Client, states: list[bytes], field: str, value: Any
) -> None:
    server.files = beneath(make_site(states[0]))
    found(client)
    for state in states[:2]:  # the catalog that is cached, and another one
        server.files = beneath(make_site(state, **{field: value}))
        with pytest.raises(SiteMismatchError) as caught:
            found(client)
        assert caught.value.details["field"] == field
    server.requests()
    assert found(client, "mnist:1.0.0") == "mnist:1.0.0"
    assert server.requests() == []
    server.files = beneath(make_site(states[1]))
    assert found(client) == "mnist:1.1.0"


# What a hostile publisher might offer


def test_a_file_that_is_larger_than_declared_is_not_written(
    server: WebServer, client: Client, states: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []
    usual = site_catalog.download

    def download(server: Any, index: Any, file: Path) -> None:
        try:
            usual(server, index, file)
        finally:
            written.append(file.stat().st_size)

    monkeypatch.setattr(site_catalog, "download", download)
    server.files = beneath(make_site(bytes(2**22), num_bytes=4096))
    with pytest.raises(SiteMismatchError, match="expected 4096, found more than 4096"):
        found(client)
    assert written[0] <= 4096


@pytest.mark.parametrize(
    "index",
    [b"", b"[" * 60_000, b"{}", b"null", b'{"schema": "registry.site/2"}', b" " * (MAX_INDEX_BYTES + 1), b"\xff\xfe"],
    ids=["empty", "deep", "no keys", "null", "next schema", "long", "not UTF-8"],
)
def test_an_index_that_is_none_is_refused(server: WebServer, client: Client, index: bytes) -> None:
    server.files = {INDEX: index}
    no_site = rf"neither a service nor a site at {client.url}: the server answers something else than site\.json"
    with pytest.raises((SiteFormatError, CatalogNotFoundError), match=rf"{client.url}site\.json|{no_site}"):
        found(client)


@pytest.mark.parametrize(
    "place",
    [
        *("/etc/", "../data/", "a/../../b/", "%2e%2e/b/", "a/%2E%2E/", "file:///etc/", "memory://a/", "ftp://host/a/"),
        *("github://a:b@c/", "zip://a::file:///etc/", "https://host/::file:///etc/", "C:/data/", "\\\\host\\share\\"),
        *("local://a/", "FILE:///etc/", "https:///etc/"),
    ],
)
def test_data_is_on_a_web_server_or_in_a_bucket(
    server: WebServer, client: Client, states: list[bytes], place: str
) -> None:
    text = make_site(states[0])
    text["site.json"] = text["site.json"].replace(b'"data/"', json.dumps(place).encode())
    server.files = beneath(text)
    with pytest.raises(SiteFormatError, match="data_url: "):
        found(client)
    assert [path for path, _ in server.requests()] == [INDEX]


@pytest.mark.parametrize(
    "place", ["https://host/a", "s3://bucket/a", "s3a://bucket/a", "gs://bucket/a", "az://container/a"]
)
def test_data_may_be_elsewhere(server: WebServer, client: Client, states: list[bytes], place: str) -> None:
    server.files = beneath(make_site(states[0], data_url=f"{place}/"))
    with client.open() as catalog:
        known = catalog.locations.data_dir()
        assert known.place == known.recorded == place


def test_a_site_without_data_records_none(server: WebServer, client: Client, states: list[bytes]) -> None:
    server.files = beneath(make_site(states[0], data_url=None))
    with client.open() as catalog:
        assert catalog.locations.data_dir() is None


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE VIEW dataset AS SELECT 1",
        "CREATE TABLE other (a)",
        "CREATE TRIGGER t AFTER INSERT ON builder BEGIN SELECT load_extension('x'); END",
        "DROP TRIGGER event_no_delete",
        "CREATE VIRTUAL TABLE other USING fts5(a)",
        "DROP TABLE search_index",
        "ALTER TABLE builder ADD COLUMN a AS (printf('%.*c', 100000000, 'x'))",
        "DROP TABLE shard",
        "UPDATE alembic_version SET version_num = '0000'",
        "DELETE FROM alembic_version",
        "UPDATE dataset_version SET location = '/etc'",
        "UPDATE dataset_version SET location = 'file:///etc'",
        "UPDATE dataset_version SET location = 'zip://x::file:///etc'",
        "UPDATE dataset_version SET location = 'https://h/::file:///etc'",
        "INSERT INTO version_location (version_id, change, location, at, actor)"
        " SELECT id, 'add', '/etc', published_at, '' FROM dataset_version",
    ],
)
def test_a_database_that_is_not_one_of_the_registry_is_refused(
    server: WebServer, client: Client, states: list[bytes], statement: str
) -> None:
    content = changed(states[0], statement, triggers=not statement.startswith(("UPDATE", "INSERT", "DELETE")))
    server.files = beneath(make_site(content))
    with pytest.raises((SiteMismatchError, SchemaAheadError)) as caught:
        found(client)
    assert str(client.folder) not in str(caught.value)
    assert list(client.cache.rglob("*.db")) == []
    assert not client.heads.exists()


@pytest.mark.parametrize("content", [b"", b"text" * 1000, b"SQLite format 3\0" + bytes(5000)])
def test_what_is_not_a_database_is_refused(server: WebServer, client: Client, content: bytes) -> None:
    server.files = beneath(make_site(content))
    with pytest.raises(SiteMismatchError, match=rf"the catalog of {client.url} is not one of the registry"):
        found(client)


def test_a_site_of_a_newer_release_says_so(server: WebServer, client: Client, states: list[bytes]) -> None:
    server.files = beneath(make_site(changed(states[0], "UPDATE alembic_version SET version_num = '9999'")))
    with pytest.raises(SchemaAheadError) as caught:
        found(client)
    assert str(caught.value).startswith(f"the catalog of {client.url} has the schema 9999, made by a newer registry")
    assert "pip install --upgrade" in (caught.value.hint or "")


def test_a_site_of_an_older_release_is_read(
    server: WebServer, client: Client, states: list[bytes], tmp_path: Path
) -> None:
    file = tmp_path / "older.db"
    file.write_bytes(states[0])
    schema.downgrade(file, "0011")
    server.files = beneath(make_site(snapshot(file)))
    assert found(client) == "mnist:1.0.0"
    server.requests()
    assert found(client) == "mnist:1.0.0"
    assert server.requests() == [(INDEX, 304)]
    (upgraded,) = client.cache.rglob("*.db")
    before = upgraded.stat()
    with client.open() as catalog:
        (catalog._memory.file("site", b"")).unlink()  # as for a process that was first to verify it
    assert found(client) == "mnist:1.0.0"
    assert (upgraded.stat().st_ino, upgraded.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize("number", range(60))
def test_damaged_pages_give_typed_errors(server: WebServer, client: Client, states: list[bytes], number: int) -> None:
    """A publisher may describe a damaged database truthfully."""
    chance = random.Random(number)
    content = bytearray(states[0])
    for _ in range(chance.choice([1, 10, 1000])):
        content[chance.randrange(100, len(content))] = chance.randrange(256)
    server.files = beneath(make_site(bytes(content)))
    with suppress(RegistryError), client.open() as catalog:
        catalog.find("mnist")
        catalog.search("mnist")
        catalog.log.verify()


def test_an_unknown_dataset_is_looked_up_and_named(server: WebServer, client: Client, states: list[bytes]) -> None:
    server.files = beneath(make_site(states[3]))
    with pytest.raises(DatasetNotFoundError, match="no dataset 'minst'"):
        found(client, "minst")


# Certificates


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a key, and a certificate for 127.0.0.1 that it signed itself."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "site")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    address = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    signed_by_itself = builder.add_extension(address, critical=False).sign(key, hashes.SHA256())
    pem = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    file = tmp_path_factory.mktemp("tls") / "site.pem"
    file.write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain) + signed_by_itself.public_bytes(pem)
    )
    return file


def test_https_needs_a_certificate_that_is_trusted_and_is_not_left(
    server: WebServer, tmp_path: Path, states: list[bytes], certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = make_site(states[0])
    with web_server(certificate) as secure:
        client = Client(secure.url, tmp_path)
        secure.files = files
        with pytest.raises(CatalogError, match="CERTIFICATE_VERIFY_FAILED") as caught:
            found(client)
        assert not isinstance(caught.value, CatalogUnavailableError)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert found(client) == "mnist:1.0.0"
        secure.redirects, server.files = {"site.json": f"{server.url}site.json"}, files
        with pytest.raises(CatalogError, match="which is not followed"):
            found(client)
        assert server.requests() == []
        server.redirects = {"site.json": f"{secure.url}there.json"}
        secure.redirects, secure.files["there.json"] = {}, files["site.json"]
        assert found(Client(server.url, tmp_path)) == "mnist:1.0.0"  # to https is fine
    with pytest.raises(CatalogError, match="WRONG_VERSION_NUMBER") as caught:
        found(Client(server.url.replace("http:", "https:"), tmp_path))
    assert caught.value.hint == "The server speaks plain HTTP: write http://"
