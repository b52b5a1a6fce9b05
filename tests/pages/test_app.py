"""The application answers its owner only, sets every header, and turns every failure into words."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import pytest
from starlette.applications import Starlette

import registry
from registry.errors import StorageUnavailableError, VerificationError
from registry.features import FeaturesDict, Scalar
from registry.pages import Media, Page, Visit, routes
from registry.server.app import make_app

HOST = "127.0.0.1:8000"
SECRET = "s3cr-et_"  # noqa: S105 (of a test)
ODD_NAMES = ["..", "%2e%2e", "%00", "%ff", "%zz", "%", "%0d%0aX: y", "a" * 3000, "%2F", "%5C", "con", "'", "<b>", "~"]
ODD_VALUES = ["", "%00", "%ff", "-1", "9" * 400, "train[", "[" * 400, "'", "%F0%9F%92%A9", "../..", "<script>", "1e999"]


class Numbers(registry.DatasetBuilder):
    VERSION = "1.0.0"

    def features(self) -> FeaturesDict:
        return FeaturesDict({"x": Scalar("int64")})

    def splits(self) -> Any:
        return {"train": [(i, {"x": i}) for i in range(10)]}


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


def ask(app: Starlette, target: str, method: str = "GET", **headers: str) -> Answer:
    """What the application sends for a request to ``/SECRET/target``, or to ``target`` if it begins with a slash."""
    path, _, query = (target if target.startswith("/") else f"/{SECRET}/{target}").partition("?")
    fields = {"host": HOST} | {name.replace("_", "-"): value for name, value in headers.items()}
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in fields.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8000),
    }
    messages: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        messages.append(message)

    with suppress(ZeroDivisionError):  # Starlette raises it once more behind the answer, for the log of the server
        asyncio.run(app(scope, receive, send))
    head = {name.decode(): value.decode() for name, value in messages[0]["headers"]}
    return Answer(messages[0]["status"], head, b"".join(message["body"] for message in messages[1:]))


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[registry.Catalog]:
    with registry.connect(tmp_path_factory.mktemp("app") / "mine.db", create=True) as catalog:
        catalog.build(Numbers)
        yield catalog


@pytest.fixture
def app(catalog: registry.Catalog) -> Starlette:
    return make_app(catalog, secret=SECRET, hosts={HOST}, invitation="once")


def replace_home(monkeypatch: pytest.MonkeyPatch, make: Any) -> None:
    monkeypatch.setattr(routes, "_load", lambda _place: make)


def test_every_answer_keeps_other_sites_and_foreign_content_out(app: Starlette) -> None:
    targets = ["", "index.json", "static/style.css", "nothing/", "/wrong/", "datasets/numbers"]
    for answer in [ask(app, target) for target in targets] + [ask(app, "", method="POST"), ask(app, "", host="x")]:
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert answer.headers["x-frame-options"] == "DENY"
        assert not [name for name in answer.headers if name.startswith("access-control-")]
    policy = ask(app, "").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy


def test_other_hosts_and_sites_are_refused(app: Starlette) -> None:
    hosts = [
        "evil.example:8000",
        "127.0.0.1",
        "127.0.0.1:8001",
        "",
        f"{HOST}.evil.example",
    ]  # the first by DNS rebinding
    origins = ["http://evil.example", "null", "", "http://127.0.0.1:8001"]
    refused = [{"host": host} for host in hosts] + [{"origin": origin} for origin in origins]
    for headers in (*refused, {"sec_fetch_site": "cross-site"}, {"sec_fetch_site": "same-site"}):
        answer = ask(app, "", **headers)
        assert answer.status == 403, headers
        assert b"numbers" not in answer.body


def test_the_pages_themselves_are_answered(app: Starlette) -> None:
    for headers in ({"sec_fetch_site": "none"}, {"sec_fetch_site": "same-origin"}, {"origin": f"http://{HOST}"}):
        assert ask(app, "", **headers).status == 200


@pytest.mark.parametrize("target", ["/", "/wrong/", f"/{SECRET[:-1]}/", f"/{SECRET}x/", "//", "/%73/", "/\xe4/"])
def test_an_address_without_the_secret_shows_nothing(app: Starlette, target: str) -> None:
    answer = ask(app, quote(target, safe="/%"))
    assert (answer.status, answer.body) == (404, b"The address lacks the secret that registry browse printed.\n")
    assert answer.headers["cache-control"] == "no-store"


def test_an_invitation_leads_to_the_secret_once(app: Starlette) -> None:
    first, second = (ask(app, "/once/datasets/numbers/1.0.0/") for _ in range(2))
    assert (first.status, first.headers["location"]) == (303, f"/{SECRET}/datasets/numbers/1.0.0/")
    assert second.status == 410
    assert SECRET not in str(second)


def test_of_many_threads_one_gets_the_invitation(app: Starlette) -> None:
    statuses: list[int] = []
    threads = [threading.Thread(target=lambda: statuses.append(ask(app, "/once/").status)) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [303] + [410] * 15


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "BREW"])
def test_other_methods_are_refused(app: Starlette, method: str) -> None:
    answer = ask(app, "", method=method)
    assert (answer.status, answer.body) == (405, b"Method Not Allowed.\n")
    assert sorted(answer.headers["allow"].split(", ")) == ["GET", "HEAD", "POST"]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "null"},
        {"origin": "null", "sec_fetch_site": "cross-site"},
        {"origin": "https://example.org", "sec_fetch_site": "same-origin"},
        {"sec_fetch_site": "none"},
    ],
)
def test_only_a_button_of_the_pages_acts(
    app: Starlette, monkeypatch: pytest.MonkeyPatch, headers: dict[str, str]
) -> None:
    acts: list[Visit] = []
    monkeypatch.setattr("registry.server.app.act", acts.append)
    assert ask(app, "datasets/numbers/1.0.0/records/?where=x", "POST", **headers).status == 403
    assert not acts
    for own in ({"origin": f"http://{HOST}"}, {"origin": "null", "sec_fetch_site": "same-origin"}):
        answer = ask(app, "datasets/numbers/1.0.0/records/?where=x", "POST", **own)
        assert (answer.status, answer.headers["location"]) == (303, "./?where=x")
    assert [visit.query for visit in acts] == [{"where": "x"}] * 2


def test_a_page_without_a_button_says_so(app: Starlette) -> None:
    answer = ask(app, "datasets/numbers/1.0.0/", "POST", origin=f"http://{HOST}")
    assert answer.status == 404
    assert ask(app, "", "POST", origin=f"http://{HOST}").status == 404


def test_head_has_the_headers_of_get(app: Starlette) -> None:
    for target in ("", "index.json", "static/icon.svg", "nothing/"):
        get, head = ask(app, target), ask(app, target, method="HEAD")
        assert (get.status, get.headers) == (head.status, head.headers)


def test_odd_addresses_are_words(app: Starlette) -> None:
    targets = [
        f"{start}{name}/{end}" for name in ODD_NAMES for start in ("", "datasets/", "static/") for end in ("", "x/")
    ]
    targets += [f"datasets/numbers/1.0.0/{part}/{name}/" for part in routes.VERSION_PAGES for name in ODD_NAMES]
    for target in targets:
        answer = ask(app, target)
        assert answer.status in (200, 303, 308, 400, 404), (target, answer)
        assert b"Traceback" not in answer.body
        assert b"root:" not in answer.body


def test_odd_queries_are_words(app: Starlette) -> None:
    pages = [f"{name}/" if name else "" for name in routes.CATALOG_PAGES]
    pages += [f"datasets/numbers/1.0.0/{part}/" if part else "datasets/numbers/1.0.0/" for part in routes.VERSION_PAGES]
    makers = [*routes.CATALOG_PAGES.values(), *routes.VERSION_PAGES.values()]
    for page, maker in zip(pages, makers, strict=True):
        for value in ODD_VALUES:
            query = "&".join(f"{name}={value}" for name in routes.PARAMETERS.get(maker, ()) if "=" not in name)
            for target in (f"{page}?{query}", f"{page}index.json?{query}", f"{page}?nothing={value}"):
                answer = ask(app, target)
                assert answer.status in (200, 400, 404), (target, answer)


def test_long_addresses_are_refused(app: Starlette) -> None:
    assert ask(app, "?tag=" + "a" * 7_900).status == 200
    assert ask(app, "?x=" + "a" * 8_000).status == 414
    assert ask(app, "a/" * 4_000).status == 414


def test_segments_are_split_before_they_are_decoded(app: Starlette, monkeypatch: pytest.MonkeyPatch) -> None:
    visits: list[Visit] = []

    def home(visit: Visit) -> Page:
        visits.append(visit)
        return Page(name="error", title="", values={"code": "", "message": "", "hint": None})

    monkeypatch.setattr("registry.server.app.answer", home)
    ask(app, "a%2Fb/c%3Fd/%2e%2e/%C3%A4/?x=%26y&x=2")
    assert visits[0].path == ("a/b", "c?d", "..", "ä")
    assert visits[0].query == {"x": "&y,2"}


def test_an_address_without_a_slash_leads_to_the_folder(app: Starlette) -> None:
    for target in ("datasets/numbers", "datasets/numbers/1.0.0", "nothing"):
        answer = ask(app, f"{target}?q=%61")
        name = target.rpartition("/")[2]
        assert (answer.status, answer.headers["location"]) == (308, f"./{name}/?q=%61")
    assert ask(app, f"/{SECRET}").headers["location"] == f"./{SECRET}/"


def test_errors_are_json_too(app: Starlette) -> None:
    answer = ask(app, "datasets/nobody/index.json")
    assert (answer.status, answer.headers["content-type"]) == (404, "application/json")
    assert json.loads(answer.body)["error"]["code"] == "dataset_not_found"


def test_an_unchanged_page_is_not_sent_again(app: Starlette) -> None:
    for target in ("", "index.json", "static/style.css"):
        answer = ask(app, target)
        tag = answer.headers["etag"]
        for wanted in (tag, tag.removeprefix("W/"), f'"other", {tag}', f'W/"a",{tag},"b"'):
            again = ask(app, target, if_none_match=wanted)
            assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag)
        assert ask(app, target, if_none_match='"other"').status == 200
    assert ask(app, "nothing/", if_none_match=ask(app, "nothing/").headers["etag"]).status == 404


def test_pages_are_asked_for_again(app: Starlette) -> None:
    for target in ("", "index.json", "datasets/numbers/1.0.0/records/"):
        assert ask(app, target).headers["cache-control"] == "no-cache"


def test_text_is_compressed(app: Starlette) -> None:
    for target in ("", "index.json?x=" + "a" * 100, "static/style.css"):
        plain, packed = ask(app, target), ask(app, target, accept_encoding="gzip, br")
        if "content-encoding" in packed.headers:
            assert gzip.decompress(packed.body) == plain.body
            assert "accept-encoding" in packed.headers["vary"].lower()
            assert packed.headers["etag"] == plain.headers["etag"]
    assert "content-encoding" in ask(app, "", accept_encoding="gzip").headers


def test_media_cannot_run_and_come_in_ranges(app: Starlette, monkeypatch: pytest.MonkeyPatch) -> None:
    content = bytes(range(256)) * 8
    replace_home(monkeypatch, lambda visit: Media(content=content, content_type=visit.query.get("tag")))
    foreign, sound = ask(app, ""), ask(app, "?tag=audio/wav", accept_encoding="gzip")
    assert foreign.headers["content-disposition"] == "attachment"
    assert foreign.headers["content-type"] == "application/octet-stream"
    assert (sound.headers["content-type"], sound.body) == ("audio/wav", content)
    for answer in (foreign, sound):
        assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
        assert answer.headers["accept-ranges"] == "bytes"
        assert answer.headers["cache-control"] == "private, max-age=31536000, immutable"
    for wanted, start, stop in [
        ("0-", 0, 2048),
        ("10-19", 10, 20),
        ("2000-9999", 2000, 2048),
        ("2047-2047", 2047, 2048),
    ]:
        part = ask(app, "?tag=audio/wav", range=f"bytes={wanted}", accept_encoding="gzip")
        assert (part.status, part.body) == (206, content[start:stop])
        assert part.headers["content-range"] == f"bytes {start}-{stop - 1}/2048"
    for wanted in ("2048-", "9-2"):
        refused = ask(app, "", range=f"bytes={wanted}")
        assert (refused.status, refused.headers["content-range"], refused.body) == (416, "bytes */2048", b"")
    for wanted in ("bytes=-5", "bytes=0-1,4-5", "lines=1-2", "bytes=x"):  # not offered: the whole is sent
        assert ask(app, "", range=wanted).status == 200
    replace_home(monkeypatch, lambda _: Media(content=content, content_type="image/png", is_final=False))
    assert ask(app, "").headers["cache-control"] == "no-cache"


@pytest.mark.parametrize(
    ("error", "status"),
    [(StorageUnavailableError("the store is silent", hint="Wait."), 503), (VerificationError("it is damaged"), 500)],
)
def test_errors_of_pages_are_words(
    app: Starlette, monkeypatch: pytest.MonkeyPatch, error: registry.RegistryError, status: int
) -> None:
    def fail(visit: Visit) -> Page:
        raise error

    replace_home(monkeypatch, fail)
    answer = ask(app, "")
    assert answer.status == status
    assert str(error) in answer.body.decode()


def test_a_fault_is_an_incident_whose_cause_is_in_the_log(
    app: Starlette, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(visit: Visit) -> Page:
        raise ZeroDivisionError("postgresql://ann:hunter2@db/x says <b>no</b>")

    replace_home(monkeypatch, fail)
    with caplog.at_level(logging.ERROR):
        answer = ask(app, "?q=1")
    text = answer.body.decode()
    assert answer.status == 500
    assert answer.headers["cache-control"] == "no-store"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    incident = text.partition("Incident ")[2][:8]
    assert f"incident {incident}: Traceback" in caplog.text
    assert "ZeroDivisionError" in caplog.text
    assert "hunter2" not in caplog.text + text
    assert SECRET not in caplog.text + text
    assert "ZeroDivisionError" not in text
    assert "<b>no" not in text


def test_a_catalog_that_goes_away_is_words_until_it_is_back(tmp_path: Path) -> None:
    file = tmp_path / "c.db"
    with registry.connect(file, create=True) as catalog:
        catalog.build(Numbers)
        app = make_app(catalog, secret=SECRET, hosts={HOST})
        assert ask(app, "").status == 200
        file.rename(tmp_path / "gone")
        answer = ask(app, "")
        assert (answer.status, "was deleted or moved" in answer.body.decode()) == (503, True)
        file.write_bytes(b"no database" * 1000)
        assert ask(app, "").status == 503
        (tmp_path / "gone").replace(file)
        assert ask(app, "").status == 200


def test_locked_look_ups_show_exact_versions_only(app: Starlette, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_LOCKED", "1")
    assert ask(app, "").status == 200
    assert ask(app, "datasets/numbers/1.0.0/").status == 200
    answer = ask(app, "datasets/numbers/")
    assert answer.status == 403
    assert "Today it resolves to numbers:1.0.0. Write that." in answer.body.decode()
