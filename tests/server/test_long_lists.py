"""Lists of ten thousand items over HTTP: each comes in pages, and a page costs a small part of the whole list."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
import sqlalchemy as sa
from support.catalog_samples import publish
from support.services import TestServer, make_token

from registry.catalog import history, load_shards, open_catalog, removals
from registry.catalog.service import ServiceCatalog
from registry.catalog.service.calls import CALLS, MOST_ITEMS
from registry.catalog.service.requests import ServiceServer
from registry.catalog.sql_catalog import SqlCatalog
from registry.catalog.tables import access_token, alias, dataset_version, event
from registry.errors import TokenNotFoundError
from registry.model import AccessToken, Reference, Role, Version

ITEMS = 10_000
LATER = datetime(2100, 1, 1, tzinfo=UTC)

LISTS: dict[str, dict[str, Any]] = {
    "access.tokens": {},
    "aliases.list": {},
    "lifecycle.removals": {},
    "locations.outside": {},
    "sizes": {},
    "versions": {"name": "mnist", "at": LATER},
}


@pytest.fixture(scope="module")
def long(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlCatalog]:
    """A catalog with ten thousand versions outside of its data directory, aliases, tokens, and removals."""
    path = tmp_path_factory.mktemp("long") / "catalog.db"
    path.write_bytes(sqlite_template.read_bytes())
    with cast("SqlCatalog", open_catalog(path)) as catalog:
        publish(catalog, "mnist:1.0.0", location="/elsewhere/mnist/1.0.0")
        catalog.aliases.set("alias_0", Reference.parse("mnist:1.0.0"), expect=None, message="", actor="ann")
        make_token(catalog, "ann", Role.ADMIN)
        with catalog._engine.begin() as connection:
            triggers = "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'event'"
            for name in connection.execute(sa.text(triggers)).scalars().all():  # they check the chain of hashes
                connection.execute(sa.text(f"DROP TRIGGER {name}"))
            for table, of_number in (
                (dataset_version, lambda number: {"minor": number}),
                (alias, lambda number: {"name": f"alias_{number}"}),
                (access_token, lambda number: {"id": f"{number:012x}", "digest": f"{number:064x}"}),
            ):
                (row,) = connection.execute(sa.select(table)).mappings()
                kept = {name: value for name, value in row.items() if name != "id"}
                connection.execute(sa.insert(table), [kept | of_number(number) for number in range(1, ITEMS)])
            (row,) = connection.execute(sa.select(event).where(event.c.action == "publish")).mappings()
            state = {"state": "dropped", "message": "", "superseded_by": None}
            told = {"before": state, "after": state, "step": "ended", "due": "2026-01-01T00:00:00+00:00"}
            told |= {"requested_by": "ann", "force": False, "reason": ""}
            removal = {"action": "remove", "details_json": json.dumps(told)}
            published = [dict(row) | {"version": f"1.{number}.0"} for number in range(1, ITEMS)]
            removed = [dict(row) | removal | {"version": f"1.{number}.0"} for number in range(ITEMS)]
            for number, values in enumerate([*published, *removed], 10):
                values |= {"id": number, "hash": f"{number:064x}", "previous_hash": f"{number - 1:064x}"}
            connection.execute(sa.insert(event), [*published, *removed])
        yield catalog


def call(catalog: Any, name: str, **arguments: Any) -> tuple[Any, ...]:
    group, _, own = name.rpartition(".")
    result: tuple[Any, ...] = getattr(getattr(catalog, group) if group else catalog, own)(**LISTS[name] | arguments)
    return result


@pytest.mark.parametrize("name", LISTS)
def test_ten_thousand_items_come_in_pages(
    name: str, long: SqlCatalog, server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.service.catalog, token = long, make_token(long, "bob")
    whole, asked, ask = call(long, name), list[str](), ServiceServer.call

    def counted(server: ServiceServer, path: str, *args: Any, **kwargs: Any) -> Any:
        asked.append(path)
        return ask(server, path, *args, **kwargs)

    monkeypatch.setattr(ServiceServer, "call", counted)
    with ServiceCatalog(server.url, token=lambda _: token) as client:
        seen = call(client, name)
        assert call(client, name, limit=3) == whole[:3]
    if name == "access.tokens":  # that of the client is used meanwhile
        whole, seen = (tuple(replace(it, last_used_at=None) for it in items) for items in (whole, seen))
        assert ITEMS < len(whole) < ITEMS + MOST_ITEMS - 1
    else:
        assert len(whole) in (ITEMS, ITEMS + 1)  # a test may have added a dataset
    assert seen == whole
    assert len(asked) == len(whole) // MOST_ITEMS + 1 + 1  # the last page is not full; and the short list


def peak_of(make: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        make()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", [name for name in LISTS if name != "lifecycle.removals"])  # which folds over the log
def test_a_page_takes_a_small_part_of_the_memory_of_the_list(name: str, long: SqlCatalog, server: TestServer) -> None:
    server.service.catalog = long
    who = AccessToken(id="0" * 12, name="ann", role=Role.ADMIN, created_at=LATER - timedelta(days=1), created_by="root")
    values = {"name": "mnist"} if name == "versions" else {}

    def page() -> None:
        body = server.service.answer(who, name, values, key=None, request_id="").body
        assert len(json.loads(cast("bytes", body))["items"]) == MOST_ITEMS

    page()  # what is imported and compiled is not counted
    now = {"at": None} if name == "versions" else {}  # the past is computed from the whole log
    assert peak_of(page) < peak_of(lambda: call(long, name, **now)) / 3


@pytest.mark.parametrize("name", ["lifecycle.removals", "versions"])
def test_the_log_is_read_once_for_all_pages_of_a_list(
    name: str, long: SqlCatalog, server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, (module, function) = [], {"versions": (history, "standing_at")}.get(name, (removals, "_removed_places"))
    compute = getattr(module, function)
    monkeypatch.setattr(module, function, lambda *args: read.append(args) or compute(*args))
    server.service.catalog = long
    with ServiceCatalog(server.url, token=lambda _: token) as client:
        token = make_token(long, "bob")
        whole = call(client, name)
        assert len(read) == 1
        assert call(client, name, limit=3) == whole[:3]  # a first page reads it again: so no list is old
        assert len(read) == 2
        following = {"below": Version(1, 5, 0)} if name == "versions" else {"after": Reference.parse("mnist:1.9994.0")}
        assert call(long, name, limit=3, **following) == whole[-5:-2]
        assert len(read) == 2
        publish(long, f"{name.rpartition('.')[2]}:1.0.0")
        assert call(long, name, limit=3, **following) == whole[-5:-2]
        assert len(read) == 3  # the log has grown


def test_a_past_list_is_cut_before_its_versions_are_read(long: SqlCatalog) -> None:
    first = call(long, "versions", limit=2)
    assert [str(it.version) for it in first] == ["1.9999.0", "1.9998.0"]
    assert call(long, "versions", below=Version(1, 9998, 0), limit=1)[0].version == Version(1, 9997, 0)
    assert call(long, "versions", below=Version(1, 0, 0)) == ()


def test_tokens_continue_after_one_that_exists(long: SqlCatalog) -> None:
    with pytest.raises(TokenNotFoundError):
        long.access.tokens(after="f" * 12)
    assert CALLS["access.tokens"].answers.__name__ == "AccessTokensPage"


@pytest.mark.parametrize("name", ["aliases.list", "sizes", "locations.outside"])
def test_a_page_is_full_for_those_who_see_a_part(name: str, long: SqlCatalog, server: TestServer) -> None:
    if long.published_digest("zoo", None, Version(1, 0, 0)) is None:
        publish(long, "zoo:1.0.0", location="/elsewhere/zoo/1.0.0")
        long.aliases.set("best", Reference.parse("zoo:1.0.0"), expect=None, message="", actor="ann")
    server.service.catalog, token = long, make_token(long, "zoe", Role.READER, "zoo")
    with ServiceCatalog(server.url, token=lambda _: token) as client:
        seen = call(client, name)
        assert seen == call(long, name)[-1:]
        assert call(client, name, limit=1) == seen


def test_a_reader_may_look_up_more_files_than_one_question_may_name(long: SqlCatalog, server: TestServer) -> None:
    server.service.catalog, token = long, make_token(long, "carol", Role.READER)
    [digest] = [shard.sha256 for shard in load_shards(long.shards, long.find("mnist:1.0.0"), "train")][:1]
    digests = [digest, *(f"{number:064x}" for number in range(2**17))]
    with ServiceCatalog(server.url, token=lambda _: token) as client:
        assert client.shards.find("mnist", None, digests) == long.shards.find("mnist", None, [digest]) != {}
        assert client.shards.find("mnist", None, []) == {}


def test_the_files_of_many_versions_are_asked_in_blocks(
    long: SqlCatalog, server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("registry.catalog.service.catalog._BLOCK", 2)
    server.service.catalog, token = long, make_token(long, "carol", Role.READER)
    references = [Reference.parse(f"mnist:1.{number}.0") for number in range(5)]
    files = long.shards.files_of(references)
    assert len(files) == len(references)
    assert files[references[0]]
    with ServiceCatalog(server.url, token=lambda _: token) as client:
        assert client.shards.files_of(references) == files
