"""The index of a site: what is written is read back, and everything else is refused with the key that is wrong."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.golden import check_errors

from registry.catalog.site_index import MAX_INDEX_BYTES, SiteIndex, SiteSignature, parse_site_index
from registry.errors import SiteFormatError

GOLDEN = Path(__file__).with_name("golden")


INDEX = SiteIndex(
    sha256="1" * 64,
    num_bytes=4096,
    compressed_sha256="2" * 64,
    compressed_bytes=512,
    head="3" * 64,
    num_events=7,
    made_at=datetime(2026, 11, 29, 12, 0, 0, 5, tzinfo=UTC),
    made_by="shardbook 1.0",
    data_url="data/",
)
SIGNED = replace(INDEX, signature=SiteSignature(keyid=f"sha256:{'4' * 64}", sig=bytes(64)))

digests = st.text("0123456789abcdef", min_size=64, max_size=64)
counts = st.integers(0, 2**63 - 1)
indexes = st.builds(
    SiteIndex,
    sha256=digests,
    num_bytes=counts,
    compressed_sha256=digests,
    compressed_bytes=counts,
    head=digests,
    num_events=counts,
    made_at=st.datetimes(timezones=st.just(UTC)),
    made_by=st.text(st.characters(categories=["L", "N", "P"]), min_size=1, max_size=40),
    data_url=st.sampled_from([None, "data/", "a/b c/", "https://host:8080/p/", "s3://bucket/folder/"]),
    signature=st.none()
    | st.builds(SiteSignature, keyid=digests.map("sha256:{}".format), sig=st.binary(min_size=64, max_size=64)),
)


@given(indexes)
def test_an_index_that_is_written_is_read_back(index: SiteIndex) -> None:
    assert parse_site_index(index.to_json()) == index
    assert parse_site_index(index.to_json()).to_json() == index.to_json()


def test_the_document_has_the_fields_that_the_docs_list() -> None:
    assert json.loads(SIGNED.to_json()) == {
        "schema": "registry.site/1",
        "catalog": {
            "path": "catalog/2222222222222222.db.gz",
            "sha256": "1" * 64,
            "num_bytes": 4096,
            "compressed_sha256": "2" * 64,
            "compressed_bytes": 512,
        },
        "head": "3" * 64,
        "num_events": 7,
        "made_at": "2026-11-29T12:00:00.000005+00:00",
        "made_by": "shardbook 1.0",
        "data_url": "data/",
        "signature": {"keyid": f"sha256:{'4' * 64}", "sig": "A" * 86 + "=="},
        "digest": hashlib.sha256(SIGNED.signed_bytes).hexdigest(),
    }
    assert "signature" not in json.loads(INDEX.to_json())


@given(indexes, indexes)
def test_two_indexes_have_the_same_signed_bytes_only_if_all_but_their_signatures_are_equal(
    left: SiteIndex, right: SiteIndex
) -> None:
    assert (left.signed_bytes == right.signed_bytes) == (
        replace(left, signature=None) == replace(right, signature=None)
    )


def test_an_unchanged_state_keeps_its_time_and_a_changed_one_does_not() -> None:
    later = replace(INDEX, made_at=INDEX.made_at + timedelta(days=1))
    assert later.made_as(SIGNED) == INDEX
    assert replace(later, made_by="shardbook 2.0").made_as(SIGNED).made_at == later.made_at
    assert later.made_as(None) == later
    assert replace(later, data_url=None).made_as(SIGNED) == replace(later, data_url=None)


WRONG: list[tuple[str, Any]] = [
    *(
        ("schema", "registry.site/2"),
        ("catalog", []),
        ("catalog.path", "../../etc/passwd"),
        ("catalog.sha256", "A" * 64),
    ),
    *(("catalog.sha256", f"{'1' * 64}\n"), ("catalog.num_bytes", -1), ("catalog.num_bytes", "9")),
    *(("catalog.num_bytes", True), ("catalog.num_bytes", 2**63), ("catalog.more", 1), ("head", None)),
    *(("made_at", "yesterday"), ("made_at", "2026-11-21"), ("made_at", "0001-01-01T00:00:00+23:59")),
    *(("made_by", "a\nb"), ("signature", None), ("signature.keyid", ""), ("signature.sig", "AA==")),
    *(("signature.sig", "A" * 85 + "B=="), ("signature.sig", "é"), ("more", 1)),
]


def test_a_wrong_field_is_refused_by_name() -> None:
    def read(path: str, value: Any) -> None:
        document = node = json.loads(SIGNED.to_json())
        *parents, last = path.split(".")
        for key in parents:
            node = node[key]
        node[last] = value
        parse_site_index(json.dumps(document).encode(), "https://host/site.json")

    calls = {f"{path} is {value!r}": partial(read, path, value) for path, value in WRONG}
    check_errors(Path(__file__).with_name("golden") / "site_index.txt", calls, details=["file"])


@pytest.mark.parametrize("key", ["catalog", "head", "num_events", "made_at", "made_by", "data_url"])
def test_a_missing_field_is_refused_by_name(key: str) -> None:
    document = json.loads(INDEX.to_json())
    del document[key]
    with pytest.raises(SiteFormatError) as caught:
        parse_site_index(json.dumps(document).encode())
    assert caught.value.message == f"site.json: {key!r} is missing"


@pytest.mark.parametrize(
    "url",
    [
        *("", "data", "/", "/etc/", "//host/", "../", "data/../../", "./", "a//b/", "C:/data/", "data\\..\\/", "~/:x/"),
        *(
            "file:///etc/",
            "FILE://host/",
            "local:///etc/",
            "memory://x/",
            "://x/",
            "https://host/a",
            "https://host/?x=/",
        ),
        *(
            "ftp://host/",
            "dir::s3://bucket/",
            "%2e%2e/",
            "https://ann:PW@host/",
            "https://host/?token=PW/",
            "https://host/#/",
            "s3://KEY:P W@bucket/x/",
        ),
    ],
)
def test_a_data_directory_that_leads_to_the_readers_files_or_has_secrets_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="data"):
        replace(INDEX, data_url=url)
    document = json.loads(INDEX.to_json())
    document["data_url"] = url
    with pytest.raises(SiteFormatError, match=r"^site.json: data_url: "):
        parse_site_index(json.dumps(document).encode())


def test_another_document_is_refused() -> None:
    text = INDEX.to_json()
    documents = [b"", b"null", b"[]", b"<html>404</html>", b"\xff\xfe", b"[" * 200, text[:-3]]
    documents += [b'{"schema": "registry.site/1", "schema": 1}', text + b" " * MAX_INDEX_BYTES]
    documents += [text.replace(b"4096", b"NaN"), text.replace(b"4096", b"9" * 5000)]
    check_errors(GOLDEN / "site_index_documents.txt", (partial(parse_site_index, data) for data in documents))


def test_no_flip_of_a_bit_gives_another_error() -> None:
    data = SIGNED.to_json()
    for place in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[place] ^= 1 << bit
            with suppress(SiteFormatError):
                parse_site_index(bytes(flipped))
