"""The description of a service for programs: OpenAPI 3.1, made from the table of calls, so it is what is answered.

    CALLS + codec(kind).schema + the docstrings of the protocol  ->  /api/v1/openapi.json

Each call is a POST of its arguments as a JSON object. Those that change nothing are also a GET.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final

from registry.catalog import DataDirectory, EventFilter
from registry.catalog.outcomes import Holder, Proposal, Reservation
from registry.catalog.policy import NOBODY
from registry.catalog.service.calls import CALLS, Call, kind_of
from registry.catalog.service.messages import codec, record_schemas
from registry.catalog.service.problems import CONTENT_TYPE
from registry.catalog.service_index import API_PATH, API_VERSION, DATA_PATH, SIGN_IN_PATH
from registry.catalog.site_index import INDEX_NAME
from registry.model import (
    AccessToken,
    Attachment,
    DatasetVersion,
    Description,
    FeatureFingerprint,
    Producer,
    Reference,
    Role,
    Shard,
    ShardedFileTemplate,
    ShardLengths,
    Split,
    SplitFingerprint,
    Version,
)
from registry.storage.names import Owner

OPENAPI_NAME: Final = "openapi.json"

_BYTES: Final = {
    "application/octet-stream": {"schema": {"type": "string", "contentMediaType": "application/octet-stream"}}
}

_ABOUT: Final = """\
A catalog of datasets. Each call of the catalog protocol is a POST of its arguments as a JSON object; the answer is its
result as JSON. A call that changes nothing is also available as a GET: its query has text unchanged, other values as
JSON, and omits null values. A GET has an ETag. A call that changes something accepts an `Idempotency-Key`, so that it
can be retried safely. Errors are problem documents (RFC 9457) with a stable `code`, a `hint` and `details`.

A long list comes in pages. If the `next` of a page is not null, it is the argument `after` or
`below` of the request for the page that follows.

