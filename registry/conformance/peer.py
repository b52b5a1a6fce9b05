"""``Peer``: sends requests to a service over plain HTTP, and checks its answers against requirements."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NoReturn

import jsonschema
import urllib3

from registry.catalog.service_index import API_PATH

PROBLEM: Final = "application/problem+json"
PROTOCOL: Final = "the catalog protocol"
_PATIENCE: Final = 200
"""Seconds for which the suite waits in all when it is asked to come later."""


def fail(message: str) -> NoReturn:
    """Fail the check with a requirement that is not met."""
    __tracebackhide__ = True
    raise AssertionError(message)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer to a request.

    Attributes:
        asked: the request, as messages name it.
        status: its status.
        headers: its headers, without regard to case.
        body: its bytes, decoded.
    """

    asked: str
    status: int
    headers: Mapping[str, str]
    body: bytes

    def require(self, is_met: object, requirement: str, source: str = PROTOCOL) -> None:
        """Fail with this requirement if it is not met."""
        __tracebackhide__ = True
        if not is_met:
            fail(f"{self.asked}: the service answered {self.status} {self.body[:300]!r}\n{requirement} ({source})")

    def expect(self, *statuses: int, why: str = "", source: str = PROTOCOL) -> Answer:
        """Require one of these statuses."""
        __tracebackhide__ = True
        text = " or ".join(map(str, statuses))
        self.require(self.status in statuses, f"expected status {text}{why and f': {why}'}", source)
        return self

    def header(self, name: str, value: str | None = None, source: str = "RFC 9110") -> str:
        """Require a header, with this value if there is one."""
        __tracebackhide__ = True
        text = self.headers.get(name, "")
        self.require(name in self.headers, f"expected the header {name}", source)
        self.require(value is None or text == value, f"expected {name}: {value}, found {text!r}", source)
        return text

    @property
    def json(self) -> Any:
        """The body as JSON."""
        __tracebackhide__ = True
        try:
            return json.loads(self.body)
        except ValueError:
            self.require(False, "expected JSON")

    def problem(self, status: int) -> dict[str, Any]:
        """Require a problem document with this status."""
        __tracebackhide__ = True
        self.expect(status)
        kind = self.header("Content-Type").partition(";")[0]
        self.require(kind == PROBLEM, f"expected the content type {PROBLEM}, found {kind}", "RFC 9457, 3")
        document: dict[str, Any] = self.json
        for name in ("title", "detail", "code", "hint", "details", "request_id"):
            self.require(name in document, f"expected a problem document with the member {name!r}")
        self.require(document.get("status") == status, "expected the status in the document, too", "RFC 9457, 3.1.2")
        is_same = document["request_id"] == self.headers.get("X-Request-Id") or "Idempotency-Replayed" in self.headers
        self.require(is_same, "expected the header X-Request-Id to name the same request")
        return document


class Peer:
    """A service that is checked.

    Attributes:
        url: its URL, with a slash at the end.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/") + "/"
        self._pool = urllib3.PoolManager(retries=False, timeout=60, maxsize=8)
        self._left = float(_PATIENCE)

    def ask(
        self, method: str, path: str, token: str | None = None, *, body: bytes | None = None, **headers: str
    ) -> Answer:
        """The answer to a request; underscores in names of headers are hyphens. One that should come later waits."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        while True:
            answer = self._pool.request(method, self.url + path, body=body, headers=sent, redirect=False)
            pause = answer.headers.get("Retry-After", "")
            if answer.status != 429 or not pause.isdecimal() or int(pause) > self._left:
                break
            self._left -= int(pause)
            time.sleep(int(pause))
        shown = "".join(f" {name}: {value[:40]}" for name, value in headers.items())
        asked = f"{method} {path[:200]}{shown}{' with a token' if token else ''}{f' {body[:200]!r}' if body else ''}"
        return Answer(asked=asked, status=answer.status, headers=answer.headers, body=answer.data)

    def call(self, name: str, values: Any, token: str | None, **headers: str) -> Answer:
        """The answer to a call of the protocol."""
        content = json.dumps(values).encode()
        return self.ask(
            "POST", f"{API_PATH}{name}", token, body=content, **{"Content_Type": "application/json"} | headers
        )

    @cached_property
    def openapi(self) -> dict[str, Any]:
        """The description of the service."""
        document: dict[str, Any] = self.ask("GET", f"{API_PATH}openapi.json").expect(200).json
        return document

    def operation(self, name: str) -> dict[str, Any]:
        """The description of a call, as a POST."""
        operation: dict[str, Any] = self.openapi["paths"][f"/{API_PATH}{name}"]["post"]
        return operation

    def example(self, name: str, dataset: str) -> dict[str, Any]:
        """The arguments of the description's example of a call, about another dataset."""
        body = self.operation(name)["requestBody"]["content"]["application/json"]
        text: str = json.dumps(body.get("example", {}))
        values: dict[str, Any] = json.loads(
            text.replace("handwritten_digits", f"{dataset}_new").replace("digits", dataset)
        )
        return values

    def keeps(self, answer: Answer, name: str) -> None:
        """Require that the result of a call is as the service describes it."""
        content = self.operation(name)["responses"]["200"]["content"]
        schema = {**content["application/json"]["schema"], "components": self.openapi["components"]}
        problem = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(schema).iter_errors(answer.json))
        text = "" if problem is None else f"{problem.json_path}: {problem.message[:300]}"
        answer.require(problem is None, f"expected the result that openapi.json describes: {text}")
