"""A bundle proves its records in an empty folder, by Python alone. Every damage is named, no input is a traceback."""

from __future__ import annotations

import ast
import gzip
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.levels import either
from support.pinned_samples import pin, publish_samples, read_all, stored_ids, unpack

import registry
from registry.api import Catalog
from registry.errors import (
    AlreadyStoredError,
    ConflictError,
    NotStoredError,
    PinNotFoundError,
    ShardMismatchError,
    UsageError,
)
from registry.pins import Pin, PinFile, Places, standalone
from registry.pins.bundle import write_bundle
from registry.pins.document import seal
from registry.pins.yaml_text import write_yaml
from registry.tfrecord.block import crc32c
from registry.tfrecord.framing import frame_record

CITATIONS = {"CITATION.bib": "@misc{animals}\n"}
WANTED = {
    "train": ("animals:1.0.0", "train[:60%]"),
    "mixed": ("animals:1.0.0", "test[4:]+train[10:25]"),
    "wild": ("beasts/wild:1.0.0", "train[5:35]"),
    "nothing": ("animals:1.0.0", "test[3:3]"),
}
SHARD = "animals/1.0.0/animals-train.tfrecord-00001-of-00004"
"""Records 10..20 of train, of 45 bytes each and more."""


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalog]:
    with publish_samples(tmp_path_factory.mktemp("published")) as opened:
        yield opened


@pytest.fixture(scope="module")
def pins(catalog: Catalog) -> PinFile:
    return pin(catalog, WANTED)


