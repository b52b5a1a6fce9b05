"""Pin files checked on the command line: verify, audit, from-citation, signatures, locks and uses."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from registry.storage import open_store
from registry.tfrecord import RecordWriter, read_records

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)

CITED = "digits@1.0.0 train[:80%] #1438 sha256:f9c5a485541c42ac"
SHARD = Path("datasets/digits/1.0.0/digits-train.tfrecord-00001-of-00004")


@pytest.fixture
def pins(digits: Cli, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The command line in a folder with dataset.lock.yaml: train[:80%] and train[80%:] of digits."""
    monkeypatch.chdir(workspace)
    assert digits("pin", "create", "digits:1.*", "train=train[:80%]", "validation=train[80%:]").code == 0
    return digits


def change_value(shard: Path, place: int, *, right_checksum: bool) -> None:
    """Change one byte in the middle of one record, which is in its image; its checksum is made right, or left."""
    records = list(read_records(open_store(shard.parent), shard.name))
    start = sum(len(record) + 16 for record in records[:place]) + 12
    changed = bytearray(shard.read_bytes())
    changed[start + len(records[place]) // 2] ^= 1
    if not right_checksum:
        shard.write_bytes(changed)
        return
    records[place] = bytes(changed[start : start + len(records[place])])
    with shard.open("wb") as file:
        writer = RecordWriter(file)
        for record in records:
            writer.write(record)


def test_verify_by_files_and_record_by_record(pins: Cli, workspace: Path) -> None:
    where = workspace / "datasets/digits/1.0.0"
    ran = pins("pin", "verify", "dataset.lock.yaml")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == (
        "train: digits:1.0.0 train[:80%]: 1,438 records as pinned: every file is the pinned one "
        f"(4 files, 335.9 KiB in {where})\n"
        "validation: digits:1.0.0 train[80%:]: 359 records as pinned: every file is the pinned one "
        f"(1 file, 84.0 KiB in {where})\n"
    )
    deep = pins("pin", "verify", "dataset.lock.yaml", "validation", "--deep")
    assert (deep.code, deep.out) == (
        0,
        "validation: digits:1.0.0 train[80%:]: 359 records as pinned: every file is the pinned one, "
        f"and every record was digested and decoded (1 file, 84.0 KiB in {where})\n",
    )
    told = pins("pin", "verify", "dataset.lock.yaml", "validation", "validation", "--format", "json").json()
    digest = re.search("(?m)^digest: (.*)$", Path("dataset.lock.yaml").read_text())
    assert digest is not None
    assert told == {
        "schema": "registry.pin.verify/1",
        "data": {
            "file": "dataset.lock.yaml",
            "digest": digest[1],
            "pins": [
                {
                    "name": "validation",
                    "dataset": "digits:1.0.0",
                    "split": "train[80%:]",
                    "num_examples": 359,
                    "folder": f"file://{where}",
                    "is_sound": True,
                    "proved_by": "files",
                    "deep": False,
                    "num_files": 1,
                    "num_bytes": 85967,
                    "notes": [],
                    "faults": [],
                }
            ],
        },
        "warnings": [],
    }


@pytest.mark.parametrize("right_checksum", [False, True])
def test_verify_names_file_record_feature_and_both_digests(pins: Cli, workspace: Path, right_checksum: bool) -> None:
    change_value(SHARD, 7, right_checksum=right_checksum)
    ran = pins("pin", "verify", "dataset.lock.yaml", "--format", "json")
    assert ran.code == 5
    train, validation = ran.json()["data"]["pins"]
    assert validation["is_sound"], "no record of its files was touched"
    assert (train["is_sound"], train["proved_by"]) == (False, None)
    file, record = train["faults"]
    assert (file["filename"], file["record"]) == (SHARD.name, None)
    assert file["problem"] == f"{SHARD.name}: sha256 mismatch: expected {file['pinned'][7:]}, found {file['found'][7:]}"
    assert (record["filename"], record["record"], record["position"]) == (SHARD.name, 7, 456)
    assert record["code"] == ("records_mismatch" if right_checksum else "corrupt_record")
    assert list(record["features"]) == ["image"]
    assert record["pinned"] == "sha256:9ebb4d20a0109c8b02db79cd8192a09dc6413368a7684e52988c47cb2f6cb36f"
    problem = (
        f"{SHARD.name}: record 7 (number 456 of train[:80%]) differs in feature image: "
        f"sha256 mismatch: expected {record['pinned'][7:]}, found {record['found'][7:]}"
    )
    assert record["problem"] == problem + ("" if right_checksum else "; its checksum is wrong too")
    image = record["features"]["image"]
    assert image["pinned"] != image["found"]
    human = pins("pin", "verify", "dataset.lock.yaml", "train")
    assert (human.code, human.err) == (5, "")
    assert human.out == (
        f"train: digits:1.0.0 train[:80%] in {workspace / SHARD.parent} differs from the pin\n"
        f"  {file['problem']}\n"
        f"  {record['problem']}\n"
        f"    image: pinned {image['pinned']}, found {image['found']}\n"
    )
    read = pins("pin", "read", "dataset.lock.yaml", "train", "--ids")
    assert read.code == 0, "ids come from the pin alone"


def test_a_damaged_record_is_not_read_and_not_pinned(pins: Cli, workspace: Path) -> None:
    change_value(SHARD, 7, right_checksum=False)
    message = (
        f"error: {workspace / SHARD}: record 7 at byte 1344: its 177 bytes and their checksum disagree: "
        "one of them is damaged\n"
        "hint: The file is damaged or truncated. Fetch or build it again; `registry verify` names every bad shard.\n"
    )
    for arguments in (["read", "dataset.lock.yaml", "train"], ["create", "digits", "train", "-o", "new.yaml"]):
        ran = pins("pin", *arguments)
        assert (ran.code, ran.err) == (5, message)
    assert not Path("new.yaml").exists()


def test_what_the_catalog_does_not_promise_is_not_pinned(pins: Cli) -> None:
    change_value(SHARD, 7, right_checksum=True)
    ran = pins("pin", "create", "digits", "train", "-o", "new.yaml")
    assert ran.code == 5
    assert re.fullmatch(
        f"error: {SHARD.name}: sha256 mismatch: the catalog has [0-9a-f]{{64}}, found [0-9a-f]{{64}}\n"
        "hint: Damaged files cannot be pinned. To list all damaged shards: registry verify digits:1.0.0\n",
        ran.err,
    )
    assert not Path("new.yaml").exists()


def test_verify_takes_a_data_directory_or_the_folder_of_the_files(pins: Cli, workspace: Path) -> None:
    shutil.move("datasets", "elsewhere")
    nowhere = pins("pin", "verify", "dataset.lock.yaml", "validation")
    assert (nowhere.code, nowhere.out, nowhere.err) == (
        1,
        "",
        "error: the files of digits:1.0.0 train[80%:] are not in any folder that was searched\n"
        f"  file://{workspace}/data/digits/1.0.0: no digits-train.tfrecord-00003-of-00004\n"
        f"  file://{workspace}/datasets/digits/1.0.0: no digits-train.tfrecord-00003-of-00004\n"
        "hint: Name their folder with --data-dir DIR (data_dir= in Python), or get them with: "
        "registry pin restore FILE --to DIR\n",
    )
    for folder in ("elsewhere", "elsewhere/digits/1.0.0"):
        assert pins("pin", "verify", "dataset.lock.yaml", "--data-dir", folder).code == 0
        assert pins("pin", "read", "dataset.lock.yaml", "validation", "--take", "1", "--data-dir", folder).code == 0
    assert pins("pin", "verify", "dataset.lock.yaml", "--data-dir", "elsewhere").code == 0
    shutil.move("elsewhere", "data")
    assert pins("pin", "verify", "dataset.lock.yaml").code == 0, "found beside the pin file"
    both = pins("pin", "verify", "dataset.lock.yaml", "--data-dir", "data", "--against", "digits")
    assert both.code == 0, "the data directory of the catalog"
    unknown = pins("pin", "verify", "dataset.lock.yaml", "--against", "digits:2.*")
    assert (unknown.code, unknown.err) == (
        3,
        "error: no version '2.*.*' in digits\nhint: Published: 1.0.0 (canonical).\n",
    )


def test_a_missing_file_is_named(pins: Cli, workspace: Path) -> None:
    SHARD.unlink()
    ran = pins("pin", "verify", "dataset.lock.yaml", "train")
    assert (ran.code, ran.out) == (
        5,
        f"train: digits:1.0.0 train[:80%] in {workspace / SHARD.parent} differs from the pin\n"
        f"  cannot read {workspace / SHARD}: No such file or directory\n",
    )


def test_a_changed_pin_file_is_refused_with_the_line(pins: Cli) -> None:
    lock = Path("dataset.lock.yaml")
    text = lock.read_text()
    lock.write_text(text.replace("CC BY 4.0", "CC BY 3.0", 1))
    line = next(number for number, line in enumerate(lock.read_text().splitlines(), 1) if "CC BY 3.0" in line)
    ran = pins("pin", "verify", "dataset.lock.yaml")
    assert (ran.code, ran.err) == (
        5,
        f"error: dataset.lock.yaml: line {line}, pins[0].license: this was changed since the file was written: "
        "its digest does not match its content\n"
        "hint: Get the file again from where it was published. If the change is intended, make a new pin file.\n",
    )
    lock.write_text(text.replace("num_examples: 1438", "num_examples: many", 1))
    ran = pins("pin", "show", "dataset.lock.yaml", "--format", "json")
    assert (ran.code, ran.error()["code"]) == (5, "pin_format")
    assert "pins[0].num_examples" in ran.error()["message"]


def test_audit(pins: Cli, workspace: Path) -> None:
    table = (
        "FILE               PIN         VERSION       STATE      DATA   RESOLVES TO\n"
        "dataset.lock.yaml  train       digits:1.0.0  canonical  there\n"
        "dataset.lock.yaml  validation  digits:1.0.0  canonical  there\n"
    )
    ran = pins("pin", "audit", "dataset.lock.yaml")
    assert (ran.code, ran.out, ran.err) == (0, table, "")
    SHARD.unlink()
    missing = pins("pin", "audit", "dataset.lock.yaml")
    told = (
        "the files of digits:1.0.0 train[:80%] are not in any folder that was searched\n"
        f"  file://{workspace}/data/digits/1.0.0: no digits-train.tfrecord-00000-of-00004\n"
        f"  file://{workspace}/datasets/digits/1.0.0: no digits-train.tfrecord-00001-of-00004"
    )
    assert (missing.code, missing.err) == (5, told + "\n")
    assert missing.out.splitlines()[1].split() == ["dataset.lock.yaml", "train", "digits:1.0.0", "canonical", "missing"]
    pins("yank", "digits:1.0.0", "--reason", "wrong labels")
    yanked = pins("pin", "audit", "dataset.lock.yaml", "--format", "json")
    assert (yanked.code, yanked.json()["schema"]) == (6, "registry.pin.audit/1"), "withdrawn says more than missing"
    assert yanked.json()["data"][0] == {
        "file": "dataset.lock.yaml",
        "name": "train",
        "reference": "digits:1.0.0",
        "split": "train[:80%]",
        "state": "yanked",
        "message": "wrong labels",
        "is_withdrawn": True,
        "folder": None,
        "missing": told,
        "today": None,
        "is_good": False,
    }
    pins("drop", "digits:1.0.0", "--reason", "its licence ended")
    dropped = pins("pin", "audit", "dataset.lock.yaml")
    assert dropped.code == 6
    assert dropped.out.splitlines()[2] == (
        "dataset.lock.yaml  validation  digits:1.0.0  dropped: its licence ended  there"
    )


def test_audit_against_a_catalog_that_does_not_have_the_version(pins: Cli) -> None:
    pins("db", "upgrade", "--catalog", "other.db")
    ran = pins("pin", "audit", "dataset.lock.yaml", "--catalog", "other.db")
    assert ran.code == 6
    assert "digits:1.0.0  unknown: no dataset 'digits' in the catalog  there" in ran.out


@pytest.mark.parametrize("lock", ["1", "dataset.lock.yaml"])
def test_audit_is_no_look_up_that_a_lock_refuses(pins: Cli, monkeypatch: pytest.MonkeyPatch, lock: str) -> None:
    monkeypatch.setenv("REGISTRY_LOCKED", lock)
    ran = pins("pin", "audit", "dataset.lock.yaml")
    assert (ran.code, ran.err) == (0, "")


def test_yanked_versions_are_noted(pins: Cli) -> None:
    pins("yank", "digits:1.0.0", "--reason", "wrong labels")
    before = pins("pin", "verify", "dataset.lock.yaml", "train")
    assert (before.code, before.err) == (0, ""), "the pin does not know, and no catalog was named"
    note = "note: digits:1.0.0 is yanked: wrong labels\n"
    for arguments in (["verify", "dataset.lock.yaml"], ["read", "dataset.lock.yaml", "train", "--take", "1"]):
        asked = pins("pin", *arguments, "--catalog", "catalog.db")
        assert (asked.code, asked.err) == (0, note)
    refused = pins("pin", "create", "digits", "train", "-o", "late.yaml")
    assert (refused.code, refused.err.splitlines()[0]) == (
        6,
        "error: the canonical version 1.0.0 of digits is yanked: wrong labels",
    )
    late = pins("pin", "create", "digits:1.0.0", "train", "-o", "late.yaml")
    assert (late.code, late.err) == (0, note)
    told = pins("pin", "verify", "late.yaml", "--format", "json").json()["warnings"]
    assert told == ["note: digits:1.0.0 was yanked when it was pinned: wrong labels"]
    assert pins("pin", "read", "late.yaml", "train", "--take", "1").err == (
        "note: digits:1.0.0 was yanked when it was pinned: wrong labels\n"
    )
    assert "  Message of its publisher: wrong labels\n" in pins("pin", "explain", "late.yaml").out


def test_from_citation_makes_the_same_pin(pins: Cli) -> None:
    ran = pins("pin", "from-citation", CITED, "-o", "found.yaml")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[1] == f"train: {CITED} (4 files, 335.9 KiB)"
    pins("pin", "create", "digits:1.0.0", "train[:80%]", "-o", "made.yaml")
    assert Path("found.yaml").read_bytes() == Path("made.yaml").read_bytes()
    broken = pins("pin", "from-citation", CITED.replace(" ", "\n ").replace("%", "\\%"), "--format", "json").json()
    assert (broken["schema"], broken["data"]["file"]) == ("registry.pin.from-citation/1", None)
    inside = pins("pin", "from-citation", CITED, "--in", "dataset.lock.yaml")
    assert (inside.code, inside.out) == (0, f"train: {CITED} (4 files, 335.9 KiB)\n")
    both = pins("pin", "from-citation", CITED, "--in", "dataset.lock.yaml", "-o", "x.yaml")
    assert (both.code, both.err) == (
        2,
        "error: --in reads an existing file and -o writes a new one\nhint: Use only one of them.\n",
    )
    kept = pins("pin", "from-citation", CITED, "-o", "dataset.lock.yaml")
    assert (kept.code, kept.err.splitlines()[0]) == (
        1,
        f"error: cannot write {Path('dataset.lock.yaml').absolute()}: it exists already",
    )
    assert pins("pin", "from-citation", CITED, "-o", "dataset.lock.yaml", "--force").code == 0


WRONG_CITATIONS = {
    "digest": (
        "digits@1.0.0 train[:80%] #1438 sha256:f9c5a485541c42ad",
        5,
        "sha256 of the records: the citation has f9c5a485541c42ad, the pin has f9c5a485541c42ac",
    ),
    "number": (
        "digits@1.0.0 train[:80%] #1437 sha256:f9c5a485541c42ac",
        5,
        "number of records: the citation has 1437, the pin has 1438",
    ),
}


@pytest.mark.parametrize(("cited", "code", "difference"), WRONG_CITATIONS.values(), ids=WRONG_CITATIONS)
def test_a_citation_that_is_not_right(pins: Cli, cited: str, code: int, difference: str) -> None:
    ran = pins("pin", "from-citation", cited, "-o", "x.yaml")
    assert (ran.code, ran.err) == (
        code,
        f"error: {cited}: the catalog has other records: {difference}\n"
        "hint: Compare the text with the paper. If it is right, the paper cites another catalog.\n",
    )
    assert not Path("x.yaml").exists()
    inside = pins("pin", "from-citation", cited, "--in", "dataset.lock.yaml")
    assert (inside.code, inside.err) == (
        code,
        f"error: {cited}: the pin train is another one: {difference}\n"
        "hint: Check that the whole text was copied from the paper.\n",
    )


def test_citations_of_nothing(pins: Cli) -> None:
    absent = pins(
        "pin", "from-citation", "digits@1.0.0 train #1797 sha256:428c259e7b292ed1", "--in", "dataset.lock.yaml"
    )
    assert (absent.code, absent.err) == (
        3,
        "error: no pin of the file is digits@1.0.0 train #1797 sha256:428c259e7b292ed1\n"
        f"hint: There are: {CITED}, digits@1.0.0 train[80%:] #359 sha256:50e96981a67b7624.\n",
    )
    unknown = pins("pin", "from-citation", "digits@7.0.0 train #1797 sha256:428c259e7b292ed1")
    assert (unknown.code, unknown.err) == (
        3,
        "error: no version '7.0.0' in digits\nhint: Published: 1.0.0 (canonical).\n",
    )
    malformed = pins("pin", "from-citation", "digits 1.0.0 train #1797")
    assert (malformed.code, malformed.err) == (
        2,
        "error: expected the name of a dataset and '@' here\n    digits 1.0.0 train #1797\n    ^\n"
        "hint: Write dataset@version split #records sha256:digits, "
        "e.g. digits@1.0.0 train[:80%] #1438 sha256:f9c5a485541c42ac. "
        "Undo what a PDF changed, such as hyphens at line breaks.\n",
    )


def test_a_program_that_is_locked_to_a_pin_file_reads_what_is_pinned(
    pins: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_LOCKED", "dataset.lock.yaml")
    ran = pins("read", "digits", "train[80%:]", "--ids", "--take", "1")
    assert (ran.code, ran.out) == (0, "digits-train.tfrecord-00003-of-00004__90\n")
    assert pins("read", "digits:1.*", "train[:10]", "--ids").out.count("\n") == 10
    beyond = pins("read", "digits", "train[75%:85%]")
    assert beyond.code == 0, "every record of it is in one pin or the other"
    other = pins("read", "digits:2.*", "train")
    assert (other.code, other.err) == (
        6,
        "error: digits:2.*.* is not pinned, and look-ups are locked to a pin file\n"
        "hint: The file pins: digits:1.0.0. Add it with: registry pin add 'digits:2.*.*' SPLIT -o FILE\n",
    )
    monkeypatch.setenv("REGISTRY_LOCKED", "head.yaml")
    gone = pins("read", "digits", "train")
    assert (gone.code, gone.err.splitlines()[0]) == (1, "error: there is no pin file head.yaml")
    monkeypatch.delenv("REGISTRY_LOCKED")
    pins("pin", "create", "digits", "train[:10]", "-o", "first.yaml")
    monkeypatch.setenv("REGISTRY_LOCKED", "first.yaml")
    unpinned = pins("read", "digits", "train[:11]")
    assert (unpinned.code, unpinned.err) == (
        6,
        "error: digits:1.0.0 train[:11] is not pinned: records 10..11 of train are not among the pinned records\n"
        "hint: Slices within these are pinned: train[:10].\n",
    )


def test_pins_are_uses_that_a_yank_names(pins: Cli) -> None:
    ran = pins("yank", "digits:1.0.0", "--reason", "bad", "--uses", "dataset.lock.yaml", "--dry-run")
    assert ran.out.endswith(
        "\nOf 2 references in use, 2 change.\n"
        "IN USE        BEFORE  AFTER                WHERE\n"
        "digits:1.0.0  1.0.0   1.0.0 (yanked: bad)  dataset.lock.yaml: train, dataset.lock.yaml: validation\n"
    )
