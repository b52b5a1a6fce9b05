"""Passwords in URLs: refused where they would be stored, and nowhere in what any command prints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.levels import cases

import registry
from registry.pins import PinFile

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)

HINT = (
    "hint: Pass passwords through the environment, e.g. AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or through "
    "fsspec's configuration.\n"
)


@pytest.fixture
def old_pin(digits: Cli, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A pin file as older releases wrote it, with a token in the URLs of a folder, a file and a source."""
    monkeypatch.chdir(workspace)
    assert digits("pin", "create", "digits", "train[:5]").code == 0
    entry = dict(registry.load_pin("dataset.lock.yaml").content["pins"][0])
    entry["locations"] = ["https://example.org/x?token=hunter2", "https://example.org/y?page=1&sig=hunter2"]
    entry["files"] = [{**file, "locations": ["https://example.org/f?token=hunter2"]} for file in entry["files"]]
    source = {"url": "https://example.org/z?key=hunter2", "sha256": None, "num_bytes": None}
    entry["provenance"] = {**entry["provenance"], "sources": [source]}
    made = PinFile.of([entry], created_by="shardbook 0")
    made.save(force=True)
    return str(workspace / "dataset.lock.yaml")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["list", "--data-dir", "s3://KEY:hunter2@bucket"], "the data directory s3://***@bucket"),
        (
            ["pin", "create", "digits", "train", "--location", "https://host/x?token=hunter2"],
            "the location https://host/x?token=***",
        ),
        (
            ["export", "croissant", "digits", "--url", "https://host/x?sig=hunter2"],
            "the address https://host/x?sig=***",
        ),
    ],
)
def test_a_url_with_a_secret_is_not_stored(digits: Cli, arguments: list[str], message: str) -> None:
    ran = digits(*arguments)
    assert (ran.code, ran.out, ran.err) == (2, "", f"error: {message} contains a password or another secret\n{HINT}")
    ran = digits(*arguments, "--format", "json")
    assert ran.error()["message"] == f"{message} contains a password or another secret"
    assert "hunter2" not in ran.out + ran.err


@pytest.mark.parametrize(
    ("debug", "form"), cases([("", "json"), ("1", "json"), ("", "human"), ("1", "human")], everyday=2)
)
@pytest.mark.parametrize(
    "arguments",
    [
        ["import", "tfds", "http://ann:hunter2@127.0.0.1:1/digits/1.0.0?token=hunter2"],
        ["publish", "http://ann:hunter2@127.0.0.1:1/digits/1.0.0"],
        ["pin", "verify", "dataset.lock.yaml", "--data-dir", "http://ann:hunter2@127.0.0.1:1/x"],
        ["pin", "restore", "dataset.lock.yaml", "--to", "x", "--data-dir", "http://127.0.0.1:1/x?token=hunter2"],
        ["pin", "restore", "dataset.lock.yaml", "--to", "s3://KEY:hunter2@bucket/x"],
        ["pin", "show", "http://ann:hunter2@127.0.0.1:1/dataset.lock.yaml"],
        ["pin", "restore", "dataset.lock.yaml", "--to", "y", "--allow-host", "http://ann:hunter2@127.0.0.1"],
        ["pin", "show", "dataset.lock.yaml"],
        ["pin", "explain", "dataset.lock.yaml"],
        ["pin", "cite", "dataset.lock.yaml"],
        ["pin", "audit", "dataset.lock.yaml"],
        ["pin", "diff", "dataset.lock.yaml", "other.yaml"],
    ],
)
def test_no_command_prints_a_secret(
    digits: Cli, old_pin: str, arguments: list[str], form: str, debug: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.load_pin(old_pin).without_secrets().save("other.yaml")
    monkeypatch.setenv("REGISTRY_DEBUG", debug)
    ran = digits(*arguments, "--format", form)
    assert "hunter2" not in ran.out + ran.err
    assert ran.out + ran.err


def test_an_old_pin_is_read_and_cleaned_and_not_bundled(digits: Cli, old_pin: str) -> None:
    assert digits("pin", "verify", old_pin).code == 0
    refused = digits("pin", "bundle", old_pin, "-o", "paper.tar")
    assert (refused.code, refused.err) == (
        2,
        "error: the pins name a URL with a password or another secret, which every reader of the bundle would see\n"
        "hint: Change the password, and remove it from the pin file with: registry pin update FILE\n",
    )
    dry = digits("pin", "update", old_pin, "--dry-run")
    assert (dry.code, dry.err) == (
        0,
        f"note: secrets in URLs of {old_pin} would be removed; everyone who had the file may know them: change them\n",
    )
    assert "hunter2" in Path(old_pin).read_text()
    ran = digits("pin", "update", old_pin)
    assert ran.code == 0
    assert (
        ran.err
        == f"note: secrets in URLs of {old_pin} are removed; everyone who had the file may know them: change them\n"
    )
    assert "hunter2" not in Path(old_pin).read_text()
    entry = registry.load_pin(old_pin)["train"].entry
    assert entry.locations == ("https://example.org/x", "https://example.org/y?page=1")
    assert entry.files[0].locations == ("https://example.org/f",)
    assert entry.provenance.sources[0].url == "https://example.org/z"
    assert digits("pin", "bundle", old_pin, "-o", "paper.tar").code == 0


def test_records_are_printed_as_they_are(digits: Cli, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (workspace / "secret_links.py").write_text(
        "from registry import DatasetBuilder\n"
        "from registry.features import FeaturesDict, Text\n"
        "class Links(DatasetBuilder):\n"
        "    VERSION = '1.0.0'\n"
        "    def features(self):\n"
        "        return FeaturesDict({'url': Text()})\n"
        "    def splits(self):\n"
        "        return {'train': [(0, {'url': 'https://ann:PW@host/x?token=of-a-record'})]}\n"
    )
    monkeypatch.syspath_prepend(str(workspace))
    assert digits("build", "secret_links:Links").code == 0
    for form in ("human", "json"):
        assert "https://ann:PW@host/x?token=of-a-record" in digits("read", "links", "train", "--format", form).out
