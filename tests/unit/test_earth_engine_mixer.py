"""The mixer of an export: real, unusual and invalid ones, and the tile of each patch."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.golden import check_errors

from registry.builders.earth_engine.grid import Grid, Size, Tile, Transform, infer_tile
from registry.builders.earth_engine.mixer import Mixer
from registry.errors import PreparedFormatError, RegistryError, StorageError, UsageError
from registry.storage import open_store

GOLDEN = Path(__file__).with_name("golden")

# As a blog post has it: the one complete mixer of a real export that is public.
REAL = """{ "projection": { "crs": "EPSG:4326",
    "affine": { "doubleMatrix":
      [8.983152841195215E-4, 0.0, 13.599595086285436, 0.0, -8.983152841195215E-4, 45.40175277468474] } },
  "patchDimensions": [256, 256], "patchesPerRow": 5, "totalPatches": 10 }"""


def changed(path: str, value: Any) -> str:
    document = json.loads(REAL)
    *parents, last = path.split(".")
    place = document
    for parent in parents:
        place = place[parent]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return json.dumps(document)


def test_a_real_mixer() -> None:
    mixer = Mixer.from_json(REAL)
    assert (mixer.crs, mixer.patch, mixer.patches_per_row, mixer.total_patches) == ("EPSG:4326", (256, 256), 5, 10)
    assert mixer.transform == (8.983152841195215e-4, 0, 13.599595086285436, 0, -8.983152841195215e-4, 45.40175277468474)
    tile = Tile(size=Size(384, 384), patch=Size(256, 256), margin=Size(64, 64))
    assert mixer.grid(tile) == Grid(patch=Size(256, 256), patches_per_row=5, num_rows=2, margin=Size(64, 64))
    assert mixer.to_value() == json.loads(REAL)


def test_unknown_fields_are_kept_in_their_place() -> None:
    document = json.loads(REAL)
    document |= {"version": 2}
    document["projection"]["affine"]["unit"] = "m"
    document["projection"]["wkt"] = "..."
    assert Mixer.from_json(json.dumps(document)).to_value() == document


def test_south_up_and_turned_transforms_stay_as_they_are() -> None:
    turned = changed("projection.affine.doubleMatrix", [1, 2, 3, -2, 1, 4])
    assert Mixer.from_json(turned).transform == (1, 2, 3, -2, 1, 4)
    assert Mixer.from_json(changed("projection.affine.doubleMatrix", [10, 0, 0, 0, 10, 0])).transform.e == 10


def test_a_malformed_mixer_is_refused_with_the_key_at_fault() -> None:
    check_errors(
        GOLDEN / "earth_engine_mixer" / "a_malformed_mixer_is_refused_with_the_key_at_fault.txt",
        (
            partial(lambda path, value: Mixer.from_json(changed(path, value), "m.json"), *row)
            for row in [
                ("projection", ...),
                ("projection.crs", ...),
                ("projection.crs", ""),
                ("projection.crs", 4326),
                ("projection.affine", [1]),
                ("projection.affine.doubleMatrix", [1, 2]),
                ("projection.affine.doubleMatrix", [1, 2, 0, 2, 4, 0]),
                ("projection.affine.doubleMatrix", [1, "0", 0, 0, 1, 0]),
                ("patchDimensions", [256]),
                ("patchDimensions", [256, 0]),
                ("patchDimensions", [256, 2.5]),
                ("patchesPerRow", ...),
                ("patchesPerRow", 2**40),
                ("totalPatches", 11),
                ("totalPatches", -10),
            ]
        ),
    )


@pytest.mark.parametrize("text", ["", "[]", "{", '{"projection": NaN}', '{"a": 1, "a": 2}', "[" * 100_000])
def test_a_text_that_is_not_a_json_object_is_refused_as_a_mixer(text: str) -> None:
    with pytest.raises(PreparedFormatError):
        Mixer.from_json(text)


@pytest.mark.parametrize(
    ("content", "error"),
    [(b"\xff\xfe{}", PreparedFormatError), (b" " * (2**20 + 1), StorageError), (None, StorageError)],
    ids=["no-text", "long", "missing"],
)
def test_a_file_that_cannot_be_read_is_an_error(
    tmp_path: Path, content: bytes | None, error: type[RegistryError]
) -> None:
    if content is not None:
        (tmp_path / "m.json").write_bytes(content)
    with pytest.raises(error):
        Mixer.read(open_store(tmp_path), "m.json")


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "m.json").write_bytes(b"\xef\xbb\xbf" + REAL.encode())
    assert Mixer.read(open_store(tmp_path), "m.json") == Mixer.from_json(REAL)


def test_a_transform_has_six_or_nine_numbers() -> None:
    assert Transform.of([30, 0, 5, 0, -30, 4, 0, 0, 1]) == Transform(30, 0, 5, 0, -30, 4)
    for wrong in ([1, 2, 3], [1, 0, 0, 0, 1, float("inf")], "abcdef", 7, [30, 0, 5, 0, -30, 4, 0, 0, 2]):
        with pytest.raises(UsageError, match="invalid transform "):
            Transform.of(wrong)  # type: ignore[arg-type]


def test_the_tile_is_known_from_the_number_of_values() -> None:
    assert infer_tile(256 * 256, Size(256, 256)).margin == Size(0, 0)
    assert infer_tile(384 * 384, Size(256, 256)).margin == Size(64, 64)
    assert infer_tile(512 * 512, Size(256, 256), Size(256, 256)).margin == Size(128, 128)
    assert infer_tile(5 * 2, Size(3, 2), Size(2, 0)).margin == Size(1, 0)
    assert infer_tile(3 * 2, Size(3, 2), Size(2, 0)).margin == Size(0, 0)  # predictions are often cropped
    odd = infer_tile(259 * 259, Size(256, 256), Size(3, 3))
    assert (odd.margin, odd.is_uneven, odd.size) == (Size(1, 1), True, Size(259, 259))
    even_and_odd = infer_tile(7 * 4, Size(4, 2), Size(3, 2))
    assert (even_and_odd.size, even_and_odd.margin, even_and_odd.is_uneven) == (Size(7, 4), Size(1, 1), True)


def test_a_tile_that_cannot_be_is_an_error() -> None:
    check_errors(
        GOLDEN / "earth_engine_mixer" / "a_tile_that_cannot_be_is_an_error.txt",
        (
            partial(lambda values, patch, kernel: infer_tile(values, patch, kernel, what="the band 'b'"), *row)
            for row in [
                (257 * 257, Size(256, 256), None),
                (10, Size(3, 2), None),
                (17, Size(2, 2), None),
                (3, Size(2, 2), None),
                (5, Size(3, 2), None),
                (25, Size(2, 2), Size(2, 2)),
            ]
        ),
    )


def test_the_bounds_of_a_rotated_window_tightly_enclose_its_four_corners() -> None:
    turned = Transform(0, 2, 10, 3, 0, 20)  # columns go up, rows to the right
    assert turned.bounds(1, 1, 5, 2) == (12, 23, 16, 38)
