"""Repositories with a dataset card: its configs name the files of each split."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.golden import check_errors

from registry.errors import SourceError, UsageError
from registry.features import ClassLabel
from registry.intake.detect import open_source
from registry.intake.hugging_face_folders import is_hugging_face, open_hugging_face
from registry.intake.listing import list_files
from registry.intake.options import AddOptions
from registry.intake.source import Source

GOLDEN = Path(__file__).with_name("golden")

ONE = """
license: mit
configs:
- config_name: default
  data_files:
  - split: train
    path: data/part-*.csv
  - split: test
    path: [data/final.csv]
dataset_info:
  features:
  - name: label
    dtype: {class_label: {names: {'1': dog, '0': cat}}}
  - {name: x, dtype: string}
"""
SEVERAL = """
configs:
- {config_name: en, data_files: 'data/part-0.csv'}
- {config_name: de, data_dir: data, data_files: [final.csv]}
- {config_name: notes}
"""


def repository(folder: Path, front: str) -> Path:
    (folder / "data").mkdir(parents=True)
    (folder / "README.md").write_text(f"---\n{front}\n---\n## Dataset Summary\nThree files.\n")
    for name in ("part-0", "part-1", "final"):
        (folder / "data" / f"{name}.csv").write_text(f"x,label\n{name},cat\n")
    (folder / "notes.txt").write_text("not data")
    return folder


def opened(folder: Path, **options: Any) -> Source:
    files = list_files(folder)
    assert is_hugging_face(files)
    return open_hugging_face(files, AddOptions(**options))


def values(source: Source) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {split: [] for split in source.splits}
    for part in source.parts:
        found[part.split] += [value for rows in part.read() for value in rows.table["x"].to_pylist()]
    return found


def test_a_config_names_the_files_of_each_split(tmp_path: Path) -> None:
    source = opened(repository(tmp_path, ONE))
    assert values(source) == {"train": ["part-0", "part-1"], "test": ["final"]}
    assert (source.kind, source.split_reason) == ("csv", "the config 'default' of the dataset card")
    assert source.hints == {"label": ClassLabel(names=["cat", "dog"])}
    assert (source.metadata.license, source.metadata.description) == ("MIT", "Three files.")
    assert {(use.name, use.role, use.reason) for use in source.files if use.role != "records"} == {
        ("README.md", "metadata", "license MIT, a description; no citation"),
        ("notes.txt", "skipped", "not in the config 'default' of the dataset card"),
    }
    assert sum(use.num_files for use in source.files) == 5


def test_one_of_several_configs_is_chosen_by_name(tmp_path: Path) -> None:
    repository(tmp_path, SEVERAL)
    assert values(opened(tmp_path, config="en")) == {"train": ["part-0"]}
    assert values(opened(tmp_path, config="de")) == {"train": ["final"]}
    with pytest.raises(SourceError) as caught:
        opened(tmp_path)
    assert str(caught.value) == f"{tmp_path}: the dataset card has 2 configs: en, de"
    assert caught.value.hint == "Choose one: config='en'"
    with pytest.raises(SourceError) as caught:
        opened(tmp_path, config="dee")
    assert str(caught.value) == f"{tmp_path}: the dataset card has no config 'dee'"
    assert caught.value.hint == "Did you mean 'de'? The configs are: en, de."


def test_another_config_without_files_does_not_matter(tmp_path: Path) -> None:
    configs = "[{config_name: en, data_files: data/part-0.csv}, {config_name: soon, data_files: []}]"
    repository(tmp_path, f"configs: {configs}")
    assert values(opened(tmp_path, config="en")) == {"train": ["part-0"]}
    with pytest.raises(SourceError, match="config 'soon': data_files is empty"):
        opened(tmp_path, config="soon")


def test_splits_of_the_card_cannot_be_given_twice(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        open_source(repository(tmp_path, ONE), AddOptions(splits={"train": "*"}))
    assert caught.value.message == "files of the kind hugging_face cannot be read with these options: `splits`"


@pytest.mark.parametrize("front", ["license: mit", "configs: 5", "configs: [{config_name: a}]", "[", "a: &a [*a]"])
def test_a_card_without_files_is_not_a_repository(tmp_path: Path, front: str) -> None:
    assert not is_hugging_face(list_files(repository(tmp_path, front)))


def test_malformed_cards_are_refused(tmp_path: Path) -> None:
    cases = [
        "'https://example.org/a.csv'",
        "/etc/passwd",
        "../a.csv",
        "'data/*.json'",
        "5",
        "[{split: [x], path: a.csv}]",
        "{'a b': 'data/*.csv'}",
        "'**'",
        "{train: data/final.csv, test: 'data/*.csv'}",
        "{}",
        "[]",
    ]
    fronts = (f"configs: [{{config_name: c, data_files: {data_files}}}]" for data_files in cases)
    folders = (repository(tmp_path / str(number), front) for number, front in enumerate(fronts))
    check_errors(
        GOLDEN / "intake_dataset_card" / "malformed_cards_are_refused.txt",
        (partial(open_source, folder) for folder in folders),
        folder=tmp_path,
    )


def test_aliases_that_multiply_take_no_time(tmp_path: Path) -> None:
    levels = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30))
    front = f"a0: &a0 [x, y]\n{levels}\nconfigs: [{{config_name: *a29, data_files: '*.csv'}}]\n"
    repository(tmp_path, front)
    with pytest.raises(SourceError) as caught:
        open_hugging_face(list_files(tmp_path), AddOptions())
    assert str(caught.value) == f"{tmp_path}: README.md: config_name is not text"


def test_a_folder_without_a_card_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x\n1\n")
    with pytest.raises(SourceError) as caught:
        open_source(tmp_path, AddOptions(kind="hugging_face"))
    assert str(caught.value) == (
        f"{tmp_path}: save_to_disk did not write this folder, and no dataset card names its files"
    )
    with pytest.raises(SourceError) as caught:
        open_source(tmp_path, AddOptions(kind="croissant"))
    assert str(caught.value) == f"{tmp_path}: no Croissant document"


@pytest.mark.parametrize("value", ["[" * 50_000 + "]" * 50_000, "{a: " * 50_000 + "1" + "}" * 50_000])
def test_a_card_that_is_nested_deeply_does_not_end_the_process(tmp_path: Path, value: str) -> None:
    repository(tmp_path, f"configs: {value}")
    assert not is_hugging_face(list_files(tmp_path))
    with pytest.raises(SourceError, match="more than 100 levels of mappings and lists"):
        open_hugging_face(list_files(tmp_path), AddOptions())
