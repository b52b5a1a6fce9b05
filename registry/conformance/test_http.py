"""What every answer has: documents, problems, ids, conditions, codings and headers."""

from __future__ import annotations

import gzip
import http.client
import json
import re
from typing import Any
from urllib.parse import urlsplit

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from registry.catalog.service.calls import CALLS
from registry.catalog.service_index import API_PATH, API_VERSION, FORMAT
from registry.conformance.peer import Peer, fail

SERVED = {name: call for name, call in CALLS.items() if call.policy.role != "nobody"}
OPENAPI = f"{API_PATH}openapi.json"
HEADERS = {
    "Cache-Control": None,
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_LIMIT = {
    "RateLimit-Policy": r'"[a-z]+";q=[0-9]+;w=[0-9]+',
    "RateLimit": r'"[a-z]+";r=[0-9]+(;t=[0-9]+)?',
}


def test_site_json_names_this_version_of_the_api(peer: Peer) -> None:
    answer = peer.ask("GET", "site.json").expect(200)
    answer.require(answer.json.get("format") == FORMAT, f"expected the format {FORMAT}")
    answer.require(API_VERSION in answer.json.get("api", ()), f"expected the API version {API_VERSION}")


def test_the_description_is_valid_openapi_and_has_every_call(peer: Peer) -> None:
    problems = [error.message for error in OpenAPIV31SpecValidator(peer.openapi).iter_errors()]
    if problems or not peer.openapi.get("openapi", "").startswith("3.1."):
        fail(f"openapi.json has to be valid OpenAPI 3.1: {problems[:3]}")
    for name, call in SERVED.items():
        methods = peer.openapi["paths"].get(f"/{API_PATH}{name}", {})
        if not {"post", "get"} & methods.keys() >= ({"post", "get"} if call.is_get else {"post"}):
            fail(f"openapi.json has to describe {name}, a {'GET and ' * call.is_get}POST, found: {[*methods]}")


WRONG: list[tuple[str, str, bytes | None, int]] = [
    ("POST", "nothing", b"{}", 404),
    ("GET", "nothing", None, 404),
    ("GET", "aliases.set", None, 405),
    ("PUT", "aliases.set", b"{}", 405),
    ("DELETE", "find", None, 405),
    ("POST", "find", b"{", 400),
    ("POST", "find", b"[]", 400),
    ("POST", "find", b"{}", 400),
    ("POST", "find", b'{"reference": NaN}', 400),
    ("POST", "find", b'{"reference": "a", "reference": "b"}', 400),
    ("POST", "find", b'{"reference": "a", "more": 1}', 400),
    ("POST", "find", b'{"reference": "a b"}', 400),
    ("POST", "find", b'{"reference": "no_such_dataset_at_all"}', 404),
    ("POST", "find", b'{"reference": ' + b"[" * 9999 + b"]" * 9999 + b"}", 400),
    ("POST", "find", b'{"reference": "\xff"}', 400),
    ("GET", "versions?name=a&name=b", None, 400),
    ("GET", "find?reference=a%2Fb%3A1.0.0", None, 404),
    ("GET", "/now", None, 404),
    ("GET", "..%2Fv1%2Fnow", None, 404),
]


@pytest.mark.parametrize(("method", "path", "body", "status"), WRONG, ids=lambda value: repr(value)[:40])
def test_an_error_is_a_problem_document(
    method: str, path: str, body: bytes | None, status: int, peer: Peer, login: str | None
) -> None:
    answer = peer.ask(method, API_PATH + path, login, body=body)
    document = answer.problem(status)
    answer.require(document["hint"] or status != 404, "expected a hint what to do now")
    if status == 405:
        answer.header("Allow", "POST" if path == "aliases.set" else None, "RFC 9110, 15.5.6")
    if "%3A" in path:
        answer.require(
            "'a'" in document["detail"] or "a/b" in document["detail"], "expected a/b:1.0.0 to arrive as it is"
        )


def test_a_body_with_a_content_coding_is_refused(peer: Peer, login: str | None) -> None:
    peer.ask("POST", f"{API_PATH}now", login, body=gzip.compress(b"{}"), Content_Encoding="gzip").problem(415)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([("Content-Length", str(2**50))], 413),
        ([("Content-Length", "2"), ("Transfer-Encoding", "chunked")], 400),
        ([("Authorization", "Bearer a"), ("Authorization", "Bearer b"), ("Content-Length", "2")], 400),
        ([("Idempotency-Key", "a"), ("Idempotency-Key", "b"), ("Content-Length", "2")], 400),
    ],
    ids=["too long", "two ends", "two tokens", "two keys"],
)
def test_a_request_that_programs_read_differently_is_refused(
    headers: list[tuple[str, str]], status: int, peer: Peer, login: str | None
) -> None:
    url = urlsplit(peer.url)
    kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    connection = kind(url.netloc, timeout=60)
    connection.putrequest("POST", f"{url.path}{API_PATH}now")
    for name, value in [*([("Authorization", f"Bearer {login}")] if login else []), *headers]:
        connection.putheader(name, value)
    connection.endheaders(b"{}")
    answered = connection.getresponse().status
    connection.close()
    if answered != status:
        fail(f"POST {API_PATH}now with {headers}: the service answered {answered}, expected {status} (RFC 9112, 6.3)")


