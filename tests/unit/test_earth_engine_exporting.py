"""The files of an export, and refused input; property and conformance tests check the records."""

from __future__ import annotations

import gzip
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from support import warm_python
from support.golden import check_errors

from registry.builders.earth_engine.exporting.files import ExportFiles, find_files
from registry.builders.earth_engine.exporting.image import Exported, export_image, plan_export
from registry.builders.earth_engine.exporting.options import ExportOptions
from registry.builders.earth_engine.exporting.raster import ArrayRaster, Band, BandRows, stack_arrays
from registry.builders.earth_engine.grid import Size, Transform
from registry.builders.earth_engine.stored.found_files import find_export
from registry.errors import AlreadyStoredError, FeatureError, RegistryError, RegistryWarning, StorageError, UsageError
from registry.storage import Store, open_store
from registry.tfrecord import read_records
from registry.wire import decode_example, decode_sequence_example

GOLDEN = Path(__file__).with_name("golden")

PLACE: dict[str, Any] = {"transform": (30, 0, 500000, 0, -30, 4100000), "crs": "EPSG:32610"}
RASTER = {"b1": np.arange(35, dtype="uint8").reshape(5, 7)}
SERIES = {"s": np.ones((2, 2)), "ts": [[[1, 2], []], [[3], [4]]]}


def export(folder: Path | Store, prefix: str = "p", raster: Any = RASTER, **more: Any) -> Exported:
    return export_image(raster, folder, prefix, **{"patch_dimensions": 2, **PLACE, **more})


def names(folder: Path) -> list[str]:
    """Everything in a folder, including hidden and unfinished files."""
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def refused(make: Callable[[], object], kind: type[RegistryError]) -> tuple[str, str | None]:
    with pytest.raises(kind) as caught:
        make()
    return caught.value.message, caught.value.hint


def test_what_was_exported_is_told(tmp_path: Path) -> None:
    exported = export(tmp_path, "sub/p", kernel_size=3, max_file_size=200, encoding="native", mask_band="ok")
    assert exported.folder == str(tmp_path)
    assert exported.filenames == tuple(f"sub/p-{number:05}.tfrecord.gz" for number in range(3))
    assert (exported.records, exported.num_records) == ((2, 2, 2), 6)
    assert exported.mixer_filename == "sub/p-mixer.json"
    assert (exported.mixer.total_patches, exported.mixer.patches_per_row) == (6, 3)
    assert [(band.name, band.kind, band.dtype.name, band.depth) for band in exported.bands] == [
        ("b1", "bytes", "uint8", 1),
        ("ok", "bytes", "uint8", 1),
    ]
    assert (exported.options.kernel_size, exported.grid.tile, exported.size) == (Size(3, 3), Size(4, 4), Size(7, 5))
    assert (exported.dropped, exported.patches, exported.num_written) == ((), None, 6)
    found = find_export(tmp_path, prefix="sub/p")
    assert found.mixer == exported.mixer
    assert [f"sub/{name}" for name in found.filenames] == list(exported.filenames)


def test_progress_counts_every_patch(tmp_path: Path) -> None:
    for threshold in (1, 0.2):
        done: list[int] = []
        mask = np.zeros((5, 7), bool)
        mask[0, 0] = mask[3, 5] = True
        export(tmp_path, f"p{threshold}", mask=mask, masked_threshold=threshold, advance=done.append)
        assert sum(done) == 6
        assert len(done) == (6 if threshold == 1 else 5)


