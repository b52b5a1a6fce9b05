"""What a catalog, on each kind of database, says of pins: the same bytes, how they stand today, where they would go."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.catalog_server import PostgresServer
from support.prepared_samples import animals, prepare

import registry
from registry.api import Catalog
from registry.errors import LockedError, RecordsMismatchError, VersionWithdrawnError, YankedVersionWarning
from registry.pins import PinFile
from registry.pins.citation import Citation


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "datasets"


def publish(catalog: Catalog, data_dir: Path) -> None:
    """animals 1.0.0, canonical; 1.0.1, the same in other shards; 2.0.0 with one animal more; beasts/wild 1.0.0."""
    twenty = animals(20)
    versions = (
        ("animals/1.0.0", {"train": twenty, "test": animals(6)}, 3),
        ("animals/1.0.1", {"train": twenty, "test": animals(6)}, 2),
        ("animals/2.0.0", {"train": [*twenty, {"name": "new", "kind": 0, "age": 1}], "test": animals(6)}, 3),
    )
    for path, splits, shards in versions:
        folder = data_dir / path
        if not folder.exists():
            prepare(folder, folder.name, splits, shards=shards)
        assert catalog.publish(folder).newly
    catalog.lifecycle.promote("animals:1.0.0")
    wild = data_dir / "beasts/wild/1.0.0"
    if not wild.exists():
        prepare(wild, splits={"train": animals(9)}, name="beasts", config="wild", compress=True)
    assert catalog.publish(wild).newly


@pytest.fixture
def catalog(catalog_url: str, data_dir: Path) -> Iterator[Catalog]:
    with registry.connect(catalog_url, data_dir=data_dir) as opened:
        publish(opened, data_dir)
        yield opened


@pytest.fixture
def both(
    postgres_server: PostgresServer, sqlite_template: Path, data_dir: Path, tmp_path: Path
) -> Iterator[tuple[Catalog, Catalog]]:
    """An SQLite and a PostgreSQL catalog over one data directory."""
    sqlite = f"sqlite:///{shutil.copy(sqlite_template, tmp_path / 'catalog.db')}"
    postgresql = postgres_server.create_database(template="catalog_template")
    with (
        registry.connect(sqlite, data_dir=data_dir) as first,
        registry.connect(postgresql, data_dir=data_dir) as second,
    ):
        publish(first, data_dir)
        publish(second, data_dir)
        yield first, second


def ages(pins: PinFile, name: str = "train") -> list[int]:
    return [int(example["age"]) for example in pins[name].read()]


def test_pin_files_have_the_same_bytes_on_both_databases(both: tuple[Catalog, Catalog]) -> None:
    texts = []
    for catalog in both:
        catalog.lifecycle.deprecate("animals:1.0.1", reason="use 2.0.0")
        pins = catalog.dataset("animals").pin("train[:60%]", {"rest": "train[60%:]+test[:2]"})
        pins = catalog.dataset("animals:1.0.1").pin({"old": "test"}, into=pins, locations=["https://example.org/a"])
        pins = catalog.dataset("animals:1.*").pin(
            {"shuffled": "train"}, into=pins, read_config=registry.ReadConfig(shuffle="global", seed=7)
        )
        texts.append(catalog.dataset("beasts/wild").pin({"wild": "train"}, into=pins).to_yaml())
    assert texts[0] == texts[1]
    assert "    status_message: use 2.0.0\n" in texts[0]


def test_a_pin_made_on_one_database_holds_on_the_other_and_in_a_plain_folder(
    both: tuple[Catalog, Catalog], data_dir: Path, tmp_path: Path
) -> None:
    sqlite, postgresql = both
    lock = tmp_path / "dataset.lock.yaml"
    made = sqlite.dataset("animals").pin("train[:60%]", "test")
    made.save(lock)
    expected = ages(made)
    (standing, _) = postgresql.pins.audit(made)
    assert (standing.is_good, standing.state, standing.today) == (True, "canonical", None)
    opened = registry.load_pin(lock, catalog=postgresql, data_dir=postgresql.data_dir)
    assert all(pin.verify(deep=True).is_sound for pin in opened.values())
    folder = postgresql.dataset("animals:1.0.0").folder
    assert opened["train"].verify(folder=folder).proved_by == "files"
    with registry.locked(lock, data_dir=data_dir):
        dataset = postgresql.dataset("animals")
        assert [int(example["age"]) for example in dataset.read("train[:60%]")] == expected
        with pytest.raises(LockedError):
            dataset.read("train")
    plain = Path(shutil.move(data_dir / "animals/1.0.0", tmp_path / "plain"))
    shutil.rmtree(data_dir)
    alone = registry.load_pin(lock, data_dir=plain)
    assert ages(alone) == expected
    assert [pin.verify(deep=True).proved_by for pin in alone.values()] == ["files", "files"]


def test_a_citation_gives_the_same_pin_on_both_databases(both: tuple[Catalog, Catalog]) -> None:
    sqlite, postgresql = both
    made = sqlite.dataset("animals:2.0.0").pin("train[50%:]")
    digits = made["train"].entry.records.ordered.removeprefix("sha256:")[:16]
    found = postgresql.pins.from_citation(f"animals@2.0.0 train[50%:] #{made['train'].num_examples} sha256:{digits}")
    assert found.to_yaml() == made.to_yaml()


def test_a_citation_with_the_former_name_of_a_dataset_gives_its_pin(catalog: Catalog) -> None:
    cited = str(Citation.of(catalog.dataset("animals:2.0.0").pin("train[50%:]")["train"].entry))
    catalog.rename("animals", "creatures")
    found = catalog.pins.from_citation(cited)["train"]
    assert str(Citation.of(found.entry)) == cited.replace("animals", "creatures")
    with pytest.raises(RecordsMismatchError, match=r"^animals@2\.0\.0 .* differ: sha256 of the records: "):
        catalog.pins.from_citation(cited[:-1] + "fe"[cited[-1] == "f"])


def test_other_shards_hold_the_pinned_records(catalog: Catalog) -> None:
    pin = catalog.dataset("animals:1.0.0").pin("train[:60%]")["train"]
    report = pin.verify(folder=catalog.dataset("animals:1.0.1").folder)
    assert (report.is_sound, report.proved_by, report.num_files) == (True, "records", 2)
    again = catalog.dataset("animals:1.0.1").pin("train[:60%]")["train"]
    assert again.entry.records.ordered == pin.entry.records.ordered
    assert again.entry.records.unordered == pin.entry.records.unordered
    assert not {file.sha256 for file in again.entry.files} & {file.sha256 for file in pin.entry.files}


def test_an_alias_is_pinned_with_the_event_that_set_it(catalog: Catalog) -> None:
    catalog.aliases.set("paper", "animals:2.0.0", reason="first draft")
    catalog.aliases.set("paper", "animals:1.0.0")
    catalog.aliases.set("paper", "animals:2.0.0", reason="as submitted")
    (*_, last) = catalog.aliases.history("animals@paper")
    pins = catalog.dataset("animals@paper").pin("train")
    alias = pins["train"].entry.alias
    assert (alias.name, alias.set_by, alias.message) == ("paper", last.actor, "as submitted")
    assert alias.set_at == last.at.isoformat()
    before = ages(pins)
    catalog.aliases.set("paper", "animals:1.0.1", reason="revised")
    (standing,) = catalog.pins.audit(pins)
    assert (standing.is_good, str(standing.today)) == (True, "animals:1.0.1")
    with registry.locked(pins):
        assert [int(one["age"]) for one in registry.load("animals@paper", split="train")] == before
        with pytest.raises(LockedError):
            catalog.dataset("animals@draft")
    (move,) = catalog.pins.preview_update(pins)
    assert (move.is_move, str(move.dataset.reference)) == (True, "animals:1.0.1")
    moved = catalog.pins.update(pins, [move])["train"].entry
    assert (moved.version, moved.alias.message) == ("1.0.1", "revised")
    catalog.aliases.remove("animals@paper")
    (standing,) = catalog.pins.audit(pins)
    assert (standing.is_good, standing.today) == (True, None)


def test_a_yanked_version_still_resolves_verifies_and_reads_with_a_warning(
    catalog: Catalog, tmp_path: Path, data_dir: Path
) -> None:
    lock = tmp_path / "dataset.lock.yaml"
    pins = catalog.dataset("animals:1.0.*").pin("train[:60%]")
    pins.save(lock)
    assert str(pins["train"].reference) == "animals:1.0.1"
    before = ages(pins)
    catalog.lifecycle.yank("animals:1.0.1", reason="wrong labels", superseded_by="2.0.0")
    note = "animals:1.0.1 is yanked: wrong labels; superseded by 2.0.0"
    with pytest.warns(YankedVersionWarning, match=f"^{note}(?m:$)"):
        opened = registry.load_pin(lock, catalog=catalog, data_dir=data_dir)
    assert (opened["train"].plan, ages(opened)) == (pins["train"].plan, before)
    assert opened["train"].verify(deep=True).is_sound
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ages(registry.load_pin(lock, data_dir=data_dir)) == before, "nobody was asked"
    (standing,) = catalog.pins.audit(opened)
    assert (standing.state, standing.message) == ("yanked", "wrong labels; superseded by 2.0.0")
    assert (standing.is_withdrawn, standing.is_good, standing.missing) == (True, False, "")
    assert str(standing.today) == "animals:1.0.0", "the range no longer picks it"
    assert standing.yank_note == note
    assert str(catalog.dataset("animals:1.0.*").reference) == "animals:1.0.0"


def test_a_version_that_was_yanked_when_it_was_pinned_warns_without_a_catalog(
    catalog: Catalog, tmp_path: Path, data_dir: Path
) -> None:
    catalog.lifecycle.yank("animals:1.0.1", reason="wrong labels")
    with pytest.warns(YankedVersionWarning):
        dataset = catalog.dataset("animals:1.0.1")
    dataset.pin("train").save(tmp_path / "dataset.lock.yaml")
    note = "^animals:1.0.1 was yanked when it was pinned: wrong labels$"
    with pytest.warns(YankedVersionWarning, match=note) as caught:
        pins = registry.load_pin(tmp_path / "dataset.lock.yaml", data_dir=data_dir)
    assert [one.filename for one in caught] == [__file__], "it points at the caller"
    with registry.locked(pins):
        with pytest.warns(YankedVersionWarning, match=note):
            registry.load("animals", split="train")
        with pytest.warns(YankedVersionWarning, match=note):
            catalog.dataset("animals:1.0.1")
    catalog.lifecycle.undo("yank", "animals:1.0.1")
    (standing,) = catalog.pins.audit(pins)
    assert (standing.state, standing.is_good) == ("experimental", True)


def test_an_update_follows_the_range_and_shows_the_records_that_change(catalog: Catalog) -> None:
    pins = catalog.dataset("animals:1.0.0").pin({"fixed": "train"})
    entry = dict(catalog.dataset("animals").pin("train[:60%]").content["pins"][0])
    pins = PinFile.of([*pins.content["pins"], entry], created_by="a test", base=pins, places=pins.places)
    catalog.lifecycle.promote("animals:2.0.0")
    fixed, move = catalog.pins.preview_update(pins)
    assert (fixed.is_move, fixed.diff) == (False, None)
    assert (move.is_move, str(move.dataset.reference)) == (True, "animals:2.0.0")
    (train,) = [one for one in move.diff.records if one.split == "train"]
    assert (train.same, train.changed, train.added, train.removed) == (20, 0, 1, 0)
    updated = catalog.pins.update(pins, [fixed, move])
    assert updated.content["pins"][0] == pins.content["pins"][0]
    moved = updated["train"]
    assert (moved.entry.request, moved.entry.version, moved.split) == ("animals", "2.0.0", "train[:60%]")
    assert moved.num_examples == 13
    assert all(pin.verify(deep=True).is_sound for pin in updated.values())
    (again, _) = catalog.pins.preview_update(updated)
    assert not again.is_move


def test_an_update_leaves_a_yanked_version(catalog: Catalog) -> None:
    pins = catalog.dataset("animals:1.0.*").pin("train")
    catalog.lifecycle.yank("animals:1.0.1", reason="bad")
    (move,) = catalog.pins.preview_update(pins)
    assert str(move.dataset.reference) == "animals:1.0.0"
    assert catalog.pins.update(pins, [move])["train"].entry.records.ordered == pins["train"].entry.records.ordered


def test_a_dropped_version_is_read_from_its_pin_as_long_as_files_are_there(catalog: Catalog, data_dir: Path) -> None:
    pins = catalog.dataset("animals:1.0.1").pin("train")
    catalog.lifecycle.drop("animals:1.0.1", reason="its licence ended")
    with pytest.raises(VersionWithdrawnError):
        catalog.dataset("animals:1.0.1")
    with pytest.raises(VersionWithdrawnError):
        catalog.pins.preview_update(pins)
    (standing,) = catalog.pins.audit(pins)
    assert (standing.state, standing.message, standing.is_withdrawn) == ("dropped", "its licence ended", True)
    assert (standing.today, standing.missing) == (None, "")
    assert len(ages(pins)) == 20
    shutil.rmtree(data_dir / "animals/1.0.1")
    (standing,) = catalog.pins.audit(pins)
    assert standing.missing == (
        "the files of animals:1.0.1 train are not in any folder that was searched\n"
        f"  file://{data_dir}/animals/1.0.1: no animals-train.tfrecord-00000-of-00002"
    )
    with pytest.raises(VersionWithdrawnError):
        catalog.pins.preview_update(pins, to="1.0.1")
    (move,) = catalog.pins.preview_update(pins, to="2.*")
    assert str(move.dataset.reference) == "animals:2.0.0"


def test_other_content_under_a_pinned_number_is_reported(catalog: Catalog, tmp_path: Path) -> None:
    with registry.connect(tmp_path / "stranger.db", data_dir=tmp_path / "other") as stranger:
        stranger.publish(prepare(tmp_path / "other/animals/1.0.0", splits={"train": animals(20, age=99)}, shards=3))
        pins = stranger.dataset("animals:1.0.0").pin("train")
        stranger.publish(prepare(tmp_path / "other/plants/1.0.0", name="plants"))
        plants = stranger.dataset("plants:1.0.0").pin("train")
        stranger.publish(prepare(tmp_path / "other/animals/3.0.0", "3.0.0"))
        third = stranger.dataset("animals:3.0.0").pin("train")
    (standing,) = catalog.pins.audit(pins)
    assert (standing.state, standing.is_withdrawn) == ("canonical", True)
    assert standing.message == "the content under this number in the catalog differs from the pinned content"
    (move,) = catalog.pins.preview_update(pins)
    assert (move.is_move, str(move.dataset.reference)) == (True, "animals:1.0.0"), "the same number, other content"
    report = pins["train"].verify(folder=catalog.dataset("animals:1.0.0").folder)
    assert not report.is_sound
    (unknown,) = catalog.pins.audit(plants)
    assert (unknown.state, unknown.message) == ("unknown", "no dataset 'plants' in the catalog")
    (unknown,) = catalog.pins.audit(third)
    assert (unknown.state, unknown.message) == ("unknown", "the catalog has no animals:3.0.0")
    assert (unknown.is_withdrawn, unknown.today) == (True, None)
