"""Invalid values of the model, and the meaning of requests, references and templates."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.golden import check_errors

from registry.errors import ReferenceSyntaxError, UsageError
from registry.model import Reference, ShardedFileTemplate, ShardLengths, Split, Version, VersionRequest, check_new_name

GOLDEN = Path(__file__).with_name("golden")


NO_VERSIONS = [
    *("", "1", "1.2", "1.2.3.4", "01.2.3", " 1.2.3", "1.2.3\n", "1.2.-3", "1.2.3-rc1", "1.2.3+b", "١.2.3", "v1.2.3"),
    *("1.2.2147483648", "1" * 5000),
]
NO_REQUESTS = [
    *("", ",", "3,", "3.x", "03", "3.1.4.1", ">=*", "^3.*", "~*", "> =3", "latest", "3..1", "3\n", ">=\t3", "9" * 20),
    "3," * 200,
]
NO_REFERENCES = [
    *("", "1mnist", "mn ist", "mnist/", "mnist/..", "mnist:", "mnist@", "mnist@3", "mnist:3@paper", "mnist/a/b"),
    *("mnist\n", "été", "mnist:3:4", "../mnist", "a" * 201),
]


def test_a_text_that_is_no_version_request_or_reference_is_refused() -> None:
    texts = {Version: NO_VERSIONS, VersionRequest: NO_REQUESTS, Reference: NO_REFERENCES}
    calls = {
        f"{kind.__name__} {text[:60]!r}": partial(kind.parse, text) for kind, those in texts.items() for text in those
    }
    check_errors(GOLDEN / "model_values" / "texts.txt", calls)


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


def test_a_reference_names_a_request_or_an_alias() -> None:
    assert Reference.parse("mnist/plain@paper") == Reference("mnist", "plain", None, "paper")
    assert Reference.parse("mnist").request is None
    assert Reference.exactly("mnist", None, Version(3, 0, 1)) == Reference.parse("mnist:3.0.1")
    assert Reference.parse("mnist/plain:3").dataset == "mnist/plain"
    with pytest.raises(ReferenceSyntaxError, match="a version request or an alias, not both"):
        Reference("mnist", None, VersionRequest.parse("3"), "paper")


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("ds/config:1.0.0", "ds/config:1.0.0"),
        ("MyDataset", "my_dataset"),
        ("HTTPServer/cfg", "http_server/cfg"),
        ("MNIST@Paper", "mnist@Paper"),
        ("Ds2Foo:3", "ds2_foo:3.*.*"),
        ("ds/config=en", "ds/en"),
        ("ds/version=2.0.0", "ds:2.0.0"),
        ("ds/cfg/version=1.0.0", "ds/cfg:1.0.0"),
        ("ds:1.0.0/config=en", "ds/en:1.0.0"),
        ("ds/version=>=3.1,config=en", "ds/en:>=3.1"),
        ("ds@paper/config=en", "ds/en@paper"),
        ("ds/1.0.0", "ds/1.0.0"),
    ],
)
def test_a_name_string_of_tfds_is_a_reference(text: str, plain: str) -> None:
    assert str(Reference.parse(text)) == plain


def test_what_a_name_string_cannot_say_is_refused_with_the_mend() -> None:
    check_errors(
        GOLDEN / "model_values" / "what_a_name_string_cannot_say_is_refused_with_the_mend.txt",
        (
            partial(Reference.parse, text)
            for text in [
                "ds/cfg/config=en",
                "ds:1.0.0/version=2.0.0",
                "ds/config=a,config=a",
                "ds/cfg:1.2.3/a=1",
                "huggingface:foo/bar",
                "ds:latest",
                "my_ns:coco:1.0.0",
                "Sales, north",
                ",",
                "ds:experimental_latest",
                "ds/config=small:2.0.0",
                "ds:",
                "ds@paper/version=1.0.0",
                "ds/cfg/",
                "ds/cfg/1.0.0",
                "ds/a=b=c",
                "ds/config=a,",
                "ds/a=,b=1",
                "ds/=1",
                "ds/config=",
            ]
        ),
    )


def test_a_name_that_look_ups_would_fold_is_refused_for_new_datasets_only() -> None:
    assert check_new_name("my_dataset") == "my_dataset"
    with pytest.raises(ReferenceSyntaxError) as caught:
        check_new_name("MyDataset")
    assert caught.value.message == (
        "a dataset cannot be named 'MyDataset': look-ups fold names to lower case, as TFDS does"
    )
    assert caught.value.hint == "Use the name my_dataset."
    assert Reference.exactly("MyDataset", None, Version(1, 0, 0)).name == "MyDataset"


def test_a_template_that_names_no_shard_file_is_refused() -> None:
    check_errors(
        GOLDEN / "model_values" / "a_template_that_names_no_shard_file_is_refused.txt",
        (
            partial(ShardedFileTemplate, dataset="mnist", template=template)
            for template in [
                "{DATASET}-{SPLIT}",
                "{DATASET}.tfrecord.gz",
                "../table.tfrecord.gz",
                "{NAME}-{SHARD_X_OF_Y}",
                "{SHARD_INDEX}-{SHARD_INDEX}",
                "{SHARD_INDEX}-{SHARD_X_OF_Y}",
                "./{SHARD_X_OF_Y}",
                "a//{SHARD_X_OF_Y}",
                "../{SHARD_X_OF_Y}",
                "a/../../{SHARD_X_OF_Y}",
                "/{SHARD_X_OF_Y}",
                "a\\{SHARD_X_OF_Y}",
                "{SHARD_X_OF_Y}{0}",
            ]
        ),
    )


def test_shard_numbers_are_padded_to_the_number_of_shards() -> None:
    files = ShardedFileTemplate(dataset="mnist")
    assert files.filename("train", 7, 99_999) == "mnist-train.tfrecord-00007-of-99999"
    assert files.filename("train", 7, 100_000) == "mnist-train.tfrecord-000007-of-100000"


def test_a_split_that_cannot_be_is_refused() -> None:
    lengths: list[Any] = [[1, -1], [2**63], [2**62, 2**62], [1.5], ["1"]]
    calls: list[Callable[[], Any]] = [partial(ShardLengths, each) for each in lengths]
    calls += [partial(Split, name=name, shard_lengths=ShardLengths([])) for name in ("all", "-_", "a/b")]
    calls.append(partial(Split, name="train", shard_lengths=ShardLengths([]), num_bytes=-1))
    check_errors(GOLDEN / "model_values" / "splits.txt", calls)


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


def test_a_template_without_variables_names_the_only_file_of_a_split() -> None:
    files = ShardedFileTemplate(dataset="demo", template="Training_demo.tfrecord.gz")
    assert not files.has_index
    assert files.filename("train", 0, 1) == "Training_demo.tfrecord.gz"
    assert files.parse("Training_demo.tfrecord.gz") == ("", 0, 1)
    assert files.parse("Training-demo.tfrecord.gz") is None
    assert Split(name="train", shard_lengths=ShardLengths([3]), files=files).filenames == ["Training_demo.tfrecord.gz"]
    with pytest.raises(UsageError) as caught:
        Split(name="train", shard_lengths=ShardLengths([3, 4]), files=files)
    assert caught.value.message == (
        "the split train has 2 shards, but its template gives only one file name: 'Training_demo.tfrecord.gz'"
    )


def test_the_word_of_tfds_for_the_highest_version_is_refused_with_ours() -> None:
    with pytest.raises(ReferenceSyntaxError) as caught:
        VersionRequest.parse("experimental_latest")
    assert caught.value.hint == "Write '*' for the highest version, experimental ones included."