def test_the_same_raster_gives_the_same_bytes(tmp_path: Path) -> None:
    export(tmp_path / "one")
    export(tmp_path / "two")
    for name in names(tmp_path / "one"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    content = (tmp_path / "one" / "p-00000.tfrecord.gz").read_bytes()
    assert content[:10].hex() == "1f8b0800000000000003"  # no name, no time
    assert len(gzip.decompress(content)) > len(content)


def test_there_is_no_mixer_where_patches_may_be_left_out(tmp_path: Path) -> None:
    exported = export(tmp_path, masked_threshold=0.5)
    assert (exported.mixer, exported.mixer_filename, exported.num_written) == (None, None, 6)
    assert names(tmp_path) == ["p-00000.tfrecord.gz"]


def test_no_file_is_written_if_every_patch_is_left_out(tmp_path: Path) -> None:
    with pytest.warns(RegistryWarning) as caught:
        exported = export(tmp_path, mask=np.ones((5, 7), bool), masked_threshold=0.5)
    assert str(caught[0].message) == (
        "all 6 patches of 'p' have more masked pixels than masked_threshold allows; no file was written"
    )
    assert caught[0].filename == __file__
    assert (exported.filenames, exported.dropped, exported.num_bytes) == ((), (0, 1, 2, 3, 4, 5), 0)
    assert names(tmp_path) == []


@pytest.mark.parametrize("there", ["p-00000.tfrecord", "p-00007.tfrecord.gz", "p00000.tfrecord.gz", "p-mixer.json"])
def test_an_export_of_that_prefix_is_not_written_over(there: str, tmp_path: Path) -> None:
    (tmp_path / there).write_bytes(b"old")
    told, hint = refused(lambda: export(tmp_path), AlreadyStoredError)
    assert told == f"an export with the prefix 'p' already exists: {tmp_path / there}"
    assert hint == "Choose another prefix (--prefix), or replace it: overwrite=True; --overwrite."
    assert names(tmp_path) == [there]


def test_files_with_other_prefixes_do_not_prevent_an_export(tmp_path: Path) -> None:
    others = [
        "pp-00000.tfrecord",
        "p-1-00000.tfrecord.gz",
        "p-00000.tfrecord.gz.txt",
        "p.tfrecord.gz",
        "p-12345-mixer.json",
    ]
    for name in others:
        (tmp_path / name).write_bytes(b"other")
    export(tmp_path)
    export(tmp_path, overwrite=True)
    assert names(tmp_path) == sorted([*others, "p-00000.tfrecord.gz", "p-mixer.json"])
    assert all((tmp_path / name).read_bytes() == b"other" for name in others)


def test_overwriting_leaves_nothing_of_the_old_export(tmp_path: Path) -> None:
    export(tmp_path, max_file_size=1)
    assert len(names(tmp_path)) == 7
    exported = export(tmp_path, overwrite=True, compressed=False, masked_threshold=0.9)
    assert names(tmp_path) == ["p-00000.tfrecord"]
    assert list(exported.filenames) == names(tmp_path)


class Broken:
    """A raster with unreadable later rows."""

    size, transform, crs = Size(4, 100), Transform.of(PLACE["transform"]), "EPSG:32610"
    bands = (Band(name="b1", dtype=np.dtype(np.uint8)),)

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def read(self, start: int, stop: int) -> list[BandRows]:
        if stop > 50:
            raise self.error
        return [BandRows(np.zeros((stop - start, 4), np.uint8))]


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), StorageError("broken"), MemoryError()], ids=lambda one: type(one).__name__
)
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_failure_leaves_existing_files_unchanged(error: BaseException, overwrite: bool, tmp_path: Path) -> None:
    if overwrite:
        export(tmp_path, max_file_size=1)
    before = {name: (tmp_path / name).read_bytes() for name in names(tmp_path)}
    with pytest.raises(type(error)):
        export_image(Broken(error), tmp_path, "p", patch_dimensions=2, max_file_size=100, overwrite=overwrite)
    assert {name: (tmp_path / name).read_bytes() for name in names(tmp_path)} == before


def test_a_failure_while_files_are_renamed_leaves_no_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(tmp_path)
    move, calls = type(store).move, []

    def failing(self: Store, name: str, final: str) -> None:
        calls.append(final)
        if len(calls) == 3:
            raise StorageError("no room")
        move(self, name, final)

    monkeypatch.setattr(type(store), "move", failing)
    with pytest.raises(StorageError):
        export(store, max_file_size=1)
    assert calls[:3] == ["p-00005.tfrecord.gz", "p-00004.tfrecord.gz", "p-00003.tfrecord.gz"]
    assert names(tmp_path) == []


def test_the_first_file_and_the_mixer_appear_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export(tmp_path, max_file_size=150)
    assert len(names(tmp_path)) == 3
    store, seen = open_store(tmp_path), []
    for method in ("move", "remove_tree"):
        original = getattr(type(store), method)

        def watched(self: Store, name: str, *final: str, original: Any = original) -> None:
            original(self, name, *final)
            seen.append([one for one in names(tmp_path) if one.startswith("p")])

        monkeypatch.setattr(type(store), method, watched)
    export(store, max_file_size=1, overwrite=True)
    whole = [shown for shown in seen if "p-00000.tfrecord.gz" in shown or "p-mixer.json" in shown]
    first, mixer = "p-00000.tfrecord.gz", "p-mixer.json"
    rest = [f"p-{number:05}.tfrecord.gz" for number in range(1, 6)]
    assert whole[0] == [first, "p-00001.tfrecord.gz"]  # the old one, without its mixer
    assert whole[1] == [first, *rest]
    assert whole[2] == [first, *rest, mixer]


