"""Changes from one version to another and their level: every kind of change, without files."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.golden import check_texts

from registry.errors import UsageError
from registry.features import (
    Audio,
    BBox,
    ClassLabel,
    FeaturesDict,
    Image,
    LabeledImage,
    RawFeature,
    Scalar,
    Tensor,
    Text,
    Translation,
    Video,
    codec_of,
    features_to_json,
)
from registry.features import Dataset as Nested
from registry.features import Sequence as Repeated
from registry.features.containers import content_path
from registry.features.content import ContentReader
from registry.model import (
    DatasetMetadata,
    DatasetVersion,
    FeatureFingerprint,
    ShardLengths,
    SlicingRule,
    Split,
    SplitFingerprint,
    Version,
    block_size,
)
from registry.publishing.changes import ChangeLevel, Changes, FingerprintedVersion, compare_versions
from registry.publishing.record_diff import tell_apart

GOLDEN = Path(__file__).with_name("golden")

NUMBERS = FeaturesDict({"number": "int64"})
ROWS: Mapping[str, Sequence[Mapping[str, Any]]] = {"train": [{"number": 1}, {"number": 2}], "test": [{"number": 3}]}


def fingerprint(features: FeaturesDict, examples: Sequence[Mapping[str, Any]]) -> SplitFingerprint:
    reader = ContentReader(features)
    contents = [reader.read(codec_of(features).encode(example)) for example in examples]
    found = {}
    for place, path in enumerate(reader.paths):
        leaves = [
            hashlib.sha256(b"".join(content[place] for content in contents[start : start + 1024])).digest()
            for start in range(0, len(examples), 1024)
        ]
        found[path] = FeatureFingerprint.of_leaves(b"".join(leaves), num_examples=len(examples))
    return SplitFingerprint(num_examples=len(examples), features=found)


def described(
    version: str = "1.0.0",
    splits: Mapping[str, Sequence[Mapping[str, Any]]] = ROWS,
    features: FeaturesDict = NUMBERS,
    *,
    shards: int = 1,
    has_fingerprints: bool = True,
    **changes: Any,
) -> FingerprintedVersion:
    """A version of these examples, with a unique content digest."""
    made = DatasetVersion(
        name="data",
        version=Version.parse(version),
        splits=tuple(
            Split(name=name, shard_lengths=ShardLengths([len(examples), *[0] * (shards - 1)]))
            for name, examples in splits.items()
        ),
        features_json=features_to_json(features),
        labels={stem: tuple(names) for stem, names in features.labels().items()},
        location="",
        content_digest=hashlib.sha256(version.encode()).hexdigest(),
    )
    found = {name: fingerprint(features, examples) for name, examples in splits.items()} if has_fingerprints else {}
    return FingerprintedVersion(version=dataclasses.replace(made, **changes), fingerprints=found)


def compare(old: FingerprintedVersion, **new: Any) -> Changes:
    return compare_versions(old, described("1.0.1", **new))


def lines_of(changes: Changes) -> list[tuple[str, str, str]]:
    return [(change.level.name, change.kind, change.text) for change in changes.changes]


def test_the_same_digest_means_no_change() -> None:
    changes = compare_versions(described(), described())
    assert (changes.changes, changes.level.name, str(changes.smallest)) == ((), "NONE", "1.0.1")
    assert changes.differing == {"train": (), "test": ()}


def test_other_bytes_for_the_same_records_are_a_patch() -> None:
    changes = compare(described())
    assert lines_of(changes) == [("PATCH", "storage", "schema or shards contain other bytes for the same records")]


def test_shards_are_a_patch() -> None:
    assert lines_of(compare(described(shards=3))) == [
        ("PATCH", "storage", "split train has 1 shard, had 3 shards"),
        ("PATCH", "storage", "split test has 1 shard, had 3 shards"),
    ]


def test_shards_cut_elsewhere_are_a_patch() -> None:
    old, new = described(), described("1.0.1")
    for one, lengths in ((old, [2, 0]), (new, [1, 1])):
        train = dataclasses.replace(one.version.splits[0], shard_lengths=ShardLengths(lengths))
        version = dataclasses.replace(one.version, splits=(train, one.version.splits[1]))
        old, new = (dataclasses.replace(one, version=version) if side is one else side for side in (old, new))
    assert lines_of(compare_versions(old, new)) == [
        ("PATCH", "storage", "split train has 2 shards with other boundaries"),
    ]


def test_words_are_a_patch() -> None:
    metadata = DatasetMetadata(description="Numbers.", homepage="https://example.org", supervised_keys=("a", "b"))
    assert lines_of(compare(described(), metadata=metadata)) == [
        ("PATCH", "metadata", 'description is "Numbers.", was ""'),
        ("PATCH", "metadata", 'homepage is "https://example.org", was ""'),
        ("PATCH", "metadata", 'supervised_keys is ["a", "b"], was null'),
        ("PATCH", "storage", "schema or shards contain other bytes for the same records"),
    ]


def test_an_added_feature_is_a_minor_and_a_removed_one_a_major() -> None:
    more = FeaturesDict({"number": "int64", "text": Text()})
    rows = {name: [{**row, "text": "x"} for row in rows] for name, rows in ROWS.items()}
    up = compare(described(), splits=rows, features=more)
    assert lines_of(up) == [("MINOR", "features", "feature text is new (Text)")]
    assert str(up.smallest) == "1.1.0"
    down = compare(described(splits=rows, features=more))
    assert lines_of(down) == [("MAJOR", "features", "feature text was removed (Text)")]
    assert str(down.smallest) == "2.0.0"


RETYPED: list[tuple[Any, Any]] = [
    (Scalar("int64"), Scalar("int32")),
    (Tensor(shape=(2,), dtype="str"), Tensor(shape=(3,), dtype="str")),
    (Repeated("int64"), Repeated("int64", 2)),
    (Repeated("int64"), Tensor(shape=(None,), dtype="int64")),
    (Text(), Scalar("str")),
    (BBox(), Tensor(shape=(4,), dtype="float32")),
    (BBox(), BBox(bbox_format="XYWH")),
    (BBox(bbox_format=None), BBox()),
    (Scalar("int8"), Scalar("int8", optional=True)),
    (Repeated("int8"), Nested("int8")),
    (Nested("int8"), Nested("int8", 2)),
    (Audio(), Audio(dtype="int16")),
    (RawFeature(class_name="my.Own", node={"pythonClassName": "my.Own"}), Text()),
    (LabeledImage(names=["a", "b"], shape=(2, 2, 1)), LabeledImage(names=["a", "c"], shape=(2, 2, 1))),
    (Image(shape=(None, None, 3)), Image(shape=(8, 8, 3))),
    (ClassLabel(num_classes=2), ClassLabel(num_classes=3)),
    (ClassLabel(names=["a", "b", "c"]), ClassLabel(names=["a", "c", "b"])),
    (ClassLabel(names=["cat", "dog"]), ClassLabel(names=["ant", "cat", *(f"x{number}" for number in range(6))])),
    (ClassLabel(num_classes=1), ClassLabel(names=["a"])),
    (Repeated(ClassLabel(num_classes=2)), Repeated(ClassLabel(num_classes=2), 1)),
    (Scalar("int64"), Scalar("int64", description="timestamp[us, tz=UTC]: microseconds since 1970-01-01T00:00:00.")),
    (
        Scalar("int64", description="time64[us]: microseconds since midnight."),
        Scalar("int64", description="date64[ms]: milliseconds since 1970-01-01."),
    ),
    (
        Scalar("int32", description="time32[s]: seconds since midnight.", optional=True),
        Scalar("int32", description="date32[day]: days since 1970-01-01.", optional=True),
    ),
]


def test_a_retyped_feature_is_a_major() -> None:
    def compare_types(before: Any, after: Any) -> str:
        old = described(splits={"train": []}, features=FeaturesDict({"x": before}))
        changes = compare(old, splits={"train": []}, features=FeaturesDict({"x": after}))
        is_compared = "its values were not compared" not in changes.changes[0].text
        assert changes.common == (("x",) if is_compared else ())
        return "".join(f"{' '.join(line)}\n" for line in lines_of(changes))

    check_texts(
        GOLDEN / "version_changes" / "a_retyped_feature_is_a_major.txt",
        (compare_types(before, after) for before, after in RETYPED),
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Tensor(shape=(2,), dtype="int64"), Tensor(shape=(2,), dtype="int64", encoding="bytes")),
        (Scalar("int64"), Tensor(shape=(), dtype="int64")),
        (Scalar("int64", minimum=0), Scalar("int64", description="A number.", value_range="0 or more")),
        (Image(encoding_format="png"), Image(encoding_format="jpeg", use_colormap=True)),
        (Repeated({"a": "int64"}), {"a": Repeated("int64")}),
        (Repeated(Scalar("int8")), Repeated(Scalar("int8", optional=True))),
        (Repeated(Image(shape=(2, 2, 1))), Video(shape=(None, 2, 2, 1))),
        (Translation(languages=["de"]), {"de": Text()}),
        (Audio(), Audio(lazy_decode=True, sample_rate=8000)),
    ],
)
def test_a_change_that_readers_cannot_see_is_not_a_type_change(before: Any, after: Any) -> None:
    old = described(splits={"train": []}, features=FeaturesDict({"x": before}))
    changes = compare(old, splits={"train": []}, features=FeaturesDict({"x": after}))
    assert [change.level.name for change in changes.changes] == ["PATCH"]


def test_names_that_are_spelled_alike_are_other_features() -> None:
    flat, nested = FeaturesDict({"a/b": "int64"}), FeaturesDict({"a": {"b": "int64"}})
    old = described(splits={"train": [{"a/b": 1}]}, features=flat)
    assert lines_of(compare(old, splits={"train": [{"a": {"b": 1}}]}, features=nested)) == [
        ("MAJOR", "features", r"feature a\/b was removed (Tensor int64)"),
        ("MINOR", "features", "feature a/b is new (Tensor int64)"),
    ]
    assert ContentReader(FeaturesDict({"a/b": "int64", "a": {"b": Repeated(Repeated("int64"))}})).paths == (
        "a/b",
        r"a\/b",
    )
    assert content_path(["a\\", "b"]) != content_path(["a\\/b"]) != content_path(["a", "b"])
    assert len({content_path(["x" * 2000 + end]) for end in "ab"}) == 2
    assert len(content_path(["é" * 2000]).encode()) <= 1000


def test_dicts_without_features_count() -> None:
    empty = FeaturesDict({"number": "int64", "box": {}})
    rows = {name: [{**row, "box": {}} for row in rows] for name, rows in ROWS.items()}
    up = compare(described(), splits=rows, features=empty)
    assert lines_of(up) == [("MINOR", "features", "feature box is new (a dict without features)")]
    down = compare(described(splits=rows, features=empty))
    assert lines_of(down) == [("MAJOR", "features", "feature box was removed (a dict without features)")]
    full = FeaturesDict({"number": "int64", "box": {"x": "bool"}})
    filled = {name: [{**row, "box": {"x": True}} for row in rows] for name, rows in ROWS.items()}
    assert lines_of(compare(described(splits=rows, features=empty), splits=filled, features=full)) == [
        ("MINOR", "features", "feature box/x is new (Tensor bool)")
    ]


def test_changed_records_are_a_major_change_and_their_block_is_reported() -> None:
    rows = [{"number": number} for number in range(3000)]
    changed = [*rows[:2050], {"number": -1}, *rows[2051:]]
    changes = compare(described(splits={"train": rows}), splits={"train": changed})
    assert lines_of(changes) == [
        ("MAJOR", "records", "split train has other values of number, the first of them in records 2048..3000")
    ]
    assert changes.differing == {"train": ((range(2048, 3000), range(2048, 3000)),)}


def test_added_records_are_a_major_and_equal_blocks_before_them_are_left_out() -> None:
    rows = [{"number": number} for number in range(3000)]
    changes = compare(described(splits={"train": rows[:2100]}), splits={"train": rows})
    assert lines_of(changes) == [("MAJOR", "records", "split train has 3,000 records, had 2,100")]
    assert changes.differing == {"train": ((range(2048, 2100), range(2048, 3000)),)}
    back = compare(described(splits={"train": rows}), splits={"train": []})
    assert back.differing == {"train": ((range(3000), range(0)),)}


def test_records_without_a_common_feature_are_compared_by_their_number() -> None:
    old = described(splits={"train": [{"number": number} for number in range(10)]})
    others = [{"other": number} for number in range(20)]
    changes = compare(old, splits={"train": others}, features=FeaturesDict({"other": "int64"}))
    assert changes.differing == {"train": ((range(10, 10), range(10, 20)),)}


def test_blocks_that_differ_in_a_row_are_one_range() -> None:
    rows = [{"number": number} for number in range(6 * 1024)]
    changed = [{"number": -row["number"] if row["number"] // 1024 in (1, 2, 5) else row["number"]} for row in rows]
    changes = compare(described(splits={"train": rows}), splits={"train": changed})
    assert [old for old, _ in changes.differing["train"]] == [range(1024, 3072), range(5120, 6144)]


def test_splits_are_a_major() -> None:
    changes = compare(described(), splits={"train": ROWS["train"], "more": ROWS["test"]})
    assert lines_of(changes) == [
        ("MAJOR", "splits", "split test was removed, with 1 record"),
        ("MAJOR", "splits", "split more is new, with 1 record"),
    ]
    turned = compare(described(), splits={"test": ROWS["test"], "train": ROWS["train"]})
    assert lines_of(turned) == [
        ("MAJOR", "splits", "the splits have another order, which is the order of 'all': test, train")
    ]


def test_the_slicing_rule_and_the_order_are_a_major() -> None:
    changes = compare(described(), slicing=SlicingRule.TFDS_4, disable_shuffling=True)
    assert lines_of(changes) == [
        ("MAJOR", "slicing", "split expressions follow the rule tfds-4, followed documented"),
        ("MAJOR", "order", "shuffling is disabled, which changes the reading order"),
    ]


def test_what_cannot_be_compared_is_a_major() -> None:
    old = dataclasses.replace(described(has_fingerprints=False), unread="the disk is away")
    changes = compare(old)
    assert lines_of(changes) == [
        (
            "MAJOR",
            "records",
            f"split {name} was not compared: data:1.0.0 was published without fingerprints, and the disk is away",
        )
        for name in ("train", "test")
    ]
    assert changes.differing == {}
    same = dataclasses.replace(described("1.0.1").version, content_digest=old.version.content_digest)
    assert compare_versions(old, FingerprintedVersion(version=same, fingerprints={})).changes == ()


@pytest.mark.parametrize(
    ("number", "level", "smallest"),
    [
        ("1.2.3", "patch", "1.2.4"),
        ("1.2.3", "major", "2.0.0"),
        ("1.2.2147483647", "patch", "1.3.0"),
        ("1.2147483647.2147483647", "patch", "2.0.0"),
        ("2147483647.0.0", "patch", "2147483647.0.1"),
        ("2147483647.0.0", "major", "None"),
    ],
)
def test_the_smallest_number_exists(number: str, level: str, smallest: str) -> None:
    splits = ROWS if level == "patch" else {"train": []}
    assert str(compare(described(number), splits=splits).smallest) == smallest


@pytest.mark.parametrize(
    ("old", "new", "level"),
    [("1.0.0", "1.0.9", 1), ("1.0.9", "1.1.0", 2), ("1.9.9", "2.0.0", 3), ("1.0.0", "1.0.0", 0)],
)
def test_the_step_between_two_numbers(old: str, new: str, level: int) -> None:
    assert ChangeLevel.between(Version.parse(old), Version.parse(new)) == level


@pytest.mark.parametrize(
    ("num_examples", "size", "blocks"),
    [(0, 1024, 0), (1, 1024, 1), (1024, 1024, 1), (1_048_576, 1024, 1024), (1_048_577, 2048, 513), (10**9, 2**20, 954)],
)
def test_blocks_of_splits_of_any_size(num_examples: int, size: int, blocks: int) -> None:
    assert block_size(num_examples) == size
    leaves = [number.to_bytes(32, "big") for number in range(-(-min(num_examples, 2 * 10**6) // 1024))]
    if num_examples <= 2 * 10**6:
        found = FeatureFingerprint.of_leaves(b"".join(leaves), num_examples=num_examples)
        assert len(found.blocks) == blocks
        split = SplitFingerprint(num_examples=num_examples, features={"x": found})
        assert sum(len(split.block(index)) for index in range(split.num_blocks)) == num_examples
    assert SplitFingerprint(num_examples=num_examples, features={}).num_blocks == blocks


def test_splits_with_blocks_of_other_sizes_are_compared_as_a_whole() -> None:
    leaves = [b"%32d" % number for number in range(1025)]
    sides = []
    for count in (1_048_576, 1_048_577):
        found = FeatureFingerprint.of_leaves(b"".join(leaves[: -(-count // 1024)]), num_examples=count)
        one = described("1.0.0" if not sides else "1.0.1", splits={"train": []})
        split = Split(name="train", shard_lengths=ShardLengths([count]))
        sides.append(
            FingerprintedVersion(
                version=dataclasses.replace(one.version, splits=(split,)),
                fingerprints={"train": SplitFingerprint(num_examples=count, features={"number": found})},
            )
        )
    assert compare_versions(*sides).differing == {"train": ((range(1_048_576), range(1_048_577)),)}


def test_a_fingerprint_needs_a_digest_for_each_block() -> None:
    found = FeatureFingerprint.of_leaves(b"x" * 32, num_examples=1)
    with pytest.raises(UsageError, match="feature 'x': 1 block digests for 2 blocks"):
        SplitFingerprint(num_examples=1025, features={"x": found})


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (b"a cat", b"a dog", ("'a cat'", "'a dog'")),
        (b"\xff", b"\\xff", (r"b'\xff'", r"b'\\xff'")),
        (b"x" * 500 + b"cat", b"x" * 500 + b"dog", ("…'" + "x" * 20 + "cat'", "…'" + "x" * 20 + "dog'")),
        (b"\x80" * 5000 + b"a", b"\x80" * 5000 + b"b", None),
        (np.int64(3), np.int64(5), ("3", "5")),
        (np.float32(0.0), np.float32(-0.0), ("0.0", "-0.0")),
        (np.int8(-128), None, ("-128", "null")),
        (None, b"null", ("null", "'null'")),
        (None, np.array([1, 2]), ("null", "[1, 2]")),
        (np.zeros(9), None, ("float64", "null")),
        ({"x": np.arange(1)}, {"y": np.arange(1)}, ("{'x': array([0])}", "{'y': array([0])}")),
        ({"x": np.zeros(2000)}, {"x": np.ones(2000)}, None),
        (np.array([1, 2]), np.array([1, 3]), ("[1, 2]", "[1, 3]")),
        (np.zeros(9), np.array([0.0] * 8 + [-0.0]), ("0.0", "-0.0 at [8]; 1 of 9 values differ")),
        (np.zeros((9, 9)), np.zeros((9, 8)), ("float64 of shape (9, 9)", "float64 of shape (9, 8)")),
        (np.array([b"a", b"b"], object), np.array([b"a", b"c"], object), ("'b'", "'c' at [1]; 1 of 2 values differ")),
    ],
)
def test_different_values_are_told_apart(before: Any, after: Any, words: tuple[str, str] | None) -> None:
    found = tell_apart(before, after)
    assert found[0] != found[1]
    assert words is None or found == words
