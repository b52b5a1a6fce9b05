"""Boxes of every format, images of classes, video, translations and datasets inside of examples."""

from __future__ import annotations

import copy
import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.golden import check_errors

from registry.errors import CorruptExampleError, FeatureError
from registry.features import (
    BBox,
    ClassLabel,
    Dataset,
    FeaturesDict,
    LabeledImage,
    NestedExamples,
    Ragged,
    Sequence,
    Tensor,
    Text,
    Translation,
    TranslationVariableLanguages,
    Video,
    codec_of,
    features_to_json,
)
from registry.images.png import encode_png

GOLDEN = Path(__file__).with_name("golden")


def decoded(feature: Any, value: Any) -> Any:
    features = FeaturesDict({"x": feature})
    return codec_of(features).decode(codec_of(features).encode({"x": value}))["x"]


GOOD_BOX, OUTSIDE, REVERSED = (0.0, 0.25, 0.5, 1.0), (-1.0, 2.0, 3.0, 4.0), (0.5, 0.0, 0.25, 1.0)


@pytest.mark.parametrize(
    ("box_format", "takes_outside", "takes_reversed"),
    [
        ("XYXY", True, True),
        ("YXYX", True, False),
        ("XYWH", True, True),
        ("REL_XYXY", False, True),
        ("REL_YXYX", False, False),
        (None, True, True),
    ],
)
def test_boxes_are_checked_as_tfds_checks_them(box_format: Any, takes_outside: bool, takes_reversed: bool) -> None:
    feature = BBox(bbox_format=box_format)
    for box, is_taken in ((GOOD_BOX, True), (OUTSIDE, takes_outside), (REVERSED, takes_reversed)):
        if is_taken:
            assert decoded(feature, box).tolist() == list(box)
        else:
            with pytest.raises(
                FeatureError, match=r"expected relative coordinates in 0\.\.1|has a minimum above its maximum"
            ):
                decoded(feature, box)


def test_an_unknown_box_format_lists_the_known_ones() -> None:
    with pytest.raises(FeatureError) as caught:
        BBox(bbox_format="CENTER")
    assert caught.value.message == "unknown box format 'CENTER'"
    assert caught.value.hint == "Known formats: XYXY, YXYX, XYWH, REL_XYXY, REL_YXYX."


def test_an_image_of_classes_has_label_names_in_a_file() -> None:
    features = FeaturesDict(
        {"a/b": {"mask": LabeledImage(num_classes=2, shape=(2, 2, 1))}, "label": ClassLabel(num_classes=2)}
    )
    assert features.class_labels() == {"a.b-mask": ClassLabel(num_classes=2), "label": ClassLabel(num_classes=2)}
    named = features.with_labels({"a.b-mask": ["sky", "road"]})
    assert named.labels() == {"a.b-mask": ["sky", "road"]}
    assert named["a/b"]["mask"].label.int2str(1) == "road"  # type: ignore[index]
    assert features_to_json(named) == features_to_json(features)
    with pytest.raises(FeatureError, match="expected 2 label names, found 3"):
        features.with_labels({"a.b-mask": ["x", "y", "z"]})
    mask = np.array([[[0], [1]], [[1], [0]]], np.uint8)
    assert decoded(named["a/b"]["mask"], mask).tolist() == mask.tolist()  # type: ignore[index]
    with pytest.raises(FeatureError, match="a LabeledImage must have 1 channel, not 3"):
        LabeledImage(num_classes=2, shape=(2, 2, 3))


def test_a_video_takes_an_array_or_frames(tmp_path: Path) -> None:
    feature = Video(shape=(None, 2, 3, 1))
    frames = np.arange(12, dtype=np.uint8).reshape(2, 2, 3, 1)
    files = [encode_png(frame) for frame in frames]
    (tmp_path / "0.png").write_bytes(files[0])
    values = [frames, list(frames), files, iter(files), [tmp_path / "0.png", io.BytesIO(files[1])]]
    for value in values:
        assert decoded(feature, value).tolist() == frames.tolist()
    assert decoded(feature, []).shape == (0, 2, 3, 1)
    assert FeaturesDict({"x": feature}).shape == {"x": (None, 2, 3, 1)}
    assert FeaturesDict({"x": Video(dtype="uint16")}).dtype == {"x": np.uint16}
    with pytest.raises(FeatureError, match="expected 3 elements, found 2"):
        decoded(Video(shape=(3, 2, 3, 1)), frames)
    for file in (str(tmp_path / "a.avi"), b"RIFF", io.BytesIO(b"RIFF")):
        with pytest.raises(FeatureError) as caught:
            decoded(feature, file)
        assert caught.value.message == "feature 'x': expected the frames of a video, found a file"
        assert caught.value.hint == "Decode it, and pass an array or a list of images."
    with pytest.raises(FeatureError, match=r"invalid video shape \(2, 2, 3\)"):
        Video(shape=(2, 2, 3))


