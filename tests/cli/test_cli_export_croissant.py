"""``registry export croissant``: the document, the file, and what is said beside them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import pytest
from support.prepared_samples import prepare

import registry

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)


def test_the_digits_are_described_and_read_by_mlcroissant(digits: Cli) -> None:
    ran = digits("export", "croissant", "digits", "--creator", "E. Alpaydin", "--creator", "C. Kaynak")
    assert (ran.code, ran.err) == (0, "")
    document = ran.json()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its dependencies use what they have deprecated
        import mlcroissant

        read = mlcroissant.Dataset(jsonld=deepcopy(document))  # it changes what it is given
    assert not read.metadata.ctx.issues.warnings
    with registry.connect() as catalog:
        found = catalog.dataset("digits")
        assert document == found.croissant(creators=["E. Alpaydin", "C. Kaynak"])
        shards = found.shards("train")
        counts = found.statistics["train"]["label"].classes.counts
    assert [one.sha256 for one in read.metadata.file_objects] == [shard.sha256 for shard in shards]
    label = document["recordSet"][-1]["field"][-1]
    assert {note["name"]: note["value"] for note in label["annotation"]} == {
        "valid": 1797,
        "invalid": 0,
        "mode": 3,
        "class_counts": '{"counts":[' + ",".join(map(str, counts)) + "]}",
    }


def test_a_version_whose_statistics_are_lost_is_described_without_them(digits: Cli, workspace: Path) -> None:
    (file,) = workspace.rglob("*_statistics.json")
    file.unlink()
    document = digits("export", "croissant", "digits").json()
    assert "annotation" not in document["recordSet"][-1]["field"][-1]
    assert document["recordSet"][-1]["annotation"][0]["value"] == 1797


def test_what_is_missing_is_named_beside_the_document(digits: Cli) -> None:
    ran = digits("export", "croissant", "digits")
    assert ran.json()["name"] == "digits"
    assert ran.err == "note: Croissant requires creator, which this version lacks\n"
    answer = digits("export", "croissant", "digits", "--format", "json").json()
    assert answer["schema"] == "registry.export.croissant/1"
    assert answer["data"] == {"path": None, "document": ran.json()}
    assert answer["warnings"] == ["note: Croissant requires creator, which this version lacks"]


def test_what_is_printed_may_stand_in_a_page_whatever_stdout_takes(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(tmp_path / "1.0.0", description="</script> größer")
    assert cli("publish", str(tmp_path / "1.0.0")).code == 0
    ran = cli("export", "croissant", "animals")
    assert ran.json()["description"] == "</script> größer"
    assert "\\u003c/script>" in ran.out
    assert "<" not in ran.out
