"""Pinned files brought here, packed and signed on the command line: restore, bundle, keygen, sign, check."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from support.pinned_samples import unpack

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)

FIRST, SECOND, THIRD, FOURTH = (f"digits/1.0.0/digits-train.tfrecord-0000{index}-of-00004" for index in range(4))


def key_of(text: str) -> str:
    """The key that a line names."""
    found = re.search("sha256:[0-9a-f]{64}", text)
    return found[0]


def test_bundle_packs_what_its_pins_need(pins: Cli, workspace: Path) -> None:
    ran = pins("pin", "bundle", "dataset.lock.yaml", "validation", "-o", "paper.tar")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == (
        f"wrote paper.tar: 1 pin, 1 shard, {Path('paper.tar').stat().st_size / 1024:.1f} KiB\n"
        "check it anywhere with: tar xf paper.tar && python3 paper/verify.py\n"
    )
    refused = pins("pin", "bundle", "dataset.lock.yaml", "validation", "-o", "paper.tar")
    assert (refused.code, refused.err) == (
        1,
        f"error: cannot write {workspace / 'paper.tar'}: it exists already\n"
        "hint: Name another file with -o, or replace it with --force.\n",
    )
    before = Path("paper.tar").read_bytes()
    told = pins("pin", "bundle", "dataset.lock.yaml", "validation", "-o", "paper.tar", "--force", "--format", "json")
    assert Path("paper.tar").read_bytes() == before, "the same pins give the same bytes"
    data = told.json()["data"]
    assert (told.json()["schema"], data["bundle"], data["pins"]) == (
        "registry.pin.bundle/1",
        "paper.tar",
        ["validation"],
    )
    assert data["num_bytes"] == len(before)
    with tarfile.open("paper.tar") as tar:
        assert sorted(tar.getnames()) == data["members"]
        unpack(Path("paper.tar"), workspace)
    assert [name for name in data["members"] if name.startswith("paper/data/")] == [f"paper/data/{FOURTH}"]
    alone = subprocess.run(
        [sys.executable, "-I", "-S", "paper/verify.py"], capture_output=True, text=True, check=False, cwd=workspace
    )
    assert (alone.returncode, alone.stderr) == (0, "")
    shutil.rmtree("datasets")
    assert pins("pin", "verify", "paper/dataset.lock.yaml").code == 0
    assert pins("pin", "verify", "dataset.lock.yaml", "validation", "--data-dir", "paper").code == 0
    assert pins("pin", "read", "paper/dataset.lock.yaml", "validation", "--ids", "--take", "1").code == 0
    gone = pins("pin", "bundle", "dataset.lock.yaml", "-o", "late.tar")
    assert (gone.code, gone.err.splitlines()[0]) == (
        1,
        "error: cannot find 4 pinned files with the pinned content",
    )
    assert not Path("late.tar").exists()


def test_a_signature_goes_into_the_bundle_of_the_whole_file(pins: Cli, workspace: Path) -> None:
    pins("pin", "keygen", "paper.key")
    pins("pin", "sign", "dataset.lock.yaml", "--key", "paper.key")
    pins("pin", "bundle", "dataset.lock.yaml", "-o", "paper.tar")
    pins("pin", "bundle", "dataset.lock.yaml", "train", "-o", "part.tar")
    with tarfile.open("paper.tar") as tar, tarfile.open("part.tar") as part:
        assert "paper/dataset.lock.yaml.sig" in tar.getnames()
        assert "part/dataset.lock.yaml.sig" not in part.getnames(), "it is of another file"
        unpack(Path("paper.tar"), workspace)
    assert pins("pin", "check", "paper/dataset.lock.yaml", "--key", "paper.key.pub").code == 0


def test_a_signature_of_other_bytes_stays_out_of_the_bundle(pins: Cli, workspace: Path) -> None:
    def bundle(file: str, *names: str) -> tuple[int, str, bool]:
        ran = pins("pin", "bundle", file, *names, "-o", "paper.tar", "--force")
        with tarfile.open("paper.tar") as tar:
            return ran.code, ran.err, "paper/dataset.lock.yaml.sig" in tar.getnames()

    left_out = "note: dataset.lock.yaml.sig is left out of the bundle: "
    pins("pin", "keygen", "paper.key")
    pins("pin", "sign", "dataset.lock.yaml", "--key", "paper.key")
    assert bundle("dataset.lock.yaml") == (0, "", True)
    assert bundle(f"{workspace}/dataset.lock.yaml") == (0, "", True)
    assert bundle("dataset.lock.yaml", "train") == (0, f"{left_out}it signs all pins of dataset.lock.yaml\n", False)
    told = pins("pin", "bundle", "dataset.lock.yaml", "train", "-o", "part.tar", "--format", "json").json()
    assert told["warnings"] == [f"{left_out}it signs all pins of dataset.lock.yaml"]

    envelope, good = Path("dataset.lock.yaml.sig").read_bytes(), Path("dataset.lock.yaml").read_text()
    stale = (0, f"{left_out}it does not sign the current content of dataset.lock.yaml\n", False)
    Path("dataset.lock.yaml").write_text(f"# ours\n{good}")
    assert bundle("dataset.lock.yaml") == (0, "", True), "what is packed is what was signed"
    Path("dataset.lock.yaml.sig").unlink()
    pins("pin", "sign", "dataset.lock.yaml", "--key", "paper.key")
    own = "dataset.lock.yaml has comments or its own formatting, which the bundle does not keep\n"
    assert bundle("dataset.lock.yaml") == (0, f"{left_out}{own}", False)
    Path("dataset.lock.yaml").write_text(good)
    assert bundle("dataset.lock.yaml") == stale
    pins("pin", "create", "digits:1.*", "train", "-o", "dataset.lock.yaml", "--force")
    Path("dataset.lock.yaml.sig").write_bytes(envelope)
    assert bundle("dataset.lock.yaml") == stale
    assert bundle("dataset.lock.yaml", "train") == stale
    Path("dataset.lock.yaml.sig").write_text("{}")
    no_envelope = f"{left_out}not an envelope: 'payloadType' is missing, or is not a text\n"
    assert bundle("dataset.lock.yaml") == (0, no_envelope, False)


def test_sign_and_check(pins: Cli) -> None:
    made = pins("pin", "keygen", "paper.key")
    key = key_of(made.out)
    assert (made.code, made.out, made.err) == (
        0,
        f"wrote paper.key, which you must keep secret, and paper.key.pub, which you give to your readers\nkey {key}\n",
        "",
    )
    signed = pins("pin", "sign", "dataset.lock.yaml", "--key", "paper.key")
    assert (signed.code, signed.out) == (0, f"wrote dataset.lock.yaml.sig, signed by {key}\n")
    envelope = Path("dataset.lock.yaml.sig").read_bytes()
    digest = pins("pin", "show", "dataset.lock.yaml", "--format", "json").json()["data"]["digest"]
    checked = pins("pin", "check", "dataset.lock.yaml", "--key", "paper.key.pub")
    assert (checked.code, checked.out) == (0, f"dataset.lock.yaml matches its signature, {digest}\n  by {key}\n")
    other = key_of(pins("pin", "keygen", "other.key", "--format", "json").out)
    told = pins("pin", "sign", "dataset.lock.yaml", "--key", "other.key", "--format", "json").json()
    assert told["schema"] == "registry.pin.sign/1"
    assert told["data"] == {
        "file": "dataset.lock.yaml",
        "signature": "dataset.lock.yaml.sig",
        "key_id": other,
        "added": True,
    }
    half = pins("pin", "check", "dataset.lock.yaml", "--key", "paper.key.pub", "--format", "json").json()
    assert half["schema"] == "registry.pin.check/1"
    assert (half["data"]["key_ids"], half["data"]["unchecked"]) == ([key], [other])
    text = Path("other.key.pub").read_text()
    both = pins("pin", "check", "dataset.lock.yaml", "--key", "paper.key.pub", "--key", text)
    assert sorted(both.out.splitlines()[1:]) == sorted([f"  by {key}", f"  by {other}"])
    Path("dataset.lock.yaml.sig").write_bytes(envelope)
    stranger = pins("pin", "check", "dataset.lock.yaml", "--key", "other.key.pub")
    assert (stranger.code, stranger.out, stranger.err) == (
        5,
        "",
        f"error: expected a signature of {other}, found {key}\nhint: If you trust the signer, pass their public key.\n",
    )


def test_a_key_with_a_password(pins: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_KEY_PASSWORD", "open sesame")
    pins("pin", "keygen", "paper.key")
    assert pins("pin", "sign", "dataset.lock.yaml", "--key", "paper.key").code == 0
    monkeypatch.delenv("REGISTRY_KEY_PASSWORD")
    closed = pins("pin", "sign", "dataset.lock.yaml", "--key", "paper.key")
    assert (closed.code, closed.err) == (
        2,
        "error: the key paper.key is encrypted\n"
        "hint: Set its password: export REGISTRY_KEY_PASSWORD=...; in Python password=...\n",
    )
    assert pins("pin", "check", "dataset.lock.yaml", "--key", "paper.key.pub").code == 0


def test_restore_says_when_and_why_the_files_of_a_version_were_removed(pins: Cli, workspace: Path) -> None:
    pins("drop", "digits:1.0.0", "--reason", "a person asked")
    pins("remove", "digits:1.0.0", "--now")
    for verb in (["restore", "--to", "elsewhere"], ["verify"]):
        ran = pins("pin", verb[0], "dataset.lock.yaml", *verb[1:], "--catalog", str(workspace / "catalog.db"))
        assert ran.code != 0
        assert re.match(r"note: digits:1\.0\.0 is dropped: a person asked; \S+ removed its files at 20", ran.err)
