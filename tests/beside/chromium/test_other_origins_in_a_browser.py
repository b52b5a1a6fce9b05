"""A program in a browser reads a site of another origin with the headers that the guide names, and not without."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from support import http_servers
from support.chromium import Chromium, Look
from support.http_servers import running

import registry
from registry.builders.digits import Digits
from registry.pages import SiteOptions, write_site

pytestmark = pytest.mark.chromium

GUIDE: Final = Path(__file__).parents[3].joinpath("docs", "sharing.md").read_text(encoding="utf-8")
FETCH: Final = """
const [address, headers, done] = arguments;
fetch(address, {headers}).then(async (answer) => done({
    status: answer.status, etag: answer.headers.get("ETag"), range: answer.headers.get("Content-Range"),
    body: btoa(String.fromCharCode(...new Uint8Array(await answer.arrayBuffer()))),
})).catch((error) => done({error: String(error)}));
"""


class Rule(NamedTuple):
    """The headers of a server: those of every answer that is no error, and its answer before another request."""

    headers: Mapping[str, str]
    preflight: Callable[[Mapping[str, str]], tuple[int, Mapping[str, str]]]


def nginx_rule(guide: str) -> Rule:
    """What nginx does with the location of the guide: it refuses the method of a preflight, unless told otherwise."""
    location = re.search(r"location /catalog/ \{\n.*?\n\}", guide, re.DOTALL)
    headers = {
        name: quoted or bare for name, quoted, bare in re.findall(r'add_header (\S+) (?:"(.*)"|(.*));', location[0])
    }
    can_ask = "if ($request_method = OPTIONS) { return 204; }" in location[0]
    return Rule(headers, lambda _: (204, headers) if can_ask else (405, {}))


def bucket_rule(guide: str) -> Rule:
    """What a bucket does with the rule of the guide."""
    text = re.search(r"^\[\{\"AllowedOrigins.*?\}\]$", guide, re.DOTALL | re.MULTILINE)
    (rule,) = json.loads(text[0])
    headers = {
        "Access-Control-Allow-Origin": ", ".join(rule["AllowedOrigins"]),
        "Access-Control-Expose-Headers": ", ".join(rule["ExposeHeaders"]),
    }

    def preflight(asked: Mapping[str, str]) -> tuple[int, Mapping[str, str]]:
        names = {name.strip().lower() for name in asked.get("Access-Control-Request-Headers", "").split(",")}
        is_allowed = asked.get("Access-Control-Request-Method") in rule["AllowedMethods"]
        if not is_allowed or not names <= {name.lower() for name in rule["AllowedHeaders"]}:
            return 403, {}
        allowed = {"Methods": rule["AllowedMethods"], "Headers": rule["AllowedHeaders"]}
        return 200, headers | {f"Access-Control-Allow-{name}": ", ".join(value) for name, value in allowed.items()}

    return Rule(headers, preflight)


NOTHING: Final = Rule({}, lambda _: (405, {}))
RULES: Final = {"nginx": nginx_rule(GUIDE), "bucket": bucket_rule(GUIDE)}


@contextmanager
def serve(folder: Path, rule: Rule) -> Iterator[str]:
    """The URL of a server of files with ranges and ETags."""

    class Handler(http_servers.Handler):
        def do_GET(self) -> None:
            file = folder / self.path.lstrip("/")
            if not file.is_file():
                return self.answer(404, {})
            data, tag = file.read_bytes(), f'"{file.stat().st_size}"'
            headers = {**rule.headers, "ETag": tag, "Accept-Ranges": "bytes"}
            if self.headers.get("If-None-Match") == tag:
                return self.answer(304, headers)
            if (match := re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))) is None:
                return self.answer(200, headers, data)
            start = int(match[1]) if match[1] else len(data) - int(match[2])
            stop = int(match[2]) + 1 if match[1] and match[2] else len(data)
            return self.answer(
                206, {**headers, "Content-Range": f"bytes {start}-{stop - 1}/{len(data)}"}, data[start:stop]
            )

        def do_OPTIONS(self) -> None:
            self.answer(*rule.preflight(self.headers))

    with running(Handler) as port:
        yield f"http://127.0.0.1:{port}/"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sites")
    with registry.connect(folder / "catalog.db", create=True) as catalog:
        catalog.build(Digits)
        write_site(catalog, folder / "site", SiteOptions(with_data=True, records=3))
    return folder / "site"


@pytest.fixture
def fetch(chromium: Chromium, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Fetches an address by a script of a page of another origin: of another port."""
    (tmp_path / "page.html").write_text("<!doctype html><title>elsewhere</title>")
    with serve(tmp_path, NOTHING) as elsewhere:
        chromium.open(f"{elsewhere}page.html", Look(script=True, width=1280, is_dark=False))
        yield lambda address, **headers: chromium.driver.execute_async_script(
            FETCH, address, {name.replace("_", "-"): value for name, value in headers.items()}
        )


@pytest.mark.parametrize("name", RULES)
def test_the_headers_of_the_guide_let_another_origin_read(fetch: Callable[..., Any], site: Path, name: str) -> None:
    (shard, *_) = sorted(site.glob("data/digits/1.0.0/*.tfrecord*"))
    content, path = shard.read_bytes(), shard.relative_to(site).as_posix()
    with serve(site, RULES[name]) as url:
        for page in ("index.json", "site.json", "datasets/digits/1.0.0/index.json"):
            answer = fetch(url + page)
            assert (answer["status"], base64.b64decode(answer["body"])) == (200, (site / page).read_bytes())
        for header, start, stop in (
            ("bytes=0-15", 0, 16),
            ("bytes=100-199", 100, 200),
            ("bytes=-50", len(content) - 50, len(content)),  # Chromium asks first whether it may send this one
        ):
            answer = fetch(url + path, Range=header)
            assert (answer["status"], base64.b64decode(answer["body"])) == (206, content[start:stop])
            assert answer["range"] == f"bytes {start}-{stop - 1}/{len(content)}"
        assert fetch(url + path, If_None_Match=answer["etag"])["status"] == 304


def test_without_the_headers_another_origin_reads_nothing(fetch: Callable[..., Any], site: Path) -> None:
    path = next(site.glob("data/digits/1.0.0/*.tfrecord*")).relative_to(site).as_posix()
    with serve(site, NOTHING) as url:
        for answer in (fetch(url + "index.json"), fetch(url + path, Range="bytes=0-15"), fetch(url + path)):
            assert answer == {"error": "TypeError: Failed to fetch"}


@pytest.mark.parametrize("name", RULES)
def test_each_header_of_the_guide_is_needed(fetch: Callable[..., Any], site: Path, name: str) -> None:
    rule = RULES[name]
    path = next(site.glob("data/digits/1.0.0/*.tfrecord*")).relative_to(site).as_posix()
    without_exposed = {key: value for key, value in rule.headers.items() if "Expose" not in key}
    with serve(site, rule._replace(headers=without_exposed)) as url:
        answer = fetch(url + path, Range="bytes=0-15")
        assert (answer["status"], answer["range"], answer["etag"]) == (206, None, None)
    with serve(site, rule._replace(preflight=NOTHING.preflight)) as url:
        assert fetch(url + path, Range="bytes=0-15")["status"] == 206
        assert fetch(url + path, Range="bytes=-16") == {"error": "TypeError: Failed to fetch"}
