"""What people say about a version: with ``add``, ``build`` and ``publish``, or later by ``describe``."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

import registry
from registry import DatasetBuilder
from registry.cli.main import run
from registry.errors import RegistryWarning, UsageError
from registry.features import ClassLabel, FeaturesDict, Text

CARD = "---\nlicense: mit\ntags: [legs]\npretty_name: Animals\n---\n# Animals\n\nAnimals and their legs.\n"


class Greetings(DatasetBuilder):
    """How people say hello."""

    VERSION = "1.0.0"

    def features(self) -> FeaturesDict:
        return FeaturesDict({"text": Text(), "language": ClassLabel(names=["de", "en"])})

    def splits(self) -> Any:
        return {"train": [(0, {"text": "Guten Tag", "language": "de"})]}


@pytest.fixture
def animals(tmp_path: Path) -> Path:
    folder = tmp_path / "animals"
    folder.mkdir()
    (folder / "README.md").write_text(CARD)
    (folder / "data.csv").write_text("name,legs\ncat,4\nbird,2\n")
    return folder


def test_what_people_say_goes_before_the_card_and_into_the_file(catalog: registry.Catalog, animals: Path) -> None:
    catalog.add(animals, license="cc-by-4.0", tags=["zoo"], supervised=["name", "legs"], citation="Ann, 2026.")
    dataset = catalog.dataset("animals")
    info = dataset.info
    assert (info.license, info.citation, info.description) == ("CC-BY-4.0", "Ann, 2026.", "Animals and their legs.")
    assert (info.config_tags, info.supervised_keys) == (["legs", "zoo"], ("name", "legs"))
    assert info.metadata["pretty_name"] == "Animals"
    stored = json.loads((Path(dataset.local_folder or "") / "dataset_info.json").read_text())
    assert stored["redistributionInfo"] == {"license": "CC-BY-4.0"}
    assert stored["configTags"] == ["legs", "zoo"]


def test_the_next_addition_keeps_what_was_corrected_and_follows_the_rest(
    catalog: registry.Catalog, animals: Path
) -> None:
    catalog.add(animals, citation="Ann, 2026.")
    catalog.describe("animals:1.0.0", license="CC0-1.0", remove_tags=["legs"], supervised=["name", "legs"])
    (animals / "README.md").write_text(CARD.replace("mit", "isc").replace("their legs", "their many legs"))
    (animals / "data.csv").write_text("name,legs\ncat,4\nbird,2\nfish,0\n")
    catalog.add(animals)
    metadata = catalog.dataset("animals:2.0.0").metadata
    assert (metadata.license, metadata.citation, metadata.config_tags) == ("CC0-1.0", "Ann, 2026.", ())
    assert (metadata.description, metadata.supervised_keys) == ("Animals and their many legs.", ("name", "legs"))
    # An empty text removes it, and a feature that is gone cannot be an input.
    (animals / "data.csv").write_text("name,feet\ncat,4\n")
    catalog.add(animals, license="", retype=True)
    metadata = catalog.dataset("animals:3.0.0").metadata
    assert (metadata.license, metadata.supervised_keys) == ("", None)
    (animals / "data.csv").write_text("name,feet\ncat,4\nbird,2\n")
    catalog.add(animals)
    assert catalog.dataset("animals:4.0.0").metadata.license == "ISC"
    assert catalog.verify_log().faults == ()


def test_the_same_content_with_other_metadata_says_how_to_correct_it(catalog: registry.Catalog, animals: Path) -> None:
    catalog.add(animals)
    report = catalog.add(animals, license="ISC", tags=["a b"])
    assert report.outcome == "unchanged"
    assert report.notes == (
        "animals:1.0.0 keeps its metadata. This source differs in license and tags. To change it: "
        "registry describe animals:1.0.0 --license ISC --tag 'a b'",
    )
    assert run(report.notes[0].partition("registry ")[2].replace("'a b'", "a_b").split() + _at(catalog)) == 0
    assert catalog.dataset("animals").metadata.license == "ISC"
    folder = Path(catalog.dataset("animals").local_folder or "")
    with pytest.warns(RegistryWarning, match=r"animals:1\.0\.0 has no tag 'leg'\. Did you mean 'legs'\? It has: legs"):
        assert not catalog.describe("animals:1.0.0", remove_tags=["leg"]).is_change
    catalog.describe("animals:1.0.0", remove_tags=["legs"])
    with pytest.warns(RegistryWarning, match=r"animals:1\.0\.0 has no tag 'legs'\. It has"):
        catalog.describe("animals:1.0.0", remove_tags=["legs"])
    assert catalog.publish(folder).notes == ()  # what was corrected is not offered back
    assert catalog.publish(folder, license="0BSD").notes == (
        "animals:1.0.0 keeps its metadata. This source differs in license. To change it: "
        "registry describe animals:1.0.0 --license 0BSD",
    )


def _at(catalog: registry.Catalog) -> list[str]:
    return ["--catalog", catalog.url]


def test_a_build_and_a_folder_are_published_with_what_people_say(catalog: registry.Catalog, tmp_path: Path) -> None:
    built = catalog.build(Greetings, license="mit", tags=["hello"], supervised=["text", "language"]).version
    assert (built.metadata.license, built.metadata.description) == ("MIT", "How people say hello.")
    assert catalog.dataset("greetings").info.supervised_keys == ("text", "language")
    assert catalog.build(Greetings).notes == ()
    [note] = catalog.build(Greetings, license="ISC").notes
    assert note.endswith("To change it: registry describe greetings:1.0.0 --license ISC")
    folder = tmp_path / "copy"
    shutil.copytree(Path(catalog.dataset("greetings").local_folder or ""), folder)
    with registry.connect(tmp_path / "other.db", data_dir=tmp_path / "other") as other:
        published = other.publish(folder, description="Hello!", homepage="https://example.org").version
        assert (published.metadata.description, published.metadata.homepage) == ("Hello!", "https://example.org")
        assert other.dataset("greetings").metadata == published.metadata
        assert other.verify_log().faults == ()


def test_wrong_words_are_refused_before_the_work(catalog: registry.Catalog, animals: Path) -> None:
    for call in (catalog.add, catalog.plan_add):
        with pytest.raises(UsageError) as caught:
            call(animals, supervised=["name", "leg"])
        assert str(caught.value) == "supervised: no feature 'leg'"
        assert caught.value.hint == "Did you mean 'legs'? The features are: name, legs."
    with pytest.raises(UsageError, match="license must be text of at most 100,000 characters"):
        catalog.add(animals, license="x" * 100_001)
    with pytest.raises(UsageError, match="tags must be a sequence, not str"):
        catalog.add(animals, tags="legs")
    for tag in ("", " ", " legs", "two\nlines"):
        with pytest.raises(UsageError, match="invalid tag"):
            catalog.add(animals, tags=[tag])
    for names in (["name"], ["name", "legs", "name", "legs"]):
        with pytest.raises(UsageError, match="supervised must name two or three features"):
            catalog.add(animals, supervised=names)
    with pytest.raises(UsageError, match="the homepage 'javascript:alert\\(1\\)' is not a URL"):
        catalog.add(animals, homepage="javascript:alert(1)")
    for preview in (catalog.preview_build, catalog.build):
        with pytest.raises(UsageError, match="no feature 'x'"):
            preview(Greetings, supervised=["x", "text"])
    with pytest.warns(RegistryWarning, match="the licence 'unknown' is not an SPDX expression"):
        catalog.add(animals, license="unknown")
    with pytest.raises(UsageError, match="describe needs at least one change"):
        catalog.describe("animals:1.0.0")
    with pytest.raises(UsageError, match="no feature 'leg'"):
        catalog.describe("animals:1.0.0", supervised=["name", "leg"])


def test_exports_copies_and_the_past_have_what_was_corrected(
    catalog: registry.Catalog, animals: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    catalog.add(animals)
    pins = catalog.dataset("animals").pin("train")
    moment = catalog.backend.now()
    change = catalog.describe("animals:1.0.0", license="cc0-1.0", description="Corrected.", tags=["zoo"])
    assert change.fields == ("description", "license", "config_tags", "described")
    assert catalog.dataset("animals", at=moment).metadata.license == "MIT"
    assert [hit.dataset for hit in catalog.search("corrected zoo")] == ["animals"]
    assert catalog.datasets()[0].description == "Corrected."
    document = catalog.dataset("animals").croissant()
    assert (document["license"], document["keywords"]) == ("CC0-1.0", ["legs", "zoo"])
    pins.save(tmp_path / "pins.yaml")
    [pin] = catalog.pins.place(registry.load_pin(tmp_path / "pins.yaml")).values()
    assert pin.entry.license == "MIT"
    assert pin.verify().is_sound
    [state] = catalog.pins.states([pin])
    assert not state.is_withdrawn
    assert state.correction == "the license of animals:1.0.0 changed in the catalog since it was pinned"
    capsys.readouterr()
    assert run(["pin", "verify", str(tmp_path / "pins.yaml"), *_at(catalog)]) == 0
    assert capsys.readouterr().err == f"note: {state.correction}\n"
    assert run(["pin", "audit", str(tmp_path / "pins.yaml"), *_at(catalog)]) == 0
    assert capsys.readouterr().err == f"note: {state.correction}\n"
    with registry.connect(tmp_path / "copy.db", data_dir=tmp_path / "copies") as target:
        catalog.copy(["animals"], target)
        assert target.dataset("animals").metadata == catalog.dataset("animals").metadata
        assert target.verify_log().faults == ()


def test_a_later_copy_says_how_to_take_over_what_was_corrected(
    catalog: registry.Catalog, animals: Path, tmp_path: Path
) -> None:
    catalog.add(animals)
    with registry.connect(tmp_path / "copy.db", data_dir=tmp_path / "copies") as target:
        catalog.copy("animals", target)
        catalog.describe("animals:1.0.0", license="ISC", tags=["zoo"])
        [copied] = catalog.copy("animals", target)
        command = f"registry describe animals:1.0.0 --license ISC --tag zoo --catalog {target.url}"
        assert copied.notes == (
            "animals:1.0.0 keeps its metadata. This source differs in license and tags. To change it: " + command,
        )
        assert run(shlex.split(command)[1:]) == 0
        assert target.dataset("animals").metadata.config_tags == ("legs", "zoo")
        [copied] = catalog.copy("animals", target)
        assert copied.notes == ()