KILLED = """
import os, signal, sys
import numpy as np
from registry.builders.earth_engine.exporting.image import export_image
done = []
def advance(count):
    done.append(count)
    if len(done) == 4:
        os.kill(os.getpid(), signal.SIGKILL)
export_image({"b1": np.zeros((5, 7))}, sys.argv[1], "p", patch_dimensions=2, max_file_size=1, advance=advance,
             transform=(30, 0, 500000, 0, -30, 4100000), crs="EPSG:32610")
"""


def test_a_killed_export_leaves_no_export_and_the_next_one_removes_its_files(tmp_path: Path) -> None:
    ran = warm_python.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert ran.returncode == -signal.SIGKILL
    (left,) = names(tmp_path)
    assert left.startswith("incomplete.")
    assert open_store(tmp_path).list() == []
    export(tmp_path)
    assert names(tmp_path) == ["p-00000.tfrecord.gz", "p-mixer.json"]


def test_of_two_exports_of_one_prefix_at_once_one_is_refused(tmp_path: Path) -> None:
    barrier, refusals = threading.Barrier(2), []

    def run() -> None:
        with ExportFiles(open_store(tmp_path), "p") as files:
            files.write(b"record")
            barrier.wait()
            try:
                files.commit(b"{}")
            except AlreadyStoredError as error:
                refusals.append(error.message)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refusals == [f"an export with the prefix 'p' already exists: {tmp_path / 'p-mixer.json'} and 1 more"]
    assert names(tmp_path) == ["p-00000.tfrecord.gz", "p-mixer.json"]


@pytest.mark.parametrize("prefix", ["", "/p", "p/", "../p", "a/../p", ".hidden", "a\\b", "a\nb", "a:b"])
def test_a_prefix_stays_in_its_folder(prefix: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="invalid prefix of file names"):
        export(tmp_path / "folder", prefix)
    assert names(tmp_path) == []


def test_a_prefix_of_unfinished_files_is_refused(tmp_path: Path) -> None:
    assert refused(lambda: export(tmp_path, "incomplete.0a1b2c3d_p"), UsageError)[0] == (
        "invalid prefix of file names 'incomplete.0a1b2c3d_p': such names are reserved for unfinished files"
    )


def test_files_of_a_prefix_are_found_in_the_order_of_their_removal(tmp_path: Path) -> None:
    for name in (
        "p-00002.tfrecord",
        "p-mixer.json",
        "p-99999.tfrecord",
        "p-100000.tfrecord.gz",
        "p00001.tfrecord.gz",
        "p100000.tfrecord",
        "p-20240131.tfrecord.gz",
    ):
        (tmp_path / name).touch()
    assert find_files(open_store(tmp_path), "p") == [
        "p-mixer.json",
        "p00001.tfrecord.gz",
        "p-00002.tfrecord",
        "p-99999.tfrecord",
        "p-100000.tfrecord.gz",
    ]


CONTRADICTIONS: list[tuple[Any, dict[str, Any]]] = [
    (SERIES, {}),
    ({**SERIES, "u": SERIES["ts"]}, {"collapse_bands": True}),
    (SERIES, {"tensor_depths": {"ts": 2, "s": 1}}),
    (SERIES, {"tensor_depths": {"t": 2}}),
    (RASTER, {"mask_band": "b1"}),
    (RASTER, {"default_value": float("nan")}),
    (RASTER, {"patch_dimensions": [8, 2]}),
    (RASTER, {"options": ExportOptions()}),
    (RASTER, {"transform": None}),
    (RASTER, {"bands": ["b1"]}),
    (ArrayRaster(RASTER, **PLACE), {}),
    ("scene.tif", {"mask": np.zeros((2, 2), bool)}),
]


def test_what_contradicts_itself_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    check_errors(
        GOLDEN / "earth_engine_exporting" / "what_contradicts_itself_is_refused.txt",
        (partial(export, tmp_path, "p", raster, **options) for raster, options in CONTRADICTIONS),
    )
    assert names(tmp_path) == []


