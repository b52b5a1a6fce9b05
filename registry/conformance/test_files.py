"""Files that a service offers: sizes, digests, ranges, conditions, and who may have them."""

from __future__ import annotations

import base64
import hashlib

from registry.conformance.conftest import Run

_RANGES = "RFC 9110, 14"


def test_a_file_is_whole_and_has_its_digest(run: Run, shard: tuple[str, str, int]) -> None:
    path, sha256, num_bytes = shard
    answer = run.peer.ask("GET", path, run.tokens["reader"], Accept_Encoding="gzip").expect(200)
    answer.require(hashlib.sha256(answer.body).hexdigest() == sha256, "expected the bytes that were published")
    answer.require("Content-Encoding" not in answer.headers, "expected no coding: a range is one of the stored bytes")
    digest = base64.b64encode(bytes.fromhex(sha256)).decode()
    answer.header("Repr-Digest", f"sha-256=:{digest}:", "RFC 9530")
    answer.header("Accept-Ranges", "bytes")
    tag = answer.header("ETag")
    answer.require(tag.startswith('"'), "expected a strong ETag, by which ranges are conditional", "RFC 9110, 13.1.5")
    head = run.peer.ask("HEAD", path, run.tokens["reader"], Range="bytes=0-1").expect(200, source="RFC 9110, 14.2")
    head.header("Content-Length", str(num_bytes))
    head.header("ETag", tag)


def test_ranges_and_conditions_count(run: Run, shard: tuple[str, str, int]) -> None:
    path, _, size = shard
    token = run.tokens["reader"]
    whole = run.peer.ask("GET", path, token)
    content, tag = whole.body, whole.header("ETag")
    parts = {
        "5-9": (5, 10),
        "5-": (5, size),
        "-7": (size - 7, size),
        f"-{size + 9}": (0, size),
        f"0-{size + 9}": (0, size),
    }
    for text, (start, stop) in parts.items():
        answer = run.peer.ask("GET", path, token, Range=f"bytes={text}", If_Range=tag).expect(206, source=_RANGES)
        answer.header("Content-Range", f"bytes {start}-{stop - 1}/{size}", _RANGES)
        answer.require(answer.body == content[start:stop], "expected the bytes of the range", _RANGES)
        answer.header("Repr-Digest", whole.header("Repr-Digest"), "RFC 9530, 3: of the whole representation")
    for text in (f"{size}-", "-0"):
        answer = run.peer.ask("GET", path, token, Range=f"bytes={text}").expect(416, source=_RANGES)
        answer.header("Content-Range", f"bytes */{size}", _RANGES)
    for text in ("bytes=9-5", "bytes=0-1,4-5", "lines=1-2", "bytes=-", "bytes=a-b"):
        answer = run.peer.ask("GET", path, token, Range=text).expect(200, source=_RANGES)
        answer.require(answer.body == content, "expected the whole file for a range that does not count", _RANGES)
    run.peer.ask("GET", path, token, Range="bytes=0-1", If_Range='"other"').expect(200, source="RFC 9110, 13.1.5")
    answer = run.peer.ask("GET", path, token, If_None_Match=f'"x", {tag}').expect(304, source="RFC 9110, 13.1.2")
    answer.header("ETag", tag)


def test_only_files_of_versions_that_a_token_covers_exist(run: Run, shard: tuple[str, str, int]) -> None:
    path = shard[0]
    run.peer.ask("GET", path, run.tokens["reader of open"]).expect(200)
    for state in ("expired", "revoked"):
        run.peer.ask("GET", path, run.tokens[state]).problem(401)
    texts = []
    for name in ("secret", "absent"):
        other = path.replace(f"{run.prefix}open", f"{run.prefix}{name}")
        problem = run.peer.ask("GET", other, run.tokens["reader of open"]).problem(404)
        texts.append(problem["detail"].replace(name, "NAME"))
    if texts[0] != texts[1]:
        raise AssertionError(f"a private file has to look like one that does not exist: {texts}")
    folder = path.rpartition("/")[0]
    for wrong in (f"{folder}/..%2F..%2Fx", f"{folder}/%2e%2e/x", f"{path}/x", f"{folder}/none", f"{folder}/%00"):
        run.peer.ask("GET", wrong, run.tokens["admin"]).problem(404)


def test_a_file_is_sent_only_to_a_place_that_was_reserved(run: Run, shard: tuple[str, str, int]) -> None:
    digest = base64.b64encode(hashlib.sha256(b"x").digest()).decode()
    for role, status in (("reader", 403), ("publisher", 409)):
        answer = run.peer.ask("PUT", f"{shard[0]}x", run.tokens[role], body=b"x", Repr_Digest=f"sha-256=:{digest}:")
        answer.problem(status)
    answer = run.peer.ask("PUT", f"{shard[0]}x", run.tokens["publisher"], body=b"x")
    answer.expect(400, 409, why="a file is sent with its digest", source="RFC 9530")