def test_translations_are_texts_by_language() -> None:
    feature = Translation(languages=["en", "de"])
    assert feature.languages == ("de", "en")
    assert decoded(feature, {"en": "cat", "de": "Kätzchen"}) == {"de": "Kätzchen".encode(), "en": b"cat"}
    with pytest.raises(FeatureError, match="feature 'x/fr': unknown feature"):
        decoded(feature, {"en": "cat", "fr": "chat"})
    for languages in ("en", ["en", "en"], [""], [5]):
        with pytest.raises(FeatureError, match="invalid languages"):
            Translation(languages=languages)
    assert len({feature, Translation(languages=["de", "en"])}) == 1


def test_translations_in_languages_that_differ_are_sorted() -> None:
    feature = TranslationVariableLanguages(languages=["en", "de", "fr"])
    found = decoded(feature, {"fr": ["le chat", "la chatte"], "en": b"cat", "de": []})
    assert {name: array.tolist() for name, array in found.items()} == {
        "language": [b"en", b"fr", b"fr"],
        "translation": [b"cat", b"la chatte", b"le chat"],
    }
    assert decoded(feature, found)["translation"].tolist() == found["translation"].tolist()
    assert decoded(feature, {})["language"].shape == (0,)
    nested = FeaturesDict({"x": Sequence(feature)})
    record = codec_of(nested).encode({"x": [{"en": "a"}, {}, {"de": ["b", "c"]}]})
    again = codec_of(nested).decode(record)
    assert again["x"]["language"].to_list() == [[b"en"], [], [b"de", b"de"]]
    assert codec_of(nested).encode(again) == record
    with pytest.raises(FeatureError) as caught:
        decoded(feature, {"it": "gatto"})
    assert caught.value.message == "feature 'x': unknown language 'it'"
    assert caught.value.hint == "Declared languages: de, en, fr."
    with pytest.raises(FeatureError, match="feature 'x': expected a text or a list of texts, found int"):
        decoded(feature, {"en": 5})


STEPS = Dataset({"reward": "float32", "seen": {"at": Tensor(shape=(2,), dtype="int8")}, "words": Sequence(Text())})


def steps(number: int) -> list[dict[str, Any]]:
    return [{"reward": i / 2, "seen": {"at": [i, -i]}, "words": ["w"] * i} for i in range(number)]


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, NestedExamples):
        return [plain(example) for example in value]
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def test_a_dataset_decodes_to_its_examples() -> None:
    found = decoded(STEPS, steps(3))
    assert isinstance(found, NestedExamples)
    assert len(found) == 3
    assert plain(found[1]) == {"reward": 0.5, "seen": {"at": [1, -1]}, "words": [b"w"]}
    assert plain(found[-1]) == plain(list(found)[2]) == plain(found[2:][0]) == plain(next(reversed(found)))
    assert found[1]["reward"].dtype == np.float32
    columns = found.columns()
    assert columns["reward"].tolist() == [0, 0.5, 1]
    assert columns["seen"]["at"].shape == (3, 2)
    assert isinstance(columns["words"], Ragged)
    assert repr(found) == "NestedExamples(3 examples of reward, seen, words)"
    with pytest.raises(IndexError):
        found[3]
    assert list(decoded(STEPS, [])) == []


