"""The command line over ``registry serve``: each command prints what it prints with the database of the catalog.

Two copies of one catalog get the same commands in the same order: one directly, the other one through a service.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.browse_process import Serve
from support.services import make_token

import registry
from registry.cli.main import COMMANDS, run
from registry.features import FeaturesDict


class Numbers(registry.DatasetBuilder):
    """As many numbers as the MAJOR says."""

    VERSION = "1.0.0"
    SUPPORTED_VERSIONS = ["1.1.0", "2.0.0"]

    def features(self) -> FeaturesDict:
        return FeaturesDict({"number": "int64"})

    def splits(self) -> Any:
        return {"train": [(n, {"number": n}) for n in range(3 * self.version.major)]}


class Words(Numbers):
    """The same in two configs."""

    BUILDER_CONFIGS = [registry.BuilderConfig(name="de"), registry.BuilderConfig(name="en")]


WRONG_USE = 2

LINES = """
list
list --format json
search numbers
versions numbers
show numbers:2.0.0
diff numbers:1.0.0 numbers:2.0.0
resolve numbers:2.0.0 train[:50%]
split check numbers train[:50%] train[50%:]
read numbers:2.0.0 train[:2]
head numbers -n 2
stats numbers:2.0.0
sql "select count(*) as n from 'numbers:2.0.0'"
verify numbers:2.0.0
verify --all
add {file} --as prices
read prices train
describe prices:1.0.0 --description "prices of a shop"
rename prices costs
show costs:1.0.0
promote numbers:2.0.0
deprecate words/de:1.0.0 --reason old
yank numbers:1.1.0 --reason wrong
show numbers:1.1.0
alias set paper numbers:2.0.0
alias list numbers
alias history numbers@paper
alias rm numbers@paper
config list words
config set-default words/en
config data-dir
config protect words
config unprotect words
experiment add doubled --description "Twice as many."
experiment set-default doubled on
experiment list
pin create numbers:2.0.0 train=train[:80%]
pin add numbers:2.0.0 test=train[80%:]
pin show dataset.lock.yaml
pin verify dataset.lock.yaml --deep --catalog {catalog}
pin read dataset.lock.yaml train --data-dir {data}
pin restore dataset.lock.yaml --to {folder}/restored --catalog {catalog}
pin bundle dataset.lock.yaml -o {folder}/paper.tar --catalog {catalog}
pin update dataset.lock.yaml
pin cite dataset.lock.yaml
mirror add numbers:2.0.0 {mirror}
mirror list numbers:2.0.0
relocate costs:1.0.0 {folder}/moved
proposal list
reservation list
reservation release numbers:2.0.0
copy numbers:2.0.0 --to {folder}/other.db --to-data-dir {folder}/others
export csv numbers:2.0.0 {folder}/numbers.csv
build digits --dry-run
token create ann --dry-run
token list
webhook list
drop numbers:1.1.0 --reason wrong
remove numbers:1.1.0
du
gc --dry-run
log
log verify
backup {folder}/catalog.backup.gz
site {folder}/site
"""

DATABASE = (
    *("db status", "db check", "db upgrade", "db reindex", "db grant ann --as reader", "db downgrade base --yes"),
    "restore {folder}/catalog.backup.gz",
)


class Side(NamedTuple):
    """A catalog, its folder, and the data directory as its clients name it."""

    folder: Path
    url: str
    data: str


@pytest.fixture
def sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Side, Side]]:
    """The same catalog directly, and another copy of it through a service."""
    monkeypatch.setenv("REGISTRY_ACTOR", "tester")
    monkeypatch.setenv("REGISTRY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("REGISTRY_CACHE_BYTES", "100MB")
    near, far = tmp_path / "near", tmp_path / "far"
    with registry.connect(near / "catalog.db", create=True) as catalog:
        for version in ("1.0.0", "1.1.0", "2.0.0"):
            catalog.build(Numbers(version=version), processes=1)
        for config in ("de", "en"):
            catalog.build(Words(config=config), processes=1)
        shutil.copytree(near / "datasets/numbers/2.0.0", tmp_path / "mirror")
        token = make_token(catalog.backend, "tester")
    shutil.copytree(near, far)
    (tmp_path / "prices.csv").write_text("item,price\nlamp,19.5\nchair,42.0\ndesk,120.25\n")
    with Serve(far / "catalog.db") as server:
        monkeypatch.setenv("REGISTRY_TOKEN", token)
        direct = Side(near, str(near / "catalog.db"), str(near / "datasets"))
        yield direct, Side(far, server.url, f"{server.url}api/v1/data")


@pytest.fixture
def ran(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[[Side, str], tuple[int, str, str]]:
    """Runs a command line in the folder of a catalog; its exit code, stdout and stderr."""

    def ran(side: Side, line: str) -> tuple[int, str, str]:
        monkeypatch.chdir(side.folder)
        names = {
            "folder": side.folder,
            "data": side.data,
            "catalog": side.url,
            "mirror": side.folder.parent / "mirror",
            "file": side.folder.parent / "prices.csv",
        }
        arguments = shlex.split(line.format(**names))
        monkeypatch.setenv("REGISTRY_CATALOG", side.url)
        capsys.readouterr()
        code = run(arguments)
        printed = capsys.readouterr()
        return code, _alike(printed.out, side), _alike(printed.err, side)

    return ran


def _alike(text: str, side: Side) -> str:
    """What a command printed, without what differs between two copies of a catalog: places, times and the log."""
    recorded = str(side.folder.parent / "near/datasets")
    for place, name in ((side.data, "DATA"), (recorded, "DATA"), (side.url, "CATALOG"), (str(side.folder), "FOLDER")):
        text = text.replace(f"file://{place}", name).replace(f"sqlite:///{place}", name).replace(place, name)
    text = text.partition("\nstatistics of ")[0]  # show has them only where the file is on this machine
    text = re.sub(r"20\d\d-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z|\+00:00)?|\(\d+\.\d s\)|\bnever\b", "TIME", text)
    text = re.sub(r"(?m)^(head:?|sha256) +[0-9a-f]{64}$| \((unverified, claimed by|token) [^)]+\)|[\d.]+ KiB", "", text)
    return re.sub(r" {2,}", "  ", text)


def test_each_command_prints_over_http_what_it_prints_with_the_database(
    sides: tuple[Side, Side], ran: Callable[[Side, str], tuple[int, str, str]]
) -> None:
    near, far = sides
    unlike = {}
    for line in LINES.strip().splitlines():
        expected, served = ran(near, line), ran(far, line)
        if served[:2] != expected[:2] or expected[0] == WRONG_USE:
            unlike[line] = expected, served
    assert unlike == {}
    assert ran(far, "cache fetch numbers:2.0.0") == (
        *(0, "numbers:2.0.0: 1 file (210 B) in the cache, 0 B of which were fetched now\n", ""),
    )

    # The service has no files of dropped versions, so they are removed where the database is.
    for line in ("remove numbers:1.1.0 --now", "remove numbers:1.1.0 --now --force"):
        assert ran(far, line)[:2] == (
            1,
            "not cleared: DATA/numbers/1.1.0 cannot be cleared: a service does not remove files; run registry "
            "gc with the database of the catalog\n"
            "numbers:1.1.0 is not removed everywhere. To continue: registry remove numbers:1.1.0\n",
        )
    assert (far.folder / "datasets/numbers/1.1.0").is_dir()
    assert ran(far._replace(url=str(far.folder / "catalog.db")), "gc")[0] == 0
    assert not (far.folder / "datasets/numbers/1.1.0").exists()

    refusal = (
        "error: the catalog is a site or a service, and this command needs its database\n"
        "hint: Run it where the database is, and name that with --catalog: its file, or its postgresql:// URL.\n"
        "The environment variable REGISTRY_CATALOG names this catalog.\n"
    )
    assert {line: ran(far, line) for line in DATABASE} == dict.fromkeys(DATABASE, (WRONG_USE, "", refusal))


def test_every_command_that_takes_a_catalog_is_tried() -> None:
    tried = {line.split()[0] for line in (*LINES.split("\n"), *DATABASE, "cache") if line}
    others = {
        *("quickstart", "publish", "import", "earth-engine"),  # they publish, as add does
        *(
            "browse",
            "serve",
            "doctor",
            "login",
            "logout",
            "completion",
            "mcp",
        ),  # they open none, run until they are ended, or have tests of their own
    }
    assert COMMANDS.keys() - tried == others
