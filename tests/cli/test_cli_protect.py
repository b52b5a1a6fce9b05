"""The last line of every publication, --no-promote, and ``registry config protect``."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.prepared_samples import prepare

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, str]:
    """Prepared folders of animals, by their number."""
    numbers = {"1.0.0": 1, "2.0.0": 2, "2.0.1": 3, "1.0.1": 4}
    return {number: str(prepare(tmp_path / number, number, shards=shards)) for number, shards in numbers.items()}


def last_line(cli: Cli, *arguments: str) -> str:
    ran = cli("publish", *arguments)
    assert (ran.code, ran.err) == (0, "")
    return str(ran.out.splitlines()[-1])


def test_the_last_line_of_a_publication_says_what_became_canonical(cli: Cli, folders: dict[str, str]) -> None:
    assert last_line(cli, folders["1.0.0"]) == "canonical: animals:1.0.0, the first"
    assert last_line(cli, folders["2.0.0"]) == "canonical: animals:2.0.0, replacing 1.0.0"
    assert last_line(cli, folders["2.0.0"]) == "canonical: animals:2.0.0, as before"
    assert last_line(cli, folders["1.0.1"]) == (
        "canonical: animals:2.0.0, as before, because 1.0.1 is lower. To change it: registry promote animals:1.0.1"
    )
    catalog = os.environ["REGISTRY_CATALOG"]  # which the pasted command reads as well
    assert last_line(cli, folders["2.0.1"], "--no-promote", "--catalog", catalog) == (
        "canonical: animals:2.0.0, as before, because 2.0.1 was published with --no-promote. "
        "To change it: registry promote animals:2.0.1"
    )


def test_a_protected_dataset_is_promoted_by_promote_alone(cli: Cli, folders: dict[str, str]) -> None:
    last_line(cli, folders["1.0.0"])
    protected = cli("config", "protect", "animals")
    assert protected.out == "animals is protected: only 'registry promote' changes its canonical version\n"
    assert cli("config", "protect", "animals").out == "animals is already protected\n"

    refused = cli("publish", folders["2.0.0"], "--promote")
    assert (refused.code, refused.err) == (
        4,
        "error: animals:2.0.0 cannot be made canonical by publishing it: animals is protected\n"
        "hint: Publish it with --no-promote, then: registry promote animals:2.0.0\n",
    )
    assert last_line(cli, folders["2.0.0"]) == (
        "canonical: animals:1.0.0, as before, because animals is protected. "
        "To change it: registry promote animals:2.0.0"
    )
    assert "protected    animals: see registry promote\n" in cli("show", "animals").out
    assert cli("show", "animals", "--format", "json").json()["data"]["protected"] == "animals"
    assert "1.0.0 (protected)" in cli("list").out
    assert "1.0.0 (protected)" in cli("config", "list", "animals").out

    assert cli("promote", "animals:2.0.0").code == 0
    assert cli("show", "animals", "--format", "json").json()["data"]["version"] == "2.0.0"
    assert cli("config", "unprotect", "animals").out == "animals is no longer protected\n"
    assert last_line(cli, folders["2.0.1"]) == "canonical: animals:2.0.1, replacing 2.0.0"
    assert cli("log", "verify").code == 0


def test_a_protected_catalog_says_so_and_a_dry_run_changes_nothing(cli: Cli, folders: dict[str, str]) -> None:
    dry = cli("config", "protect", "--dry-run")
    assert dry.out == "the whole catalog would be protected: only 'registry promote' changes a canonical version\n"
    assert cli("config", "protect", "--format", "json").json()["data"] == {
        "dataset": None,
        "is_change": True,
        "dry_run": False,
        "before": False,
        "after": True,
        "protected_by": "(catalog)",
        "two_persons": False,
    }
    assert last_line(cli, folders["1.0.0"]) == (
        "canonical: no version of animals, because the whole catalog is protected. "
        "To change it: registry promote animals:1.0.0"
    )
    assert cli("config", "unprotect", "animals").out == (
        "animals is not protected: nothing to undo\n"
        "It remains protected by the whole catalog: see registry config unprotect\n"
    )
    assert "protect  " in cli("log").out
    assert "the whole catalog" in cli("log").out
    unknown = cli("config", "protect", "animls")
    assert (unknown.code, unknown.err) == (
        3,
        "error: no dataset 'animls' in the catalog\nhint: Did you mean 'animals'? There are: animals.\n",
    )


def test_quickstart_in_a_protected_catalog_reads_what_it_published(cli: Cli) -> None:
    cli("config", "protect")
    ran = cli("quickstart")
    assert ran.code == 0
    assert "canonical: no version of digits, because the whole catalog is protected." in ran.out
    assert "  registry head digits:1.0.0\n" in ran.out


def test_list_says_that_a_version_is_not_canonical(cli: Cli, folders: dict[str, str]) -> None:
    assert cli("publish", folders["1.0.0"], "--no-promote").code == 0
    assert "animals  1.0.0 (not canonical)  " in cli("list").out
    assert cli("promote", "animals:1.0.0").code == 0
    assert "not canonical" not in cli("list").out


def test_sizes_of_records_and_of_files_have_different_names(cli: Cli, folders: dict[str, str]) -> None:
    assert cli("publish", folders["1.0.0"]).code == 0
    assert "SHARDS  RECORD BYTES" in cli("show", "animals").out
    assert " of files)" in cli("verify", "animals").out
