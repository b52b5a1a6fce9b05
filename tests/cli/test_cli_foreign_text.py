"""Whatever text a dataset holds, nothing printed steers a terminal, and JSON keeps every value."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.levels import examples

import registry
from registry.cli.main import run
from registry.cli.output import Fields, JsonText, Note, Output, Table, print_error
from registry.escaping import escape_json, printable, without_steering
from registry.features import ClassLabel, FeaturesDict, Text

FOREIGN = "a\x9b31m\x7fb\x85\u202ec\u2066d\u2069\u200e\u200f\u061c\u2028\u2029\ufeff\U000e0041e"
"""Without C0, which many fields refuse; values hold these, too."""

PIN = "a\x9b31m\u202eb\u2066c\u200f\ufeff"
"""Names of pins, and of features that are pinned, are one line."""

VALUE = f"{FOREIGN}\x1b[31m\x07\x00\r"
STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\U000e0000-\U000e007f\ud800-\udfff]"
)


class Foreign(registry.DatasetBuilder):
    """Texts of others."""

    VERSION = "1.0.0"
    DESCRIPTION = VALUE
    HOMEPAGE = f"https://example.org/{FOREIGN}"
    LICENSE = FOREIGN
    CITATION = f"@misc{{a, author = {{{FOREIGN}}}, title = {{{FOREIGN}}}, url = {{https://example.org/{FOREIGN}}}}}"
    RELEASE_NOTES: ClassVar[dict[str, str]] = {"1.0.0": VALUE}
    METADATA: ClassVar[dict[str, Any]] = {"note": VALUE}

    def features(self) -> FeaturesDict:
        return FeaturesDict({PIN: Text(), "text": Text(), "label": ClassLabel(names=[FOREIGN, "b"])})

    def splits(self) -> dict[str, Any]:
        return {"train": [(n, {PIN: VALUE, "text": f"{n} {VALUE}", "label": n % 2}) for n in range(4)]}


class Told(io.StringIO):
    """A stream that takes every letter, as that of a terminal."""

    encoding = "utf-8"

    def reconfigure(self, **_: Any) -> None:
        """As a file would."""


def ask(*command: str) -> tuple[int, str]:
    """The exit code of a command line, and all that it printed."""
    with redirect_stdout(Told()) as out, redirect_stderr(Told()) as err:
        code = run(list(command))
    return code, out.getvalue() + err.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A catalog with that dataset, and foreign text in all that people say of it."""
    folder = tmp_path_factory.mktemp("foreign")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGISTRY_CATALOG", str(folder / "catalog.db"))
        patch.setenv("REGISTRY_ACTOR", FOREIGN)
        patch.chdir(folder)
        with registry.connect(folder / "catalog.db") as catalog:
            catalog.build(Foreign)
        for command in (
            ("alias", "set", "paper", "foreign:1.0.0", "--reason", FOREIGN),
            ("deprecate", "foreign:1.0.0", "--reason", FOREIGN),
            ("pin", "create", "foreign@paper", f"{PIN}=train[:50%]", "-o", "dataset.lock.yaml"),
            ("pin", "bundle", "dataset.lock.yaml", "-o", "paper.tar"),
            ("export", "croissant", "foreign", "-o", "croissant.json"),
        ):
            code, told = ask(*command)
            assert code == 0, told
            assert not STEERING.search(told)
        yield folder


COMMANDS = {
    "list": ["list"],
    "search": ["search", "foreign"],
    "show": ["show", "foreign"],
    "versions": ["versions", "foreign"],
    "resolve": ["resolve", "foreign", "train[:50%]", "--why"],
    "read": ["read", "foreign", "train"],
    "verify": ["verify", "foreign", "--deep"],
    "alias list": ["alias", "list", "foreign"],
    "alias history": ["alias", "history", "foreign@paper"],
    "log": ["log"],
    "croissant": ["export", "croissant", "foreign"],
    "pin show": ["pin", "show", "dataset.lock.yaml"],
    "pin explain": ["pin", "explain", "dataset.lock.yaml"],
    "pin verify": ["pin", "verify", "dataset.lock.yaml"],
    "pin cite": ["pin", "cite", "dataset.lock.yaml"],
    "pin cite --latex": ["pin", "cite", "dataset.lock.yaml", "--latex"],
    "pin cite --bibtex": ["pin", "cite", "dataset.lock.yaml", "--bibtex"],
    "pin read": ["pin", "read", "dataset.lock.yaml", PIN],
    "pin audit": ["pin", "audit", "dataset.lock.yaml"],
    "no pin": ["pin", "explain", "dataset.lock.yaml", f"{PIN}x"],
    "no feature": ["read", "foreign", "train", "--features", f"{FOREIGN}x"],
    "no dataset": ["show", f"{FOREIGN}x"],
    "no split": ["read", "foreign", f"{FOREIGN}x"],
    "no command": [f"{FOREIGN}x"],
    "no option": ["show", "foreign", f"--{FOREIGN}"],
}


