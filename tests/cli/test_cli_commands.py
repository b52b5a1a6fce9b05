"""Every command on a catalog that holds the shipped digits: what people see, and what programs get."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support import warm_python
from support.terminals import drawn_on_terminal

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
    assert "already published: digits:1.0.0" in second.out


def test_read_prints_one_json_object_a_line(digits: Cli) -> None:
    lines = digits("read", "digits", "train[:10]", "--take", "3", "--pixels").out.splitlines()
    examples = [json.loads(line) for line in lines]
    assert len(examples) == 3
    assert all(set(example) == {"image", "label"} for example in examples)
    assert all(len(example["image"]) == 8 and 0 <= example["label"] <= 9 for example in examples)
    whole = digits("read", "digits", "train[:10]", "--take", "3", "--pixels", "--format", "json").json()
    assert whole["data"]["examples"] == examples


def test_verify_finds_the_one_bad_shard(digits: Cli, workspace: Path) -> None:
    assert digits("verify", "digits").out.startswith("digits:1.0.0: 4 of 4 shards and 1 attachment are as published (")
    assert digits("verify", "digits", "--deep").code == 0
    shard = workspace / "datasets/digits/1.0.0/digits-train.tfrecord-00002-of-00004"
    damaged = bytearray(shard.read_bytes())
    damaged[1000] ^= 1
    shard.write_bytes(damaged)
    ran = digits("verify", "digits")
    assert ran.code == 5
    assert ran.out.startswith("digits:1.0.0: 3 of 4 shards and 1 attachment are as published")
    (fault,) = digits("verify", "digits", "--format", "json").json()["data"]["faults"]
    assert fault["filename"] == shard.name
    assert fault["code"] == "corrupt_record"
    assert "record " in fault["problem"]
    assert " at byte " in fault["problem"]


def test_quickstart_in_a_catalog_of_its_own_names_it_in_what_to_try_next(cli: Cli, workspace: Path) -> None:
    shown = cli("quickstart", "--catalog", str(workspace / "my own.db")).out
    commands = shown[shown.index("Try next:\n") :].splitlines()[1:]
    assert len(commands) == 4
    for command in commands:
        program, *words = shlex.split(command)
        start = {"registry": warm_python.PROGRAM, "python": sys.executable}[program]
        assert warm_python.run([start, *words], capture_output=True, text=True, check=True).stdout


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


def test_publish_a_folder_into_another_catalog(digits: Cli, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = workspace / "datasets/digits/1.0.0"
    monkeypatch.setenv("REGISTRY_CATALOG", str(workspace / "other/catalog.db"))
    ran = digits("publish", str(folder))
    assert ran.code == 0
    assert ran.out.startswith("published digits:1.0.0")
    assert digits("publish", str(folder)).out.startswith("digits:1.0.0 is already published")
    assert digits("verify", "digits", "--deep").code == 0


GROUPS = ("alias", "config", "db", "earth-engine", "experiment", "export", "import", "pin", "split", "token", "webhook")


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
        ("registry re", {"read", "relocate", "remove", "rename", "reservation", "resolve", "restore"}),
        ("registry show di", {"digits"}),
        ("registry read digits tr", {"train"}),
        ("registry add --from a", {"arrow", "audio", "arrays"}),
        ("registry read digits train+tr", {"train+train"}),
        ("registry add prices.csv da", {"da"}),  # the shell completes the file
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
    done = warm_python.run([warm_python.PROGRAM], env=environment, capture_output=True, text=True, check=True)
    assert {line.split(",")[1] for line in done.stdout.splitlines()} == offered


def test_completion_makes_no_files(workspace: Path) -> None:
    environment = {
        **os.environ,
        "_REGISTRY_COMPLETE": "bash_complete",
        "COMP_WORDS": "registry resolve di",
        "COMP_CWORD": "2",
        "REGISTRY_CATALOG": str(workspace / "new" / "catalog.db"),
    }
    done = warm_python.run([warm_python.PROGRAM], env=environment, capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), list(workspace.iterdir())) == ("", [])


def test_a_closed_pipe_ends_quietly(digits: Cli) -> None:
    program = str(Path(sys.executable).parent / "registry")
    reading = warm_python.Popen([program, "read", "digits", "train"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert reading.stderr is not None
    reading.stdout.readline()
    reading.stdout.close()
    assert reading.stderr.read() == b""
    reading.stderr.close()
    assert reading.wait() == 0


def test_a_terminal_sees_progress_and_a_pipe_does_not(workspace: Path) -> None:
    program = str(Path(sys.executable).parent / "registry")
    with (workspace / "out").open("wb") as out:
        drawn = drawn_on_terminal([program, "build", "digits"], "stderr", stdout=out)
    assert (workspace / "out").read_bytes().startswith(b"published digits:1.0.0")
    for phase in (b"encoding train", b"writing train", b"verifying"):
        assert phase in drawn
    piped = warm_python.run([program, "build", "digits", "--rebuild"], capture_output=True, check=True)
    assert piped.stderr == b""


def test_the_module_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "registry", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"registry, version {registry.__version__}\n"


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


def test_finished_shards_are_only_published_if_there_are_any(cli: Cli) -> None:
    ran = cli("build", "digits", "--finished")
    assert ran.code == 2
    assert ran.err == (
        "error: no earlier run left intact shards of digits:1.0.0 with these features, experiments and options\n"
        "hint: Leave out --finished.\n"
    )
    ran = cli("build", "digits", "--finished", "--dry-run")
    assert ran.code == 2
    assert ran.err.startswith("error: --finished publishes shards, so it cannot be combined with --dry-run\n")


def test_a_rebuild_says_that_it_replaced_a_damaged_folder(digits: Cli, workspace: Path) -> None:
    folder = workspace / "datasets/digits/1.0.0"
    shard = folder / "digits-train.tfrecord-00000-of-00004"
    published = shard.read_bytes()
    shard.write_bytes(published[:-1])
    ran = digits("build", "digits", "--rebuild")
    (kept,) = folder.parent.glob("damaged.*_1.0.0")
    assert f"note: replaced a damaged folder, which was moved to {kept}\n" in ran.err
    assert (ran.code, shard.read_bytes()) == (0, published)
