"""What the model refuses, and what requests, references and templates mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from registry.errors import ReferenceSyntaxError, UsageError
from registry.model import Reference, ShardedFileTemplate, ShardLengths, Split, Version, VersionRequest


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "1.2",
        "1.2.3.4",
        "01.2.3",
        " 1.2.3",
        "1.2.3\n",
        "1.2.-3",
        "1.2.3-rc1",
        "1.2.3+b",
        "١.2.3",
        "v1.2.3",
        "1.2.2147483648",
        "1" * 5000,
    ],
)
def test_a_text_that_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(ReferenceSyntaxError) as caught:
        Version.parse(text)
    assert str(caught.value).startswith("invalid version ")


@pytest.mark.parametrize(
    ("request_text", "allowed", "refused"),
    [
        ("3.0.1", ["3.0.1"], ["3.0.2"]),
        ("3.*.*", ["3.0.0", "3.9.9"], ["2.9.9", "4.0.0"]),
        ("3.*", ["3.0.0", "3.9.9"], ["4.0.0"]),
        ("3", ["3.0.0", "3.9.9"], ["4.0.0"]),
        ("*", ["0.0.0", "9.9.9"], []),
        ("3.*.1", ["3.0.1", "3.7.1"], ["3.0.0", "4.0.1"]),
        ("^3.1", ["3.1.0", "3.9.0"], ["3.0.9", "4.0.0"]),
        ("^0.3.1", ["0.3.1", "0.3.9"], ["0.4.0", "0.3.0"]),
        ("^0.0.3", ["0.0.3"], ["0.0.4"]),
        ("^0", ["0.0.0", "0.9.9"], ["1.0.0"]),
        ("~3.1", ["3.1.0", "3.1.9"], ["3.2.0", "3.0.9"]),
        ("~3.1.4", ["3.1.4", "3.1.9"], ["3.1.3", "3.2.0"]),
        ("~3", ["3.0.0", "3.9.9"], ["4.0.0"]),
        (">=3.1, <4", ["3.1.0", "3.9.9"], ["3.0.9", "4.0.0"]),
        ("<=3.1", ["3.1.9", "0.0.0"], ["3.2.0"]),
        (">3", ["4.0.0"], ["3.9.9", "3.0.0"]),
        ("!=3.1.*", ["3.2.0", "3.0.0"], ["3.1.0", "3.1.9"]),
        ("=3.1.0", ["3.1.0"], ["3.1.1"]),
    ],
)
def test_a_request_allows_these_versions(request_text: str, allowed: list[str], refused: list[str]) -> None:
    request = VersionRequest.parse(request_text)
    assert [text for text in allowed if not request.allows(Version.parse(text))] == []
    assert [text for text in refused if request.allows(Version.parse(text))] == []


@pytest.mark.parametrize(
    "text", ["", ",", "3,", "3.x", "03", "3.1.4.1", ">=*", "^3.*", "~*", "> =3", "latest", "3..1", "9" * 20, "3," * 200]
)
def test_a_text_that_is_no_request_is_refused(text: str) -> None:
    with pytest.raises(ReferenceSyntaxError) as caught:
        VersionRequest.parse(text)
    assert str(caught.value) == f"invalid version request {text[:60]!r}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1mnist",
        "mn ist",
        "mnist/",
        "mnist/..",
        "mnist:",
        "mnist@",
        "mnist@3",
        "mnist:3@paper",
        "mnist/a/b",
        "mnist\n",
        "été",
        "mnist:3:4",
        "../mnist",
        "a" * 201,
    ],
)
def test_a_text_that_is_no_reference_is_refused(text: str) -> None:
    with pytest.raises(ReferenceSyntaxError):
        Reference.parse(text)


def test_a_reference_names_a_request_or_an_alias() -> None:
    assert Reference.parse("mnist/plain@paper") == Reference("mnist", "plain", None, "paper")
    assert Reference.parse("mnist").request is None
    assert Reference.exactly("mnist", None, Version(3, 0, 1)) == Reference.parse("mnist:3.0.1")
    assert Reference.parse("mnist/plain:3").dataset == "mnist/plain"
    with pytest.raises(ReferenceSyntaxError, match="a version request or an alias, not both"):
        Reference("mnist", None, VersionRequest.parse("3"), "paper")


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{DATASET}-{SPLIT}", "it does not use SHARD_X_OF_Y or SHARD_INDEX"),
        ("{NAME}-{SHARD_X_OF_Y}", "it uses the unknown variable NAME"),
        ("{SHARD_INDEX}-{SHARD_INDEX}", "it uses a variable twice"),
        ("{SHARD_INDEX}-{SHARD_X_OF_Y}", "it uses a variable twice"),
        ("./{SHARD_X_OF_Y}", "it is no path of a file below the version's folder"),
        ("a//{SHARD_X_OF_Y}", "it is no path of a file below the version's folder"),
        ("../{SHARD_X_OF_Y}", "it is no path of a file below the version's folder"),
        ("a/../../{SHARD_X_OF_Y}", "it is no path of a file below the version's folder"),
        ("/{SHARD_X_OF_Y}", "it is no path of a file below the version's folder"),
        ("a\\{SHARD_X_OF_Y}", "it is no path of a file below the version's folder"),
        ("{SHARD_X_OF_Y}{0}", "it is no path of a file below the version's folder"),
    ],
)
def test_a_template_that_names_no_shard_file_is_refused(template: str, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        ShardedFileTemplate(dataset="mnist", template=template)
    assert str(caught.value) == f"invalid shard file template {template!r}: {why}"


def test_shard_numbers_are_padded_to_the_number_of_shards() -> None:
    files = ShardedFileTemplate(dataset="mnist")
    assert files.filename("train", 7, 99_999) == "mnist-train.tfrecord-00007-of-99999"
    assert files.filename("train", 7, 100_000) == "mnist-train.tfrecord-000007-of-100000"


@pytest.mark.parametrize(
    "make",
    [
        lambda: ShardLengths([1, -1]),
        lambda: ShardLengths([2**63]),
        lambda: ShardLengths([2**62, 2**62]),
        lambda: ShardLengths([1.5]),  # type: ignore[list-item]
        lambda: ShardLengths(["1"]),  # type: ignore[list-item]
        lambda: Split(name="all", shard_lengths=ShardLengths([])),
        lambda: Split(name="-_", shard_lengths=ShardLengths([])),
        lambda: Split(name="a/b", shard_lengths=ShardLengths([])),
        lambda: Split(name="train", shard_lengths=ShardLengths([]), num_bytes=-1),
    ],
)
def test_a_split_that_cannot_be_is_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(UsageError):
        make()


def test_a_split_counts_and_names_its_shards() -> None:
    split = Split(name="train", shard_lengths=ShardLengths([3, 0]), files=ShardedFileTemplate(dataset="mnist"))
    assert (split.num_examples, split.num_shards) == (3, 2)
    assert split.filenames == ["mnist-train.tfrecord-00000-of-00002", "mnist-train.tfrecord-00001-of-00002"]
    assert repr(ShardLengths(range(10))) == "ShardLengths([0, 1, 2, 3, 4, 5, 6, 7, ...])"
    assert ShardLengths([1]) != (1,)


def test_shard_lengths_equal_the_list_of_them() -> None:
    lengths = ShardLengths([3, 0, 4])
    assert lengths == [3, 0, 4]
    assert lengths != [3, 4]
    assert lengths == ShardLengths([3, 0, 4])
    assert hash(lengths) == hash(ShardLengths([3, 0, 4]))
