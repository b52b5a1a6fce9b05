"""``verify.py`` of a bundle and ``registry pin verify`` give one answer: verdict, exit code, and the damaged file."""

from __future__ import annotations

import random
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from support.levels import cases, either
from support.pinned_samples import pin, unpack
from support.prepared_samples import animals, prepare

import registry
from registry.cli.main import run
from registry.pins import standalone
from registry.pins.bundle import write_bundle
from registry.pins.document import canonical_json, seal
from registry.pins.yaml_text import read_yaml, write_yaml

PLAIN = "animals/1.0.0/animals-train.tfrecord-00000-of-00001"
PACKED = "beasts/1.0.0/beasts-train.tfrecord-00000-of-00001"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two of six records pinned of a plain file, in two slices of it, and two of a file of gzip."""
    folder = tmp_path_factory.mktemp("verifiers")
    with registry.connect(folder / "catalog.db") as catalog:
        data = Path(str(catalog.data_dir))
        prepare(data / "animals/1.0.0", splits={"train": animals(6)}, shards=1)
        prepare(data / "beasts/1.0.0", splits={"train": animals(6)}, shards=1, name="beasts", compress=True)
        for name in ("animals", "beasts"):
            catalog.publish(data / name / "1.0.0")
        wanted = {"two": ("animals", "train[1:2]+train[3:4]"), "packed": ("beasts", "train[2:4]")}
        write_bundle(pin(catalog, wanted), folder / "paper.tar", citation_texts={"CITATION.bib": "@misc{animals}\n"})
    unpack(folder / "paper.tar", folder)
    return folder / "paper"


@pytest.fixture
def paper(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(bundle, tmp_path / "paper")
    monkeypatch.setattr(standalone, "__file__", str(tmp_path / "paper" / "verify.py"))
    monkeypatch.setattr(sys, "argv", ["verify.py"])
    monkeypatch.setenv("REGISTRY_DATA_DIR", str(tmp_path / "nowhere"))
    return tmp_path / "paper"


class Printed(StringIO):
    def reconfigure(self, **_: Any) -> None:
        """As a file would."""


def ask_both(paper: Path, *options: str) -> tuple[tuple[int, str], tuple[int, str]]:
    """Exit code and text of ``verify.py`` and of ``registry pin verify``."""
    with redirect_stdout(Printed()) as alone:
        code = standalone.main()
    with redirect_stdout(Printed()) as ours, redirect_stderr(Printed()) as err:
        other = run(["pin", "verify", str(paper / "dataset.lock.yaml"), "--data-dir", str(paper), *options])
    return (code, alone.getvalue()), (other, ours.getvalue() + err.getvalue())


def verdicts(answer: str) -> dict[str, bool]:
    """The pins that are as pinned; empty if the pin file was refused."""
    found = re.findall(r"^(two|packed): .*?(NOT as pinned|differs from the pin|as pinned)", answer, re.MULTILINE)
    return {name: reported == "as pinned" for name, reported in found}


def flips(data: bytes, seed: int, step: int = 1) -> Iterator[tuple[int, bytes]]:
    """``data`` with one bit of each ``step``-th byte flipped."""
    draw = random.Random(seed)
    for place in range(draw.randrange(step), len(data), step):
        yield place, data[:place] + bytes([data[place] ^ 1 << draw.randrange(8)]) + data[place + 1 :]


@pytest.mark.parametrize("name", [PLAIN, PACKED])
@pytest.mark.parametrize(("seed", "step"), cases([(1, 1), (2, 1), (3, 12)], everyday=1))
def test_they_agree_on_every_flipped_byte_of_the_data(paper: Path, name: str, seed: int, step: int) -> None:
    path = paper / "data" / name
    good, harmless = path.read_bytes(), 0
    for place, bad in flips(good, seed, step):
        path.write_bytes(bad)
        alone, ours = ask_both(paper)
        assert (alone[0], verdicts(alone[1])) == (ours[0], verdicts(ours[1])), (place, alone, ours)
        assert alone[0] == (0 if all(verdicts(alone[1]).values()) else 5)
        assert path.name in alone[1]
        assert path.name in ours[1]
        harmless += alone[0] == 0
    assert 0 < harmless < len(good)


def test_a_changed_byte_outside_the_pinned_records_is_reported_separately(paper: Path) -> None:
    path = paper / "data" / PLAIN
    data = bytearray(path.read_bytes())
    data[20] ^= 1  # in the first record; the second and the fourth are pinned
    path.write_bytes(data)
    (code, alone), (other, ours) = ask_both(paper)
    assert (code, other) == (0, 0)
    first, *notes = alone.split("\n")[1:4]
    assert first == (
        "two: animals:1.0.0 train[1:2]+train[3:4], 2 records: as pinned; faults outside of the pinned records: 2"
    )
    assert [note.partition(": ")[0].strip() for note in notes] == [PLAIN, PLAIN]
    reported = ours.split("\n")
    assert re.fullmatch(
        r"two: animals:1\.0\.0 train\[1:2\]\+train\[3:4\]: 2 records as pinned: the records match the pin .*",
        reported[0],
    )
    assert re.fullmatch(
        rf"  {path.name}: sha256 mismatch: expected \w{{64}}, found \w{{64}}; its pinned records are unchanged",
        reported[1],
    )


def test_an_incomplete_bundle_fails_on_a_machine_that_has_the_data(
    bundle: Path, paper: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_DATA_DIR", str(bundle / "data"))
    places = str(paper / "dataset.lock.yaml")
    assert run(["pin", "verify", places]) == 0
    (paper / "data" / PACKED).unlink()
    with redirect_stdout(Printed()) as alone:
        assert standalone.main() == 5
    assert verdicts(alone.getvalue()) == {"two": True, "packed": False}
    with redirect_stdout(Printed()) as ours, redirect_stderr(Printed()) as err:
        assert run(["pin", "verify", places, "packed"]) == 1
    packed = paper / "data" / PACKED
    assert (ours.getvalue(), err.getvalue()) == (
        "",
        "error: the files of beasts:1.0.0 train[2:4] are not in any folder that was searched\n"
        f"  file://{packed.parent}: no {packed.name}\n"
        "hint: Name their folder with --data-dir DIR, "
        "or copy them from a catalog: registry pin restore FILE --to DIR --catalog URL\n",
    )
    # Reading may use the other copy, because a read proves its files; and so does a verification that names the folder.
    assert len(list(registry.load_pin(places)["packed"].read())) == 2
    with redirect_stdout(Printed()) as named:
        assert run(["pin", "verify", places, "packed", "--data", str(bundle)]) == 0
    assert f" in {bundle / 'data' / PACKED}".rpartition("/")[0] in named.getvalue()


@pytest.mark.parametrize("scale", either(4, 1))
def test_they_agree_on_every_flipped_byte_of_the_pin_file(paper: Path, scale: int) -> None:
    for name, step in (("dataset.lock.yaml", 29), ("dataset.lock.json", 97), ("README.txt", 997), ("CITATION.bib", 5)):
        path = paper / name
        good = path.read_bytes()
        for place, bad in flips(good, len(good), step * scale):
            path.write_bytes(bad)
            alone, ours = ask_both(paper, "--quick")
            assert (alone[0], verdicts(alone[1])) == (ours[0], verdicts(ours[1])), (name, place, alone, ours)
        path.write_bytes(good)


def edits(value: Any, edited: Callable[[Any], Any] = lambda value: value) -> Iterator[Any]:
    """``value`` with one of the values in it changed; all of them, one after the other."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from edits(inner, lambda one, key=key: edited(value | {key: one}))
    elif isinstance(value, list) and value:
        for at, inner in enumerate(value):
            yield from edits(inner, lambda one, at=at: edited([*value[:at], one, *value[at + 1 :]]))
    else:
        yield edited(value + 1 if type(value) is int else not value if isinstance(value, bool) else f"{value}x")


