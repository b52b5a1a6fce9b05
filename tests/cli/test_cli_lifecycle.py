"""Promote, deprecate, yank, drop and the default config on the command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support import warm_python

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)


def test_yank_shows_what_changes_and_does_just_that(numbers: Cli, workspace: Path) -> None:
    uses = workspace / "uses.txt"
    uses.write_text("numbers:1.*   # the paper\n\n# another dataset\nwords\nnumbers\n")
    table = (
        "REFERENCE      BEFORE                AFTER\n"
        "numbers:1.*.*  1.1.1 (experimental)  1.1.0 (experimental)\n"
        "numbers:1.1.*  1.1.1 (experimental)  1.1.0 (experimental)\n"
        "numbers:^1.1   1.1.1 (experimental)  1.1.0 (experimental)\n"
        "numbers:^1.0   1.1.1 (experimental)  1.1.0 (experimental)\n"
        "numbers:1.1.1  1.1.1 (experimental)  1.1.1 (yanked: wrong labels; superseded by 1.1.0)\n"
        "\n"
        "Of 3 references in use, 1 change.\n"
        "IN USE         BEFORE                AFTER                 WHERE\n"
        f"numbers:1.*.*  1.1.1 (experimental)  1.1.0 (experimental)  {uses}:1\n"
    )
    arguments = ("numbers:1.1.1", "--reason", "wrong labels", "--superseded-by", "1.1.0", "--uses", str(uses))
    dry = numbers("yank", *arguments, "--dry-run")
    assert (dry.code, dry.err) == (0, "")
    assert dry.out == "would yank numbers:1.1.1: wrong labels; superseded by 1.1.0\n" + table
    assert numbers("show", "numbers:1.*", "--format", "json").json()["data"]["version"] == "1.1.1"
    as_json = numbers("yank", *arguments, "--dry-run", "--format", "json").json()
    assert as_json["schema"] == "registry.yank/1"
    data = as_json["data"]
    assert (data["dataset"], data["version"], data["action"]) == ("numbers", "1.1.1", "yank")
    assert (data["is_change"], data["dry_run"], data["num_uses"]) == (True, True, 3)
    assert data["before"]["status"] == "experimental"
    assert data["after"] == {
        "status": "yanked",
        "message": "wrong labels",
        "superseded_by": "1.1.0",
        "canonical": "1.0.0",
    }
    assert data["effects"][0] == {
        "reference": "numbers:1.*.*",
        "kind": "moves",
        "before": {"reference": "numbers:1.1.1", "note": "experimental"},
        "after": {"reference": "numbers:1.1.0", "note": "experimental"},
    }
    assert data["uses"] == [{**data["effects"][0], "places": [f"{uses}:1"]}]

    done = numbers("yank", *arguments)
    assert done.out == "yanked numbers:1.1.1: wrong labels; superseded by 1.1.0\n" + table
    again = numbers("yank", *arguments)
    assert (again.code, again.out) == (0, "numbers:1.1.1 is yanked already: wrong labels; superseded by 1.1.0\n")

    note = "note: numbers:1.1.1 is yanked: wrong labels; superseded by 1.1.0\n"
    assert numbers("resolve", "numbers:1.1.1", "train").err == note
    shown = numbers("show", "numbers:1.1.1")
    assert "status         yanked: wrong labels\nsuperseded by  1.1.0\n" in shown.out
    assert "wrong labels; superseded by 1.1.0" in numbers("versions", "numbers").out
    undone = numbers("yank", "numbers:1.1.1", "--undo")
    assert undone.out.startswith("numbers:1.1.1 is supported again, no longer yanked\nREFERENCE ")
    nothing = numbers("yank", "numbers:1.1.1", "--undo")
    assert (nothing.code, nothing.out) == (0, "numbers:1.1.1 is not yanked: there is nothing to undo\n")


def test_promote_and_what_it_refuses(numbers: Cli) -> None:
    dry = numbers("promote", "numbers:2.0.0", "--dry-run")
    assert dry.out.startswith(
        "would promote numbers:2.0.0: it is what a reference without a version gives, replacing 1.0.0\n"
        "REFERENCE      BEFORE                AFTER\n"
        "numbers        1.0.0                 2.0.0\n"
        "numbers:*.*.*  2.0.0 (experimental)  2.0.0\n"
    )
    assert numbers("promote", "numbers:2.0.0").out.startswith("promoted numbers:2.0.0: ")
    assert numbers("promote", "numbers:2.0.0").out == "numbers:2.0.0 is already the canonical version\n"
    numbers("yank", "numbers:2.0.0", "--reason", "bad")
    refused = numbers("show", "numbers")
    assert (refused.code, refused.err) == (
        6,
        "error: the canonical version 2.0.0 of numbers is yanked: bad\n"
        "hint: Readable: 1.1.1 (supported), 1.1.0 (supported), 1.0.0 (supported). "
        "To get it anyway, name it exactly: numbers:2.0.0. Make one canonical: registry promote numbers:1.1.1\n",
    )
    numbers("promote", "numbers:1.0.0")
    back = numbers("promote", "numbers:2.0.0")
    assert (back.code, back.err) == (
        6,
        "error: numbers:2.0.0 is yanked: bad: it cannot be promoted\n"
        "hint: Undo that first: registry yank numbers:2.0.0 --undo\n",
    )


def test_deprecate_and_drop(numbers: Cli) -> None:
    ran = numbers("deprecate", "words:2.0.0", "--reason", "use 1.0.0")
    assert ran.out == (
        "deprecated words/de:2.0.0: use 1.0.0\n"
        "REFERENCE       BEFORE                AFTER\n"
        "words/de:*.*.*  2.0.0 (experimental)  2.0.0 (deprecated: use 1.0.0)\n"
        "words/de:2.*.*  2.0.0 (experimental)  2.0.0 (deprecated: use 1.0.0)\n"
        "words/de:2.0.*  2.0.0 (experimental)  2.0.0 (deprecated: use 1.0.0)\n"
        "words/de:^2.0   2.0.0 (experimental)  2.0.0 (deprecated: use 1.0.0)\n"
        "words/de:2.0.0  2.0.0 (experimental)  2.0.0 (deprecated: use 1.0.0)\n"
        "References without a config mean de, so they change in the same way.\n"
    )
    dropped = numbers("drop", "words/de:2.0.0", "--reason", "its licence ended")
    assert dropped.out.startswith("dropped words/de:2.0.0: its licence ended\n")
    assert "words/de:2.0.0  2.0.0 (deprecated: use 1.0.0)  refused\n" in dropped.out
    gone = numbers("read", "words/de:2.0.0", "train")
    assert (gone.code, gone.err.splitlines()[0]) == (
        6,
        "error: version 2.0.0 of words/de is dropped: its licence ended",
    )
    assert numbers("read", "words/en:2.0.0", "train").code == 0
    back = numbers("drop", "words/de:2.0.0", "--undo", "--dry-run")
    assert back.out.startswith("words/de:2.0.0 would be deprecated: use 1.0.0 again, no longer dropped\n")
    assert numbers("drop", "words/de:2.0.0", "--undo").code == 0
    assert numbers("deprecate", "words/de:2.0.0", "--undo").code == 0


def test_config_list_and_set_default(numbers: Cli) -> None:
    assert numbers("config", "list", "words").out == (
        "CONFIG  DEFAULT  CANONICAL  VERSIONS\n"
        "de      default  1.0.0             2\n"
        "en               1.0.0             2\n"
    )
    assert numbers("config", "list", "numbers", "--format", "json").json()["data"] == [
        {
            "config": None,
            "is_default": True,
            "canonical": "1.0.0",
            "withdrawn": None,
            "num_versions": 4,
            "is_protected": False,
        }
    ]
    numbers("drop", "words/de:2.0.0", "--reason", "gone")
    dry = numbers("config", "set-default", "words/en", "--dry-run")
    assert dry.out.startswith(
        "would make en the default config of words, replacing de\n"
        "REFERENCE    BEFORE          AFTER\n"
        "words        words/de:1.0.0  words/en:1.0.0\n"
        "words:*.*.*  words/de:1.0.0  words/en:2.0.0 (experimental)\n"
        "words:2.*.*  refused         words/en:2.0.0 (experimental)\n"
    )
    done = numbers("config", "set-default", "words/en", "--format", "json").json()
    assert done["schema"] == "registry.config.set-default/1"
    assert {name: done["data"][name] for name in ("dataset", "before", "after", "is_change", "dry_run")} == {
        "dataset": "words",
        "before": "de",
        "after": "en",
        "is_change": True,
        "dry_run": False,
    }
    assert numbers("config", "set-default", "words/en").out == "en is the default config of words already\n"
    assert numbers("show", "words", "--format", "json").json()["data"]["dataset"] == "words/en"


MISTAKES = {
    "a range": (
        ["yank", "numbers:1.*", "--reason", "x"],
        2,
        "error: numbers:1.*.* does not name one version\n"
        "hint: Name it exactly, or by an alias. Today numbers:1.*.* gives numbers:1.1.1.\n",
    ),
    "no reason": (
        ["yank", "numbers:1.0.0"],
        2,
        "error: say why it is yanked, or --undo\nhint: Add --reason TEXT, or --undo alone.\n",
    ),
    "a reason and --undo": (
        ["drop", "numbers:1.0.0", "--reason", "x", "--undo"],
        2,
        "error: say why it is dropped, or --undo\nhint: Add --reason TEXT, or --undo alone.\n",
    ),
    "no message": (
        ["deprecate", "numbers:1.0.0"],
        2,
        "error: say why it is deprecated, or --undo\nhint: Add --reason TEXT, or --undo alone.\n",
    ),
    "a successor that is none": (
        ["yank", "numbers:1.0.0", "--reason", "x", "--superseded-by", "2"],
        2,
        "error: invalid version '2'\n"
        "hint: Write a version as MAJOR.MINOR.PATCH, numbers without leading zeros, e.g. 3.0.1.\n",
    ),
    "no config": (
        ["config", "set-default", "words"],
        2,
        "error: words does not name a config\nhint: Write words/CONFIG.\n",
    ),
    "an unknown config": (
        ["config", "set-default", "words/fr"],
        3,
        "error: no config 'fr' in words\nhint: There are: de, en.\n",
    ),
    "a version where a dataset belongs": (
        ["config", "list", "words:1.0.0"],
        2,
        "error: words:1.0.0: name a dataset without a version\nhint: Write words.\n",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake(numbers: Cli, mistake: str) -> None:
    arguments, code, message = MISTAKES[mistake]
    ran = numbers(*arguments)
    assert (ran.code, ran.out, ran.err) == (code, "", message)


def test_a_file_of_uses_that_does_not_read_is_named_with_its_line(numbers: Cli, workspace: Path) -> None:
    uses = workspace / "uses.txt"
    uses.write_text("numbers\nnumbers:x\n")
    ran = numbers("promote", "numbers:2.0.0", "--uses", str(uses))
    assert (ran.code, ran.err.splitlines()[0]) == (2, f"error: {uses}, line 2: invalid version request 'x'")
    uses.write_bytes(b"\xff\xfe")
    ran = numbers("promote", "numbers:2.0.0", "--uses", str(uses))
    assert (ran.code, ran.err.splitlines()[0].partition(": '")[0]) == (2, f"error: {uses} cannot be read as text")
    assert numbers("promote", "numbers:2.0.0", "--uses", str(workspace / "nowhere")).code == 2
    assert numbers("show", "numbers", "--format", "json").json()["data"]["version"] == "1.0.0"


@pytest.mark.usefixtures("numbers")
def test_the_shell_completes_versions() -> None:
    program = str(Path(sys.executable).parent / "registry")

    def completed(words: str) -> list[str]:
        environment = {
            **os.environ,
            "_REGISTRY_COMPLETE": "zsh_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split()) - 1),
        }
        done = warm_python.run([program], env=environment, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()[1::3]

    assert completed("registry yank num") == ["numbers"]
    assert completed("registry yank numbers:1.1") == ["numbers:1.1.1", "numbers:1.1.0"]
    assert completed("registry promote words/de:") == ["words/de:2.0.0", "words/de:1.0.0"]
    assert completed("registry promote nobody:") == []
    assert completed("registry config set-default words/") == ["words/de", "words/en"]


def test_a_dataset_whose_versions_are_all_withdrawn_is_hidden_and_marked(numbers: Cli) -> None:
    for version in ("1.0.0", "2.0.0"):
        numbers("yank", f"words/de:{version}", "--reason", "bad")
        numbers("drop", f"words/en:{version}", "--reason", "gone")
    listed = numbers("list")
    assert [line.split()[:2] for line in listed.out.splitlines()[1:]] == [["numbers", "1.0.0"]]
    assert listed.err == (
        "note: 2 datasets are hidden: all their versions are yanked or dropped. To see them: registry list --all\n"
    )
    lines = numbers("list", "--all").out.splitlines()
    assert [" ".join(line.split()[:3]) for line in lines[1:]] == [
        "numbers 1.0.0 4",
        "words/de 2.0.0 (yanked)",
        "words/en 2.0.0 (dropped)",
    ]
    answer = numbers("list", "--format", "json").json()
    assert [one["dataset"] for one in answer["data"]] == ["numbers"]
    assert answer["warnings"] == [listed.err.strip()]
    assert [
        (one["dataset"], one["canonical"], one["withdrawn"], one["status"])
        for one in numbers("list", "--all", "--format", "json").json()["data"]
    ] == [
        ("numbers", "1.0.0", None, "canonical"),
        ("words/de", None, "1.0.0", "yanked"),
        ("words/en", None, "1.0.0", "dropped"),
    ]
    found = numbers("search", "words", "de")
    assert (found.code, found.out) == (0, "")
    assert found.err == (
        "note: 1 dataset is hidden: all its versions are yanked or dropped. To see it: registry search words de --all\n"
    )
    assert "words/de  2.0.0 (yanked)  " in numbers("search", "words", "de", "--all").out
    assert numbers("search", "words", "de", "--all").err == ""
    assert numbers("config", "list", "words").out == (
        "CONFIG  DEFAULT  CANONICAL                  VERSIONS\n"
        "de      default  none (1.0.0 is withdrawn)         2\n"
        "en               none (1.0.0 is withdrawn)         2\n"
    )


def test_a_list_says_that_the_canonical_version_is_withdrawn_or_deprecated(numbers: Cli) -> None:
    numbers("promote", "numbers:1.1.1")
    numbers("deprecate", "numbers:1.1.1", "--reason", "old")
    assert "numbers   1.1.1 (deprecated)  " in numbers("list").out
    numbers("yank", "numbers:1.1.1", "--reason", "bad")
    assert "numbers   2.0.0 (not canonical: 1.1.1 is withdrawn)  " in numbers("list").out
    assert "numbers  2.0.0 (experimental)  " in numbers("search", "numbers").out


def test_withdrawing_the_canonical_version_names_the_one_to_promote(numbers: Cli) -> None:
    numbers("promote", "numbers:1.1.0")
    dry = numbers("yank", "numbers:1.1.0", "--reason", "bad", "--dry-run")
    assert dry.err == (
        "note: numbers would have no canonical version. Make one canonical: registry promote numbers:1.0.0\n"
    )
    answer = numbers("yank", "numbers:1.1.0", "--reason", "bad", "--superseded-by", "1.1.1", "--format", "json").json()
    assert answer["data"]["after"]["canonical"] is None
    (note,) = answer["warnings"]
    assert note == "note: numbers has no canonical version. Make one canonical: registry promote numbers:1.1.1"
    assert numbers(*note.rpartition(": registry ")[2].split()).code == 0
    assert numbers("drop", "numbers:2.0.0", "--reason", "gone").err == ""
    for version in ("1.0.0", "1.1.0"):
        numbers("drop", f"numbers:{version}", "--reason", "gone")
    last = numbers("drop", "numbers:1.1.1", "--reason", "gone")
    assert last.err == (
        "note: numbers has no canonical version. No version is left to promote. "
        "To undo it: registry drop numbers:1.1.1 --undo\n"
    )
    assert numbers(*last.err.rpartition(": registry ")[2].split()).code == 0
