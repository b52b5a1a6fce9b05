"""Computes every digest from the README.txt of a bundle alone, without code of the registry."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.pinned_samples import pin, unpack
from support.prepared_samples import prepare

import registry
from registry.features import ClassLabel, FeaturesDict, Scalar, Tensor, Text
from registry.features import Sequence as SequenceOf
from registry.pins.bundle import write_bundle
from registry.pins.document import seal

P = 2**256 - 189
SCHEMA = FeaturesDict(
    {
        "name": Text(),
        "kind": ClassLabel(names=["cat", "dög"]),
        "small": Tensor(shape=(2,), dtype="float32"),
        "nested": {"far": Scalar(dtype="int64"), "many": SequenceOf(Scalar(dtype="int64"))},
        "never": SequenceOf(Scalar(dtype="float32")),
    }
)
EXAMPLES = [
    {
        "name": "é" * (number % 5),
        "kind": number % 2,
        "small": [number / 3, -0.5],
        "nested": {"far": (-7) ** (number % 20), "many": list(range(number % 4))},
        "never": [],
    }
    for number in range(1500)
]


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "gzip"])
def paper(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An unpacked bundle of pins of 1,397, 1 and 0 records."""
    folder = tmp_path_factory.mktemp("published")
    with registry.connect(folder / "catalog.db") as catalog:
        data = Path(str(catalog.data_dir))
        folder_of = data / "zoo" / "1.0.0"
        prepare(folder_of, splits={"train": EXAMPLES}, name="zoo", features=SCHEMA, shards=3, compress=request.param)
        catalog.publish(folder_of)
        wanted = {
            "most": ("zoo:1.0.0", "train[-1000:]+train[3:400]"),
            "größe one": ("zoo:1.0.0", "train[7:8]"),
            "none": ("zoo:1.0.0", "train[7:7]"),
        }
        pins = pin(catalog, wanted)
        write_bundle(pins, folder / "paper.tar", citation_texts={})
    unpack(folder / "paper.tar", folder)
    return folder / "paper"