@pytest.mark.parametrize("form", ["human", "json"])
@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_prints_what_steers_a_terminal(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, form: str
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("REGISTRY_CATALOG", str(folder / "catalog.db"))
    code, told = ask(*COMMANDS[name], *(["--format", "json"] if form == "json" else []))
    assert (code != 0) == name.startswith("no "), told
    assert told
    assert not STEERING.search(told)


def test_json_keeps_the_values(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("REGISTRY_CATALOG", str(folder / "catalog.db"))
    examples = [json.loads(line) for line in ask("read", "foreign", "train")[1].split("\n") if line[:1] == "{"]
    assert {example[PIN] for example in examples} == {VALUE}
    assert sorted(example["text"] for example in examples) == [f"{n} {VALUE}" for n in range(4)]
    document = json.loads((folder / "croissant.json").read_text())
    assert document["description"] == VALUE
    printed = ask("export", "croissant", "foreign")[1]
    assert json.JSONDecoder().raw_decode(printed[printed.index("{") :])[0] == document
    shown = json.loads(ask("pin", "show", "dataset.lock.yaml", "--format", "json")[1])["data"]
    assert shown["pins"][0]["name"] == PIN
    assert shown == registry.load_pin("dataset.lock.yaml").content


def test_no_file_for_people_holds_what_steers_a_terminal(folder: Path) -> None:
    import tarfile

    assert not STEERING.search((folder / "dataset.lock.yaml").read_text())
    assert not STEERING.search((folder / "croissant.json").read_text())
    with tarfile.open(folder / "paper.tar") as tar:
        texts = {
            member.name: file.read().decode()
            for member in tar.getmembers()
            if "/data/" not in member.name and (file := tar.extractfile(member)) is not None
        }
    assert "paper/README.txt" in texts
    for name, text in texts.items():
        assert not STEERING.search(text), name


TEXTS = st.text(
    st.one_of(st.characters(), st.sampled_from(f"{VALUE}\n\t\ud800\udfff")),
    max_size=20,
)
VALUES = st.recursive(TEXTS | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner))


@settings(max_examples=examples(200))
@given(VALUES, st.booleans())
def test_escaped_json_means_the_same_value(value: Any, is_ascii: bool) -> None:
    text = escape_json(json.dumps(value, ensure_ascii=is_ascii, indent=1))
    assert not STEERING.search(text)
    # A pair of surrogates is one character to whoever reads JSON.
    assert json.loads(text) == json.loads(json.dumps(value))


@settings(max_examples=examples(200))
@given(TEXTS)
def test_no_text_is_printed_that_steers_a_terminal(text: str) -> None:
    assert not STEERING.search(printable(text))
    assert not STEERING.search(without_steering(text).replace("\r", ""))
    with redirect_stdout(Told()) as out, redirect_stderr(Told()) as err:
        rows = [{"a": text, "b": text}, {"a": text, "b": 1}]
        blocks = [
            text,
            Note(text),
            Fields({text: text, "name": text, "list": [text]}),
            Table(rows, {"A": "a", "B": "b"}),
            Table([], {text: "a"}, empty=text),
            JsonText.line({text: text}),
        ]
        for as_json in (False, True):
            shown = Output(as_json=as_json)
            shown.note(text)
            shown.present("law", {text: [text]}, lambda _: blocks)
            print_error("code", text, text, {text: text}, as_json=as_json)
    told = out.getvalue() + err.getvalue()
    assert not STEERING.search(told)


def test_a_traceback_that_was_asked_for_steers_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_DEBUG", "1")
    code, told = ask("show", f"{FOREIGN}x")
    assert code != 0
    assert "Traceback" in told
    assert not STEERING.search(told)
