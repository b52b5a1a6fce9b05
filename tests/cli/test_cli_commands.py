"""Every command on a catalog that holds the shipped digits: what people see, and what programs get."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support import warm_python

import registry
from registry.cli.main import COMMANDS

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)


def test_quickstart_shows_plan_and_digits_and_can_run_again(cli: Cli) -> None:
    first = cli("quickstart")
    assert first.code == 0
    assert "built and published digits:1.0.0, 1,797 real examples" in first.out
    assert "digits:1.0.0 train[:10%]: 180 examples, records train 0..180 (documented slicing)" in first.out
    assert "█" in first.out
    assert "label " in first.out
    second = cli("quickstart")
    assert second.code == 0
    assert "found, published before: digits:1.0.0" in second.out


def test_build_publishes_once_and_says_so_again(cli: Cli) -> None:
    first = cli("build", "digits")
    assert first.out.startswith("published digits:1.0.0: 1,797 examples in 4 shards, ")
    again = cli("build", "digits")
    assert again.code == 0
    assert again.out.startswith("digits:1.0.0 is published already (sha256:")
    (version,) = cli("versions", "digits", "--format", "json").json()["data"]
    assert version["published_by"] == "tester"
    rebuilt = cli("build", "digits", "--rebuild", "-j", "2", "--format", "json")
    assert rebuilt.code == 0
    assert rebuilt.json()["data"]["newly"] is False


def test_list_of_an_empty_catalog_says_what_to_do(empty: Cli) -> None:
    ran = empty("list")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err == "The catalog is empty. Start with: registry quickstart\n"


def test_list_and_versions(digits: Cli) -> None:
    assert digits("list", "--format", "json").json() == {
        "schema": "registry.list/1",
        "data": [
            {
                "dataset": "digits",
                "is_protected": False,
                "canonical": "1.0.0",
                "withdrawn": None,
                "latest": "1.0.0",
                "status": "canonical",
                "num_versions": 1,
                "num_examples": 1797,
                "splits": ["train"],
                "description": digits("show", "digits", "--format", "json").json()["data"]["description"],
                "default_config": False,
                "config_description": "",
                "config_tags": [],
            }
        ],
        "warnings": [],
    }
    head, row = digits("list").out.splitlines()
    assert head.split() == ["DATASET", "VERSION", "VERSIONS", "EXAMPLES", "SPLITS", "DESCRIPTION"]
    assert row.split()[:5] == ["digits", "1.0.0", "1", "1,797", "train"]
    (version,) = digits("versions", "digits", "--format", "json").json()["data"]
    assert (version["version"], version["status"]) == ("1.0.0", "canonical")


def test_resolve_gives_the_plan(digits: Cli) -> None:
    assert digits("resolve", "digits:1.*", "train[20%:30%]", "--format", "json").json() == {
        "schema": "registry.resolve/1",
        "data": {
            "dataset": "digits",
            "version": "1.0.0",
            "split": "train[20%:30%]",
            "num_examples": 180,
            "slicing": "documented",
            "ranges": [{"split": "train", "start": 359, "stop": 539}],
            "files": [
                {
                    "filename": "digits-train.tfrecord-00000-of-00004",
                    "skip": 359,
                    "take": 90,
                    "examples_in_shard": 449,
                },
                {
                    "filename": "digits-train.tfrecord-00001-of-00004",
                    "skip": 0,
                    "take": 90,
                    "examples_in_shard": 449,
                },
            ],
        },
        "warnings": [],
    }
    human = digits("resolve", "digits", "train[20%:30%]").out.splitlines()
    assert human[0] == "digits:1.0.0 train[20%:30%]: 180 examples, records train 359..539 (documented slicing)"
    assert human[1].split() == ["FILE", "SKIP", "TAKE", "OF"]
    assert [line.split() for line in human[2:]] == [
        ["digits-train.tfrecord-00000-of-00004", "359", "90", "449"],
        ["digits-train.tfrecord-00001-of-00004", "0", "90", "449"],
    ]


def test_resolve_by_another_rule_shows_it(digits: Cli) -> None:
    ran = digits("resolve", "digits", "train[:0shard]", "--slicing", "tfds-4")
    assert ran.out.splitlines()[0] == (
        "digits:1.0.0 train[:0shard]: 1,797 examples, records train 0..1,797 (tfds-4 slicing)"
    )
    data = digits("resolve", "digits", "train[:0shard]", "--format", "json").json()["data"]
    assert (data["slicing"], data["num_examples"]) == ("documented", 0)
    read = digits("read", "digits", "train[:0shard]", "--slicing", "tfds-4", "--take", "1", "--format", "json").json()
    assert (read["data"]["slicing"], len(read["data"]["examples"])) == ("tfds-4", 1)
    assert digits("resolve", "digits", "train", "--slicing", "tfds-5").code == 2


def test_resolve_says_why(digits: Cli) -> None:
    ran = digits("resolve", "digits:1.*", "train[20%:30%]+even(train[-10:], 3)[0]", "--why")
    assert ran.out == (
        "digits:1.0.0 train[20%:30%]+even(train[-10:], 3)[0]: 184 examples, "
        "records train 359..539 + train 1,787..1,791 (documented slicing)\n"
        "  digits:1.*.* allows only 1.0.0, of 1 published versions.\n"
        "  The slicing rule documented was published with digits:1.0.0.\n"
        "  train[20%:30%] begins at record 359: 20% of 1,797 records is 359.4, rounded.\n"
        "  train[20%:30%] ends before record 539: 30% of 1,797 records is 539.1, rounded.\n"
        "  train[20%:30%] reads records train 359..539: 180 of 1,797.\n"
        "  train[-10:] begins at record 1,787: -10 counts from the end.\n"
        "  train[-10:] ends before record 1,797: an open end.\n"
        "  train[-10:] reads records train 1,787..1,797: 10 of 1,797.\n"
        "  even(train[-10:], 3)[0]: 10 records of train[-10:] in 3 parts, 1 of 4 and 2 of 3.\n"
        "  even(train[-10:], 3)[0] reads records train 1,787..1,791: 4 of 10.\n"
        "  It reads 184 records by 3 file instructions: digits-train.tfrecord-00000-of-00004 (skip 359, take 90) to "
        "digits-train.tfrecord-00003-of-00004 (skip 439, take 4).\n"
        "FILE                                  SKIP  TAKE   OF\n"
        "digits-train.tfrecord-00000-of-00004   359    90  449\n"
        "digits-train.tfrecord-00001-of-00004     0    90  449\n"
        "digits-train.tfrecord-00003-of-00004   439     4  449\n"
    )
    ran = digits("resolve", "digits", "train[:33.3%]", "--why", "--slicing", "tfds-4", "--format", "json")
    why = ran.json()["data"]["why"]
    assert why["version"] == [
        "digits does not name a version: 1.0.0 is the canonical one.",
        "The slicing rule tfds-4 was chosen for this call.",
    ]
    (term,) = why["terms"]
    assert term["term"] == "train[:33.3%]"
    assert term["ranges"] == [{"split": "train", "start": 0, "stop": 598}]
    assert term["bounds"] == [
        {"bound": "", "exact": None, "record": 0, "why": "an open start"},
        {
            "bound": "33.3%",
            "exact": "598.401",
            "record": 598,
            "why": "33.3% of 1,797 records is 598.401, in floats and halves to even 598",
        },
    ]


def test_resolve_notes_what_is_read_twice(digits: Cli) -> None:
    note = "note: train[:10]+train[5:8] reads some records more than once: records train 5..8"
    for command in ("resolve", "read"):
        assert digits(command, "digits", "train[:10]+train[5:8]").err == f"{note}\n"
        as_json = digits(command, "digits", "train[:10] + train[5:8]", "--format", "json").json()
        assert as_json["warnings"] == [note]
        assert as_json["data"]["split"] == "train[:10]+train[5:8]"
    resolved = digits("resolve", "digits", "train[:10]+train[5:8]", "--format", "json").json()
    assert resolved["data"]["overlaps"] == [{"split": "train", "start": 5, "stop": 8}]


def test_resolve_with_dropped_remainder(digits: Cli) -> None:
    ran = digits("resolve", "digits", "train[:10%]", "--rounding", "pct1_dropremainder", "--format", "json")
    assert ran.json()["data"]["num_examples"] == 170
    ran = digits("resolve", "digits", "train[:10%]", "--rounding", "pct1_dropremainder")
    assert ran.out.splitlines()[0].endswith("records train 0..170 (documented slicing, pct1_dropremainder)")
    for command in ("resolve", "read"):
        options = ("--rounding", "pct1_dropremainder", "--format", "json")
        data = digits(command, "digits", "train[:1%]", *options).json()["data"]
        assert (data["slicing"], data["rounding"]) == ("documented", "pct1_dropremainder")
    whole = digits("resolve", "digits", "train[:9]", "--rounding", "pct1_dropremainder").out
    assert whole.splitlines()[0].endswith("(documented slicing)")  # nothing was rounded


def test_read_prints_one_json_object_a_line(digits: Cli) -> None:
    lines = digits("read", "digits", "train[:10]", "--take", "3").out.splitlines()
    examples = [json.loads(line) for line in lines]
    assert len(examples) == 3
    assert all(set(example) == {"image", "label"} for example in examples)
    assert all(len(example["image"]) == 8 and 0 <= example["label"] <= 9 for example in examples)
    whole = digits("read", "digits", "train[:10]", "--take", "3", "--format", "json").json()
    assert whole["data"]["examples"] == examples


def test_verify_finds_the_one_bad_shard(digits: Cli, workspace: Path) -> None:
    assert digits("verify", "digits").out.startswith("digits:1.0.0: 4 of 4 shards are as published (1,797 examples, ")
    assert digits("verify", "digits", "--deep").code == 0
    shard = workspace / "datasets/digits/1.0.0/digits-train.tfrecord-00002-of-00004"
    damaged = bytearray(shard.read_bytes())
    damaged[1000] ^= 1
    shard.write_bytes(damaged)
    ran = digits("verify", "digits")
    assert ran.code == 5
    assert ran.out.startswith("digits:1.0.0: 3 of 4 shards are as published")
    (fault,) = digits("verify", "digits", "--format", "json").json()["data"]["faults"]
    assert fault["filename"] == shard.name
    assert fault["code"] == "corrupt_record"
    assert "record " in fault["problem"]
    assert " at byte " in fault["problem"]


def test_quickstart_in_a_catalog_of_its_own_names_it_in_what_to_try_next(cli: Cli, workspace: Path) -> None:
    shown = cli("quickstart", "--catalog", str(workspace / "my own.db")).out
    commands = shown[shown.index("Try next:\n") :].splitlines()[1:]
    assert len(commands) == 3
    for command in commands:
        program = {"registry": f"{sys.executable} -m registry", "python": sys.executable}[command.split()[0]]
        line = program + command.strip()[len(command.split()[0]) :]
        done = subprocess.run(line, shell=True, capture_output=True, text=True, check=True)  # noqa: S602 (as printed)
        assert done.stdout


def test_show_draws_nested_features_as_a_tree() -> None:
    from registry.cli.browse import feature_lines
    from registry.features import FeaturesDict, Sequence, Text

    features = FeaturesDict({"a": {"b": "int64"}, "c": Sequence({"d": Text()}, length=2), "e": Sequence("int8")})
    assert list(feature_lines(features)) == [
        "a:",
        "  b: Tensor(shape=(), dtype=int64)",
        "c: Sequence of 2",
        "  d: Text()",
        "e: Sequence(feature=Tensor(shape=(), dtype=int8))",
    ]


def test_show(digits: Cli) -> None:
    shown = digits("show", "digits").out
    assert "digits:1.0.0\n" in shown
    assert "CC BY 4.0" in shown
    assert "image: " in shown
    data = digits("show", "digits", "--format", "json").json()["data"]
    assert data["splits"][0]["num_shards"] == 4
    assert data["content_digest"].startswith("sha256:")
    assert data["labels"]["label"] == list("0123456789")
    assert data["supervised_keys"] == ["image", "label"]


def test_publish_a_folder_into_another_catalog(digits: Cli, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = workspace / "datasets/digits/1.0.0"
    monkeypatch.setenv("REGISTRY_CATALOG", str(workspace / "other/catalog.db"))
    ran = digits("publish", str(folder))
    assert ran.code == 0
    assert ran.out.startswith("published digits:1.0.0")
    assert digits("publish", str(folder)).out.startswith("digits:1.0.0 is published already")
    assert digits("verify", "digits", "--deep").code == 0


def test_db_commands(cli: Cli) -> None:
    before = cli("db", "status", "--format", "json").json()["data"]
    assert (before["state"], before["revision"]) == ("absent", None)
    assert cli("db", "upgrade").out == f"empty -> {before['head']}\n"
    assert cli("db", "upgrade").out == f"already at {before['head']}\n"
    assert cli("db", "check").out == "the database matches its schema\n"
    refused = cli("db", "downgrade", "base")
    assert refused.code == 2
    assert cli("db", "downgrade", "base", "--yes").out == f"{before['head']} -> empty\n"


GROUPS = ("alias", "config", "db", "earth-engine", "experiment", "export", "import", "pin", "split")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_examples(cli: Cli, name: str) -> None:
    ran = cli(name, "--help")
    assert ran.code == 0
    assert "Examples:" in ran.out or name in GROUPS
    _, listed = COMMANDS[name]
    assert listed in cli("--help").out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(cli: Cli, shell: str) -> None:
    assert "_REGISTRY_COMPLETE" in cli("completion", shell).out


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("registry re", {"resolve", "read", "relocate", "reservation", "restore"}),
        ("registry show di", {"digits"}),
        ("registry read digits tr", {"train"}),
        ("registry add --from a", {"arrow", "audio", "arrays"}),
        ("registry read digits train+tr", {"train+train"}),
        ("registry split check digits train a", {"all"}),
    ],
)
def test_completion_offers_commands_datasets_and_splits(digits: Cli, words: str, offered: set[str]) -> None:
    environment = {
        **os.environ,
        "_REGISTRY_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    done = subprocess.run(
        [str(Path(sys.executable).parent / "registry")], env=environment, capture_output=True, text=True, check=True
    )
    assert {line.split(",")[1] for line in done.stdout.splitlines()} == offered


def test_completion_makes_no_files(workspace: Path) -> None:
    environment = {
        **os.environ,
        "_REGISTRY_COMPLETE": "bash_complete",
        "COMP_WORDS": "registry resolve di",
        "COMP_CWORD": "2",
        "REGISTRY_CATALOG": str(workspace / "new" / "catalog.db"),
    }
    program = str(Path(sys.executable).parent / "registry")
    done = subprocess.run([program], env=environment, capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), list(workspace.iterdir())) == ("", [])


def test_a_closed_pipe_ends_quietly(digits: Cli) -> None:
    program = str(Path(sys.executable).parent / "registry")
    reading = warm_python.Popen([program, "read", "digits", "train"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert reading.stdout is not None
    assert reading.stderr is not None
    reading.stdout.readline()
    reading.stdout.close()
    assert reading.stderr.read() == b""
    reading.stderr.close()
    assert reading.wait() == 0


def test_a_terminal_sees_progress_and_a_pipe_does_not(workspace: Path) -> None:
    import pty

    program = str(Path(sys.executable).parent / "registry")
    main_end, terminal = pty.openpty()
    building = warm_python.Popen([program, "build", "digits"], stdout=subprocess.PIPE, stderr=terminal)
    os.close(terminal)
    assert building.stdout is not None
    drawn = b""
    while True:  # the terminal first: it holds few bytes, and a slow machine draws many
        try:
            chunk = os.read(main_end, 65536)
        except OSError:  # how Linux says that nobody holds the other end any more
            break
        if not chunk:
            break
        drawn += chunk
    os.close(main_end)
    said = building.stdout.read()
    building.stdout.close()
    assert building.wait() == 0
    assert said.startswith(b"published digits:1.0.0")
    for phase in (b"encoding train", b"writing train", b"verifying"):
        assert phase in drawn
    piped = warm_python.run([program, "build", "digits", "--rebuild"], capture_output=True, check=True)
    assert piped.stderr == b""


def test_the_module_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "registry", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"registry, version {registry.__version__}\n"


def test_one_shard_is_one_shard(cli: Cli) -> None:
    assert "1,797 examples in 1 shard, " in cli("build", "digits", "--shards", "1").out


@pytest.mark.usefixtures("digits")
def test_a_locale_without_utf8_costs_letters_and_nothing_else() -> None:
    program = str(Path(sys.executable).parent / "registry")
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run([program, "list"], capture_output=True, text=True, check=True, env=environment)
    assert "\\u2026" in done.stdout


def test_a_version_above_the_canonical_one_comes_with_a_note(
    cli: Cli, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "two_versions.py").write_text(
        "from registry import DatasetBuilder\n"
        "from registry.features import FeaturesDict\n"
        "class Numbers(DatasetBuilder):\n"
        "    VERSION = '1.0.0'\n"
        "    SUPPORTED_VERSIONS = ['2.0.0']\n"
        "    def features(self):\n"
        "        return FeaturesDict({'number': 'int64'})\n"
        "    def splits(self):\n"
        "        return {'train': [(n, {'number': n}) for n in range(self.version.major)]}\n"
    )
    monkeypatch.syspath_prepend(str(workspace))
    import two_versions

    with registry.connect() as catalog:
        for version in ("1.0.0", "2.0.0"):
            catalog.build(two_versions.Numbers(version=version))
    assert cli("resolve", "numbers", "train").err == ""
    ran = cli("resolve", "numbers:2.*", "train")
    note = "note: numbers:2.0.0 is experimental: the canonical version is 1.0.0"
    assert ran.err == f"{note}\n"
    as_json = cli("resolve", "numbers:>=1", "train", "--format", "json")
    assert as_json.json()["warnings"] == [note]
    assert as_json.json()["data"]["num_examples"] == 2
    statuses = [row["status"] for row in cli("versions", "numbers", "--format", "json").json()["data"]]
    assert statuses == ["experimental", "canonical"]


def test_verify_finds_a_sound_shard_with_other_records(digits: Cli, workspace: Path) -> None:
    first, second = (
        workspace / f"datasets/digits/1.0.0/digits-train.tfrecord-{index:05d}-of-00004" for index in (0, 1)
    )
    first.write_bytes(second.read_bytes())  # as many records, each of them sound
    ran = digits("verify", "digits", "--format", "json")
    assert ran.code == 5
    (fault,) = ran.json()["data"]["faults"]
    assert (fault["filename"], fault["code"]) == (first.name, "foreign_shard")


def test_verify_finds_a_shard_of_the_same_size_with_other_records(digits: Cli, workspace: Path) -> None:
    from registry.storage import open_store
    from registry.tfrecord import RecordWriter, read_records

    shard = workspace / "datasets/digits/1.0.0/digits-train.tfrecord-00000-of-00004"
    records = list(read_records(open_store(shard.parent), shard.name))
    with shard.open("wb") as file:
        writer = RecordWriter(file)
        for record in reversed(records):
            writer.write(record)
    ran = digits("verify", "digits")
    assert ran.code == 5
    assert f"{shard.name}: sha256 mismatch: expected " in ran.out


def test_a_rebuild_says_that_it_replaced_a_damaged_folder(digits: Cli, workspace: Path) -> None:
    folder = workspace / "datasets/digits/1.0.0"
    shard = folder / "digits-train.tfrecord-00000-of-00004"
    published = shard.read_bytes()
    shard.write_bytes(published[:-1])
    ran = digits("build", "digits", "--rebuild")
    (kept,) = folder.parent.glob("damaged.*_1.0.0")
    assert f"note: replaced a damaged folder, which was moved to {kept}\n" in ran.err
    assert (ran.code, shard.read_bytes()) == (0, published)