def test_they_agree_on_every_edited_field_of_the_yaml(paper: Path) -> None:
    path = paper / "dataset.lock.yaml"
    content: dict[str, Any] = read_yaml(path.read_bytes(), "f").value
    content["pins"] = content["pins"][:1]
    content["digest"], content["finder"] = seal(content)
    (paper / "dataset.lock.json").write_text(canonical_json(content))
    path.write_text(write_yaml(content))
    assert [code for code, _ in ask_both(paper)] == [0, 0]
    count = 0
    for count, changed in enumerate(edits(content), 1):  # noqa: B007 (counted)
        path.write_text(write_yaml(changed))
        alone, ours = ask_both(paper, "--quick")
        assert (alone[0], ours[0]) == (5, 5), (alone, ours)
        assert re.fullmatch(r"dataset\.lock\.yaml: line \d+ differs from dataset\.lock\.json\n", alone[1])
    assert count > 60


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace(b"\n", b"\r\n"),
        lambda text: b"# Of our paper.\n\n" + text + b"\n# The end.\n",
        lambda text: text.replace(b"\npins:\n", b"\n\n# The slices.\npins:\n"),
    ],
    ids=["ends of lines", "comments around", "a comment between"],
)
def test_comments_and_line_endings_do_not_change_the_result(paper: Path, change: Any) -> None:
    path = paper / "dataset.lock.yaml"
    path.write_bytes(change(path.read_bytes()))
    alone, ours = ask_both(paper)
    assert (alone[0], ours[0]) == (0, 0)
