"""Proofs about split expressions: what holds, what does not, the records that show it, and the exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support import warm_python

import registry

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)


def test_the_error_comes_after_the_answer_where_both_go_to_one_pipe(digits: Cli) -> None:
    program = str(Path(sys.executable).parent / "registry")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [program, "split", "check", "digits", "train[:5]", "train[4:]"]
    done = warm_python.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert done.returncode == 5
    lines = done.stdout.splitlines()
    assert (lines[0], lines[-2]) == ("digits:1.0.0 (documented slicing)", "error: the expressions are not disjoint")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("form", ["human", "json"])
def test_a_reader_who_leaves_does_not_make_a_proof_hold(digits: Cli, form: str, unbuffered: str) -> None:
    program = str(Path(sys.executable).parent / "registry")
    command = [program, "split", "check", "digits", *[f"train[{place}:]" for place in range(60)], "--format", form]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    running = warm_python.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    running.stdout.close()
    _, said = running.communicate()
    assert running.returncode == 5
    assert "are not disjoint" in said
    assert "Traceback" not in said


def test_programs_get_every_range(digits: Cli) -> None:
    ran = digits("split", "check", "digits", "train[:60%]", "train[50%:]", "train[90%:]", "--format", "json")
    assert ran.code == 5
    (check,) = ran.json()["data"]["checks"]
    assert (check["check"], check["holds"]) == ("disjoint", False)
    assert [fault["ranges"] for fault in check["faults"]] == [
        [{"split": "train", "start": 899, "stop": 1078}],
        [{"split": "train", "start": 1617, "stop": 1797}],
    ]
    assert [split["num_examples"] for split in ran.json()["data"]["splits"]] == [1078, 898, 180]
    assert ran.error()["code"] == "verification_failed"
    assert ran.error()["details"] == {"checks": ["disjoint"]}


def test_the_python_api_takes_the_rule_and_gives_the_shape_back(digits: Cli) -> None:
    with registry.connect() as catalog:
        dataset = catalog.dataset("digits")
        assert dataset.relation("train[:0shard]", "train").kind == "subset"
        assert dataset.relation("train[:0shard]", "train", slicing="tfds-4").kind == "equal"
        readers = registry.load("digits", ("train[:0shard]", "train[:10%]"), slicing="tfds-4", catalog=catalog)
        assert isinstance(readers, tuple)
        assert [len(reader) for reader in readers] == [1797, 180]
        (reader,) = registry.load("digits", ["train[:10%]"], rounding="pct1_dropremainder", catalog=catalog)
        assert len(reader) == 170
        assert list(registry.load("digits", {"a": "train[:3]"}, catalog=catalog)) == ["a"]


@pytest.fixture
def scans(cli: Cli, workspace: Path) -> Cli:
    """A dataset with one record in both splits, and a patient in both."""
    rows = {
        "train": [{"patient": f"p{n % 4}", "at": n} for n in range(8)] + [{"patient": None, "at": 8}],
        "test": [{"patient": "p9", "at": 20}, {"patient": "p1", "at": 21}, {"patient": "p3", "at": 3}],
        "extra": [{"patient": "p8", "at": 30}, {"patient": None, "at": 31}],
    }
    registry.add(rows, "scans", catalog=registry.connect(workspace / "catalog.db"))
    return cli


def test_equal_records_are_named_on_both_sides(scans: Cli) -> None:
    assert scans("split", "check", "scans", "train", "test").code == 0
    ran = scans("split", "check", "scans", "train", "test", "extra", "--by", "content")
    catalog = registry.connect()
    scans_dataset = catalog.dataset("scans")
    places = [[int(one["at"]) for one in scans_dataset.read(name)].index(3) for name in ("train", "test")]
    assert (ran.code, ran.err) == (
        5,
        "error: the expressions share equal records\n"
        "hint: The output lists the first of them. To list more: --show N\n",
    )
    assert ran.out == (
        "scans:1.0.0 (documented slicing)\n"
        "SPLIT  RECORDS  REPEATED\n"
        "train        9         0\n"
        "test         3         0\n"
        "extra        2         0\n"
        "disjoint by content: no\n"
        "  train and test share 1 equal record: 1 record of train, 1 record of test\n"
        f"    train {places[0]} = test {places[1]}\n"
    )


def test_equal_values_of_a_column_are_counted_and_nulls_are_not_among_them(scans: Cli) -> None:
    ran = scans("split", "check", "scans", "train", "test", "extra", "--by", "patient", "--show", "0")
    assert ran.err == (
        "error: the expressions share equal values of patient\n"
        "hint: The output lists the first of them. To list more: --show N\n"
    )
    assert ran.out == (
        "scans:1.0.0 (documented slicing)\n"
        "SPLIT  RECORDS  REPEATED  NULL\n"
        "train        9         4     1\n"
        "test         3         0     0\n"
        "extra        2         0     1\n"
        "disjoint by patient: no\n"
        "  train and test share 2 equal values of patient: 4 records of train, 2 records of test\n"
    )
    ran = scans("split", "check", "scans", "train", "test", "--by", "patient", "--show", "1", "--format", "json")
    (check,) = ran.json()["data"]["checks"]
    assert (ran.code, ran.json()["data"]["by"], check["holds"]) == (5, "patient", False)
    (fault,) = check["faults"]
    assert (fault["first"], fault["second"], fault["num_values"]) == ("train", "test", 2)
    assert (fault["num_first"], fault["num_second"], len(fault["pairs"])) == (4, 2, 1)
    assert [one["split"] for one in fault["pairs"][0]] == ["train", "test"]
    assert ran.error()["details"] == {"checks": ["disjoint"], "by": "patient"}
    assert scans("split", "check", "scans", "train", "extra", "--by", "patient").code == 0


def test_the_comparison_of_records_is_refused_with_other_checks_and_unknown_columns(scans: Cli) -> None:
    ran = scans("split", "check", "scans", "train", "test", "--by", "content", "--covering")
    assert (ran.code, ran.err) == (2, "error: --by checks only --disjoint\nhint: Run the other checks without --by.\n")
    ran = scans("split", "check", "scans", "train", "test", "--by", "pateint")
    assert (ran.code, ran.err) == (
        3,
        "error: no feature 'pateint' in the features of the dataset\n"
        "hint: Did you mean 'patient'? There are: at, patient.\n",
    )
    assert scans("split", "check", "scans", "train", "--by", "content").code == 2


def test_a_column_named_content_has_a_spelling_of_its_own(cli: Cli, workspace: Path) -> None:
    rows = {"train": [{"content": "a", "id": 1}], "test": [{"content": "a", "id": 2}]}
    registry.add(rows, "texts", catalog=registry.connect(workspace / "catalog.db"))
    ran = cli("split", "check", "texts", "train", "test", "--by", "content")
    assert (ran.code, ran.err) == (
        0,
        "note: whole records are compared. To compare the feature content: --by /content\n",
    )
    ran = cli("split", "check", "texts", "train", "test", "--by", "/content")
    assert ran.code == 5
    assert "disjoint by /content: no\n" in ran.out


def test_the_hint_for_a_slice_of_all_names_the_option(digits: Cli) -> None:
    ran = digits("resolve", "digits", "all[:50%]", "--slicing", "tfds-4")
    assert ran.code != 0
    assert "hint: Resolve it with --slicing documented, or slice every split by its name.\n" in ran.err