def test_an_array_band_may_go_without_a_depth_in_sequences_with_a_warning(tmp_path: Path) -> None:
    with pytest.warns(RegistryWarning) as caught:
        exported = export(tmp_path, "p", SERIES, sequence_data=True)
    assert [str(one.message) for one in caught] == [
        (
            "no depth for the array band 'ts': sequences keep their own lengths. Earth Engine "
            "requires tensorDepths for every array band"
        )
    ]
    assert caught[0].filename == __file__
    assert (exported.num_records, exported.num_patches, exported.options.sequence_data) == (4, 1, True)


def test_bands_of_the_same_name_are_refused(tmp_path: Path) -> None:
    raster = Broken(MemoryError())
    raster.bands = (*raster.bands, *raster.bands)  # type: ignore[assignment] # two of one name
    assert refused(lambda: export_image(raster, tmp_path, "p"), UsageError) == (
        "2 bands are called 'b1', but each feature needs its own name",
        "Rename them: bands={'first': 1, 'second': 2}; --band first=1 --band second=2.",
    )


def test_a_record_that_no_file_can_hold_is_refused(tmp_path: Path) -> None:
    raster = Broken(MemoryError())
    raster.size = Size(2**15, 2**15)
    raster.bands = tuple(Band(name=f"b{number}", dtype=np.dtype(np.float32)) for number in range(3))  # type: ignore[assignment]
    told, _ = refused(lambda: export_image(raster, tmp_path, "p", patch_dimensions=2**14), UsageError)
    assert told == "a record must not exceed 2147483647 bytes, but would have 3221225562"


class Lying:
    """A raster that reads something else than it says it has."""

    size, transform, crs = Size(4, 4), Transform.of(PLACE["transform"]), "EPSG:32610"
    bands = (Band(name="b1", dtype=np.dtype(np.uint8)),)

    def __init__(self, rows: BandRows) -> None:
        self.rows = rows

    def read(self, start: int, stop: int) -> list[BandRows]:
        del start, stop
        return [self.rows]


def test_a_raster_that_reads_something_else_is_refused(tmp_path: Path) -> None:
    flat = np.zeros((2, 4), np.uint8)
    wrong = [
        BandRows(flat[:, :3]),
        BandRows(flat.astype(np.int16)),
        BandRows(flat[..., None]),
        BandRows(flat, np.zeros((1, 4), bool)),
    ]
    calls = (partial(export_image, Lying(rows), tmp_path, "p", patch_dimensions=2) for rows in wrong)
    check_errors(GOLDEN / "earth_engine_exporting" / "lying.txt", calls)
    assert names(tmp_path) == []


@pytest.mark.parametrize("dtype", [">i2", ">f8", ">u4"])
@pytest.mark.parametrize("encoding", ["float", "native"])
def test_numbers_of_the_other_byte_order_are_the_same(dtype: str, encoding: str, tmp_path: Path) -> None:
    values = np.arange(-3, 32).reshape(5, 7)
    swapped, own = values.astype(dtype), values.astype(np.dtype(dtype).newbyteorder("="))
    series = np.stack([swapped, swapped], axis=2)
    for name, one, other in (("one", swapped, own), ("series", series, series.astype(own.dtype))):
        for prefix, band in (("a", one), ("b", other)):
            export(
                tmp_path / name,
                prefix,
                {"b1": band},
                encoding=encoding,
                tensor_depths={"b1": 2} if band.ndim == 3 else {},
            )
        first, second = ((tmp_path / name / f"{prefix}-00000.tfrecord.gz").read_bytes() for prefix in "ab")
        assert first == second


def test_an_empty_time_series_is_written(tmp_path: Path) -> None:
    empty = [[[] for _ in range(4)] for _ in range(4)]
    with pytest.warns(RegistryWarning, match="no depth"):
        exported = export(tmp_path, "p", {"ts": empty, "u": empty}, sequence_data=True, patch_dimensions=4)
    records = list(read_records(open_store(tmp_path), exported.filenames[0]))
    assert [decode_sequence_example(record) for record in records] == [({}, {"ts": [], "u": []})] * 16


def test_runs_of_values_equal_those_of_their_bands(tmp_path: Path) -> None:
    one, two = np.arange(32.0).reshape(4, 4, 2), [[[] for _ in range(4)] for _ in range(4)]
    with pytest.warns(RegistryWarning, match="no depth"):
        export(tmp_path, "p", {"a": one, "b": two}, sequence_data=True, patch_dimensions=4, tensor_depths={"a": 2})
    records = list(read_records(open_store(tmp_path), "p-00000.tfrecord.gz"))
    found = [[step.tolist() for step in decode_sequence_example(record).lists["a"]] for record in records]  # type: ignore[union-attr] # arrays
    assert found == [[[2.0 * place], [2.0 * place + 1]] for place in range(16)]