A token covers some datasets. Another dataset looks like one that does not exist."""

_PROBLEM: Final = {
    "type": "object",
    "description": "Why there is no result (RFC 9457). `title` is the class of the error.",
    "properties": {
        "type": {"const": "about:blank"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "The message."},
        "code": {"type": "string", "description": "The stable name of the kind of error."},
        "hint": {"type": ["string", "null"], "description": "What to do now."},
        "details": {"type": "object"},
        "request_id": {"type": "string"},
    },
    "required": ["type", "title", "status", "detail", "code", "hint", "details", "request_id"],
}


@cache
def make_openapi(made_by: str) -> bytes:
    """The document as JSON; ``made_by`` is the version of the software."""
    paths = {f"/{API_PATH}{name}": _path(call) for name, call in CALLS.items() if call.policy.role != NOBODY}
    document = {
        "openapi": "3.1.0",
        "info": {"title": "A catalog of datasets", "version": f"{API_VERSION}", "description": _ABOUT},
        "x-made-by": made_by,
        "security": [{"token": []}],
        "paths": paths | _other_paths(),
        "components": {
            "schemas": {**record_schemas(), "Problem": _PROBLEM},
            "responses": {
                "Problem": {
                    "description": "An error.",
                    "content": {CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
                }
            },
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "bearerFormat": "shb_<id>_<secret>"}},
        },
    }
    return json.dumps(document).encode()


def _other_paths() -> dict[str, Any]:
    """The routes beside the calls of the protocol, without those of pages."""
    text: dict[str, Any] = {"type": "string"}
    count, sha256 = {"type": "integer", "minimum": 0}, {"type": "string", "pattern": "^[0-9a-f]{64}$"}
    place = _parameter("path", text | {"description": "Below the data directory; slashes are part of it."}, "path")
    digest = _parameter("Repr-Digest", text | {"description": "The sha256 of the file (RFC 9530)."}, "header")
    new = _parameter("If-None-Match", {"const": "*"}, "header", is_required=False)
    some = _parameter("Range", text, "header", is_required=False)
    md5 = _parameter("md5", {"type": "string", "pattern": "^[0-9a-f]{32}$"}, is_required=False)
    offered = {"url": {"type": ["string", "null"]}, "etag": {"type": ["string", "null"]}, "store": text}
    offered |= {"upload": text, "part_bytes": count}
    parts = [_parameter("upload", text, is_required=False), _parameter("part", count, is_required=False)]
    proof = dict.fromkeys(("id_token", "issuer", "code", "code_verifier", "redirect_uri", "nonce"), text)
    issuer = dict.fromkeys(("name", "url", "audience", "client_id", "scope", "authorization_endpoint"), text)
    issuers = {"type": "array", "items": _object(issuer, "name", "url", "audience")}
    token = {"token_id": {"type": "string", "pattern": "^[0-9a-f]{12}$"}, "digest": sha256}
    return {
        f"/{SIGN_IN_PATH}": {
            "get": _route(
                "sign-in.issuers",
                "The accepted issuers of ID tokens.",
                _object({"issuers": issuers}, "issuers"),
                is_open=True,
            ),
            "post": _route(
                "sign-in.exchange",
                "Exchange an ID token, or the code of a browser sign-in, for an access token.",
                codec(AccessToken).schema,
                body={"application/json": {"schema": _object(proof | token, *token)}},
                is_open=True,
            ),
        },
        f"/{DATA_PATH}/{{path}}": {
            "get": _route(
                "data.read",
                "Read a file or a range of it; the files of a folder, if the path ends with a slash; or a "
                "redirection to a bucket.",
                None,
                place,
                some,
                statuses=("200", "206", "304", "307"),
            ),
            "put": _route(
                "data.write",
                "Write a file in a reserved place. Requires Content-Length.",
                {},
                place,
                digest,
                new,
                body=_BYTES,
                statuses=("200", "201"),
            ),
            "post": _route(
                "data.offer",
                "Request a URL for sending a file to a bucket.",
                _object(offered, "url", "etag"),
                place,
                _parameter("num_bytes", count),
                _parameter("sha256", sha256),
                md5,
                *parts,
            ),
            "delete": _route("data.remove", "Remove a file that no version names.", {}, place),
        },
        f"/{API_PATH}{OPENAPI_NAME}": {
            "get": _route("service.openapi", "This document.", {"type": "object"}, is_open=True)
        },
        f"/{INDEX_NAME}": {
            "get": _route("service.index", "Facts about the service for clients.", {"type": "object"}, is_open=True)
        },
        "/health": {
            "get": _route("service.health", "Whether the process is running.", {"type": "object"}, is_open=True)
        },
        "/ready": {"get": _route("service.ready", "Whether the catalog answers.", {"type": "object"}, is_open=True)},
        "/metrics": {
            "get": _route("service.metrics", "Counts for Prometheus; needs the role admin.", text, kind="text/plain")
        },
    }


def _route(
    name: str,
    summary: str,
    answer: Mapping[str, Any] | None,
    *parameters: dict[str, Any],
    body: dict[str, Any] | None = None,
    statuses: Sequence[str] = ("200",),
    kind: str = "application/json",
    is_open: bool = False,
) -> dict[str, Any]:
    """An operation; ``answer`` is the schema of what it answers, None for bytes, and empty for an empty body."""
    content = _BYTES if answer is None else {kind: {"schema": answer}} if answer else None
    done = {"description": "The result."} | ({} if content is None else {"content": content})
    return {
        "tags": [name.partition(".")[0]],
        "operationId": name,
        "summary": summary,
        "parameters": list(parameters),
        "responses": dict.fromkeys(statuses, done) | {"default": {"$ref": "#/components/responses/Problem"}},
        **({"requestBody": {"required": True, "content": body}} if body else {}),
        **({"security": []} if is_open else {}),
    }


def _parameter(name: str, schema: dict[str, Any], place: str = "query", *, is_required: bool = True) -> dict[str, Any]:
    return {"name": name, "in": place, "required": is_required, "schema": schema}


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def _path(call: Call) -> dict[str, Any]:
    schemas = {name: codec(kind_of(parameter)).schema for name, parameter in call.sent.items()}
    required = [name for name, parameter in call.sent.items() if parameter.default is parameter.empty]
    body = {
        "type": "object",
        "properties": schemas,
        "required": required,
        "additionalProperties": False,
    }
    example = {name: _example(call, name) for name in required}
    post = _operation(call) | {
        "operationId": call.name,
        "requestBody": {
            "required": bool(example),
            "content": {"application/json": {"schema": body, "example": example}},
        },
    }
    if call.policy.is_write:
        key = {"name": "Idempotency-Key", "in": "header", "schema": {"type": "string", "pattern": "^[ -~]{1,200}$"}}
        post["parameters"] = [
            key | {"description": "A key that is the same for all attempts of a change, and unique to it."}
        ]
    if not call.is_get:
        return {"post": post}
    values = [_query_value(call, name) for name in call.sent]
    return {"post": post, "get": _operation(call) | {"operationId": f"{call.name}.get", "parameters": values}}


def _operation(call: Call) -> dict[str, Any]:
    text = inspect.getdoc(call.function) or ""
    if call.returns is None:
        pieces = "Pieces, each after its length in four bytes; the length 0 is the end."
        content: dict[str, Any] = {"application/octet-stream": {"schema": {"description": pieces}}}
    else:
        content = {"application/json": {"schema": codec(call.answers).schema}}
    return {
        "tags": [call.name.rpartition(".")[0] or "catalog"],
        "summary": text.partition("\n\n")[0].replace("\n", " "),
        "description": f"{text}\n\nNeeds a token with the role {call.policy.role}.",
        "responses": {
            "200": {"description": "The result.", "content": content},
            "default": {"$ref": "#/components/responses/Problem"},
        },
    }


def _query_value(call: Call, name: str) -> dict[str, Any]:
    parameter = call.sent[name]
    kind = codec(kind_of(parameter))
    value = {"schema": kind.schema} if kind.is_text else {"content": {"application/json": {"schema": kind.schema}}}
    return {"name": name, "in": "query", "required": name in call.needed, **value}


def _example(call: Call, name: str) -> Any:
    """An argument of a call that asks for it, as JSON."""
    parameter = call.sent[name]
    of_call, by_name, by_kind = _examples()
    value = of_call.get(f"{call.name}.{name}", by_kind.get(parameter.annotation, by_name.get(name)))
    return codec(kind_of(parameter)).dump((value,) if parameter.kind is parameter.VAR_POSITIONAL else value)


@cache
def _examples() -> tuple[dict[str, Any], dict[str, Any], dict[Any, Any]]:
    """Values of arguments: of a call, by name, and by type."""
    moment, digest, place = datetime(2026, 11, 29, 12, tzinfo=UTC), "5f" * 32, "s3://lab/data/digits/1.0.0"
    shard = Shard(index=0, first_example=0, num_examples=2, num_bytes=200, sha256=digest)
    files = ShardedFileTemplate(dataset="digits")
    split = Split(name="train", shard_lengths=ShardLengths([2]), num_bytes=200, files=files)
    version = DatasetVersion(
        name="digits",
        version=Version(1, 0, 0),
        splits=(split,),
        features_json='{"featuresDict":{"features":{}}}',
        location="digits/1.0.0",
        content_digest=digest,
    )
    owner = Owner(host="node", machine="7d", boot="", namespace="", pid=1, started="")
    holder = Holder(name="7d" * 16, actor="ann", owner=owner, since=moment)
    reservation = Reservation(
        location=place,
        dataset="digits",
        version="1.0.0",
        content_digest=digest,
        token="7d" * 16,
        is_cleaning=False,
        holders=(holder,),
        found=None,
        reserved_at=moment,
    )
    fingerprint = SplitFingerprint(
        num_examples=2, features={"label": FeatureFingerprint(digest=digest, blocks=(digest,))}
    )
    proposal = Proposal(
        id=17,
        action="promote",
        dataset="digits",
        version=version.version,
        before=None,
        proposed_by="ann",
        proposed_at=moment,
        expires_at=moment + timedelta(days=14),
    )
    of_call = {
        "access.create_token.name": "ann",
        "aliases.set.name": "production",
        "experiments.add.name": "new_shuffle",
        "experiments.set_default.name": "new_shuffle",
        "experiments.retire.name": "new_shuffle",
        "aliases.remove.reference": Reference.parse("digits@production"),
        "aliases.history.reference": Reference.parse("digits@production"),
        "locations.relocate.after": "/data/digits/1.0.0",
        "configs.set_protection.dataset": Reference.parse("digits"),
    }
    by_name = {
        **dict.fromkeys(("name", "dataset"), "digits"),
        **dict.fromkeys(("digest", "content_digest"), digest),
        **dict.fromkeys(("location", "before"), place),
        **dict.fromkeys(("protect", "forget", "default"), True),
        **dict.fromkeys(("reason", "message", "description", "text"), "labels were corrected"),
        "first": 0,
        "stop": 10,
        "split_id": 1,
        "position": 0,
        "block": 512,
        "token_id": "3f9a5c0d71be",
        "url": "https://ci.example/hooks/data",
        "webhook_id": "3f9a5c0d71be",
        "role": Role.READER,
        "config": "plain",
        "split": "train",
        "action": "yank",
        "version": "1.0.0",
        "after": "handwritten_digits",
        "name_use": "given",
        "promote": True,
        "names": [files.filename("train", 0, 1)],
        "digests": [digest],
        "overrides": {"new_shuffle": True},
        "reference": "digits:1.0.0",
        "references": [Reference.parse("digits:1.0.0")],
        "expect": None,
        "shards": {"train": (shard,)},
        "fingerprints": {"train": fingerprint},
        "attachments": Attachment.of("statistics", "statistics.json", b"{}"),
    }
    by_kind: dict[Any, Any] = {
        **{type(value): value for value in (version, holder, reservation, proposal, moment, version.version)},
        Reference: version.reference,
        timedelta: timedelta(days=1),
        EventFilter: EventFilter(dataset="digits"),
        Description: Description(license="CC-BY-4.0"),
        DataDirectory: DataDirectory(recorded="s3://lab/data", place="s3://lab/data"),
        Producer: Producer(action="add", kind="csv", place="/home/ann/digits.csv"),
    }
    return of_call, by_name, by_kind
