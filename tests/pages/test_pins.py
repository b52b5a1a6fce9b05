"""A pin file that is pasted on the page of pins is checked and explained; nothing in it leaves its place."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

import registry
from registry.cli.main import run
from registry.features import FeaturesDict, Scalar
from registry.pages import Page, Visit, answer, json_of, render
from registry.server.app import make_app

XSS = "</textarea><script>alert(1)</script><img src=x onerror=alert(1)>"
ROOM = "s"
BOMB = "a: &a [x,x,x,x]\n" + "\n".join(f"b{n}: &b{n} [*a,*a,*a,*a]" for n in range(50))


class Pinned(registry.DatasetBuilder):
    VERSION = "1.0.0"

    def features(self) -> FeaturesDict:
        return FeaturesDict({"x": Scalar("int64")})

    def splits(self) -> Any:
        return {"train": [(n, {"x": n}) for n in range(10)]}


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[registry.Catalog]:
    with registry.connect(tmp_path_factory.mktemp("pins") / "catalog.db", create=True) as catalog:
        catalog.build(Pinned)
        catalog.build(type("Pinned", (Pinned,), {"VERSION": "1.0.1"}))
        yield catalog


def pinned(catalog: registry.Catalog, reference: str) -> str:
    return catalog.dataset(reference).pin({"head": "train[:3]", "rest": "train[3:]"}).to_yaml()


def page_of(catalog: registry.Catalog, text: str | None = None, *, is_live: bool = True) -> tuple[Page, str]:
    form = {} if text is None else {"text": text}
    visit = Visit(catalog=catalog, path=("pins",), form=form, is_live=is_live)
    page = answer(visit)
    assert isinstance(page, Page)
    json.loads(json_of(page))
    return page, render(page, visit)[0]


def test_a_pin_file_is_explained_pin_by_pin(catalog: registry.Catalog) -> None:
    text = pinned(catalog, "pinned:1.0.1")
    page, html = page_of(catalog, text.replace("\n", "\r\n"))
    pins = page.values["checked"]["pins"]
    assert [(pin["name"], pin["num_examples"], pin["is_withdrawn"]) for pin in pins] == [
        ("head", 3, False),
        ("rest", 7, False),
    ]
    assert pins[0]["citation"].startswith("pinned@1.0.1 train[:3] #3 sha256:")
    assert html.count("This catalog has this version, with the content that was pinned.") == 2
    assert 'href="../datasets/pinned/1.0.1/"' in html


def test_a_version_that_was_yanked_since_is_named_with_its_reason(catalog: registry.Catalog) -> None:
    text = pinned(catalog, "pinned:1.0.0")
    catalog.lifecycle.yank("pinned:1.0.0", reason=f"bad labels {XSS}")
    page, html = page_of(catalog, text)
    assert [pin["state"] for pin in page.values["checked"]["pins"]] == ["yanked", "yanked"]
    assert "bad labels" in html
    assert "<script>alert" not in html


def test_a_pin_of_another_catalog_is_unknown(catalog: registry.Catalog, tmp_path: Path) -> None:
    other = type("Pinned", (Pinned,), {"VERSION": "3.0.0"})
    with registry.connect(tmp_path / "other.db", create=True) as elsewhere:
        elsewhere.build(other)
        text = pinned(elsewhere, "pinned:3.0.0")
    page, html = page_of(catalog, text)
    assert {pin["state"] for pin in page.values["checked"]["pins"]} == {"unknown"}
    assert "the catalog has no pinned:3.0.0" in html


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("lock_version: 1\nlock_version: 1\n", "line 2, lock_version: the key is given twice"),
        (BOMB, "the text"),
        (XSS, "the text"),
        ("\x00\ud800", "the text"),
        ("[" * 100_000, "the text"),
        ("lock_version: 99\n", "expected at most 1, found 99"),
        ("a: " + "x" * 2**20, "more than 262,144"),
    ],
)
def test_faults_have_their_key_path(catalog: registry.Catalog, text: str, problem: str) -> None:
    page, html = page_of(catalog, text)
    assert problem in page.values["problem"]["message"]
    assert page.values["checked"] is None
    assert "<script>alert" not in html
    assert html.count("</textarea>") == 1


def test_a_changed_pin_file_is_refused(catalog: registry.Catalog) -> None:
    page, _ = page_of(catalog, pinned(catalog, "pinned:1.0.1").replace("num_examples: 3", "num_examples: 4", 1))
    assert page.values["problem"]["code"] in ("pin-changed", "pin_changed", "pin-format", "pin_format")


def test_a_site_says_what_a_pin_is(catalog: registry.Catalog) -> None:
    _, html = page_of(catalog, is_live=False)
    assert "registry pin create" in html
    assert "<form" not in html


@pytest.fixture(scope="module")
def post(catalog: registry.Catalog) -> Callable[..., Any]:
    """Send a form to the server."""
    from starlette.testclient import TestClient

    client = TestClient(make_app(catalog, secret=ROOM, hosts={"testserver"}))

    def send(path: str = "/s/pins/", content: bytes | str = "", **headers: str) -> Any:
        usual = {"origin": "http://testserver", "content-type": "application/x-www-form-urlencoded"}
        return client.post(path, content=content, headers={**usual, **headers})

    return send


def test_the_server_takes_a_form_of_its_own_page(catalog: registry.Catalog, post: Callable[..., Any]) -> None:
    form = urlencode({"text": pinned(catalog, "pinned:1.0.1")})
    for headers in ({}, {"origin": "null", "sec-fetch-site": "same-origin"}):
        answered = post(content=form, **headers)
        assert (answered.status_code, answered.text.count('class="pin"')) == (200, 2)
    as_json = post("/s/pins/index.json", content=form)
    assert as_json.status_code == 404


def test_the_server_refuses_other_requests(post: Callable[..., Any]) -> None:
    text, cross = "text=1", {"origin": "null", "sec-fetch-site": "cross-site"}
    for headers in ({"origin": "http://evil"}, {"origin": "null"}, cross, {"host": "evil"}):
        assert post("/s/pins/", content=text, **headers).status_code == 403, headers
    for path in ("/x/pins/", "/s/log/", "/s/"):
        assert post(path, content=text).status_code == 404, path
    assert post("/s/pins/", content=text, **{"content-type": "multipart/form-data"}).status_code == 405
    for content in ("text=" + "x" * 2**21, "&".join(f"a{n}=1" for n in range(100)), b"text=\xff"):
        assert post("/s/pins/", content=content).status_code == 405, content[:20]


def test_pins_of_two_files_are_compared_in_one_file(
    catalog: registry.Catalog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = catalog.dataset("pinned:1.0.1")
    old = dataset.pin({"a": "train[:3]", "b": "train[3:]"}).save(tmp_path / "old.yaml")
    new = dataset.pin({"a": "train[:3]", "b": "train[4:]", "c": "train"}).save(tmp_path / "new.yaml")
    file = tmp_path / "pins.html"
    command = ["pin", "diff", old, new, "--html", str(file)]
    assert run(command) == 0
    html = file.read_text("utf-8")
    assert "<title>old.yaml to new.yaml</title>" in html
    assert str(tmp_path) not in html
    assert [words in html for words in ("the same records", "other records", "only one of the files has it")] == [
        True
    ] * 3
    assert "number of records: 7 -&gt; 6" in html
    assert not re.findall(r"<(?:script|link|a|form|iframe|img)\b", html)
    assert run(command) != 0
    assert "already exists" in capsys.readouterr().err
    assert run([*command, "--force"]) == 0
