"""The face that people know from TFDS: ``load``, ``builder`` and ``info`` in its words, equal to the plain calls."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.golden import check_errors
from support.prepared_samples import ANIMALS, animals, prepare

import registry
from registry.errors import (
    DatasetNotFoundError,
    LockedError,
    NotFoundError,
    SliceError,
    SplitNotFoundError,
    UsageError,
    VersionNotFoundError,
    VersionWithdrawnError,
    YankedVersionWarning,
)
from registry.reading import Batches, SupervisedReader

GOLDEN = Path(__file__).with_name("golden")


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[registry.Catalog]:
    """A catalog with the shipped digits."""
    with registry.connect(tmp_path_factory.mktemp("digits") / "catalog.db") as catalog:
        catalog.build("digits")
        yield catalog


def equal(left: Any, right: Any) -> bool:
    """Whether two examples or batches, dicts or tuples, hold the same values of the same dtypes."""
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(equal(left[name], right[name]) for name in left)
    if isinstance(left, tuple):
        return len(left) == len(right) and all(map(equal, left, right))
    return bool(np.array_equal(left, right)) and np.asarray(left).dtype == np.asarray(right).dtype


def all_equal(left: Any, right: Any) -> bool:
    """Whether two reads give equal items, as many of them."""
    return all(equal(one, other) for one, other in zip(left, right, strict=True))


def test_the_arguments_of_tfds_give_the_same_result_as_our_own(digits: registry.Catalog) -> None:
    plain = digits.dataset("digits").read("train[:10%]", registry.ReadConfig(shuffle_files=True, shuffle_seed=42))
    data, info = registry.load(
        name="digits:1.*.*",
        split="train[:10%]",
        with_info=True,
        shuffle_files=True,
        read_config=registry.ReadConfig(shuffle_seed=42),
        catalog=digits,
        download=True,
        try_gcs=False,
        decoders=None,
        builder_kwargs={},
        download_and_prepare_kwargs=None,
        as_dataset_kwargs=None,
        file_format="tfrecord",
    )
    assert all_equal(data, plain)
    assert info.full_name == "digits/1.0.0"


def test_splits_may_be_nested_as_in_tfds(digits: registry.Catalog) -> None:
    found = registry.load("digits", {"a": "train[:5]", "b": ["train[5:7]", ("train[7:8]",)]}, catalog=digits)
    assert (len(found["a"]), len(found["b"][0]), len(found["b"][1][0])) == (5, 2, 1)
    assert isinstance(found["b"][1], tuple)
    assert list(registry.load("digits", catalog=digits)) == ["train"]


def test_supervised_examples_are_pairs_one_by_one_in_batches_and_by_number(digits: registry.Catalog) -> None:
    plain = digits.dataset("digits").read("train[:50]")
    pairs = registry.load("digits", split="train[:50]", as_supervised=True, catalog=digits)
    assert isinstance(pairs, SupervisedReader)
    assert (len(pairs), repr(pairs)) == (50, "<SupervisedReader train[:50]: 50 examples as ('image', 'label')>")

    def pair(example: dict[str, Any]) -> tuple[Any, Any]:
        return example["image"], example["label"]

    assert all_equal(pairs, map(pair, plain))
    assert equal(pairs[7], pair(plain[7]))
    assert equal(pairs[[3, -1]], pair(plain[[3, -1]]))
    assert equal(pairs[2:5], pair(plain[2:5]))
    assert all_equal(pairs.examples_at([4, 2]), map(pair, plain.examples_at([4, 2])))
    assert all_equal(pairs.batches(20), map(pair, plain.batches(20)))
    assert len(list(pairs.batches(20, drop_remainder=True))) == 2
    assert all_equal(pairs.blocks(), map(pair, plain.blocks()))
    assert equal(pairs.to_numpy(), pair(plain.to_numpy()))
    assert list(pairs.ids()) == list(plain.ids())
    assert (pairs.plan, pairs.features, pairs.read_config) == (plain.plan, plain.features, plain.read_config)


def test_a_supervised_read_continues_from_its_state_and_is_pickled(digits: registry.Catalog) -> None:
    config = registry.ReadConfig(shuffle="global", seed=7)
    pairs = registry.load("digits", split="train[:50]", read_config=config, as_supervised=True, catalog=digits)
    labels = [int(label) for _, label in pairs.reopened()]
    going = iter(pairs)
    begun = [int(next(going)[1]) for _ in range(20)]
    rest = pairs.reopened(state=pairs.state())
    assert begun + [int(label) for _, label in rest] == labels
    copy = pickle.loads(pickle.dumps(pairs))  # noqa: S301 (our own bytes)
    assert copy.state() == pairs.state()
    assert equal(copy[3], pairs[3])


def test_keys_may_be_nested(catalog: registry.Catalog, tmp_path: Path) -> None:
    folder = prepare(tmp_path / "animals")
    info = folder / "dataset_info.json"
    keys = (
        '{"tuple": {"items": [{"dict": {"dict": {"who": {"featureKey": "name"}, "old": {"featureKey": "age"}}}}, '
        '{"featureKey": "kind"}]}}'
    )
    info.write_text(info.read_text().replace('"version"', f'"supervisedKeys": {keys}, "version"'))
    catalog.publish(folder)
    pairs = registry.load("animals", split="train", as_supervised=True, catalog=catalog)
    assert pairs[3] == ({"old": 3, "who": b"animal 3"}, 1)
    assert catalog.dataset("animals").info.supervised_keys == ({"old": "age", "who": "name"}, "kind")
    assert list(registry.as_dataframe(pairs).columns) == ["age", "name", "kind"]


def test_a_version_without_supervised_keys_says_so(catalog: registry.Catalog, tmp_path: Path) -> None:
    catalog.publish(prepare(tmp_path / "animals"))
    with pytest.raises(UsageError) as caught:
        registry.load("animals", split="train", as_supervised=True, catalog=catalog)
    assert caught.value.message == "as_supervised=True needs supervised keys: the catalog has none for animals"
    assert caught.value.hint == "Leave as_supervised out. Its features are: age, kind, name."


def test_batches_are_counted_and_read_again(digits: registry.Catalog) -> None:
    plain = digits.dataset("digits").read("train[:50]")
    batches = registry.load("digits", split="train[:50]", batch_size=20, catalog=digits)
    assert isinstance(batches, Batches)
    assert (len(batches), repr(batches)) == (3, "<Batches of 20: 3 of <Reader train[:50]: 50 examples>>")
    assert all_equal(batches, plain.batches(20))
    begun = iter(batches)
    next(begun)
    assert all_equal(begun, plain.reopened(state=batches.state()).batches(20))
    whole = registry.load("digits", split="train[:50]", batch_size=-1, as_supervised=True, catalog=digits)
    assert equal(whole, (plain.to_numpy()["image"], plain.to_numpy()["label"]))
    copy = pickle.loads(pickle.dumps(batches))  # noqa: S301 (our own bytes)
    assert len(copy) == 3
    for wrong in (0, -2, 2.5, True, "32"):
        with pytest.raises(UsageError) as caught:
            registry.load("digits", split="train", batch_size=wrong, catalog=digits)  # type: ignore[arg-type]
        kind = (
            {0: "at least 1", -2: "-1 or more"}.get(wrong, "a whole number") if wrong is not True else "a whole number"
        )
        assert caught.value.message == f"batch_size must be {kind}, not {wrong!r}"
        assert caught.value.hint == "Pass None for single examples, or -1 for all examples at once."


def test_info_says_what_the_version_is(digits: registry.Catalog) -> None:
    found = digits.dataset("digits")
    info = found.info
    assert (info.name, info.config_name, info.full_name, str(info.version)) == ("digits", "", "digits/1.0.0", "1.0.0")
    assert (info.description, info.citation) == (found.metadata.description, found.metadata.citation)
    assert (info.license, info.redistribution_info.license) == ("CC BY 4.0", "CC BY 4.0")
    assert (info.homepage, dict(info.release_notes)) == (found.metadata.homepage, dict(found.metadata.release_notes))
    assert (info.config_description, info.config_tags) == ("", [])
    assert info.features == found.features
    assert info.features["label"].num_classes == 10  # type: ignore[attr-defined]
    assert info.supervised_keys == ("image", "label")
    assert (info.dataset_size, info.download_size) == (315257, 0)
    assert (info.file_format, info.disable_shuffling) == ("tfrecord", False)
    assert info.data_dir == f"{digits.data_dir}/digits/1.0.0"


def test_info_of_splits_and_slices(digits: registry.Catalog) -> None:
    found = digits.dataset("digits")
    splits = found.info.splits
    folder = f"{digits.data_dir}/digits/1.0.0"
    train = splits["train"]
    assert (train.name, train.num_examples, train.num_shards, train.num_bytes) == ("train", 1797, 4, 315257)
    assert train.shard_lengths == [449, 449, 450, 449]
    assert train.filenames == found.splits["train"].filenames
    assert train.filepaths == [f"{folder}/{name}" for name in train.filenames]
    assert repr(train) == "<SplitInfo num_examples=1797, num_shards=4>"
    assert [one.takes_all for one in train.file_instructions] == [True] * 4

    part = splits["train[20%:60%]"]
    assert (part.name, part.num_examples, part.num_shards, part.num_bytes) == ("train[20%:60%]", 719, 3, 0)
    assert part.shard_lengths == [90, 449, 180]
    reported = [
        (one.filename, one.skip, one.take, one.examples_in_shard, one.takes_all) for one in part.file_instructions
    ]
    assert reported == [
        (f"{folder}/digits-train.tfrecord-00000-of-00004", 359, 90, 449, True),
        (f"{folder}/digits-train.tfrecord-00001-of-00004", 0, 449, 449, True),
        (f"{folder}/digits-train.tfrecord-00002-of-00004", 0, 180, 450, False),
    ]
    assert splits[registry.ReadInstruction("train", from_=20, to=60, unit="%")].num_examples == 719
    assert splits["all"].num_examples == splits.total_num_examples == 1797
    assert (list(splits), len(splits), "train" in splits, "train[:1]" in splits) == (["train"], 1, True, False)
    assert splits.get("test") is None
    with pytest.raises(SplitNotFoundError):
        splits["test"]
    with pytest.raises(SliceError):
        splits["train[:2000]"]


def test_the_repr_of_info_is_a_summary(catalog: registry.Catalog, tmp_path: Path) -> None:
    catalog.publish(prepare(tmp_path / "animals", config="wild", shards=2))
    found = catalog.dataset("animals/wild")
    assert repr(found.info) == (
        "DatasetInfo(\n"
        "    full_name='animals/wild/1.0.0',\n"
        "    description='Animals.',\n"
        f"    data_dir='{catalog.data_dir}/animals/wild/1.0.0',\n"
        "    file_format='tfrecord',\n"
        f"    dataset_size={found.info.dataset_size},\n"
        f"    features={found.features!r},\n"
        "    disable_shuffling=False,\n"
        "    splits={'train': <SplitInfo num_examples=20, num_shards=2>},\n"
        ")"
    )


def test_ordered_records_keep_their_order(catalog: registry.Catalog, tmp_path: Path) -> None:
    catalog.publish(prepare(tmp_path / "animals", shards=3, disable_shuffling=True))
    config = registry.ReadConfig(add_tfds_id=True)
    assert [int(one["age"]) for one in registry.load("animals", "train", config, catalog=catalog)] == list(range(20))
    turns = registry.ReadConfig(interleave_cycle_length=3, interleave_block_length=1)
    assert [int(one["age"]) for one in registry.load("animals", "train", turns, catalog=catalog)][:3] == [0, 7, 14]
    pins = catalog.dataset("animals").pin("train", read_config=registry.ReadConfig())
    assert [int(one["age"]) for one in pins["train"].read()] == list(range(20))
    with pytest.raises(UsageError) as caught:
        registry.load("animals", "train", shuffle_files=True, catalog=catalog)
    assert caught.value.message == (
        "animals:1.0.0 keeps its records in the order of generation: shuffle_files=True would change it"
    )
    assert caught.value.hint == (
        "Leave shuffle_files out; or shuffle anyway: read_config=registry.ReadConfig(shuffle_files=True)."
    )


def test_shuffles_that_contradict_each_other_are_refused(digits: registry.Catalog) -> None:
    config = registry.ReadConfig(shuffle="global", seed=1)
    with pytest.raises(UsageError) as caught:
        registry.load("digits", "train", config, shuffle_files=True, catalog=digits)
    assert caught.value.message == 'shuffle_files orders files, but shuffle="global" permutes all records'
    with pytest.raises(UsageError) as caught:
        registry.load("digits", "train", shuffle_files=42, catalog=digits)  # type: ignore[arg-type]
    assert caught.value.message == "shuffle_files must be True or False, not int"
    with pytest.raises(UsageError) as caught:
        registry.load("digits", "train", {"shuffle_seed": 1}, shuffle_files=True, catalog=digits)  # type: ignore[arg-type]
    assert caught.value.message == "read_config must be a registry.ReadConfig, not {'shuffle_seed': 1}"
    with pytest.raises(UsageError) as caught:
        registry.load("digits", "train", registry.ReadConfig(shuffle_seed=1), catalog=digits)
    assert caught.value.message == "shuffle_seed has no effect without shuffle_files"


def test_an_unsupported_argument_is_refused_with_an_alternative(digits: registry.Catalog) -> None:
    check_errors(
        GOLDEN / "tfds_face" / "an_unsupported_argument_is_refused_with_an_alternative.txt",
        (
            partial(registry.load, "digits", "train", catalog=digits, **words)
            for words in [
                {"decoders": {"image": 1}},
                {"builder_kwargs": {"config": "plain"}},
                {"download_and_prepare_kwargs": {"download_dir": "d"}},
                {"as_dataset_kwargs": {"batch_size": 3}},
                {"file_format": "array_record"},
                {"name": "digits"},
                {"data_dir": "d"},
            ]
        ),
    )


def test_an_argument_that_nobody_has_is_an_error_of_the_call(digits: registry.Catalog) -> None:
    with pytest.raises(TypeError) as caught:
        registry.load("digits", shuffle_file=True, catalog=digits)  # type: ignore[call-arg]
    assert str(caught.value).startswith("load() got an unexpected keyword argument 'shuffle_file'")
    with pytest.raises(TypeError) as caught:
        registry.builder("digits", zzz=True, catalog=digits)  # type: ignore[call-arg]
    assert str(caught.value) == "builder() got an unexpected keyword argument 'zzz'"
    with pytest.raises(UsageError) as refused:
        registry.load(split="train", catalog=digits)
    assert refused.value.message == "no dataset was given"


def test_a_data_dir_is_read_through_the_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_CATALOG", str(tmp_path / "catalog.db"))
    place = tmp_path / "elsewhere"
    with registry.connect(data_dir=place) as catalog:
        catalog.publish(prepare(tmp_path / "animals"))
    assert len(registry.load("animals", "train", data_dir=place)) == 20
    assert registry.builder("animals", data_dir=place).data_dir == str(place / "animals" / "1.0.0")
    with pytest.raises(DatasetNotFoundError) as caught:
        registry.load("plants", "train", data_dir=place)
    assert caught.value.hint == f"Import the folder first: registry import tfds {place}"


def test_a_builder_of_a_published_version_reads_it(digits: registry.Catalog) -> None:
    builder = registry.builder("digits", version="1.*.*", try_gcs=True, catalog=digits)
    assert (builder.name, str(builder.version), builder.builder_config) == ("digits", "1.0.0", None)
    assert (builder.is_prepared(), repr(builder)) == (True, "<Builder digits:1.0.0>")
    builder.download_and_prepare(download_dir=None)
    plain = digits.dataset("digits")
    config = registry.ReadConfig(shuffle_seed=3)
    data = builder.as_dataset(split="train[:9]", shuffle_files=True, read_config=config, as_supervised=True)
    assert len(data) == 9
    assert list(builder.as_dataset()) == ["train"]
    source = builder.as_data_source("train")
    assert list(source.ids()) == list(plain.read("train", registry.ReadConfig(interleave_cycle_length=1)).ids())
    assert equal(source[17], plain.read("train[17:18]")[0])
    assert builder.info.splits["train[:10%]"].num_examples == 180


def test_a_builder_of_a_config_has_it(catalog: registry.Catalog, tmp_path: Path) -> None:
    catalog.publish(prepare(tmp_path / "animals", config="wild"))
    for builder in (
        registry.builder("animals/wild:1.0.0", catalog=catalog),
        registry.builder("animals", config="wild", version="1.0.0", catalog=catalog),
    ):
        assert (builder.builder_config.name, builder.info.full_name) == ("wild", "animals/wild/1.0.0")
    with pytest.raises(UsageError) as caught:
        registry.builder("animals/wild", config="tame", catalog=catalog)
    assert caught.value.message == "the config is given twice: in animals/wild and as config='tame'"


def test_a_builder_of_code_builds_and_publishes_once(catalog: registry.Catalog) -> None:
    builder = registry.builder("digits", catalog=catalog)
    assert (builder.is_prepared(), repr(builder)) == (False, "<Builder digits:1.0.0, not published yet>")
    for ask in (lambda: builder.info, builder.as_dataset, lambda: builder.data_dir):
        with pytest.raises(NotFoundError) as caught:
            ask()
        assert caught.value.message == "digits:1.0.0 is not published yet"
        assert caught.value.hint == ("Build it first: builder.download_and_prepare(), or registry build digits:1.0.0")
    builder.download_and_prepare()
    assert builder.is_prepared()
    assert builder.info.splits.total_num_examples == 1797
    assert str(catalog.dataset("digits").version) == "1.0.0"
    with pytest.raises(UsageError) as refused:
        builder.download_and_prepare(download_config=3)
    assert refused.value.message == "registry.builder(...).download_and_prepare does not support download_config: 3"


def test_a_dataset_that_is_not_published_and_cannot_be_built_is_not_found(digits: registry.Catalog) -> None:
    with pytest.raises(DatasetNotFoundError):
        registry.builder("no_such_dataset", catalog=digits)
    with pytest.raises(VersionNotFoundError):
        registry.builder("digits:7.*.*", catalog=digits)


def test_withdrawn_versions_are_as_in_plain_look_ups(catalog: registry.Catalog, tmp_path: Path) -> None:
    catalog.publish(prepare(tmp_path / "animals"))
    catalog.lifecycle.yank("animals:1.0.0", reason="Wrong labels.")
    with pytest.warns(YankedVersionWarning, match=r"Wrong labels\."):
        assert registry.builder("animals:1.0.0", catalog=catalog).is_prepared()
    with pytest.raises(VersionWithdrawnError):
        registry.builder("animals", catalog=catalog)


def test_pinned_datasets_have_the_face_too(digits: registry.Catalog) -> None:
    pins = digits.dataset("digits").pin("train[:80%]")
    with registry.locked(pins):
        data, info = registry.load("digits", split="train[:10%]", with_info=True)
        assert len(data) == 180
        assert info.splits["train[:10%]"].num_examples == 180
        assert "splits={'train': <SplitInfo num_examples=1797, num_shards=4>}" in repr(info)
        assert list(registry.load("digits", batch_size=100)) == ["train"]
        with pytest.raises(UsageError) as caught:
            registry.load("digits", split="train[:10%]", as_supervised=True)
        assert caught.value.message == "as_supervised=True needs supervised keys: the pin file has none for digits"
        with pytest.raises(LockedError):
            info.splits["train[80%:]"]


def test_pandas_in_the_words_of_tfds(digits: registry.Catalog) -> None:
    data, info = registry.load("digits", split="train[:9]", with_info=True, catalog=digits)
    frame = registry.as_dataframe(data, info)
    assert list(frame.columns) == ["image", "label"]
    assert frame["label"].tolist() == [int(one["label"]) for one in data.reopened()]
    with pytest.raises(UsageError) as caught:
        registry.as_dataframe(registry.load("digits", split="train", batch_size=2, catalog=digits))
    assert caught.value.message == "expected a Reader or SupervisedReader, not Batches"
    assert caught.value.hint == "Pass the result of registry.load for one split, without batch_size."


def test_samples_have_the_features_that_these_tests_take_for_granted() -> None:
    assert set(ANIMALS) == set(animals(2)[0])
