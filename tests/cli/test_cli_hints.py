"""A hint that shows a command shows one that can be pasted: a shell and the registry both take it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.cli_lines import parse_line

from registry.cli.commands import Session
from registry.cli.output import Output, printable

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)

FAILING = {
    "unknown command": "biuld digits",
    "unknown dataset": "show numbrs",
    "dataset that a builder has": "show digits",
    "unknown version": "show numbers:9.*",
    "unknown alias": "show numbers@stable",
    "unknown split": "resolve numbers tran",
    "malformed split": "resolve numbers train[:1O%]",
    "malformed reference": "show 9numbers",
    "unknown option": "show numbers --wrong",
    "missing argument": "show",
    "versions of a version": "versions numbers:1.*",
    "alias with its dataset": "alias set numbers@paper numbers:>=1.0.0,<2",
    "alias of a range": "alias set paper numbers:7.*",
    "alias that nobody set": "alias rm numbers@paper",
    "history of no alias": "alias history numbers@paper",
    "not an alias": "alias rm numbers",
    "deprecate without a reason": "deprecate numbers:1.0.0",
    "yank without a reason": "yank numbers:1.0.0",
    "drop without a reason": "drop numbers:1.0.0",
    "undo of nothing": "drop numbers:9.0.0 --undo",
    "experiment that nobody added": "experiment set-default no_flag on",
    "retire an experiment that is off": "experiment retire a_flag",
    "experiment added twice": "experiment add a_flag --description other --default on",
    "config of a dataset without": "config set-default numbers/en",
    "not a config": "config set-default words",
    "verify nothing": "verify",
    "report of one version": "verify numbers --report x.json",
    "downgrade": "db downgrade base",
    "publish nothing": "publish nowhere",
    "import nothing": "import tfds nowhere",
    "import no tables": "import parquet nowhere",
    "unknown builder": "build numbrz",
    "no such pin file": "pin show nowhere.yaml",
    "not a pin file": "pin show letter.txt",
    "no such pin": "pin verify numbers.yaml nobody",
    "pin over another": "pin create numbers:2.0.0 train -o numbers.yaml",
    "pin to another dataset": "pin update numbers.yaml --to words/de --yes",
    "pin moved to a range": "pin update numbers.yaml --to words/de:>=1.0.0 --yes",
    "pin whose files are gone": "pin verify gone.yaml",
    "unknown action": "log --action publsh",
    "options of the log": "log --limit 3 verify",
    "head that is none": "log verify --anchor 7",
    "locked": "show numbers:1.* --locked",
    "reservation that nobody holds": "reservation release numbers:1.0.0",
    "croissant over a file": "export croissant numbers -o letter.txt",
    "nothing to undo": "yank numbers:1.0.0 --undo",
    "uses that are no text": "promote numbers:1.1.0 --uses letter.bin",
    "catalog in a folder": "list --catalog datasets",
    "no catalog": "list --catalog letter.txt",
    "an upgrade is needed": "db upgrade 9999",
}
COMMAND = re.compile(
    r"registry [a-z][a-z-]*(?: .+?)?(?=$|`|\.$|\. |\.\n|; |, or|, and |\n| --help\.| names | checks | shows )", re.M
)


@pytest.mark.parametrize("case", FAILING)
def test_a_hint_can_be_pasted(numbers: Cli, workspace: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    monkeypatch.chdir(workspace)
    Path("letter.txt").write_text("To my grandmother.\n" * 100)
    Path("letter.bin").write_bytes(b"\xff\xfe")
    assert numbers("experiment", "add", "a_flag", "--description", "a flag").code == 0
    assert numbers("pin", "create", "numbers", "train", "-o", "numbers.yaml").code == 0
    assert numbers("pin", "create", "words/en", "train", "-o", "gone.yaml").code == 0
    shutil.rmtree("datasets/words/en/1.0.0")
    shutil.rmtree("datasets/words/en/2.0.0")
    ran = numbers(*FAILING[case].split(" "))
    told = ran.out + ran.err
    assert "fault of the registry" not in told
    assert "***" not in told
    for found in COMMAND.findall(told):
        if not found.startswith(("registry log alone", "registry command")):
            parse_line(found.rstrip("."))


@pytest.mark.parametrize(
    ("url", "environment", "expected"),
    [
        (None, None, ""),
        ("my data/catalog.db", None, " --catalog 'my data/catalog.db'"),
        ("my data/catalog.db", "my data/catalog.db", ""),
        ("postgresql://ann:secret@host/data", None, ' --catalog "$REGISTRY_CATALOG"'),
        ("postgresql://ann:secret@host/data", "postgresql://ann:secret@host/data", ""),
        ("postgresql://ann@host/data", None, " --catalog postgresql://ann@host/data"),
    ],
)
def test_a_pasted_command_names_the_catalog_without_its_password(
    monkeypatch: pytest.MonkeyPatch, url: str | None, environment: str | None, expected: str
) -> None:
    monkeypatch.delenv("REGISTRY_CATALOG", raising=False)
    if environment is not None:
        monkeypatch.setenv("REGISTRY_CATALOG", environment)
    options = Session(url=url, data_dir=None, out=Output(as_json=False)).pasted_options
    assert options == expected
    assert printable(options) == options
    if options and "$" not in options:
        parse_line(f"registry promote digits:1.0.0{options}")
