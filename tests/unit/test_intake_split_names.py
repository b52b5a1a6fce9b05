"""Splits from the names of folders and files: what counts, what does not, and the errors when only some names do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.errors import SourceError, UsageError
from registry.intake.detect import open_source
from registry.intake.in_place import order_shards
from registry.intake.options import AddOptions
from registry.intake.split_names import NamedSplits
from registry.intake.split_names import find_splits as find_splits_by
from registry.model import ShardedFileTemplate

WORDS = ["train", "training", "test", "testing", "eval", "evaluation", "validation", "valid", "val", "dev"]
NAMES = st.lists(
    st.lists(
        st.sampled_from([*WORDS, "cat", "x.csv", "my_train.csv", "test-0.csv", "photo of a train.jpg", "🚂", "a\nb"]),
        min_size=1,
        max_size=4,
    ).map("/".join),
    unique=True,
    min_size=1,
    max_size=8,
)


def find_splits(names: list[str], globs: dict[str, str], **options: bool) -> NamedSplits:
    return find_splits_by(names, AddOptions(splits=globs), **options)


def assign_splits(names: list[str], globs: dict[str, str], **options: bool) -> dict[str, list[str]]:
    return find_splits(names, globs, **options).files


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("train.csv", "train"),
        ("my_train.csv", "train"),
        ("train-00000-of-00002.parquet", "train"),
        ("train-00000-of-00002-5f0a9c31d2.parquet", "train"),
        ("data.test.jsonl", "test"),
        ("adult.test", "test"),
        ("EVAL.csv.gz", "test"),
        ("val2017.json", "validation"),
        ("dev/a.csv", "validation"),
        ("data/Validation/deep/a.csv", "validation"),
        ("test/train.csv", "test"),  # the folder decides
        ("val/train/1.csv", "validation"),  # the outermost folder decides
        ("My data_test.csv", "test"),
    ],
)
def test_a_name_that_contains_a_split(name: str, split: str) -> None:
    assert assign_splits([name], {}) == {split: [name]}


@pytest.mark.parametrize(
    "name",
    [
        *("photo of a test.jpg", "a test.csv", "a crash-test.csv at night.csv", "the crash-test.csv", "test - 1.csv"),
        *("test_scores.csv", "contest.csv", "devices.csv", "train_test.csv", "my test/1.csv", "crash_test/1.csv"),
    ],
)
def test_a_name_that_contains_no_split(name: str) -> None:
    assert assign_splits([name], {}) == {"train": [name]}


def test_a_word_with_other_words_after_it_counts_next_to_another_split() -> None:
    assert assign_splits(["train_en.csv", "train_fr.csv", "test_en.csv"], {}) == {
        "train": ["train_en.csv", "train_fr.csv"],
        "test": ["test_en.csv"],
    }
    assert assign_splits(["test.csv", "test_labels.csv"], {}) == {"test": ["test.csv", "test_labels.csv"]}


def test_folders_that_differ_only_in_the_word_are_splits() -> None:
    names = ["train_images/1.png", "test_images/1.png"]
    assert assign_splits(names, {}) == {"train": names[:1], "test": names[1:]}
    names = ["dev-clean/1.flac", "train-clean-100/1.flac", "train-clean-360/1.flac"]
    assert assign_splits(names, {}) == {"train": names[1:], "validation": names[:1]}
    for names in (["bullet_train/1.png", "crash_test/1.png"], ["test_1/1.png", "test_2/1.png"]):
        assert assign_splits(names, {}) == {"train": names}


def test_missing_shards_are_stated() -> None:
    names = [f"a/train-{shard:05}-of-00003.csv" for shard in range(3)]
    assert find_splits(names, {}).reason == "from the names of files"
    hashed = ["train-00000-of-00002-5f0a9c31.csv", "train-00001-of-00002-a1b2c3d4.csv"]  # as Hugging Face named them
    assert find_splits(hashed, {}).reason == "from the names of files"
    names.append("a/test-00001-of-00002.csv")
    told = "; of a/test-*-of-00002.csv, 1 of 2 shards exist"
    assert find_splits(names, {}).reason == f"from the names of files{told}"
    assert find_splits(["x-00000-of-00009-0a1b.csv"], {}).reason == (
        "one split: no folder or file is named after a split; of x-*-of-00009-0a1b.csv, 1 of 9 shards exist"
    )


def test_a_picture_called_test_is_a_picture() -> None:
    found = find_splits(["test.png", "train.png"], {}, folders_only=True)
    assert found.files == {"train": ["test.png", "train.png"]}
    assert found.reason == "one split: no folder is named after a split"


def test_splits_are_ordered_and_their_reason_is_stated() -> None:
    assert list(assign_splits(["test.csv", "val.csv", "train.csv"], {})) == ["train", "validation", "test"]
    assert find_splits(["a.csv"], {}).reason == "one split: no folder or file is named after a split"
    assert find_splits(["train.csv", "test.csv"], {}).reason == "from the names of files"
    assert find_splits(["train/1.csv"], {}).reason == "from the names of folders"
    assert find_splits(["train/1.csv", "test.csv"], {}).reason == "from the names of folders and files"


def test_files_without_a_split_next_to_files_with_one_are_an_error() -> None:
    with pytest.raises(SourceError) as caught:
        assign_splits(["train/1.csv", "train/2.csv", "test.csv", "extra.csv", *(f"more/{i}.csv" for i in range(9))], {})
    assert str(caught.value) == (
        "only some names contain a split (train: 'train/1.csv' and 1 more, test: 'test.csv'); these do not: "
        "'extra.csv', 'more/0.csv', 'more/1.csv', 'more/2.csv', 'more/3.csv' and 5 more"
    )
    assert caught.value.hint == (
        "Give a glob for each split, such as splits={'train': 'train/*', 'test': 'test.csv'}; files that none "
        "matches are skipped. For one split of all files: splits={'train': '*'}"
    )


def test_globs() -> None:
    names = ["a/1.csv", "a/2.csv", "b/c/1.csv", "d [1].csv"]
    found = find_splits(names, {"one": "a/*", "two": "b"})
    assert found.files == {"one": ["a/1.csv", "a/2.csv"], "two": ["b/c/1.csv"]}
    assert found.unmatched == ["d [1].csv"]
    assert found.reason == "as given by `splits`"
    assert assign_splits(names, {"x": "d [1].csv"}) == {"x": ["d [1].csv"]}
    assert assign_splits(names, {"all-of-it": "*"}) == {"all-of-it": names}


def test_globs_that_overlap_or_match_nothing() -> None:
    with pytest.raises(SourceError) as caught:
        assign_splits(["a/1.csv"], {"train": "*.csv", "test": "a/*"})
    assert str(caught.value) == "'a/1.csv' matches the globs of two splits: train=*.csv and test=a/*"
    with pytest.raises(SourceError) as caught:
        assign_splits(["a/1.csv", "b.csv"], {"train": "*.csv", "test": "test/*"})
    assert str(caught.value) == "the glob 'test/*' of the split 'test' matches none of these files: 'a/1.csv', 'b.csv'"
    assert caught.value.hint == "A glob is compared with the whole name below the source; * also matches /."
    with pytest.raises(UsageError, match="invalid split name 'all'"):
        open_source(".", AddOptions(splits={"all": "*"}))


@given(st.sampled_from(WORDS), st.sampled_from([" ", "\n", "\u3000"]), st.sampled_from(["{0}{1}{0}", "a{0}{1}.csv"]))
def test_a_word_between_spaces_is_never_a_split(word: str, space: str, form: str) -> None:
    name = form.format(space, word)
    assert assign_splits([name, f"{name}/x"], {}) == {"train": sorted([name, f"{name}/x"])}


@given(NAMES, st.randoms(use_true_random=False), st.booleans())
def test_every_file_is_in_exactly_one_split_in_any_order(names: list[str], chance: object, folders_only: bool) -> None:
    def outcome(those: list[str]) -> object:
        try:
            return find_splits(those, {}, folders_only=folders_only)
        except SourceError as error:
            return str(error)

    found = outcome(names)
    chance.shuffle(names)  # type: ignore[attr-defined]
    assert outcome(names) == found
    if not isinstance(found, str):
        assert sorted(name for those in found.files.values() for name in those) == sorted(names)  # type: ignore[attr-defined]


@given(
    before=st.sampled_from(["", "part-", "split=train/part-", "10%/x", "a-00000-of-00002/", "data-0"]),
    after=st.sampled_from([".parquet", "-4f1e0c2a-00005-c000.snappy.parquet", "-of-00003.parquet", "-x.parquet"]),
    shuffled=st.permutations(range(3)),
)
def test_a_template_names_the_shards_of_a_split_in_order_or_they_are_refused(
    before: str, after: str, shuffled: list[int]
) -> None:
    names = [f"{before}{number:05d}{after}" for number in range(3)]
    try:
        template, ordered = order_shards("train", [names[number] for number in shuffled], "parquet_columns")
    except SourceError:
        assert before != "part-"
        return
    files = ShardedFileTemplate(dataset="d", template=template, file_format="parquet_columns")
    assert [files.filename("train", index, 3) for index in range(3)] == ordered == names


def test_a_shard_next_to_those_of_usual_splits_names_its_split() -> None:
    names = ["data/train-00000-of-00001.parquet", "data/extra-00000-of-00001-5f0a9c31d2.parquet"]
    assert assign_splits(names, {}) == {"train": names[:1], "extra": names[1:]}
    assert assign_splits(names[1:], {}) == {"train": names[1:]}
    with pytest.raises(SourceError, match="only some names contain a split"):
        assign_splits([names[0], "extra.parquet"], {})
