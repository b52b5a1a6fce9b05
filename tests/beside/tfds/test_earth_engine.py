"""TensorFlow opens our exports with the code of Earth Engine's guide, and we assemble files that TensorFlow wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from registry.builders.earth_engine.assembling.assemble import assemble
from registry.builders.earth_engine.assembling.predictions import write_predictions
from registry.builders.earth_engine.exporting.image import export_image
from registry.builders.earth_engine.table import write_table

pytestmark = pytest.mark.tfds

PLACE: dict[str, Any] = {"transform": [30.0, 0, 500000.0, 0, -30.0, 4100000.0], "crs": "EPSG:32610"}
BANDS = ["B2", "B3", "B4"]
WIDTH, HEIGHT, KERNEL = 8, 8, 4
MADE = np.random.default_rng(0)


def raster(dtype: str = "uint8") -> dict[str, npt.NDArray[Any]]:
    return {name: MADE.integers(0, 250, (20, 29)).astype(dtype) for name in BANDS}


def tile(band: npt.NDArray[Any], row: int, column: int) -> npt.NDArray[Any]:
    """A patch with its margin, of a raster of whole patches surrounded by zeros."""
    half = KERNEL // 2
    padded = np.pad(band, ((half, HEIGHT), (half, WIDTH)))
    return padded[row * HEIGHT : (row + 1) * HEIGHT + 2 * half, column * WIDTH : (column + 1) * WIDTH + 2 * half]


@pytest.mark.parametrize("compressed", [True, False])
def test_the_guides_code_reads_an_export(tf: Any, tmp_path: Path, compressed: bool) -> None:
    bands = raster()
    exported = export_image(
        bands,
        tmp_path,
        "training_patches",
        patch_dimensions=[WIDTH, HEIGHT],
        kernel_size=[KERNEL, KERNEL],
        compressed=compressed,
        max_file_size=5000,
        **PLACE,
    )
    side = [HEIGHT + KERNEL, WIDTH + KERNEL]
    columns = {name: tf.io.FixedLenFeature(shape=side, dtype=tf.float32) for name in BANDS}
    dataset = tf.data.TFRecordDataset(
        [str(tmp_path / name) for name in exported.filenames], compression_type="GZIP" if compressed else None
    )
    parsed = dataset.map(lambda example: tf.io.parse_single_example(example, columns), num_parallel_calls=2)
    stacked = parsed.map(lambda one: tf.transpose(tf.stack([one[name] for name in BANDS], axis=0), [1, 2, 0]))
    found = list(stacked.batch(4).unbatch().as_numpy_iterator())
    mixer = json.loads((tmp_path / "training_patches-mixer.json").read_text())
    assert len(found) == mixer["totalPatches"] == 6
    assert len(exported.filenames) > 1
    for index, values in enumerate(found):
        row, column = divmod(index, mixer["patchesPerRow"])
        expected = np.stack([tile(bands[name], row, column) for name in BANDS], -1)
        assert values.shape == (*side, 3)
        assert (values == expected).all()


def test_tensorflow_reads_the_three_kinds(tf: Any, tmp_path: Path) -> None:
    bands = {"a": raster()["B2"], "b": raster("int16")["B3"], "c": raster("float32")["B4"]}
    exported = export_image(bands, tmp_path, "p", patch_dimensions=[WIDTH, HEIGHT], encoding="native", **PLACE)
    columns = {
        "a": tf.io.FixedLenFeature([], tf.string),
        "b": tf.io.FixedLenFeature([HEIGHT, WIDTH], tf.int64),
        "c": tf.io.FixedLenFeature([HEIGHT, WIDTH], tf.float32),
    }
    dataset = tf.data.TFRecordDataset([str(tmp_path / name) for name in exported.filenames], compression_type="GZIP")
    for index, example in enumerate(dataset):
        one = tf.io.parse_single_example(example, columns)
        row, column = divmod(index, 3)
        part = np.s_[row * HEIGHT : (row + 1) * HEIGHT, column * WIDTH : (column + 1) * WIDTH]
        a = tf.reshape(tf.io.decode_raw(one["a"], tf.uint8), [HEIGHT, WIDTH])
        assert (a.numpy() == bands["a"][part]).all()
        assert (one["b"].numpy() == bands["b"][part]).all()
        assert (one["c"].numpy() == bands["c"][part]).all()


def test_tensorflow_reads_time_series(tf: Any, tmp_path: Path) -> None:
    series = MADE.random((4, 6, 5)).astype("float32")
    scalar = MADE.random((4, 6)).astype("float32")
    exported = export_image(
        {"ndvi": series, "slope": scalar},
        tmp_path,
        "s",
        patch_dimensions=2,
        sequence_data=True,
        tensor_depths={"ndvi": 5},
        **PLACE,
    )
    dataset = tf.data.TFRecordDataset([str(tmp_path / name) for name in exported.filenames], compression_type="GZIP")
    found = []
    for example in dataset:
        context, lists = tf.io.parse_single_sequence_example(
            example,
            context_features={"slope": tf.io.FixedLenFeature([1], tf.float32)},
            sequence_features={"ndvi": tf.io.FixedLenSequenceFeature([1], tf.float32)},
        )
        found.append((context["slope"].numpy()[0], lists["ndvi"].numpy()[:, 0].tolist()))
    expected = [
        (scalar[row + y, column + x], series[row + y, column + x].tolist())
        for row in (0, 2)
        for column in (0, 2, 4)
        for y in (0, 1)
        for x in (0, 1)
    ]
    assert found == expected


def test_the_guides_code_reads_a_table(tf: Any, tmp_path: Path) -> None:
    rows = [{"B2": 0.25 * number, "patch": [[1.0, 2.0], [3.0, number]], "landcover": number} for number in range(3)]
    write_table(rows, tmp_path, "Training_demo")
    columns = {
        "B2": tf.io.FixedLenFeature([1], tf.float32),
        "patch": tf.io.FixedLenFeature([2, 2], tf.float32),
        "landcover": tf.io.FixedLenFeature([1], tf.float32),
    }
    dataset = tf.data.TFRecordDataset(str(tmp_path / "Training_demo.tfrecord.gz"), compression_type="GZIP")
    found = [tf.io.parse_single_example(example, columns) for example in dataset]
    assert [
        {"B2": one["B2"].numpy()[0], "patch": one["patch"].numpy().tolist(), "landcover": one["landcover"].numpy()[0]}
        for one in found
    ] == rows


def test_tensorflow_reads_predictions(tf: Any, tmp_path: Path) -> None:
    values = MADE.random((6, HEIGHT, WIDTH)).astype("float32")
    written = write_predictions({"p": values, "c": (values * 9).astype("uint8")}, 6, tmp_path, "p")
    columns = {"p": tf.io.FixedLenFeature([HEIGHT, WIDTH], tf.float32), "c": tf.io.FixedLenFeature([], tf.string)}
    dataset = tf.data.TFRecordDataset([str(tmp_path / name) for name in written.filenames], compression_type="GZIP")
    found = [tf.io.parse_single_example(example, columns) for example in dataset]
    assert [one["p"].numpy().tolist() for one in found] == values.tolist()
    assert [one["c"].numpy() for one in found] == [(patch * 9).astype("uint8").tobytes() for patch in values]


def feature(tf: Any, values: npt.NDArray[Any]) -> Any:
    """As the guide's notebooks make one: a list of Python's numbers, or bytes."""
    flat = values.flatten()
    if values.dtype == np.uint8:
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[flat.tobytes()]))
    if values.dtype.kind == "i":
        return tf.train.Feature(int64_list=tf.train.Int64List(value=flat.tolist()))
    return tf.train.Feature(float_list=tf.train.FloatList(value=flat.tolist()))


@pytest.mark.parametrize("compression", ["", "GZIP"])
@pytest.mark.parametrize("half", [0, KERNEL // 2])
def test_what_tensorflow_writes_is_assembled(tf: Any, tmp_path: Path, half: int, compression: str) -> None:
    export_image(raster(), tmp_path, "area", patch_dimensions=[WIDTH, HEIGHT], kernel_size=KERNEL, **PLACE)
    whole = {
        "class": MADE.integers(0, 5, (16, 24)),
        "kind": MADE.integers(0, 250, (16, 24)).astype("uint8"),
        "probability": MADE.random((16, 24)).astype("float32"),
    }
    path = str(tmp_path / "predictions.TFRecord")  # uncompressed or not, the notebooks call it so
    with tf.io.TFRecordWriter(path, options=compression) as writer:
        for index in range(6):
            row, column = divmod(index, 3)
            part = np.s_[row * HEIGHT : (row + 1) * HEIGHT, column * WIDTH : (column + 1) * WIDTH]
            patch = {name: np.pad(values[part], half, constant_values=3) for name, values in whole.items()}
            features = tf.train.Features(feature={name: feature(tf, values) for name, values in patch.items()})
            writer.write(tf.train.Example(features=features).SerializeToString())
    assembly = assemble(path, tmp_path / "area-mixer.json", dtypes={"class": "uint8"})
    found = assembly.to_arrays()
    assert [(band.name, str(band.dtype)) for band in assembly.bands] == [
        ("class", "uint8"),
        ("kind", "uint8"),
        ("probability", "float32"),
    ]
    for name, values in whole.items():
        assert (found[name] == values).all()


def unpacked(values: npt.NDArray[np.float32]) -> bytes:
    """An Example with unpacked floats: valid, but only old writers create it."""

    def field(number: int, content: bytes) -> bytes:
        size, head = len(content), bytes([number << 3 | 2])
        while size >= 0x80:
            head += bytes([size & 0x7F | 0x80])
            size >>= 7
        return head + bytes([size]) + content

    floats = b"".join(b"\x0d" + value.tobytes() for value in values.reshape(-1))
    return field(1, field(1, field(1, b"p") + field(2, field(2, floats))))


def test_valid_records_of_other_forms_are_assembled(tf: Any, tmp_path: Path) -> None:
    values = MADE.random((2, 2, 2)).astype("float32")
    two = tf.train.Example(features=tf.train.Features(feature={"p": feature(tf, values[1])})).SerializeToString()
    merged = unpacked(values[0]) + two  # if a key occurs twice, the last one counts
    assert tf.io.parse_single_example(merged, {"p": tf.io.FixedLenFeature([2, 2], tf.float32)})["p"].numpy().tolist()
    path = str(tmp_path / "p.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        for record in (unpacked(values[0]), two, merged):
            writer.write(record)
    mixer = {
        "projection": {"crs": "EPSG:32610", "affine": {"doubleMatrix": [1, 0, 0, 0, -1, 0]}},
        "patchDimensions": [2, 2],
        "patchesPerRow": 1,
        "totalPatches": 3,
    }
    expected = np.concatenate([values[0], values[1], values[1]])
    assert assemble(path, mixer).to_arrays()["p"].tolist() == expected.tolist()


def test_batches_of_a_model_are_taken_as_they_are(tf: Any, tmp_path: Path) -> None:
    bands = raster("float32")
    exported = export_image(bands, tmp_path, "area", patch_dimensions=[WIDTH, HEIGHT], **PLACE)
    columns = {name: tf.io.FixedLenFeature(shape=[HEIGHT, WIDTH], dtype=tf.float32) for name in BANDS}
    files = [str(tmp_path / name) for name in exported.filenames]
    dataset = tf.data.TFRecordDataset(files, compression_type="GZIP")
    batches = dataset.map(lambda example: tf.io.parse_single_example(example, columns)).batch(4)
    model = (tf.stack([one["B2"] + one["B3"], one["B4"] * 2], axis=-1) for one in batches)
    found = assemble(model, tmp_path / "area-mixer.json", layout="HWC", bands=["sum", "twice"]).to_arrays()
    assert (found["sum"] == (bands["B2"] + bands["B3"])[:16, :24]).all()
    assert (found["twice"] == (bands["B4"] * 2)[:16, :24]).all()