@pytest.fixture(scope="module")
def tar(pins: PinFile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundle") / "paper.tar"
    write_bundle(pins, path, citation_texts=CITATIONS)
    return path


@pytest.fixture
def paper(tar: Path, tmp_path: Path) -> Path:
    """The bundle, unpacked in an empty folder."""
    unpack(tar, tmp_path)
    return tmp_path / "paper"


def verify(paper: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The output of verify.py, run by a Python without installed packages or environment variables."""
    return subprocess.run(
        [sys.executable, "-I", "-S", str(paper / "verify.py"), *arguments],
        cwd=paper.parent,
        env={},
        capture_output=True,
        text=True,
        check=False,
    )


def faults(paper: Path, name: str, *arguments: str) -> list[str]:
    """The faults that verify.py reports for one pin."""
    ran = verify(paper, "--pin", name, *arguments)
    assert (ran.returncode, ran.stderr) == (5, "")
    lines = ran.stdout.splitlines()
    assert re.fullmatch(f"{name}: .*: NOT as pinned, faults: {len(lines) - 2}", lines[1])
    return [line.removeprefix("  ") for line in lines[2:]]


def records_of(shard: Path) -> list[bytes]:
    data, found = shard.read_bytes(), []
    while data:
        length = int.from_bytes(data[:8], "little")
        found.append(data[12 : 12 + length])
        data = data[16 + length :]
    return found


def rewrite(paper: Path, change: Any) -> None:
    """Change the values of the pin file and recompute its digest, as an attacker would do."""
    content = json.loads((paper / "dataset.lock.json").read_text())
    content = change(content) or content
    content["digest"] = seal(content | {"finder": ""})[0]
    (paper / "dataset.lock.json").write_text(json.dumps(content))
    (paper / "dataset.lock.yaml").write_text(write_yaml(content))


def test_a_bundle_proves_itself_in_an_empty_folder(paper: Path, pins: PinFile) -> None:
    ran = verify(paper)
    assert ran.stderr == ""
    assert ran.stdout == (
        f"dataset.lock.json: {pins.digest}\n"
        "train: animals:1.0.0 train[:60%], 24 records: as pinned\n"
        "mixed: animals:1.0.0 test[4:]+train[10:25], 21 records: as pinned\n"
        "wild: beasts/wild:1.0.0 train[5:35], 30 records: as pinned\n"
        "nothing: animals:1.0.0 test[3:3], 0 records: as pinned\n"
    )
    assert ran.returncode == 0
    assert verify(paper, "--crc", "never", str(paper / "data")).stdout == ran.stdout


def test_a_bundle_holds_the_files_that_its_pins_need_and_no_other(pins: PinFile, tmp_path: Path) -> None:
    path = tmp_path / "small.tar"
    report = write_bundle(pins, path, names=["train"], citation_texts=CITATIONS)
    with tarfile.open(path) as opened:
        members = opened.getmembers()
    assert tuple(member.name for member in members) == report.members
    assert report.members == (
        "small/CITATION.bib",
        "small/README.txt",
        "small/data/animals/1.0.0/animals-train.tfrecord-00000-of-00004",
        "small/data/animals/1.0.0/animals-train.tfrecord-00001-of-00004",
        "small/data/animals/1.0.0/animals-train.tfrecord-00002-of-00004",
        "small/dataset.lock.json",
        "small/dataset.lock.yaml",
        "small/verify.py",
    )
    assert {(m.mtime, m.uid, m.gid, m.uname, m.gname, m.mode, m.isreg()) for m in members} == {
        (0, 0, 0, "", "", 0o644, True)
    }
    assert (report.num_bytes, report.sha256) == (
        path.stat().st_size,
        hashlib.sha256(path.read_bytes()).hexdigest(),
    )
    assert report.path == str(path)
    assert report.digest != pins.digest
    assert report.problems == ()


def test_a_bundle_is_read_without_any_other_help(paper: Path, pins: PinFile, catalog: Catalog) -> None:
    unpacked = PinFile.load(paper / "dataset.lock.yaml", places=Places(beside=str(paper)))
    assert unpacked == pins
    assert json.loads((paper / "dataset.lock.json").read_text()) == pins.content
    assert unpacked["wild"].store().local_root == paper / "data" / "beasts" / "wild" / "1.0.0"
    for name in pins:
        assert read_all(unpacked, name) == read_all(pins, name)
    assert (paper / "CITATION.bib").read_text() == "@misc{animals}\n"
    readme = (paper / "README.txt").read_text()
    assert pins.digest in readme
    assert all(one.entry.records.ordered in readme for one in pins.values())
    assert "@" not in readme


def test_the_same_pins_give_the_same_bytes(tar: Path, pins: PinFile, paper: Path, tmp_path: Path) -> None:
    elsewhere = PinFile.from_yaml(pins.to_yaml().encode(), "pins", places=Places(data_dir=str(paper)))
    advanced: list[int] = []
    write_bundle(elsewhere, tmp_path / "paper.tar", citation_texts=CITATIONS, advance=advanced.append)
    assert (tmp_path / "paper.tar").read_bytes() == tar.read_bytes()
    files = {file.name: file.num_bytes for one in pins.values() for file in one.entry.files}
    assert sum(advanced) == sum(files.values())


def test_names_longer_than_a_tar_header_holds(catalog: Catalog, tmp_path: Path) -> None:
    pins = pin(catalog, {"test": ("animals:1.0.0", "test[:1]")})
    name = "p" * 100
    write_bundle(pins, tmp_path / f"{name}.tar", citation_texts=CITATIONS)
    unpack(tmp_path / f"{name}.tar", tmp_path)
    ran = verify(tmp_path / name)
    assert (ran.returncode, ran.stdout.splitlines()[1]) == (0, "test: animals:1.0.0 test[:1], 1 record: as pinned")


def test_ids_are_those_of_the_records_in_stored_order(paper: Path, pins: PinFile) -> None:
    every = [one for name in pins for one in stored_ids(pins, name)]
    assert verify(paper, "--ids").stdout.splitlines() == every
    assert len(every) == 24 + 21 + 30
    assert verify(paper, "--ids", "--pin", "wild").stdout.splitlines() == stored_ids(pins, "wild")


def test_wrong_usage(paper: Path) -> None:
    for arguments, reported in [
        (["--pin", "tran"], "no pin 'tran'; the pins are: train, mixed, wild, nothing"),
        (["nowhere"], "there is no folder nowhere"),
        (["--crc", "maybe"], "argument --crc: invalid choice: 'maybe'"),
    ]:
        ran = verify(paper, *arguments)
        assert (ran.returncode, ran.stdout) == (2, "")
        assert reported in ran.stderr


# --- damage ---


@pytest.mark.parametrize("crc", ["always", "never"])
def test_a_flipped_byte_is_named_with_record_offset_and_digests(paper: Path, crc: str) -> None:
    shard = paper / "data" / SHARD
    good, records = shard.read_bytes(), records_of(shard)
    start = sum(16 + len(record) for record in records[:3])
    bad = bytearray(good)
    bad[start + 12 + 5] ^= 0x10
    shard.write_bytes(bad)
    changed = bytes(bad[start + 12 : start + 12 + len(records[3])])
    sha256 = [hashlib.sha256(data).hexdigest() for data in (bytes(bad), good, changed, records[3])]
    stored = good[start + 12 + len(records[3]) :][:4].hex()
    found = frame_record(changed)[-4:].hex()
    reported = faults(paper, "train", "--crc", crc)
    assert (
        reported[0]
        == f"{SHARD}: expected {len(good)} bytes, sha256 {sha256[1]}; found {len(good)} bytes, sha256 {sha256[0]}"
    )
    place = f"{SHARD}: record 3 at byte {start}"
    assert reported[1] == f"{place}: checksum mismatch in {len(changed)} bytes: expected {stored}, found {found}"
    assert [line.split(":")[0] for line in reported[2:4]] == ["records.ordered", "records.unordered"]
    assert reported[4] == f"{place}: sha256 mismatch: expected {sha256[3]}, found {sha256[2]}"
    assert len(reported) == 5
    assert verify(paper, "--pin", "wild").returncode == 0


@pytest.mark.parametrize("name", ["train", "mixed", "wild"])
def test_a_record_that_was_changed_with_its_checksum_is_found(paper: Path, pins: PinFile, name: str) -> None:
    file = [one for one in pins[name].entry.files if one.split == "train"][-1]
    folder = "beasts/wild/1.0.0" if name == "wild" else "animals/1.0.0"
    shard = paper / "data" / folder / file.name
    if name == "wild":
        shard.write_bytes(gzip.decompress(shard.read_bytes()))
    records = records_of(shard)
    before, records[2] = records[2], b"forged"
    content = b"".join(map(frame_record, records))
    shard.write_bytes(gzip.compress(content) if name == "wild" else content)
    start = sum(16 + len(record) for record in records[:2])
    reported = faults(paper, name)
    unit = "inflated byte" if name == "wild" else "byte"
    was, now = hashlib.sha256(before).hexdigest(), hashlib.sha256(b"forged").hexdigest()
    assert (
        reported[-1]
        == f"{folder}/{file.name}: record 2 at {unit} {start}: sha256 mismatch: expected {was}, found {now}"
    )


def test_records_in_another_order_have_the_same_unordered_digest(paper: Path) -> None:
    shard = paper / "data" / SHARD
    shard.write_bytes(b"".join(frame_record(record) for record in reversed(records_of(shard))))
    assert [line.split(":")[0] for line in faults(paper, "train")] == [SHARD, "records.ordered", "records.middle"]


def test_a_cut_file_says_where_it_ends(paper: Path) -> None:
    shard = paper / "data" / SHARD
    good, records = shard.read_bytes(), records_of(shard)
    starts = [sum(16 + len(record) for record in records[:count]) for count in range(len(records) + 1)]
    for cut in range(len(good)):
        faults: standalone.Faults = []
        file = standalone.File(SHARD, len(good), hashlib.sha256(good).hexdigest(), "train", 10, 20, "tfrecord")
        shard.write_bytes(good[:cut])
        standalone.check_file(paper / "data", file, True, faults)
        found = [text for _, text in faults]
        assert found[0].startswith(f"{SHARD}: expected {len(good)} bytes, sha256 ")
        if cut in starts:
            assert found[1:] == [f"{SHARD}: expected 10 records, found {starts.index(cut)}"]
        else:
            index = max(place for place, start in enumerate(starts) if start < cut)
            expected = rf"{SHARD}: record {index} at byte {starts[index]}: the file ends \d+ bytes too early"
            assert re.fullmatch(expected, found[1])
            assert len(found) == 2


def test_a_cut_or_damaged_gzip_file_is_named(paper: Path) -> None:
    path = "beasts/wild/1.0.0/beasts-train.tfrecord-00000-of-00002"
    shard = paper / "data" / path
    good = shard.read_bytes()
    for bad in (good[:40], good[:-4], good[:30] + b"\xff\xff\xff" + good[33:], good + b"more", good[:-8] + bytes(8)):
        shard.write_bytes(bad)
        reported = faults(paper, "wild")
        assert reported[0].startswith(f"{path}: expected {len(good)} bytes, sha256 ")
        assert re.fullmatch(rf"{path}: record \d+ at inflated byte \d+: .+", reported[1])


@pytest.mark.parametrize("compress", [True, False])
def test_more_records_than_are_pinned_are_not_read(paper: Path, compress: bool) -> None:
    shard = paper / "data" / SHARD
    good = shard.read_bytes()
    content = good + frame_record(b"") * 4_000_000
    shard.write_bytes(gzip.compress(content, 9) if compress else content)
    reported = faults(paper, "train")
    unit = "inflated byte" if compress else "byte"
    assert reported[1:] == [
        f"{SHARD}: record 10 at {unit} {len(good)}: the file has more records than the pin file says"
    ]


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 2**40])
def test_a_length_that_cannot_be_is_not_believed(paper: Path, length: int) -> None:
    shard = paper / "data" / SHARD
    frame = frame_record(b"")
    head = length.to_bytes(8, "little")
    masked = ((crc32c(head) >> 15 | crc32c(head) << 17) + 0xA282EAD8) & 0xFFFFFFFF
    rest = shard.read_bytes()
    shard.write_bytes(frame + head + masked.to_bytes(4, "little") + rest)
    missing = length - len(rest)
    assert f"{SHARD}: record 1 at byte 16: the file ends {missing} bytes too early" in faults(paper, "train")
    shard.write_bytes(head + bytes(4) + rest)
    expected = f"{SHARD}: record 0 at byte 0: its length and the checksum of the length disagree"
    assert expected in faults(paper, "train")


def test_a_path_outside_the_data_folder_is_not_read(paper: Path) -> None:
    shard = paper / "data" / SHARD
    outside = paper.parent / "outside"
    shutil.copy(shard, outside)
    expected = [f"{SHARD}: not found in {paper / 'data'}"]
    shard.unlink()
    assert faults(paper, "train") == expected
    shard.symlink_to(outside)
    assert faults(paper, "train") == expected
    shard.unlink()
    os.mkfifo(shard)
    assert faults(paper, "train") == expected
    shard.unlink()
    shard.mkdir()
    assert faults(paper, "train") == expected


@pytest.mark.parametrize("step", either(40, 5))
def test_every_changed_byte_of_the_json_is_refused_or_harmless(paper: Path, step: int) -> None:
    path = paper / "dataset.lock.json"
    good = path.read_bytes()
    content = json.loads(good)
    for place in range(0, len(good), step):
        for bad in (good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :], good[:place]):
            path.write_bytes(bad)
            try:
                digest, _ = standalone.read_lock(paper)
            except ValueError:
                continue
            changed = json.loads(bad)
            assert digest == content["digest"]
            # The digest does not cover the finder of the whole file, which is not used here.
            assert changed | {"finder": ""} == content | {"finder": ""}


def test_a_changed_pin_file_is_refused(paper: Path, pins: PinFile) -> None:
    path = paper / "dataset.lock.json"
    good = path.read_text()
    path.write_text(good.replace("train[:60%]", "train[:61%]"))
    ran = verify(paper)
    assert (ran.returncode, ran.stderr) == (5, "")
    expected = rf"dataset.lock.json: the file was changed: expected the digest {pins.digest}, found sha256:\w{{64}}\n"
    assert re.fullmatch(expected, ran.stdout)
    assert verify(paper, "--ids").stdout == ran.stdout
    path.write_text(good)
    yaml = paper / "dataset.lock.yaml"
    yaml.write_text(yaml.read_text().replace(pins.digest, "sha256:" + "0" * 64))
    expected = "dataset.lock.yaml: line 5 differs from dataset.lock.json\n"
    assert (verify(paper).returncode, verify(paper).stdout) == (5, expected)
    yaml.unlink()
    expected = f"dataset.lock.json: cannot read the pin file: [Errno 2] No such file or directory: '{yaml}'\n"
    assert (verify(paper).returncode, verify(paper).stdout) == (5, expected)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", '{"a": NaN}', "[" * 100_000, "\ud800", '{"pins": 1}', "1" * 5000, '{"digest": []}']
)
def test_an_invalid_pin_file_is_reported_in_one_line(paper: Path, text: str) -> None:
    (paper / "dataset.lock.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    ran = verify(paper)
    assert (ran.returncode, ran.stderr) == (5, "")
    assert re.fullmatch(r"dataset\.lock\.json: .+\n", ran.stdout)


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("name", "../../../../etc/passwd", "animals/1.0.0/../../../../etc/passwd: not found in {data}"),
        ("name", "/etc/passwd", "animals/1.0.0//etc/passwd: not found in {data}"),
        ("name", "a\x1b[31m", r"dataset.lock.json: pins[0].files[0].name: expected [^\x00-\x1f\x7f\ud800-\udfff]+"),
        ("name", "\udc80", r"dataset.lock.json: pins[0].files[0].name: expected [^\x00-\x1f\x7f\ud800-\udfff]+"),
        ("name", "a\x9b31m", "animals/1.0.0/a\ufffd31m: not found in {data}"),
        ("num_bytes", -1, "dataset.lock.json: pins[0].files[0].num_bytes: expected int"),
        ("num_bytes", True, "dataset.lock.json: pins[0].files[0].num_bytes: expected int"),
        ("sha256", "sha256:" + "A" * 64, "dataset.lock.json: pins[0].files[0].sha256: expected sha256:[0-9a-f]{64}"),
        ("num_examples", 3, "dataset.lock.json: pins[0].num_examples: the files do not hold the 24 pinned records"),
    ],
)
def test_a_hostile_pin_file_leads_nowhere(paper: Path, key: str, value: Any, told: str) -> None:
    def change(content: Any) -> None:
        content["pins"][0]["files"][0][key] = value

    rewrite(paper, change)
    ran = verify(paper, "--pin", "train")
    assert (ran.returncode, ran.stderr) == (5, "")
    assert told.replace("{data}", str(paper / "data")) in ran.stdout


@pytest.mark.parametrize("name", ["a\xa0b", "a\x85b", "a\u2028b", "a\u200fb", "größe", "集", "a\x9b31mb"])
def test_every_name_that_the_registry_takes_is_taken(catalog: Catalog, tmp_path: Path, name: str) -> None:
    pins = pin(catalog, {name: ("animals:1.0.0", "train[:60%]")})
    write_bundle(pins, tmp_path / "paper.tar", citation_texts=CITATIONS)
    unpack(tmp_path / "paper.tar", tmp_path)
    paper = tmp_path / "paper"
    assert list(PinFile.load(paper / "dataset.lock.yaml")) == [name]
    for chosen in ([], ["--pin", name]):
        ran = verify(paper, *chosen)
        shown = "".join(one if one.isprintable() else "\ufffd" for one in name)
        assert (ran.returncode, ran.stderr) == (0, "")
        assert ran.stdout.splitlines()[1] == f"{shown}: animals:1.0.0 train[:60%], 24 records: as pinned"


def test_output_that_cannot_be_written_ends_without_a_traceback(paper: Path) -> None:
    def run(arguments: str) -> tuple[int, str]:
        command = f'"$0" -I -S paper/verify.py {arguments}'
        ran = subprocess.run(
            ["sh", "-c", command, sys.executable], cwd=paper.parent, capture_output=True, text=True, check=False
        )
        return ran.returncode, ran.stderr

    assert run("--ids | true") == (0, "")
    if Path("/dev/full").exists():
        for asked in ("", "--ids"):
            assert run(f"{asked} > /dev/full") == (1, "stopped: [Errno 28] No space left on device\n")


def test_a_closed_pipe_ends_without_a_traceback(paper: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-I", "-S", str(paper / "verify.py"), "--ids"]
    ran = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (ran.returncode, ran.stderr) == (1, "")


def test_ctrl_c_ends_without_a_traceback(paper: Path) -> None:
    lock = paper / "dataset.lock.json"
    lock.unlink()
    os.mkfifo(lock)
    command = [sys.executable, "-I", "-S", str(paper / "verify.py")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with lock.open("wb"):  # the script has come to reading it
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert (process.returncode, out, err) == (1, "", "stopped: interrupted\n")


@pytest.mark.parametrize("step", either(10, 1))
def test_no_value_of_a_pin_file_is_a_traceback(
    paper: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], step: int
) -> None:
    monkeypatch.setattr(standalone, "__file__", str(paper / "verify.py"))
    monkeypatch.setattr(sys, "argv", ["verify.py", "--crc", "never"])
    monkeypatch.setattr(sys.stdout, "reconfigure", lambda **_: None, raising=False)
    good = json.loads((paper / "dataset.lock.json").read_text())
    good["pins"] = good["pins"][1:2]

    def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        yield path
        if isinstance(value, dict | list):
            for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
                yield from paths(inner, (*path, key))

    values = (None, -1, 2**62, "../x", "\ud800", [], {}, 1.5, [{}], "sha256:" + "0" * 64)
    tried = 0
    for place, path in enumerate(paths(good)):
        for value in values[place % step :: step]:
            changed = json.loads(json.dumps(good))
            inner = changed
            for key in path[:-1]:
                inner = inner[key]
            if path and path[0] not in ("digest", "finder"):
                inner[path[-1]] = value
                rewrite(paper, lambda _, changed=changed: changed)
                with suppress(SystemExit):  # the pin file has no pins
                    assert standalone.main() in (0, 5)
                tried += 1
    capsys.readouterr()
    assert tried > 1000 // step


# --- writing ---


def test_a_damaged_copy_is_skipped_for_an_intact_one(pins: PinFile, tar: Path, paper: Path, tmp_path: Path) -> None:
    shard = paper / "data" / SHARD
    good = shard.read_bytes()
    bad = bytes([good[0] ^ 1]) + good[1:]
    shard.write_bytes(bad)
    places = Places(beside=str(paper), data_dirs=pins.places.data_dirs)
    report = write_bundle(
        PinFile.from_yaml(pins.to_yaml().encode(), "pins", places=places),
        tmp_path / "again" / "paper.tar",
        citation_texts=CITATIONS,
    )
    sha256 = [hashlib.sha256(data).hexdigest() for data in (bad, good)]
    assert report.problems == (f"{shard}: sha256 mismatch: expected {sha256[1]}, found {sha256[0]}",)
    assert (tmp_path / "again" / "paper.tar").read_bytes() == tar.read_bytes()


def test_without_intact_files_no_tar_is_written(pins: PinFile, paper: Path, tmp_path: Path) -> None:
    only = PinFile.from_yaml(pins.to_yaml().encode(), "pins", places=Places(data_dir=str(paper)))
    shard = paper / "data" / SHARD
    good = shard.read_bytes()
    target = tmp_path / "new"
    target.mkdir()
    sha256 = hashlib.sha256(good).hexdigest()
    wanted = f"\n  {SHARD} (sha256:{sha256}, {len(good)} bytes)"
    elsewhere = (
        f"\n    {paper}/animals-train.tfrecord-00001-of-00004: no such file"
        f"\n    {paper}/{SHARD}: no such file\n    {shard}: "
    )
    shard.write_bytes(good[:-1] + b"x")
    with pytest.raises(ShardMismatchError) as caught:
        write_bundle(only, target / "paper.tar", citation_texts=CITATIONS)
    found = hashlib.sha256(shard.read_bytes()).hexdigest()
    first = "cannot find 1 pinned file with the pinned content"
    assert str(caught.value) == f"{first}{wanted}{elsewhere}sha256 mismatch: expected {sha256}, found {found}"
    assert caught.value.exit_code == 5
    shard.unlink()
    with pytest.raises(NotStoredError) as missing:
        write_bundle(only, target / "paper.tar", citation_texts=CITATIONS)
    assert str(missing.value) == f"{first}{wanted}{elsewhere}no such file"
    assert list(target.iterdir()) == []


def test_a_tar_is_replaced_when_asked(pins: PinFile, tar: Path, tmp_path: Path) -> None:
    path = tmp_path / "paper.tar"
    path.write_bytes(b"mine")
    with pytest.raises(AlreadyStoredError, match=r"paper\.tar: it exists already"):
        write_bundle(pins, path, citation_texts=CITATIONS)
    assert path.read_bytes() == b"mine"
    write_bundle(pins, path, citation_texts=CITATIONS, force=True)
    assert path.read_bytes() == tar.read_bytes()
    report = write_bundle(pins, "memory://bundles/paper.tar", citation_texts=CITATIONS)
    assert report.sha256 == hashlib.sha256(tar.read_bytes()).hexdigest()
    assert report.path == "memory://bundles/paper.tar"


def test_names_that_a_bundle_cannot_have(pins: PinFile, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        write_bundle(pins, "paper.zip", citation_texts=CITATIONS)
    assert str(caught.value) == (
        "invalid name of a bundle: 'paper.zip'; expected letters, digits and '_ . + -', and .tar at the end"
    )
    for name in ("..tar", ".tar", "-x.tar", "a b.tar"):
        with pytest.raises(UsageError):
            write_bundle(pins, tmp_path / name, citation_texts=CITATIONS)
    for name in ("../x", "README.txt", "Verify.py", "data", "dataset.lock.yaml", ""):
        with pytest.raises(UsageError, match="invalid name of a text in a bundle"):
            write_bundle(pins, tmp_path / "paper.tar", citation_texts={name: "x"})
    with pytest.raises(PinNotFoundError):
        write_bundle(pins, tmp_path / "paper.tar", names=["tran"], citation_texts={})
    assert list(tmp_path.iterdir()) == []


def test_pins_that_want_different_bytes_in_one_file_are_refused(pins: PinFile, tmp_path: Path) -> None:
    entry = pins["mixed"].entry
    other = entry.model_copy(
        update={"files": tuple(file.model_copy(update={"sha256": "sha256:" + "0" * 64}) for file in entry.files)}
    )
    both = PinFile(pins.content, pins.document.model_copy(update={"pins": (pins["train"].entry, other)}), pins.places)
    with pytest.raises(ConflictError) as caught:
        write_bundle(both, tmp_path / "paper.tar", citation_texts=CITATIONS)
    assert str(caught.value) == f"the pins 'train' and 'mixed' need different bytes in {SHARD}"
    assert isinstance(both["mixed"], Pin)


# --- the script ---


def test_the_script_needs_the_standard_library_and_python_3_9_alone(paper: Path) -> None:
    text = (paper / "verify.py").read_text()
    imported = {
        name.split(".")[0]
        for node in ast.walk(ast.parse(text, feature_version=(3, 9)))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names])
    }
    assert imported <= sys.stdlib_module_names


@pytest.mark.parametrize("size", [*range(20), 127, 128, 129, 1000, 4096, 100_003, 2**18])
def test_the_checksum_of_the_script_is_crc32c(size: int) -> None:
    data = hashlib.shake_128(str(size).encode()).digest(size)
    ones = standalone.ONES
    assert standalone.add_crc(ones, data) ^ ones == crc32c(data)
    half = standalone.add_crc(ones, data[: size // 2])
    assert standalone.add_crc(half, data[size // 2 :]) ^ ones == crc32c(data)


@pytest.mark.parametrize("name", ["Price\n(USD)", "a\x1b[31m", "\x7f", "a\tb\r\n", "\u202eb", '": x'])
def test_columns_of_any_name_are_pinned(tmp_path: Path, name: str) -> None:
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "datasets", create=True) as catalog:
        catalog.add([{"id": 1, name: 2.5}], "prices")
        pins = catalog.dataset("prices").pin("train")
    pins.save(tmp_path / "prices.lock.yaml")
    loaded = registry.load_pin(tmp_path / "prices.lock.yaml", data_dir=tmp_path / "datasets")
    assert loaded.digest == pins.digest
    assert [row[name] for row in next(iter(loaded.values())).read()] == [2.5]
    write_bundle(loaded, tmp_path / "paper.tar", citation_texts={})
    subprocess.run(["tar", "xf", "paper.tar"], cwd=tmp_path, check=True)
    command = [sys.executable, "-I", "-S", "paper/verify.py"]
    assert (
        "1 record: as pinned"
        in subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    )
