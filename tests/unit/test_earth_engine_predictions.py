"""Predictions become as many records as the export has, in its order, with its mixer; or nothing at all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from support.golden import check_errors

from registry.builders.earth_engine.assembling.assemble import assemble
from registry.builders.earth_engine.assembling.predictions import write_predictions
from registry.builders.earth_engine.exporting.image import export_image
from registry.builders.earth_engine.mixer import Mixer
from registry.errors import AlreadyStoredError, UsageError
from registry.storage import open_store
from registry.tfrecord import is_gzip, read_records
from registry.wire import decode_example, encode_example

GOLDEN = Path(__file__).parent / "golden" / "earth_engine_predictions"
MIXER_TEXT = """{ "projection": {"crs": "EPSG:32610",
    "affine": {"doubleMatrix": [3.0E1, 0.0, 500000.0, 0.0, -30.0, 4100000.0]}},
  "patchDimensions": [3, 2], "patchesPerRow": 2, "totalPatches": 4, "more": [1] }\r\n"""
"""As Java writes numbers, with a key of its own: what is copied has all of it."""


@pytest.fixture
def mixer(tmp_path: Path) -> Path:
    path = tmp_path / "in" / "area-mixer.json"
    path.parent.mkdir()
    path.write_text(MIXER_TEXT, newline="")
    return path


def patches(*shape: int, dtype: str = "float32") -> npt.NDArray[Any]:
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype)


def records(folder: Path, names: tuple[str, ...]) -> list[dict[str, Any]]:
    found = []
    for name in names:
        for record in read_records(open_store(folder), name):
            values = decode_example(record)
            found.append({key: one if isinstance(one, list) else one.tolist() for key, one in values.items()})
    return found


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_records_keep_the_order_and_the_mixer_every_byte(tmp_path: Path, mixer: Path) -> None:
    values = patches(4, 2, 3)
    written = write_predictions(values, mixer, tmp_path / "out", "p", bands=["x"])
    assert (written.filenames, written.mixer, written.num_records) == (("p-00000.tfrecord.gz",), "p-mixer.json", 4)
    assert names_in(tmp_path / "out") == ["p-00000.tfrecord.gz", "p-mixer.json"]
    assert (tmp_path / "out" / "p-mixer.json").read_bytes() == MIXER_TEXT.encode()
    assert records(tmp_path / "out", written.filenames) == [{"x": patch.reshape(-1).tolist()} for patch in values]
    assert written.num_bytes == sum(path.stat().st_size for path in (tmp_path / "out").iterdir())


@pytest.mark.parametrize(
    ("dtype", "encoding", "expected"),
    [
        ("uint8", "native", [b"\x00\x01\x02\x03\x04\x05"]),
        ("bool", "native", [b"\x00\x01\x01\x01\x01\x01"]),
        ("int8", "native", [0, 1, 2, 3, 4, 5]),
        ("uint16", "native", [0, 1, 2, 3, 4, 5]),
        ("int64", "native", [0, 1, 2, 3, 4, 5]),
        ("float64", "native", [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]),
        ("uint8", "float", [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]),
    ],
)
def test_numbers_are_stored_in_their_kind(tmp_path: Path, dtype: str, encoding: Any, expected: Any) -> None:
    written = write_predictions([patches(2, 3, dtype=dtype)], 1, tmp_path, "p", encoding=encoding, bands=["x"])
    assert records(tmp_path, written.filenames) == [{"x": expected}]


def test_array_bands_are_stored_depth_first_and_come_back(tmp_path: Path, mixer: Path) -> None:
    values = patches(4, 5, 2, 3)
    item = {"t": values, "c": values[:, 0].astype("u1")}
    written = write_predictions(item, mixer, tmp_path, "p", tensor_depths={"t": 5})
    assert records(tmp_path, written.filenames)[1]["t"] == values[1].reshape(-1).tolist()
    found = assemble(tmp_path, kernel_size=1, prefix="p", tensor_depths={"t": 5}).to_arrays()
    assert found["t_2"][0:2, 3:6].tolist() == values[1, 2].tolist()


def test_files_are_of_limited_size_and_compressed_or_not(tmp_path: Path, mixer: Path) -> None:
    written = write_predictions(
        patches(4, 2, 3), mixer, tmp_path, "p", bands=["x"], compressed=False, max_file_size=120
    )
    assert written.filenames == ("p-00000.tfrecord", "p-00001.tfrecord")
    assert not is_gzip((tmp_path / "p-00000.tfrecord").read_bytes())
    assert len(records(tmp_path, written.filenames)) == 4


def test_margins_are_kept_or_cut_off(tmp_path: Path, mixer: Path) -> None:
    padded = patches(4, 1, 4, 7)
    kept = write_predictions(padded, mixer, tmp_path, "kept", bands=["x"])
    cut = write_predictions(padded, mixer, tmp_path, "cut", bands=["x"], crop=True, kernel_size=[4, 2])
    assert records(tmp_path, kept.filenames)[0]["x"] == padded[0, 0].reshape(-1).tolist()
    assert records(tmp_path, cut.filenames)[0]["x"] == padded[0, 0, 1:3, 2:5].reshape(-1).tolist()
    expected = assemble(tmp_path, prefix="cut").to_array().tolist()
    assert assemble(tmp_path, prefix="kept", kernel_size=[4, 2]).to_array().tolist() == expected


def test_an_export_is_named_in_every_way(tmp_path: Path) -> None:
    place: dict[str, Any] = {"transform": [30.0, 0, 0, 0, -30.0, 0], "crs": "EPSG:32610"}
    exports = tmp_path / "in"
    export_image({"b": patches(4, 6)}, exports, "area", patch_dimensions=2, max_file_size=100, **place)
    document = json.loads((exports / "area-mixer.json").read_text())
    shards = sorted(exports.glob("*.tfrecord.gz"))
    assert len(shards) > 1
    for number, like in enumerate(
        [exports, exports / "area", shards[0], shards, exports / "area-mixer.json", document, json.dumps(document),
         Mixer.from_json(json.dumps(document)), {"earth_engine": {"splits": {"train": {"mixer": document}}}}]
    ):  # fmt: skip
        written = write_predictions(patches(6, 2, 2), like, tmp_path / str(number), "p")
        assert json.loads((tmp_path / str(number) / "p-mixer.json").read_text()) == document
        assert written.num_records == 6


def test_an_export_without_a_mixer_is_counted(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number, count in enumerate((2, 1)):
        write_predictions(patches(count, 2, 2), count, tmp_path / "in", f"part{number}", compressed=False)
        (tmp_path / "in" / f"part{number}-00000.tfrecord").rename(tmp_path / "in" / f"area-{number:05}.tfrecord")
    written = write_predictions(patches(3, 2, 2), tmp_path / "in", tmp_path / "out", "p")
    assert (written.mixer, names_in(tmp_path / "out")) == (None, ["p-00000.tfrecord.gz"])
    with pytest.raises(UsageError) as caught:
        written.upload_command("users/me/x")
    assert caught.value.message == ("these predictions have no mixer, which Earth Engine requires")


def test_a_wrong_number_of_patches_is_refused_and_leaves_no_files(tmp_path: Path, mixer: Path) -> None:
    out = tmp_path / "out"
    rows = [patches(3, 2, 3), patches(0, 2, 3), patches(5, 2, 3), patches(4, 3, 2)]
    calls = (partial(write_predictions, row, mixer, out, "p", max_file_size=1) for row in rows)
    check_errors(GOLDEN / "a_wrong_number_of_patches.txt", calls)
    assert names_in(out) == []


def test_a_failing_model_leaves_no_files(tmp_path: Path, mixer: Path) -> None:
    def failing() -> Iterator[Any]:
        yield patches(2, 2, 3)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_predictions(failing(), mixer, tmp_path / "out", "p", max_file_size=1)
    assert names_in(tmp_path / "out") == []


def test_patches_that_differ_from_the_first_are_named(tmp_path: Path, mixer: Path) -> None:
    rows: list[Any] = [
        {"x": np.zeros((2, 2))},
        {"y": np.zeros((2, 3))},
        {"x": np.zeros((2, 3), "i4")},
        {"x": np.full((2, 3), 1e300)},
    ]
    calls: list[Any] = [
        partial(write_predictions, [{"x": patches(2, 3)}, second], mixer, tmp_path / "out", "p") for second in rows
    ]
    calls.append(partial(write_predictions, [{"x": np.uint8([[255]])}, {"x": np.uint16([[256]])}], 2, tmp_path, "p"))
    check_errors(GOLDEN / "patches_that_differ_from_the_first.txt", calls)
    assert names_in(tmp_path / "out") == []


def test_invalid_calls_are_refused(tmp_path: Path, mixer: Path) -> None:
    out = tmp_path / "out"
    rows: list[tuple[Any, dict[str, Any]]] = [
        (0, {}),
        (1, {"crop": True}),
        (1, {"encoding": "int"}),
        (1, {"max_file_size": 0}),
        (1, {"layout": "WH"}),
        (True, {}),
        (None, {}),
    ]
    calls = (partial(write_predictions, [], like, out, "p", **options) for like, options in rows)
    check_errors(GOLDEN / "invalid_calls.txt", calls)
    write_predictions(patches(4, 2, 3), mixer, out, "p")
    with pytest.raises(AlreadyStoredError):
        write_predictions(patches(4, 2, 3), mixer, out, "p")
    write_predictions(patches(4, 2, 3), mixer, out, "p", overwrite=True, compressed=False)
    assert names_in(out) == ["p-00000.tfrecord", "p-mixer.json"]


def test_the_result_names_the_command_that_uploads_the_files(tmp_path: Path, mixer: Path) -> None:
    written = write_predictions(patches(4, 2, 3), mixer, tmp_path, "my p", max_file_size=160, compressed=False)
    assert written.upload_command("users/me/classes", bucket="gs://mine/2024/") == (
        "earthengine upload image --asset_id=users/me/classes 'gs://mine/2024/my p-00000.tfrecord' "
        "'gs://mine/2024/my p-00001.tfrecord' 'gs://mine/2024/my p-mixer.json'"
    )
    assert " 'gs://BUCKET/my p-00000.tfrecord' " in written.upload_command("users/me/classes")


def test_what_is_written_again_is_the_same(tmp_path: Path, mixer: Path) -> None:
    for name in ("one", "two"):
        write_predictions({"b": patches(4, 2, 3), "a": patches(4, 2, 3, dtype="u1")}, mixer, tmp_path / name, "p")
    for name in names_in(tmp_path / "one"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    record = next(read_records(open_store(tmp_path / "one"), "p-00000.tfrecord.gz"))
    assert record == encode_example({"a": [bytes(range(6))], "b": patches(6)})


def test_a_folder_can_be_given_as_mixer_and_one_name_as_bands(tmp_path: Path, mixer: Path) -> None:
    write_predictions(patches(4, 2, 3), mixer, tmp_path / "out", "p", bands="height")
    written = assemble(tmp_path / "out")
    again = assemble(patches(4, 2, 3), tmp_path / "out", bands=["height"])
    assert [band.name for band in written.bands] == ["height"]
    assert written.to_array().tolist() == again.to_array().tolist()
    assert again.crs == written.crs
    (tmp_path / "out" / "p-mixer.json").unlink()
    with pytest.raises(UsageError) as caught:
        assemble(patches(4, 2, 3), tmp_path / "out")
    assert (
        caught.value.message == f"{tmp_path / 'out'}: the export has no mixer, so the places of its patches are unknown"
    )