@pytest.fixture(scope="module")
def content(paper: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((paper / "dataset.lock.json").read_bytes())
    return found


# --- sections 3 and 4: the records ---


def records_of_file(path: Path) -> list[bytes]:
    data, found = path.read_bytes(), []
    if data.startswith(b"\x1f\x8b\x08"):
        data = gzip.decompress(data)
    while data:
        (length,) = struct.unpack_from("<Q", data)
        found.append(data[12 : 12 + length])
        data = data[12 + length + 4 :]
    return found


def records_of_pin(paper: Path, one: Any) -> Iterator[tuple[str, bytes]]:
    """Id and data of each record, in order."""
    folder = paper / "data" / one["dataset"] / (one["config"] or ".") / one["version"]
    for span in one["ranges"]:
        for file in sorted(one["files"], key=lambda file: file["index"]):
            if file["split"] == span["split"]:
                for place, data in enumerate(records_of_file(folder / file["name"])):
                    if span["start"] <= file["first_example"] + place < span["stop"]:
                        yield f"{file['name']}__{place}", data


# --- the encoding of protocol buffers, which the README names and does not explain ---


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        elif key & 7 == 5:
            at += 4
            yield key >> 3, data[at - 4 : at]
        else:
            length = varint()
            at += length
            yield key >> 3, data[at - length : at]


def values_of(message: bytes) -> dict[tuple[str, str], list[bytes]]:
    """By key and kind, the values of an Example, each as it is hashed."""
    found: dict[tuple[str, str], list[bytes]] = {}
    for _, features in fields(message):
        for _, pair in fields(features):
            parts = dict(fields(pair))
            for number, values in fields(parts[2]):
                kind = {1: "bytes", 2: "float", 3: "int64"}[number]
                reported = found.setdefault((parts[1].decode(), kind), [])
                for _, value in fields(values):
                    if kind == "bytes":
                        reported.append(value)
                    elif kind == "float":
                        reported += [value[at : at + 4] for at in range(0, len(value), 4)]
                    else:
                        reported += [struct.pack("<Q", one) for one in varints(value)]
    return found


def varints(data: bytes | int) -> list[int]:
    if isinstance(data, int):
        return [data]
    found, value, shift = [], 0, 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            found.append(value)
            value = shift = 0
    return found


# --- sections 5 and 6: the digests ---


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def written(digest: bytes) -> str:
    return f"sha256:{digest.hex()}"


def json_of(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def two_sums(weighted: list[tuple[int, int]]) -> str:
    """Of (weight, h)."""
    return f"{sum(h for _, h in weighted) % P:064x}-{sum(w * h for w, h in weighted) % P:064x}"


def features_of(messages: list[bytes]) -> dict[str, str]:
    runs = [[values_of(one) for one in messages[at : at + 1024]] for at in range(0, len(messages), 1024)]
    leaves: dict[str, bytes] = {}
    for key in sorted({key for run in runs for one in run for key, _ in one}):
        for run in runs:
            hashed = b""
            for kind in ("bytes", "float", "int64"):
                of_kind = [one.get((key, kind), []) for one in run]
                if not any(of_kind):
                    continue
                values = [value for one in of_kind for value in one]
                hashed += kind.encode() + b"\0" + b"".join(struct.pack("<Q", len(one)) for one in of_kind)
                if kind == "bytes":
                    hashed += b"".join(struct.pack("<Q", len(value)) for value in values)
                hashed += b"".join(values)
            leaves[key] = leaves.get(key, b"") + sha256(hashed)
    return {key: written(sha256(joined)) for key, joined in leaves.items()}


def leaves_of(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value that holds no others, with its key path."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            is_plain = re.fullmatch("[A-Za-z_][A-Za-z_0-9-]*", key)
            step = f".{key}" if is_plain and path else key if is_plain else f"[{json.dumps(key, ensure_ascii=False)}]"
            yield from leaves_of(inner, path + step)
    elif isinstance(value, list) and value:
        for place, inner in enumerate(value):
            yield from leaves_of(inner, f"{path}[{place}]")
    else:
        yield path, value


def finder_of_file(content: dict[str, Any]) -> str:
    weighted = []
    for path, value in leaves_of({key: value for key, value in content.items() if key not in ("digest", "finder")}):
        k = path.encode()
        h = int.from_bytes(sha256(k + b"\0" + json_of(value).encode()), "big")
        weighted.append((int.from_bytes(sha256(k)[:16], "big"), h))
    return two_sums(weighted)


def digest_of_file(content: dict[str, Any]) -> str:
    return written(sha256(json_of({k: v for k, v in content.items() if k not in ("digest", "finder")}).encode()))


def test_the_digests_of_records_equal_those_in_the_readme(paper: Path, content: dict[str, Any]) -> None:
    assert [one["num_examples"] for one in content["pins"]] == [1397, 1, 0]
    for one in content["pins"]:
        found = list(records_of_pin(paper, one))
        each = [sha256(data) for _, data in found]
        reported = one["records"]
        assert len(found) == one["num_examples"]
        assert reported["ordered"] == written(sha256(b"".join(each)))
        assert reported["unordered"] == written(sha256(b"".join(sorted(each))))
        assert reported["finder"] == two_sums([(i + 1, int.from_bytes(h, "big")) for i, h in enumerate(each)])
        for name, place in (("first", 0), ("middle", len(each) // 2), ("last", len(each) - 1)):
            spot = {"id": found[place][0], "sha256": written(each[place])} if each else None
            assert reported[name] == spot


def test_the_digests_of_features_equal_those_in_the_readme(paper: Path, content: dict[str, Any]) -> None:
    for one in content["pins"]:
        assert one["records"]["features"] == features_of([data for _, data in records_of_pin(paper, one)])
    assert set(content["pins"][0]["records"]["features"]) >= {"name", "kind", "small", "nested/far", "nested/many"}


def test_the_other_digests_equal_those_in_the_readme(paper: Path, content: dict[str, Any]) -> None:
    assert content["digest"] == digest_of_file(content)
    assert content["finder"] == finder_of_file(content)
    for one in content["pins"]:
        reported = one["features"]
        assert reported["digest"] == written(
            sha256(json_of({"features": reported["json"], "labels": reported["labels"]}).encode())
        )
        for file in one["files"]:
            path = paper / "data" / one["dataset"] / one["version"] / file["name"]
            assert file["sha256"] == written(sha256(path.read_bytes()))


def test_any_content_has_the_digest_and_the_finder_of_the_readme() -> None:
    content: dict[str, Any] = {
        "digest": "x",
        "finder": "y",
        "é": 1,
        "later": {
            "": [],
            "a.b": {},
            'q"\\\n\u2028\x7f': [[1], [None, True, 1.5, -2]],
            "-": "",
            "_-9": "ü\0",
            "9": 2**80,
        },
        "pins": [{"digest": "kept", "labels": {"image/data": ["a", "ß"]}}],
    }
    assert seal(content) == (digest_of_file(content), finder_of_file(content))
    paths = [path for path, _ in leaves_of(content)]
    assert 'pins[0].labels["image/data"][1]' in paths
    assert '["é"]' in paths


def test_the_readme_says_so(paper: Path) -> None:
    text = re.sub(r"\s+", " ", (paper / "README.txt").read_text())
    for words in (
        "h is sha256 over k, a zero byte and the JSON of v, as a number, highest byte first;",
        "its weight w is the number in the first 16 bytes of sha256 over k, highest byte first.",
        r"outside of ASCII as \uXXXX (in Python:",
    ):
        assert words in text