@pytest.mark.parametrize("form", ["list", "tuple", "generator", "columns", "iterators", "decoded"])
def test_a_dataset_takes_any_iterable_of_examples(form: str) -> None:
    listed = steps(3)
    forms: dict[str, Any] = {
        "list": listed,
        "tuple": tuple(listed),
        "generator": (step for step in listed),
        "columns": {
            "reward": np.array([0, 0.5, 1]),
            "seen": {"at": [[0, 0], [1, -1], [2, -2]]},
            "words": [[], ["w"], ["w", "w"]],
        },
        "iterators": {
            "reward": iter([0, 0.5, 1]),
            "seen": {"at": iter([[0, 0], [1, -1], [2, -2]])},
            "words": iter([[], ["w"], ["w", "w"]]),
        },
        "decoded": decoded(STEPS, listed),
    }
    expected = [{**step, "words": [word.encode() for word in step["words"]]} for step in listed]
    assert plain(decoded(STEPS, forms[form])) == expected


def test_a_dataset_goes_to_another_process() -> None:
    found = decoded(Dataset({"n": "int64", "inner": Dataset("int8")}), [{"n": 1, "inner": [2]}])
    assert plain(pickle.loads(pickle.dumps(found))) == plain(copy.deepcopy(found)) == [{"n": 1, "inner": [2]}]  # noqa: S301


def test_a_dataset_of_one_feature_decodes_to_its_values() -> None:
    found = decoded(Dataset("int64"), (n for n in range(3)))
    assert [type(value) for value in found] == [np.int64] * 3
    assert (found.columns().tolist(), found[:2]) == ([0, 1, 2], [0, 1])
    assert repr(found) == "NestedExamples(3 examples)"
    assert FeaturesDict({"x": Dataset({"a": Tensor(shape=(2,), dtype="int8")})}).shape == {"x": {"a": (2,)}}


def test_datasets_are_nested_in_each_other_and_plain_in_a_sequence() -> None:
    episodes = Dataset({"name": Text(), "steps": Dataset({"n": "int64", "inner": Dataset("int8")})})
    value = [
        {"name": "a", "steps": [{"n": 1, "inner": [1, 2]}, {"n": 2, "inner": []}]},
        {"name": "b", "steps": []},
    ]
    found = decoded(episodes, value)
    assert isinstance(found[0]["steps"], NestedExamples)
    assert isinstance(found[0]["steps"][0]["inner"], NestedExamples)
    assert plain(found) == [
        {"name": b"a", "steps": [{"n": 1, "inner": [1, 2]}, {"n": 2, "inner": []}]},
        {"name": b"b", "steps": []},
    ]
    assert plain(decoded(episodes, found)) == plain(found)
    inside = decoded(Sequence({"d": Dataset({"n": "int64"})}), [{"d": [{"n": 1}, {"n": 2}]}, {"d": []}])
    assert inside["d"]["n"].to_list() == [[1, 2], []]


@pytest.mark.parametrize("value", ["text", b"bytes", 5, None])
def test_a_value_that_is_not_a_dataset_is_refused(value: Any) -> None:
    with pytest.raises(FeatureError) as caught:
        decoded(Dataset("int64"), value)
    assert caught.value.message == f"feature 'x': expected an iterable of examples, found {type(value).__name__}"


def test_a_dataset_whose_features_differ_in_length_says_so_when_it_is_used() -> None:
    features = FeaturesDict({"x": Dataset({"a": "int64", "b": "int64"})})
    found = codec_of(features).restore({"x/a": np.arange(3), "x/b": np.arange(2)})["x"]
    assert found.columns()["a"].tolist() == [0, 1, 2]
    for use in (len, list, lambda nested: nested[0], repr):
        with pytest.raises(CorruptExampleError) as caught:
            use(found)
        assert caught.value.details["feature"] == "x"
    assert caught.value.message == "feature 'x': its features differ in length: [2, 3]"


def test_values_of_a_wrong_type_are_named() -> None:
    check_errors(
        GOLDEN / "features_kinds" / "values_of_a_wrong_type_are_named.txt",
        (
            make
            for make in [
                lambda: ClassLabel(names="cat"),
                lambda: ClassLabel(names=5),
                lambda: ClassLabel(names=["cat"]).str2int(5),
                lambda: ClassLabel(names=["cat"]).int2str("cat"),
                lambda: ClassLabel(names=["cat"]).int2str(0.5),
                lambda: ClassLabel(num_classes=3).int2str(3),
                lambda: codec_of(FeaturesDict({"x": ClassLabel(num_classes=2)})).encode({"x": [0]}),
                lambda: Translation(languages=5),
                lambda: FeaturesDict(5),
                lambda: FeaturesDict({"a": None}),
                lambda: Tensor(shape=(), dtype=None),
            ]
        ),
    )
