"""Which files of a folder are an export, by their names alone."""

import json
from functools import partial
from pathlib import Path

import pytest
from support.golden import check_errors

from registry.builders.earth_engine.stored.found_files import FoundExport, find_export
from registry.errors import PreparedFormatError, RegistryError
from registry.storage import open_store

GOLDEN = Path(__file__).parent / "golden" / "earth_engine_found_files"
MIXER = {
    "projection": {"crs": "EPSG:32610", "affine": {"doubleMatrix": [30, 0, 500000, 0, -30, 4100000]}},
    "patchDimensions": [2, 2],
    "patchesPerRow": 3,
    "totalPatches": 6,
}


def fill(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(MIXER) if name.lower().endswith(".json") else "")
    return folder


def refused(folder: Path, *names: str, prefix: str | None = None) -> RegistryError:
    with pytest.raises(RegistryError) as caught:
        find_export(fill(folder, *names), prefix=prefix)
    caught.value.message = caught.value.message.replace(open_store(folder).url, "DIR").replace(f"{folder}", "DIR")
    return caught.value


def lines(error: RegistryError) -> list[str]:
    return [line.strip() for line in error.message.splitlines()]


@pytest.mark.parametrize(
    ("names", "prefix", "mixer"),
    [
        (["p-00000.tfrecord.gz", "p-00001.tfrecord.gz", "p-mixer.json"], "p", "p-mixer.json"),
        (["p-00000.tfrecord", "p-00001.tfrecord"], "p", None),
        (["p00000.tfrecord.gz", "p00001.tfrecord.gz", "pmixer.json"], "p", "pmixer.json"),
        (["Predict1_-00000.tfrecord.gz", "Predict1_-mixer.json"], "Predict1_", "Predict1_-mixer.json"),
        (["demo_00000.tfrecord.gz", "demo_mixer.json"], "demo_", "demo_mixer.json"),
        (["site201900000.tfrecord.gz", "site2019mixer.json"], "site2019", "site2019mixer.json"),
        (["t_2019-00000.tfrecord.gz", "t_2019-mixer.json"], "t_2019", "t_2019-mixer.json"),
        (["t_20190101-00000.TFRecord", "t_20190101-Mixer.JSON"], "t_20190101", "t_20190101-Mixer.JSON"),
        (["p--00000.tfrecord", "p--mixer.json"], "p-", "p--mixer.json"),
        (["00000.tfrecord", "mixer.json"], "", "mixer.json"),
        (["50%-00000.tfrecord", "50%-mixer.json"], "50%", "50%-mixer.json"),
        (["area 1-00000.tfrecord"], "area 1", None),
        (["._p-00000.tfrecord", "p-00000.tfrecord"], "p", None),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_both_ways_of_naming_are_read(tmp_path: Path, names: list[str], prefix: str, mixer: str | None) -> None:
    found = find_export(fill(tmp_path, *names))
    assert (found.prefix, found.mixer_name, found.is_table) == (prefix, mixer, False)
    assert list(found.filenames) == sorted(n for n in names if "mixer" not in n.lower() and not n.startswith("."))
    assert (found.mixer is None) == (mixer is None)


@pytest.mark.parametrize("name", ["t.tfrecord.gz", "t.tfrecord", "t.TFRecord", "t.TFRECORD.GZ"])
def test_a_file_without_a_number_is_a_table(tmp_path: Path, name: str) -> None:
    found = find_export(fill(tmp_path, name))
    assert (found.prefix, found.filenames, found.is_table) == ("t", (name,), True)


def test_one_file_with_a_mixer_is_not_a_table(tmp_path: Path) -> None:
    found = find_export(fill(tmp_path, "predictions.TFRecord", "predictions-mixer.json"))
    assert (found.is_table, found.mixer_name) == (False, "predictions-mixer.json")


def test_a_date_at_the_end_of_a_table_name_is_not_a_shard_number(tmp_path: Path) -> None:
    fill(tmp_path, "s_20240101.tfrecord.gz")
    assert find_export(tmp_path).prefix == "s_20240101"
    fill(tmp_path, "s_20240201.tfrecord.gz")
    assert find_export(tmp_path, prefix="s_20240201").filenames == ("s_20240201.tfrecord.gz",)


def test_shards_are_in_the_order_of_their_numbers_beyond_five_digits(tmp_path: Path) -> None:
    numbers = [*range(12), 12]
    found = find_export(fill(tmp_path, *(f"p-{number:05d}.tfrecord" for number in reversed(numbers))))
    assert found.filenames == tuple(f"p-{number:05d}.tfrecord" for number in numbers)


def test_every_lost_and_every_doubled_shard_is_named(tmp_path: Path) -> None:
    endings = ("0.tfrecord", "1.tfrecord", "1.tfrecord.gz", "3.tfrecord.gz.crdownload", "4.tfrecord.gz")
    fill(tmp_path, *(f"p-0000{ending}" for ending in endings))
    details = ("missing", "doubled")
    check_errors(GOLDEN / "lost_and_doubled.txt", [partial(find_export, tmp_path)], details=details, folder=tmp_path)


@pytest.mark.parametrize("copy", ["p-00000 (1).tfrecord.gz", "Copy of p-00000.tfrecord.gz", "p-00000 (1).TFRecord"])
def test_a_second_download_is_another_export(tmp_path: Path, copy: str) -> None:
    error = refused(tmp_path, "p-00000.tfrecord.gz", copy)
    assert error.message.startswith("DIR contains 2 exports: ")
    assert find_export(tmp_path, prefix="p").filenames == ("p-00000.tfrecord.gz",)


@pytest.mark.parametrize("copy", ["p-00001 (1).tfrecord.gz", "Copy of p-00001.tfrecord.gz"])
def test_a_copy_of_a_shard_that_is_missing_is_not_left_out_in_silence(tmp_path: Path, copy: str) -> None:
    error = refused(tmp_path, "p-00000.tfrecord.gz", copy, prefix="p")
    assert f"{copy}: its name is not that of a file of an export" in lines(error)


@pytest.mark.parametrize(
    "name",
    [
        "p-00001.tfrecord (1).gz",
        "p-00001.tfrecord.gz (1)",
        "p-00001.tfrecord.gz.part",
        "p-mixer (1).json",
        "p-mixer.json.crdownload",
    ],
)
def test_a_file_that_may_belong_to_the_export_is_not_left_out_in_silence(tmp_path: Path, name: str) -> None:
    fill(tmp_path, "p-00000.tfrecord.gz", "pq-00000.tfrecord.gz (1)", "remixer.json")
    assert find_export(tmp_path, prefix="p").filenames == ("p-00000.tfrecord.gz",)
    (tmp_path / "pq-00000.tfrecord.gz (1)").unlink()
    assert find_export(tmp_path).filenames == ("p-00000.tfrecord.gz",)
    for prefix in (None, "p"):
        error = refused(tmp_path, name, prefix=prefix)
        assert f"{name}: its name is not that of a file of an export" in lines(error)


def test_the_second_download_of_a_missing_last_shard_is_not_left_out_in_silence(tmp_path: Path) -> None:
    fill(tmp_path, "p-00000.tfrecord.gz", "p-00001 (1).tfrecord.gz", "p-2020_01 (1).tfrecord.gz")
    error = refused(tmp_path, prefix="p")
    assert lines(error)[1:] == ["p-00001 (1).tfrecord.gz: its name is not that of a file of an export"]
    fill(tmp_path, "p-00001.tfrecord.gz")
    assert find_export(tmp_path, prefix="p").filenames == ("p-00000.tfrecord.gz", "p-00001.tfrecord.gz")
    fill(tmp_path / "only", "p-00000 (1).tfrecord.gz", "p-mixer.json")
    error = refused(tmp_path / "only")
    assert lines(error)[1:] == ["p-00000 (1).tfrecord.gz: its name is not that of a file of an export"]
    assert find_export(tmp_path / "only", prefix="p-00000 (1)").filenames == ("p-00000 (1).tfrecord.gz",)


def test_a_mixer_may_be_there_twice_if_it_says_the_same(tmp_path: Path) -> None:
    fill(tmp_path, "p-00000.tfrecord", "p-mixer.json", "pmixer.json")
    assert find_export(tmp_path).notes == ("pmixer.json is equal to p-mixer.json.",)
    (tmp_path / "pmixer.json").write_text(json.dumps(MIXER | {"totalPatches": 3}))
    check_errors(GOLDEN / "two_mixers.txt", [partial(find_export, tmp_path)], folder=tmp_path)


def test_several_exports_need_a_prefix(tmp_path: Path) -> None:
    fill(tmp_path, "p-00000.tfrecord", "pq-00000.tfrecord", "pq-00001.tfrecord", "t.tfrecord.gz")
    calls = (partial(find_export, tmp_path, prefix=prefix) for prefix in (None, "pr"))
    check_errors(GOLDEN / "several_exports.txt", calls, folder=tmp_path)
    assert find_export(tmp_path, prefix="p").filenames == ("p-00000.tfrecord",)
    assert find_export(tmp_path, prefix="pq").filenames == ("pq-00000.tfrecord", "pq-00001.tfrecord")
    assert find_export(tmp_path, prefix="t").is_table


def test_what_another_export_lost_does_not_matter(tmp_path: Path) -> None:
    fill(tmp_path, "p-00000.tfrecord", "pq-00005.tfrecord", "q-mixer.json")
    assert find_export(tmp_path, prefix="p").filenames == ("p-00000.tfrecord",)


def test_any_file_of_an_export_finds_the_whole_export(tmp_path: Path) -> None:
    fill(tmp_path, "p-00000.tfrecord", "p-00001.tfrecord", "p-mixer.json", "t.tfrecord.gz", "t.tfrecord", "x.txt")
    for name in ("p-00000.tfrecord", "p-00001.tfrecord", "p-mixer.json"):
        assert find_export(tmp_path / name).filenames == ("p-00000.tfrecord", "p-00001.tfrecord")
    assert find_export(tmp_path / "t.tfrecord").filenames == ("t.tfrecord",)  # of two, the one that was given
    with pytest.raises(PreparedFormatError, match=r"x\.txt is not a file of an export: its name does not match(?m:$)"):
        find_export(tmp_path / "x.txt")


def test_a_given_file_selects_between_compressed_and_plain_files(tmp_path: Path) -> None:
    names = [f"p-0000{index}.tfrecord" for index in range(3)]
    fill(tmp_path, *names, *(f"{name}.gz" for name in names))
    assert find_export(tmp_path / names[1]).filenames == tuple(names)
    assert find_export(tmp_path / f"{names[1]}.gz").filenames == tuple(f"{name}.gz" for name in names)
    (tmp_path / names[0]).unlink()
    with pytest.raises(PreparedFormatError) as caught:
        find_export(tmp_path / names[1])
    assert caught.value.details["missing"] == [names[0]]


def test_a_folder_without_exports_says_what_is_nearly_one(tmp_path: Path) -> None:
    folders = {
        "notes": ["notes.txt"],
        "below": ["deep/p-00000.tfrecord"],
        "parts": ["p-mixer.json", "q-00000.tfrecord.gz.part"],
        "table": ["p-00000.tfrecord", "p.tfrecord.gz"],
        "two": ["p-00000.tfrecord", "p00001.tfrecord"],
        "archive": ["exports-001.zip"],
        "nope": [],
    }
    calls = [partial(find_export, fill(tmp_path / folder, *names)) for folder, names in folders.items()]
    calls.append(partial(find_export, fill(tmp_path / "near", "training-00000.tfrecord"), prefix="trainin"))
    check_errors(GOLDEN / "a_folder_without_exports.txt", calls, folder=tmp_path)
    assert find_export(tmp_path / "below", prefix="deep/p").prefix == "p"


def test_a_huge_shard_number_does_not_list_every_missing_file(tmp_path: Path) -> None:
    error = refused(tmp_path, "p-00000.tfrecord", "p-99999999999999999999.tfrecord")
    assert len(error.details["missing"]) == 10 + 1


def test_the_mixer_of_another_prefix_is_not_taken(tmp_path: Path) -> None:
    found = find_export(fill(tmp_path, "p.TFRecord", "image-mixer.json"))
    assert found.mixer is None
    assert found.notes == ("image-mixer.json has another prefix than the files, so it is not used as their mixer.",)


def test_exports_are_found_in_object_stores() -> None:
    store = open_store("memory://earth-engine/found")
    for name in ("p-00001.tfrecord", "p-00000.tfrecord", "p-mixer.json"):
        with store.create(name, overwrite=True) as file:
            file.write(json.dumps(MIXER).encode())
    for place in (store, store.url, f"{store.url}/p-mixer.json", f"{store.url}/p-00001.tfrecord"):
        found = find_export(place)
        assert isinstance(found, FoundExport)
        assert found.filenames == ("p-00000.tfrecord", "p-00001.tfrecord")
