"""Every feature on the command line: read, shown, compared; what is not known is said once, and read all the same."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import registry
from registry.errors import UnknownFeatureWarning

EVERYTHING = Path(__file__).parents[1] / "conformance/prepared/lab_features/1.0.0"
NOTE = (
    "lab_features:1.0.0: the class of feature 'own' (lab_features.Own) is unknown: "
    "its stored values are returned unchanged"
)


@pytest.fixture
def published(cli: Any, workspace: Path) -> Any:
    """The command line beside a catalog with the set that holds every feature."""
    folder = workspace / "elsewhere/lab_features/1.0.0"
    shutil.copytree(EVERYTHING, folder)
    ran = cli("publish", str(folder))
    assert (ran.code, ran.err) == (0, "")
    return cli


def test_every_feature_is_printed_as_json(published: Any) -> None:
    ran = published("read", "lab_features", "train", "--pixels")
    assert ran.code == 0
    assert ran.err == f"note: {NOTE}\n"
    examples = {line["id"]: line for line in map(json.loads, ran.out.splitlines())}
    assert sorted(examples) == [0, 1, 2, 3, 4]
    one = examples[1]
    assert one["own"] == [1, -1]
    assert one["optional_int8"] is None
    assert examples[2]["optional_int8"] == 125
    assert one["zlib_dynamic"][0][1] == [3 / 7, 4 / 7, 5 / 7]
    assert one["zlib_bfloat16"][0] == 1.0
    assert one["translation"] == {"de": "Kätzchen 1", "en": "cat 1", "fr": "chat 1"}
    assert one["steps"][0].keys() == {"image", "more", "note", "reward"}
    assert one["numbers"] == [0]
    assert one["ragged"]["t"] == [[[]], [], [["ü"]]]
    assert len(one["audio_lazy"]) == 6
    described = json.loads(published("read", "lab_features", "train", "--limit", "1").out)
    assert described["steps"][0]["image"].endswith(" B")
    assert described["audio_lazy"].endswith(" B")


def test_features_are_shown_by_their_kinds(published: Any) -> None:
    ran = published("show", "lab_features")
    assert ran.err == f"note: {NOTE}\n"
    shown = [line.strip() for line in ran.out.splitlines()]
    for line in (
        "own: RawFeature(class_name='lab_features.Own')",
        "steps: Dataset",
        "numbers: Dataset(feature=Tensor(shape=(), dtype=int64))",
        "optional_int8: Scalar(dtype=int8, optional=True)",
        "video: Video(shape=(None, 2, 3, 3))",
        "mask: LabeledImage(num_classes=3, names=('sky', 'road', 'car'))",
        "box_xywh: BBox(bbox_format='XYWH')",
        "audio_zlib: Audio(encoding='zlib', file_format='wav')",
    ):
        assert line in shown
    assert published("show", "lab_features", "--format", "json").json()["warnings"] == [f"note: {NOTE}"]


def test_a_look_up_warns_once(published: Any, workspace: Path) -> None:
    with registry.connect(workspace / "catalog.db") as catalog:
        found = catalog.dataset("lab_features")
        with pytest.warns(UnknownFeatureWarning) as caught:
            features = found.features
        assert features.unknown_features() == {"own": "lab_features.Own"}
        assert [str(warning.message) for warning in caught] == [NOTE]
        assert caught[0].filename == __file__
        assert len(list(found.read("train"))) == 5  # without another one
    assert published("verify", "lab_features", "--deep").code == 0