def test_a_request_has_an_id(peer: Peer) -> None:
    answers = [peer.ask("GET", "site.json") for _ in range(2)]
    first, second = (answer.header("X-Request-Id", source="docs/service.md") for answer in answers)
    answers[1].require(first != second, "expected another X-Request-Id for each request")
    peer.ask("GET", "site.json", X_Request_Id="my-id.1").header("X-Request-Id", "my-id.1")
    answer = peer.ask("GET", "site.json", X_Request_Id="not an id\x80")
    answer.require(answer.header("X-Request-Id") != "not an id\x80", "expected an id that the service chose")


@pytest.mark.parametrize("path", ["site.json", OPENAPI, f"{API_PATH}now", f"{API_PATH}nothing", "no/such/place"])
def test_every_answer_has_the_headers_for_browsers(path: str, peer: Peer, login: str | None) -> None:
    answer = peer.ask("GET", path, login)
    for name, value in HEADERS.items():
        answer.header(name, value, "docs/service.md")
    if peer.url.startswith("https:"):
        answer.header("Strict-Transport-Security", source="RFC 6797; the proxy sends X-Forwarded-Proto: https")


def test_the_fields_of_a_limit_have_the_form_of_the_draft(peer: Peer, login: str | None) -> None:
    answer = peer.call("now", {}, login).expect(200)
    for name, form in _LIMIT.items():
        text = answer.headers.get(name)
        answer.require(text is None or re.fullmatch(form, text), f"found {name}: {text}", "RateLimit, draft 11")


def test_a_coding_is_used_only_if_it_is_accepted(peer: Peer) -> None:
    plain = peer.ask("GET", OPENAPI, Accept_Encoding="identity").expect(200)
    plain.require("Content-Encoding" not in plain.headers, "expected no coding for identity", "RFC 9110, 12.5.3")
    for accepted in ("gzip;q=0", "gzip;q=0, identity", "gzip;q=0.0, *;q=0.1"):
        answer = peer.ask("GET", OPENAPI, Accept_Encoding=accepted)
        is_used = answer.headers.get("Content-Encoding") == "gzip"
        answer.require(not is_used, "expected no gzip, which is not acceptable", "RFC 9110, 12.5.3")
    coded = peer.ask("GET", OPENAPI, Accept_Encoding="gzip")
    coded.header("Content-Encoding", "gzip")
    coded.require("accept-encoding" in coded.header("Vary").lower(), "expected Vary: Accept-Encoding", "RFC 9110")
    coded.require(coded.body == plain.body, "expected the same bytes, decoded")


@pytest.mark.parametrize("path", [OPENAPI, f"{API_PATH}datasets", f"{API_PATH}experiments.list"])
def test_a_get_has_an_etag_and_conditions_count(path: str, peer: Peer, login: str | None) -> None:
    answer = peer.ask("GET", path, login).expect(200)
    tag = answer.header("ETag")
    answer.require("authorization" in answer.header("Vary").lower(), "expected Vary: Authorization", "RFC 9110, 12.5.5")
    for condition in (tag, f'"other", {tag}', tag.removeprefix("W/"), "*"):
        again = peer.ask("GET", path, login, If_None_Match=condition).expect(304, source="RFC 9110, 13.1.2")
        again.require(not again.body and again.headers.get("ETag") == tag, "expected the ETag only", "RFC 9110, 15.4.5")
    peer.ask("GET", path, login, If_None_Match='"other"').expect(200, source="RFC 9110, 13.1.2")
    head = peer.ask("HEAD", path, login).expect(200, source="RFC 9110, 9.3.2")
    head.require(
        not head.body and head.headers.get("ETag") == tag, "expected the headers of the GET", "RFC 9110, 9.3.2"
    )


@pytest.mark.parametrize("path", ["health", "ready"])
def test_it_says_that_it_runs(path: str, peer: Peer) -> None:
    peer.ask("GET", path).expect(200, source="docs/service.md")


READS = {
    name: call for name, call in SERVED.items() if call.is_get and not call.needed and call.policy.role == "reader"
}


@pytest.mark.parametrize("name", READS)
def test_a_get_has_the_result_of_the_post_and_both_are_as_described(name: str, peer: Peer, login: str | None) -> None:
    values: dict[str, Any] = {part: None for part, each in READS[name].sent.items() if each.default is each.empty}
    first = peer.call(name, values, login).expect(200)
    peer.keeps(first, name)
    second = peer.ask("GET", API_PATH + name, login).expect(200)
    if name != "now":
        second.require(json.loads(second.body) == first.json, "expected the result of the POST")
