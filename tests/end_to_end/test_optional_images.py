"""An image that some records lack is stored as a list of none or one, which TFDS reads; exports give the null back."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image as Pillow

from registry.api import Catalog
from registry.errors import UnusableRowsError
from registry.features import Image, Sequence


def png(value: int) -> bytes:
    file = io.BytesIO()
    Pillow.fromarray(np.full((2, 3), value, np.uint8)).save(file, "PNG")
    return file.getvalue()


def write_tar(path: Path, samples: list[dict[str, bytes]]) -> Path:
    with tarfile.open(path, "w") as tar:
        for place, sample in enumerate(samples):
            for end, content in sample.items():
                member = tarfile.TarInfo(f"{place}.{end}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return path


SAMPLES = [{"txt": b"a", "png": png(1)}, {"txt": b"b"}, {"txt": b"c", "png": png(3)}]


def make(form: str, folder: Path, samples: list[dict[str, bytes]]) -> Any:
    if form == "webdataset":
        return write_tar(folder / "s.tar", samples)
    images = [None if "png" not in one else {"bytes": one["png"], "path": None} for one in samples]
    rows = {"txt": [one["txt"].decode() for one in samples], "png": images}
    import datasets

    features = datasets.Features({"txt": datasets.Value("string"), "png": datasets.Image()})
    made = datasets.Dataset.from_dict(rows, features=features)
    if form == "hugging_face":
        return made
    made.to_parquet(folder / "s.parquet")
    return folder / "s.parquet"


def pictures_of(catalog: Catalog) -> dict[bytes, list[int]]:
    return {row["txt"]: [int(image[0, 0, 0]) for image in row["png"]] for row in catalog.dataset("s").read("train")}


@pytest.mark.parametrize("form", ["webdataset", "hugging_face", "parquet"])
def test_an_image_that_some_records_lack(tmp_path: Path, catalog: Catalog, form: str) -> None:
    report = catalog.add(make(form, tmp_path, SAMPLES), "s")
    feature = report.plan.schema.features()["png"]
    assert isinstance(feature, Sequence)
    assert isinstance(feature.feature, Image)
    assert pictures_of(catalog) == {b"a": [1], b"b": [], b"c": [3]}
    assert catalog.add(make(form, tmp_path, SAMPLES), "s").outcome == "unchanged"

    catalog.add(make(form, tmp_path, [*SAMPLES[::2], {"txt": b"d", "png": png(4)}]), "s")  # all have one
    assert pictures_of(catalog) == {b"a": [1], b"c": [3], b"d": [4]}

    catalog.dataset("s:1.0.0").export("parquet", tmp_path / "out.parquet", split="train")
    rows = {row["txt"]: row["png"] for row in pq.read_table(tmp_path / "out.parquet").to_pylist()}
    assert rows["b"] is None
    assert rows["a"]["bytes"] == png(1)
    assert [row["png"] is None for row in catalog.dataset("s:1.0.0").to_hf(split="train")].count(True) == 1


def test_the_first_image_that_is_missing_is_refused_where_all_records_had_one(tmp_path: Path, catalog: Catalog) -> None:
    catalog.add(write_tar(tmp_path / "s.tar", SAMPLES[::2]), "s")
    with pytest.raises(UnusableRowsError, match=r"s\.tar:2, column 'png': is null, which is not allowed here"):
        catalog.add(write_tar(tmp_path / "s.tar", SAMPLES), "s")
    assert str(catalog.add(write_tar(tmp_path / "s.tar", SAMPLES), "s", retype=True).reference) == "s:2.0.0"


def test_arrow_tables_of_files_without_a_feature_stay_bytes(catalog: Catalog) -> None:
    report = catalog.add(pa.table({"png": [png(1), None]}), "s")
    assert not isinstance(report.plan.schema.features()["png"], Sequence)
