"""The page of the log shows events by pages of 50 and verifies their chain; a site shows no places."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.attached_folds import KIND, attach_counts

import registry
from registry.errors import NotFoundError, UsageError
from registry.features import FeaturesDict, Scalar
from registry.pages import Page, Visit, answer, json_of, render

XSS = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\u202e"


class Logged(registry.DatasetBuilder):
    VERSION = "1.0.0"

    def features(self) -> FeaturesDict:
        return FeaturesDict({"x": Scalar("int64")})

    def splits(self) -> Any:
        return {"train": [(0, {"x": 1})]}


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[registry.Catalog]:
    """A catalog with 133 events: two publications, 130 aliases, a yank."""
    with registry.connect(tmp_path_factory.mktemp("log") / "catalog.db", create=True) as catalog:
        catalog.build(Logged)
        for number in range(130):
            catalog.aliases.set(f"a{number}", "logged:1.0.0", reason=XSS)
        catalog.lifecycle.yank("logged:1.0.0", reason=XSS)
        yield catalog


def page_of(catalog: registry.Catalog, *rest: str, is_live: bool = True, **query: str) -> tuple[Page, str]:
    visit = Visit(catalog=catalog, path=("log", *rest), is_live=is_live, query=query)
    page = answer(visit)
    assert isinstance(page, Page)
    return page, render(page, visit)[0]


def ids(page: Page) -> list[int]:
    return [event["id"] for event in page.values["events"]]


@pytest.mark.parametrize("is_live", [True, False])
def test_pages_of_the_log_lead_to_every_event(catalog: registry.Catalog, is_live: bool) -> None:
    page, html = page_of(catalog, is_live=is_live)
    seen, head = ids(page), page.values["head"]["id"]
    assert seen == list(range(head, head - 50, -1))
    while (older := page.values["older"]) is not None:
        assert f'href="{"../" * (len(seen) > 50)}from-{older}/' in html
        page, html = page_of(catalog, f"from-{older}", is_live=is_live)
        assert ids(page) == list(range(older + 49, older - 1, -1))
        seen += ids(page)
    assert set(seen) == set(range(1, head + 1))


def test_full_pages_never_change(catalog: registry.Catalog) -> None:
    for first in (1, 51):
        _, html = page_of(catalog, f"from-{first}")
        assert html.count("<li>\n") == 50


def test_filters_page_by_the_last_event(catalog: registry.Catalog) -> None:
    page, html = page_of(catalog, action="alias-set", dataset="logged")
    first = ids(page)
    assert len(first) == 50
    assert f"after={first[-1]}" in html
    page, _ = page_of(catalog, action="alias-set", dataset="logged", after=str(first[-1]))
    assert ids(page) == [number - 50 for number in first]
    page, _ = page_of(catalog, action="alias-set", dataset="logged", after=str(ids(page)[-1]))
    assert (len(ids(page)), page.values["after"]) == (30, None)


def test_unknown_conditions_are_words(catalog: registry.Catalog) -> None:
    assert "no dataset" in page_of(catalog, dataset="nope")[1]
    assert "No event meets these conditions." in page_of(catalog, action="drop")[1]
    for value in (XSS, "a/b/c", "x" * 5000, "logged:1.0.0", "²"):
        page, html = page_of(catalog, dataset=value, after=value)
        assert page.values["problem"]
        assert page.status in (400, 404)
        assert "<script>alert" not in html


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"after": "x"}, "after is not the number of an event: &#39;x&#39;"),
        ({"action": "publsh"}, "unknown action &#39;publsh&#39;. Did you mean &#39;publish&#39;?"),
    ],
)
def test_values_that_are_impossible_are_words(catalog: registry.Catalog, query: dict[str, str], words: str) -> None:
    page, html = page_of(catalog, **query)
    assert (page.status, page.values["events"], words in html) == (400, [], True)
    for values in ({"verify": "yes"}, {"page": "2"}):
        with pytest.raises(UsageError):
            page_of(catalog, **values)


@pytest.mark.parametrize("rest", [("from-2",), ("from-0",), ("from-151",), ("from-²",), ("x",), ("from-1", "y")])
def test_other_pages_do_not_exist(catalog: registry.Catalog, rest: tuple[str, ...]) -> None:
    with pytest.raises(NotFoundError, match="there is no page"):
        page_of(catalog, *rest)


def test_the_chain_is_verified_on_request(catalog: registry.Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Verify the chain" in page_of(catalog)[1]
    assert "The chain is whole" in page_of(catalog, verify="1")[1]
    assert "Verify the chain" not in page_of(catalog, is_live=False)[1]
    monkeypatch.setattr("registry.pages.log._MOST_VERIFIED", 10)
    assert "registry log verify" in page_of(catalog, verify="1")[1]


def test_a_broken_chain_is_named(tmp_path: Path) -> None:
    import sqlite3

    with registry.connect(tmp_path / "catalog.db", create=True) as catalog:
        catalog.build(Logged)
    with sqlite3.connect(tmp_path / "catalog.db") as database:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f'DROP TRIGGER "{name}"')
        database.execute("UPDATE event SET actor = 'mallory' WHERE id = 2")
    with registry.connect(tmp_path / "catalog.db") as catalog:
        page, html = page_of(catalog, verify="1")
    assert page.values["report"]["is_sound"] is False
    assert 'role="alert"' in html
    assert "was changed: its hash does not match its content" in html


def test_hostile_texts_stay_texts(catalog: registry.Catalog) -> None:
    _, html = page_of(catalog)
    assert "<script>alert" not in html
    assert "onerror=alert(1)>" not in html
    assert "\u202e" not in html


def test_events_of_other_software_are_shown(tmp_path: Path) -> None:
    import sqlite3

    with registry.connect(tmp_path / "catalog.db", create=True) as catalog:
        catalog.build(Logged)
    details = {"before": {"state": XSS}, "after": {"state": [1], "message": "\ud800"}, XSS: [[[1]] * 999] * 3}
    with sqlite3.connect(tmp_path / "catalog.db") as database:
        last, head = database.execute("SELECT id, hash FROM event ORDER BY id DESC LIMIT 1").fetchone()
        row = (last + 1, "2100-01-01 00:00:00.000000", XSS, "yank", XSS, "x", json.dumps(details), head, "a" * 64)
        database.execute("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    with registry.connect(tmp_path / "catalog.db") as catalog:
        for is_live in (True, False):
            page, html = page_of(catalog, is_live=is_live)
            assert "<script>alert" not in html
            assert "onerror=alert(1)>" not in html
            assert json.loads(json_of(page).encode())["data"]["events"][0]["action"] == "yank"
            assert len(html) < 20_000


def test_a_site_says_nothing_of_machines_and_places(catalog: registry.Catalog) -> None:
    visit = Visit(catalog=catalog, path=("log", "from-1"), is_live=False)
    page = answer(visit)
    assert isinstance(page, Page)
    text = json_of(page) + render(page, visit)[0]
    live = json.loads(json_of(page_of(catalog, "from-1")[0]))["data"]["events"]
    assert live[-1]["action"] == "data-dir"
    recorded_by = str(next(catalog.log(limit=1)).recorded_by)
    for secret in (recorded_by, live[-1]["summary"], catalog.data_dir):
        assert secret
        assert f'"{secret}' not in text
        assert f">{secret}" not in text
    assert "alias-set" in text


def test_an_empty_log_says_so(tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db", create=True) as catalog:
        assert "Nothing has happened yet." in page_of(catalog)[1]


@pytest.mark.parametrize("is_live", [True, False])
def test_the_page_of_health_has_places_only_for_the_owner(catalog: registry.Catalog, is_live: bool) -> None:
    visit = Visit(catalog=catalog, path=("health",), is_live=is_live, query={"usage": "1"})
    page = answer(visit)
    assert isinstance(page, Page)
    text = json_of(page) + render(page, visit)[0]
    assert (catalog.data_dir in text) is is_live
    assert (page.values["num_versions"], page.values["num_withdrawn"]) == (1, 1)
    assert "logged:1.0.0" in text


def test_the_page_of_health_knows_the_last_verification(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, catalog: registry.Catalog
) -> None:
    from registry.api.locations import index_folder, open_data
    from registry.publishing.verify_state import state_file

    monkeypatch.setenv("REGISTRY_CACHE_DIR", str(tmp_path))
    visit = Visit(catalog=catalog, path=("health",))
    assert "has not verified all versions yet" in render(_page(visit), visit)[0]
    file = state_file(index_folder(), catalog.backend, open_data(catalog.data_dir))
    file.parent.mkdir(parents=True, exist_ok=True)
    catalog.verify_all(state=str(file))
    assert "1 version was sound" in " ".join(render(_page(visit), visit)[0].split())
    with file.open("a") as lines:
        lines.write('{"begin": "2030-01-01T00:00:00+00:00"}\n{"version": "half')
    assert "did not come to its end" in render(_page(visit), visit)[0]


def _page(visit: Visit) -> Page:
    page = answer(visit)
    assert isinstance(page, Page)
    return page


def test_the_numbers_of_the_page_of_health_follow_the_log(tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db", create=True) as catalog:
        visit = Visit(catalog=catalog, path=("health",))
        assert _page(visit).values["num_versions"] == 0
        catalog.build(Logged)
        assert (_page(visit).values["num_versions"], _page(visit).values["num_withdrawn"]) == (1, 0)
        text = render(_page(visit), visit)[0]
        assert "No version is deprecated or yanked." in text
        assert "Every version has statistics." in text
        assert "Reservations" not in text
        catalog.lifecycle.deprecate("logged:1.0.0", reason="old <b>")
        assert _page(visit).values["num_withdrawn"] == 1
        assert '<span class="muted">old &lt;b&gt;</span>' in render(_page(visit), visit)[0]


def test_a_version_with_other_attachments_lacks_statistics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attach_counts(monkeypatch)
    with registry.connect(tmp_path / "catalog.db", create=True) as catalog:
        catalog.build(Logged)
        assert [file.kind for file in catalog.dataset("logged").attachments] == [KIND]
        page = _page(Visit(catalog=catalog, path=("health",)))
        assert [str(it["reference"]) for it in page.values["without_statistics"]] == ["logged:1.0.0"]