def test_an_integer_beyond_int64_is_refused_in_integer_bands(tmp_path: Path) -> None:
    raster = {"b1": np.full((2, 2), 2**63, np.uint64)}
    assert refused(lambda: export(tmp_path, "p", raster, encoding="native"), FeatureError) == (
        "band 'b1' contains 9223372036854775808, which exceeds int64",
        "Export with encoding='float' (--encoding float), or divide the band first.",
    )
    assert names(tmp_path) == []


class Counting:
    """A raster created while it is read: it records the requested rows, and the number of them alive at once."""

    transform, crs = Transform.of(PLACE["transform"]), "EPSG:32610"
    bands = (Band(name="b1", dtype=np.dtype(np.uint8)),)

    def __init__(self, width: int, height: int) -> None:
        self.size = Size(width, height)
        self.asked: list[tuple[int, int]] = []

    def read(self, start: int, stop: int) -> list[BandRows]:
        self.asked.append((start, stop))
        rows, columns = np.arange(start, stop)[:, None], np.arange(self.size.width)
        return [BandRows(((rows * 31 + columns * 7) % 251).astype(np.uint8))]


def test_every_row_is_read_once_a_row_of_patches_at_a_time(tmp_path: Path) -> None:
    raster = Counting(40, 103)
    export_image(raster, tmp_path, "p", patch_dimensions=10, kernel_size=6, encoding="native")
    assert raster.asked == [(0, 13), *[(start, start + 10) for start in range(13, 103, 10)]]
    raster = Counting(40, 109)
    export_image(raster, tmp_path, "q", patch_dimensions=10, kernel_size=50)
    assert raster.asked == [(0, 35), *[(start, start + 10) for start in range(35, 105, 10)], (105, 109)]


def test_memory_is_one_row_of_patches_and_not_the_image(tmp_path: Path) -> None:
    import tracemalloc

    options = {"patch_dimensions": 64, "kernel_size": 16, "encoding": "native", "compressed": False}
    peaks = []
    for height in (64 * 2, 64 * 4, 64 * 32):  # the first run creates cached objects
        tracemalloc.start()
        export_image(Counting(2048, height), tmp_path, f"p{height}", **options)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    row, image = 2048 * (64 + 2 * 8), 2048 * 64 * 32
    assert peaks[2] < peaks[1] + row // 2
    assert peaks[2] < image


def test_margins_of_a_tall_raster_equal_its_own_pixels(tmp_path: Path) -> None:
    raster = Counting(23, 41)
    export_image(
        raster, tmp_path, "p", patch_dimensions=[5, 4], kernel_size=[4, 7], encoding="native", compressed=False
    )
    whole: npt.NDArray[Any] = np.pad(Counting(23, 41).read(0, 41)[0].values, ((3, 3), (2, 2)))
    records = [decode_example(record)["b1"] for record in read_records(open_store(tmp_path), "p-00000.tfrecord")]
    assert len(records) == 40
    for index, (found,) in enumerate(records):
        row, column = divmod(index, 4)
        tile = whole[row * 4 : row * 4 + 10, column * 5 : column * 5 + 9]
        assert found == tile.tobytes()


def test_a_plan_reads_nothing_and_tells_the_bytes_of_a_record(tmp_path: Path) -> None:
    plan = plan_export(Broken(MemoryError()), {"patch_dimensions": 4, "max_file_size": 1000})
    assert plan.record_bytes == (78, 78)
    assert (plan.num_records, plan.num_files) == (25, (3, 3))
    assert plan.mixer is not None
    exported = export(tmp_path, "p", np.zeros((100, 4)), patch_dimensions=4, compressed=False, max_file_size=1000)
    assert len(exported.filenames) == 3
    assert (tmp_path / "p-00000.tfrecord").stat().st_size == 10 * (78 + 16)


def test_a_masked_pixel_of_an_array_band_is_the_default_in_every_level() -> None:
    values = np.arange(1, 13).reshape(1, 4, 3)
    mask = np.array([[False, True, False, True]])
    found = stack_arrays(values, mask, depth=3, dtype=np.dtype(np.int16), default=-1)
    assert found.tolist() == [[[1, -1, 7, -1]], [[2, -1, 8, -1]], [[3, -1, 9, -1]]]
