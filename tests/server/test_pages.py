"""The pages of a service: sessions, what each person sees, and what stays hidden."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, urlencode, urljoin, urlsplit

import numpy as np
import pytest
import urllib3
from support.services import TestServer, make_token

import registry
from registry.catalog import open_catalog
from registry.catalog.sql_catalog import SqlCatalog
from registry.features import FeaturesDict, Image, Scalar
from registry.model import AccessToken, Role
from registry.pages import Visit, Visitor, routes
from registry.server.config import ServiceConfig
from registry.server.rights import GuardedCatalog

COOKIE = "registry-session"
PICTURE = "datasets/{}/1.0.0/media/train/0/image/small.png"


class LabDigits(registry.DatasetBuilder):
    """Digits of the lab."""

    VERSION = "1.0.0"

    def features(self) -> FeaturesDict:
        return FeaturesDict({"image": Image(shape=(4, 4, 3)), "x": Scalar("int64")})

    def splits(self) -> Any:
        image = np.full((4, 4, 3), len(type(self).__name__), np.uint8)
        return {"train": [(i, {"image": image, "x": i}) for i in range(5)]}


class SecretDigits(LabDigits):
    """Digits that few may see."""


class Browser:
    """A client that keeps cookies and follows no redirection."""

    def __init__(self, server: TestServer) -> None:
        self.url = server.url
        self.cookies: dict[str, str] = {}

    def ask(self, method: str, path: str, form: dict[str, str] | None = None, **headers: str) -> Any:
        """The answer to a request."""
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        fields |= {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())}
        body = None
        if method == "POST":
            body = urlencode(form or {})
            fields = {"Origin": self.url.rstrip("/"), "Content-Type": "application/x-www-form-urlencoded"} | fields
        answer = urllib3.request(method, self.url + path, headers=fields, body=body, redirect=False, retries=False)
        for line in answer.headers.getlist("Set-Cookie"):
            name, _, value = line.partition(";")[0].partition("=")
            if "Max-Age=0" in line:
                self.cookies.pop(name, None)
            else:
                self.cookies[name] = value
        return answer

    def get(self, path: str, **headers: str) -> Any:
        """The answer to a GET."""
        return self.ask("GET", path, **headers)

    def post(self, path: str, form: dict[str, str] | None = None, **headers: str) -> Any:
        """The answer to a form."""
        return self.ask("POST", path, form, **headers)

    def sign_in(self, token: str, **form: str) -> Any:
        """The answer to the form that signs in."""
        return self.post("sign-in/", {"token": token, **form})

    @property
    def seal(self) -> str:
        """What the forms of pages send."""
        match = re.search(r'name="seal" value="([0-9a-f]{64})"', self.get("").data.decode())
        return match[1]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlCatalog]:
    path = tmp_path_factory.mktemp("hidden-place") / "catalog.db"
    with registry.connect(path, create=True) as catalog:
        catalog.build(SecretDigits)
        catalog.build(LabDigits)  # the newest event, which everybody sees: what is remembered by it alone would mix
    with open_catalog(path) as backend:
        yield cast("SqlCatalog", backend)


@pytest.fixture
def browser(server: TestServer, lab: SqlCatalog) -> Browser:
    server.service.catalog = lab
    return Browser(server)


@pytest.fixture
def reader(browser: Browser, lab: SqlCatalog) -> Browser:
    """Ann, who may read ``lab_*``, signed in."""
    browser.sign_in(make_token(lab, "ann", Role.READER, "lab_*"))
    return browser


@pytest.fixture
def admin(server: TestServer, lab: SqlCatalog) -> Browser:
    """Root, who may do everything, signed in."""
    server.service.catalog = lab
    browser = Browser(server)
    browser.sign_in(make_token(lab, "root"))
    return browser


def serve_otherwise(lab: SqlCatalog, **options: Any) -> TestServer:
    server = TestServer(ServiceConfig(**options))
    server.service.catalog = lab
    return server


def names_of(browser: Browser) -> list[str]:
    return [row["dataset"] for row in json.loads(browser.get("index.json").data)["data"]["datasets"]]


def test_pages_lead_to_the_sign_in_and_back(browser: Browser, lab: SqlCatalog) -> None:
    target = "datasets/lab_digits/1.0.0/records/train/?where=x%20%3E%202"
    answer = browser.get(target)
    assert (answer.status, answer.data) == (303, b"")
    form_url = urljoin(browser.url + target, answer.headers["Location"])
    assert form_url == f"{browser.url}sign-in/?next={quote(target, safe='')}"
    form = browser.get(form_url.removeprefix(browser.url))
    assert form.status == 200
    value = re.search(r'name="next" value="([^"]*)"', form.data.decode())
    answer = browser.sign_in(make_token(lab, "ann"), next=unescape(value[1]))
    assert answer.status == 303
    assert urljoin(f"{browser.url}sign-in/", answer.headers["Location"]) == browser.url + target
    page = browser.get(target).data.decode()
    assert "ann, admin" in page
    assert "Sign out" in page


@pytest.mark.parametrize("path", ["", "log/", "health/", "pins/", "list/from-200/", "datasets/lab_digits/", "x"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_nobody_sees_a_page_without_a_session(method: str, path: str, browser: Browser) -> None:
    answer = browser.ask(method, path)
    assert (answer.status, answer.data) == (303, b"")
    assert urlsplit(urljoin(browser.url + path, answer.headers["Location"])).path == "/sign-in/"


def test_values_and_pictures_need_a_session(browser: Browser) -> None:
    for path in ("index.json", "datasets/secret_digits/1.0.0/index.json"):
        answer = browser.get(path)
        assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
        assert json.loads(answer.data)["error"]["message"] == "you are not signed in"
    assert browser.get(PICTURE.format("lab_digits")).status == 303
    assert browser.get("static/style.css").status == 200


def test_the_sign_in_page_shows_nothing_of_the_catalog(browser: Browser) -> None:
    text = browser.get("sign-in/").data.decode() + browser.get("sign-in/index.json").data.decode()
    assert "digits" not in text
    assert "hidden-place" not in text
    assert "Search datasets" not in text


def test_a_session_is_of_its_cookie(reader: Browser) -> None:
    assert reader.get("").status == 200
    number, digest, end, signature = reader.cookies[COOKIE].split(".")
    forged = [
        f"{number}.{digest}.{int(end) + 1}.{signature}",
        f"{number}.{'0' * 64}.{end}.{signature}",
        f"{number}.{digest}.{end}.{'0' * 64}",
        f"{number}.{digest}.{end}",
        "",
    ]
    for value in forged:
        reader.cookies[COOKIE] = value
        assert reader.get("").status == 303


def test_scripts_cannot_read_the_cookie_and_https_keeps_it(browser: Browser, lab: SqlCatalog) -> None:
    line = browser.sign_in(make_token(lab, "ann")).headers["Set-Cookie"]
    assert line.startswith(f"{COOKIE}=")
    assert line.partition(";")[2] == " HttpOnly; Max-Age=43200; Path=/; SameSite=lax"
    server = serve_otherwise(lab, public_url="https://catalog.example/")
    try:
        other = Browser(server)
        answer = other.post("sign-in/", {"token": make_token(lab, "ann")}, Origin="https://catalog.example")
        assert answer.status == 303
        assert answer.headers["Set-Cookie"].startswith("__Host-registry-session=")
        assert answer.headers["Set-Cookie"].endswith("; HttpOnly; Max-Age=43200; Path=/; SameSite=lax; Secure")
        page = other.get("datasets/lab_digits/").data.decode()
        assert "registry.connect(&#34;https://catalog.example/&#34;)" in page
    finally:
        server.stop()


@pytest.mark.parametrize("token", ["", "shb_0123456789ab_x", "<script>alert(1)</script>", "€" * 1000])
def test_a_wrong_token_starts_no_session(token: str, browser: Browser) -> None:
    answer = browser.sign_in(token, next="log/")
    assert (answer.status, browser.cookies) == (401, {})
    text = answer.data.decode()
    assert "this is not a valid access token" in text
    assert 'name="next" value="log/"' in text
    assert "<script>alert" not in text
    assert token == "" or token not in text


def test_a_session_ends_when_its_token_is_revoked(browser: Browser, admin: Browser, lab: SqlCatalog) -> None:
    browser.sign_in(make_token(lab, "eve"))
    assert browser.get("").status == 200
    token = next(it for it in lab.access.tokens() if it.name == "eve")
    lab.access.revoke_token(token.id, actor="root")
    answer = browser.get("log/")
    assert (answer.status, browser.cookies) == (303, {})
    assert admin.get("log/").status == 200


def test_whoever_signs_out_has_no_session(reader: Browser) -> None:
    answer = reader.post("sign-out/", {"seal": reader.seal})
    assert (answer.status, answer.headers["Clear-Site-Data"], reader.cookies) == (303, '"cache"', {})
    assert reader.get("").status == 303


def test_forms_of_other_sites_and_without_a_seal_are_refused(
    reader: Browser, admin: Browser, lab: SqlCatalog, server: TestServer
) -> None:
    seal, pins = reader.seal, {"text": "x"}
    for path, form in (("sign-out/", {}), ("pins/", pins), ("datasets/lab_digits/1.0.0/records/", {})):
        for origin in ("https://evil.example", "null", f"{reader.url.rstrip('/')}.evil.example"):
            assert reader.post(path, {**form, "seal": seal}, Origin=origin).status == 403
        assert reader.post(path, {**form, "seal": seal}, Sec_Fetch_Site="cross-site").status == 403
        for wrong in ("", "0" * 64, admin.seal):
            assert reader.post(path, {**form, "seal": wrong}).status == 403
    assert reader.post("pins/", {**pins, "seal": seal}).status == 200
    other = Browser(server)
    assert other.post("sign-in/", {"token": make_token(lab, "eve")}, Origin="https://evil.example").status == 403
    assert other.cookies == {}


@pytest.mark.parametrize(
    "target",
    [
        "https://evil.example/",
        "//evil.example/",
        "/\\evil.example",
        "\\\\evil.example",
        "..//evil.example",
        "../..//evil.example",
        "javascript:alert(1)",
        "log/\r\nSet-Cookie: a=b",
        '"><script>alert(1)</script>',
        "%0d%0aX: y",
    ],
)
def test_a_sign_in_leads_to_no_other_host(target: str, browser: Browser, lab: SqlCatalog) -> None:
    answer = browser.sign_in(make_token(lab, "ann"), next=target)
    assert answer.status == 303
    place = urlsplit(urljoin(f"{browser.url}sign-in/", answer.headers["Location"]))
    assert f"{place.scheme}://{place.netloc}/" == browser.url
    if re.search(r'^/|[\\\r"]', target):
        assert answer.headers["Location"] == "../"
    assert list(browser.cookies) == [COOKIE]
    page = browser.get(f"sign-in/?next={quote(target, safe='')}").data.decode()
    assert "<script>alert" not in page


@pytest.mark.parametrize("path", ["/evil.example", "//evil.example", "datasets"])
def test_no_redirection_names_a_host(path: str, reader: Browser) -> None:
    with_session = reader.get(path)
    reader.cookies.clear()
    for answer in (with_session, reader.get(path)):
        assert answer.status in (303, 308)
        assert re.match(r"\.\.?/|sign-in/", answer.headers["Location"])


def test_each_sign_in_has_a_new_cookie(browser: Browser, lab: SqlCatalog) -> None:
    token = make_token(lab, "ann")
    browser.cookies[COOKIE] = before = "of.an.attacker"
    browser.sign_in(token)
    first = browser.cookies[COOKIE]
    browser.sign_in(token)
    assert len({before, first, browser.cookies[COOKIE]}) == 3
    assert token not in first


def test_people_see_what_their_tokens_cover(reader: Browser, admin: Browser, server: TestServer) -> None:
    for _ in range(2):  # the second time, lists are remembered
        assert names_of(admin) == ["lab_digits", "secret_digits"]
        assert names_of(reader) == ["lab_digits"]
        for path in ("", "?q=digits", "?q=few", "log/", "health/", "list/from-200/"):
            for suffix in ("", "index.json"):
                page, _, query = path.partition("?")
                text = reader.get(page + suffix + (f"?{query}" if query else "")).data.decode()
                assert "secret_digits" not in text, path
        counts = [json.loads(it.get("health/index.json").data)["data"]["num_datasets"] for it in (reader, admin)]
        assert counts == [1, 2]


def test_a_dataset_that_is_not_covered_looks_like_a_missing_one(reader: Browser, admin: Browser) -> None:
    parts = ["", "1.0.0/", "1.0.0/records/train/", "1.0.0/files/", "1.0.0/statistics/", "1.0.0/index.json"]
    for path in [f"datasets/{{}}/{part}" for part in parts] + [PICTURE]:
        assert admin.get(path.format("secret_digits")).status == 200
        hidden, missing = (reader.get(path.format(name)) for name in ("secret_digits", "absent_digits"))
        assert hidden.status == missing.status == (308 if path == PICTURE else 404)  # the latter with a slash behind it
        texts = [
            answer.data.decode().replace(name, "NAME")
            for answer, name in ((hidden, "secret_digits"), (missing, "absent_digits"))
        ]
        assert texts[0] == texts[1]


def test_versions_are_looked_up_for_each_picture_with_the_rights_of_the_request(reader: Browser) -> None:
    assert reader.get(PICTURE.format("lab_digits")).status == 200
    assert not [catalog for catalog in routes._DATASETS if isinstance(catalog.backend, GuardedCatalog)]


def test_a_dataset_that_was_renamed_leaves_the_lists_of_those_who_do_not_see_the_event(
    reader: Browser, admin: Browser, tmp_path: Path, server: TestServer
) -> None:
    path = tmp_path / "catalog.db"
    with registry.connect(path, create=True) as catalog:
        catalog.build(SecretDigits)
        catalog.build(LabDigits)
        catalog.rename("secret_digits", "lab_secrets")
        catalog.lifecycle.deprecate("lab_digits:1.0.0", reason="old")
        with open_catalog(path) as backend:
            server.service.catalog = cast("SqlCatalog", backend)
            reader.sign_in(make_token(backend, "ann", Role.READER, "lab_*"))
            assert names_of(reader) == ["lab_digits", "lab_secrets"]
            catalog.rename("lab_secrets", "secret_digits")
            assert names_of(reader) == ["lab_digits"]


def test_browsers_ask_again_for_what_they_keep(reader: Browser) -> None:
    for path in ("", "index.json", "datasets/lab_digits/1.0.0/", PICTURE.format("lab_digits")):
        answer = reader.get(path)
        assert (answer.headers["Cache-Control"], answer.headers["Vary"].lower()) in [
            ("private, no-cache", "cookie"),
            ("private, no-cache", "cookie, accept-encoding"),
        ]
        again = reader.get(path, If_None_Match=answer.headers["ETag"])
        assert (again.status, again.data) == (304, b"")
        whole, head = reader.get(path), reader.ask("HEAD", path)
        assert (head.status, head.data, head.headers["ETag"]) == (200, b"", whole.headers["ETag"])
        assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"] or "sandbox" in str(answer.headers)


def pages_of(name: str) -> list[str]:
    parts = ["", "records/train/", "records/train/0/", "statistics/", "splits/", "changes/", "files/", "versions/"]
    return ["", "log/", "pins/", "health/", "health/?usage=1", *(f"datasets/{name}/1.0.0/{part}" for part in parts)]


def test_only_admins_see_places_of_the_server(reader: Browser, admin: Browser, lab: SqlCatalog) -> None:
    shown = 0
    for page in pages_of("lab_digits"):
        path, _, query = page.partition("?")
        for address in (page, f"{path}index.json?{query}"):
            answer = reader.get(address)
            assert answer.status == 200
            assert "hidden-place" not in answer.data.decode(), address
            shown += "hidden-place" in admin.get(address).data.decode()
    assert shown >= 4
    assert lab.file is not None


def test_messages_of_unreadable_files_name_no_places(
    reader: Browser, admin: Browser, tmp_path: Path, server: TestServer
) -> None:
    path = tmp_path / "hidden-place" / "catalog.db"
    path.parent.mkdir()
    with registry.connect(path, create=True) as catalog:
        catalog.build(LabDigits)
        folder = Path(urlsplit(catalog.dataset("lab_digits").folder).path)
    (shard,) = folder.glob("*.tfrecord*")
    shard.unlink()
    with open_catalog(path) as backend:
        server.service.catalog = cast("SqlCatalog", backend)
        reader.sign_in(make_token(backend, "ann", Role.READER))
        admin.sign_in(make_token(backend, "root"))
        for part in (
            "records/train/",
            "records/train/0/",
            "records/train/index.json",
            "media/train/0/image/small.png/",
        ):
            address = f"datasets/lab_digits/1.0.0/{part}"
            texts = [it.get(address).data.decode() for it in (reader, admin)]
            assert ["hidden-place" in text for text in texts] == [False, True], part
            assert "the server could not read the data for this page" in texts[0]


def test_a_catalog_that_does_not_answer_and_a_fault_are_words(
    reader: Browser, lab: SqlCatalog, server: TestServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_visit: Any) -> Any:
        raise ZeroDivisionError("in /hidden-place")

    with monkeypatch.context() as patch:
        patch.setattr(routes, "_load", lambda _place: fail)
        answer = reader.get("log/")
        assert (answer.status, b"Incident" in answer.data, b"hidden-place" in answer.data) == (500, True, False)
    assert lab.file is not None
    (tmp_path / "hidden-place").mkdir()
    path = Path(shutil.copy(lab.file, tmp_path / "hidden-place" / "catalog.db"))
    with open_catalog(path) as backend:
        server.service.catalog = cast("SqlCatalog", backend)
        reader.sign_in(make_token(backend, "ann", Role.READER))
        assert reader.get("log/").status == 200
        path.unlink()
        answer = reader.get("log/")
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
        assert b"the server could not read the data for this page" in answer.data
        assert b"hidden-place" not in answer.data


@pytest.mark.parametrize(
    ("role", "datasets", "may"),
    [
        (None, (), (False, False)),
        (Role.READER, ("*",), (False, False)),
        (Role.PUBLISHER, ("*",), (True, False)),
        (Role.ADMIN, ("lab_*",), (True, False)),
        (Role.ADMIN, ("*",), (True, True)),
    ],
)
def test_a_role_decides_what_the_server_reads_and_names(
    role: Role | None, datasets: tuple[str, ...], may: tuple[bool, bool], lab: SqlCatalog
) -> None:
    who = role and AccessToken(
        id="1" * 12, name="ann", role=role, datasets=datasets, created_at=lab.now(), created_by="root"
    )
    visitor = Visitor(url="https://catalog.example/", who=who)
    with registry.connect(lab.file) as catalog:
        visit = Visit(catalog=catalog, visitor=visitor)
        assert (visit.may_read_much, visit.shows_places) == may
        owner = Visit(catalog=catalog)
        assert (owner.may_read_much, owner.shows_places) == (True, True)
        site = Visit(catalog=catalog, is_live=False)
        assert (site.may_read_much, site.shows_places) == (False, False)


def test_who_recorded_an_event_is_a_place_of_the_server(reader: Browser, admin: Browser, lab: SqlCatalog) -> None:
    lab.aliases.set("best", lab.find("lab_digits").reference, expect=None, message="", actor="eve")
    texts = [it.get("log/").data.decode() for it in (reader, admin)]
    assert ["eve" in text for text in texts] == [True, True]
    assert ["claimed by" in text for text in texts] == [False, True]
    assert ["unverified" in text for text in texts] == [True, True]


def test_only_publishers_keep_columns(
    reader: Browser, admin: Browser, lab: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Any] = []
    monkeypatch.setattr("registry.pages.records.fill", kept.append)
    path = "datasets/lab_digits/1.0.0/records/train/?sort=x"
    answer = reader.post(path, {"seal": reader.seal})
    assert (answer.status, kept) == (403, [])
    assert b"only publishers and admins may" in answer.data
    for _ in range(1000):  # it is noted after the answer is sent
        if refusals := lab.access.refusals():
            break
        time.sleep(0.01)
    (refusal,) = refusals
    assert (refusal.call, refusal.reason[:30]) == ("page", "only publishers and admins may")
    answer = admin.post(path, {"seal": admin.seal})
    assert (answer.status, len(kept)) == (303, 1)
    assert urljoin(admin.url + path, answer.headers["Location"]) == admin.url + path


def test_anonymous_reads_show_pages_without_a_session(lab: SqlCatalog) -> None:
    server = serve_otherwise(lab, anonymous_reads=True)
    try:
        browser = Browser(server)
        page = browser.get("").data.decode()
        assert "secret_digits" in page
        assert "Sign in" in page
        assert "Sign out" not in page
        assert (
            'href="../../sign-in/?next=datasets%2Flab_digits%2F"' in browser.get("datasets/lab_digits/").data.decode()
        )
        assert "hidden-place" not in browser.get("datasets/lab_digits/1.0.0/files/").data.decode()
        assert browser.post("datasets/lab_digits/1.0.0/records/?sort=x").status == 403
        assert browser.post("pins/", {"text": "x"}).status == 200
        browser.sign_in(make_token(lab, "ann", Role.READER, "lab_*"))
        assert names_of(browser) == ["lab_digits"]
    finally:
        server.stop()


def test_wrong_tokens_are_limited_and_pages_without_a_session_are_not(lab: SqlCatalog) -> None:
    server = serve_otherwise(lab, failed_logins_per_minute=3)
    try:
        browser = Browser(server)
        assert {browser.get("log/").status for _ in range(10)} == {303}
        answers = [browser.sign_in("shb_wrong") for _ in range(5)]
        assert [answer.status for answer in answers] == [401, 401, 401, 429, 429]
        assert "Retry-After" in answers[-1].headers
        assert b"too many requests without a valid token" in answers[-1].data
    finally:
        server.stop()


def test_other_addresses_of_the_service_are_no_pages(reader: Browser) -> None:
    assert reader.get("health").data == b'{"status": "alive"}'
    assert b"<h1>Health</h1>" in reader.get("health/").data
    assert json.loads(reader.get("site.json").data)["format"] == "registry-service"
    for path in ("api/v2/find", "api/", "api/v1/find/more"):
        answer = reader.get(path)
        assert (answer.status, answer.headers["Content-Type"]) == (404, "application/problem+json")
    assert reader.post("health").status == 405
    assert reader.post("site.json").status == 405


def test_workers_with_the_same_key_share_sessions(lab: SqlCatalog) -> None:
    key = "a key of many letters"
    first, second, other = (serve_otherwise(lab, session_key=it) for it in (key, key, None))
    try:
        browser = Browser(first)
        browser.sign_in(make_token(lab, "ann"))
        statuses = []
        for server in (first, second, other):
            browser.url = server.url
            statuses.append(browser.get("").status)
        assert statuses == [200, 200, 303]
    finally:
        for server in (first, second, other):
            server.stop()


def test_the_versions_say_whose_promotion_waits_for_another_person(server: TestServer, shared: SqlCatalog) -> None:
    server.service.catalog = shared
    browser = Browser(server)
    browser.sign_in(make_token(shared, "ann", Role.READER, "lab_*"))
    page = browser.get("datasets/lab_digits/strict/1.0.0/versions/").data.decode()
    assert page.count("Its promotion waits for approval, proposed by eve") == 1
    (proposal, _) = shared.lifecycle.proposals()
    shared.lifecycle.reject(proposal, actor="root")
    assert "waits for approval" not in browser.get("datasets/lab_digits/strict/1.0.0/versions/").data.decode()
