"""Writes a bundle: one tar with pins, the shards that they need, and a script that checks them with Python alone.

    pins --shards, hashed while they are copied--> paper.tar

    paper/{dataset.lock.yaml, dataset.lock.json, verify.py, README.txt, CITATION.bib ...}
    paper/data/<name>[/<config>]/<version>/<file>

The same pins give the same bytes: members are sorted, and have fixed times, owners and modes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tarfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files as package_files
from typing import Any, Final

from registry.errors import PinChangedError, RegistryError, ShardMismatchError, StorageError, UsageError
from registry.escaping import escape_json, without_steering
from registry.model import Advance
from registry.pins.document import canonical_json
from registry.pins.pin_file import DEFAULT_FILENAME, PinFile
from registry.pins.places import (
    VERIFY_FILENAME,
    FileLocation,
    PinnedFile,
    ShardLocator,
    copy_checked,
    is_bundle,
    list_files,
    no_right_bytes,
)
from registry.storage import Store, expand_home, open_parent

JSON_FILENAME: Final = "dataset.lock.json"
README_FILENAME: Final = "README.txt"
DATA_FOLDER: Final = "data"

_OWN_NAMES: Final = frozenset(
    name.lower() for name in (DEFAULT_FILENAME, JSON_FILENAME, VERIFY_FILENAME, README_FILENAME, DATA_FOLDER)
)
_SUFFIX: Final = ".tar"
_STEM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}")
_BLOCK: Final = 512
_RECORD: Final = 20 * _BLOCK


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleReport:
    """The result of ``write_bundle``.

    Attributes:
        path: the path or URL of the tar.
        num_bytes: the size of the tar.
        sha256: the sha256 of the tar, 64 hex digits.
        digest: the digest of the pin file in it, ``sha256:`` and 64 hex digits.
        members: the names of the files in it, sorted.
        problems: the rejected places of shards, and what is wrong at each.
    """

    path: str
    num_bytes: int
    sha256: str
    digest: str
    members: tuple[str, ...]
    problems: tuple[str, ...]


def write_bundle(
    pin_file: PinFile,
    path: str | os.PathLike[str],
    *,
    names: Collection[str] | None = None,
    force: bool = False,
    citation_texts: Mapping[str, str],
    advance: Advance | None = None,
) -> BundleReport:
    """Write pins, their shards and a script that checks them to a tar. Its only folder has the name of the tar.

    Shards are searched for as in ``restore``. After ``tar xf paper.tar``, ``Places(beside="paper")`` reads the pins of
    ``paper/dataset.lock.yaml``, and ``python -I -S paper/verify.py`` checks them.

    Args:
        pin_file: the pins.
        path: the path or URL of the tar, which ends with ``.tar``.
        names: names or split expressions of some pins; the pin file in the bundle contains only these. None means all.
        force: replace an existing file.
        citation_texts: further files of the bundle by name, such as ``CITATION.bib``.
        advance: called with the number of bytes copied since the last call.

    Raises:
        UsageError: the name of the bundle, or of a file in it, is invalid; or a pin names a URL with a password.
        PinNotFoundError: a name is unknown.
        ConflictError: two pins need different bytes in one file.
        AlreadyStoredError: the file exists, and ``force`` is False.
        ShardMismatchError: no place has a shard as pinned, and one has a file with other bytes; no tar is left behind.
        NotStoredError: no place has a shard at all; no tar is left behind.
        FetchNotAllowedError: no place has a shard, and the pins name places that ``pin_file.places`` does not allow.
        StorageError: the tar cannot be written.
    """
    store, filename = _open_target(path)
    chosen = pin_file.only(names or ())
    if chosen.without_secrets() is not chosen:
        raise UsageError(
            "the pins name a URL with a password or another secret, which every reader of the bundle would see",
            hint="Change the password, and remove it from the pin file with: registry pin update FILE",
        )
    files = list_files(pin.entry for pin in chosen.values())
    top = filename.removesuffix(_SUFFIX)
    texts = {f"{top}/{name}": text.encode() for name, text in _texts(chosen, citation_texts).items()}
    shards = {f"{top}/{DATA_FOLDER}/{file.path}": ShardLocator(file, pin_file.places) for file in files}
    members = sorted([*texts, *shards])
    while True:
        sources = _locate(list(shards.values()))
        try:
            with store.create(filename, overwrite=force) as file:
                tar = _Tar(file, advance)
                for name in members:
                    if name in texts:
                        tar.add(name, texts[name])
                    else:
                        tar.add_shard(name, shards[name].wanted, sources[shards[name].wanted.path])
                tar.end()
        except _BadSourceError as bad:  # a tar cannot be corrected, so it is written again without that place
            shards[bad.member].reject(bad.source, bad.error)
        else:
            return BundleReport(
                path=store.locate(filename),
                num_bytes=tar.num_bytes,
                sha256=tar.hasher.hexdigest(),
                digest=chosen.digest,
                members=tuple(members),
                problems=tuple(str(rejected) for _, locator in sorted(shards.items()) for rejected in locator.rejected),
            )


def check_json(path: str, pins: PinFile) -> None:
    """Compare the JSON pin file in an unpacked bundle with ``pins``, which were read from the YAML file at ``path``.

    ``verify.py`` makes the same comparison. A pin file outside of a bundle is not checked.

    Raises:
        PinChangedError: the two files differ, or the JSON file is missing.
    """
    yaml = expand_home(path)
    if "://" in path or yaml.name != DEFAULT_FILENAME or not is_bundle(str(yaml.parent)):
        return
    twin = yaml.with_name(JSON_FILENAME)
    try:
        is_same = canonical_json(json.loads(twin.read_bytes())) == pins.to_json()
    except (OSError, ValueError, RecursionError):
        is_same = False
    if not is_same:
        raise PinChangedError(
            f"{twin}: its values differ from those in {yaml.name}",
            hint="Unpack the bundle again: tar xf paper.tar",
            details={"file": str(twin), "key": None, "digest": pins.digest},
        )


def _locate(locators: Sequence[ShardLocator]) -> dict[str, FileLocation]:
    """The first place of each shard, by the shard's path. Raises an error that names all shards without a place."""
    result = {locator.wanted.path: next(locator.sources(), None) for locator in locators}
    missing = [locator for locator in locators if result[locator.wanted.path] is None]
    if missing:
        raise no_right_bytes(missing)
    return {path: source for path, source in result.items() if source is not None}


class _BadSourceError(Exception):
    """The shard ``member`` could not be copied from its source. Raised and caught in this module only."""

    def __init__(self, member: str, source: FileLocation, error: RegistryError) -> None:
        super().__init__(str(error))
        self.member = member
        self.source = source
        self.error = error


class _Tar:
    """Writes a tar in one pass. The standard library makes the headers; the tests read the tar with it."""

    def __init__(self, file: Any, advance: Advance | None) -> None:
        self.hasher = hashlib.sha256()
        self.num_bytes = 0
        self._file = file
        self._advance = advance

    def add(self, name: str, content: bytes) -> None:
        """Add a small file."""
        self._begin(name, len(content))
        self._write(content)
        self._fill(_BLOCK)

    def add_shard(self, name: str, file: PinnedFile, source: FileLocation) -> None:
        """Add a pinned file; it is hashed while it is copied."""
        self._begin(name, file.file.num_bytes)
        try:
            copy_checked(file, source, self._copy)
        except (ShardMismatchError, StorageError) as error:
            if error.details.get("doing") == "write":  # the tar cannot be written: another source would not help
                raise
            raise _BadSourceError(name, source, error) from error
        self._fill(_BLOCK)

    def end(self) -> None:
        """End the archive: two empty blocks, and padding to a whole record."""
        self._write(bytes(2 * _BLOCK))
        self._fill(_RECORD)

    def _begin(self, name: str, num_bytes: int) -> None:
        member = tarfile.TarInfo(name)  # a regular file of user and group 0, without a time
        member.size = num_bytes
        member.mode = 0o644
        self._write(member.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict"))

    def _copy(self, piece: memoryview) -> None:
        self._write(piece)
        if self._advance is not None:
            self._advance(len(piece))

    def _fill(self, unit: int) -> None:
        self._write(bytes(-self.num_bytes % unit))

    def _write(self, data: bytes | memoryview) -> None:
        self._file.write(data)
        self.hasher.update(data)
        self.num_bytes += len(data)


def _open_target(path: str | os.PathLike[str]) -> tuple[Store, str]:
    text = os.fspath(path)
    store, name = open_parent(text)
    if not name.endswith(_SUFFIX) or not _STEM.fullmatch(name.removesuffix(_SUFFIX)):
        raise UsageError(
            f"invalid name of a bundle: {text[:200]!r}; expected letters, digits and '_ . + -', and .tar at the end",
            hint="Name it e.g. paper.tar: the folder in it is then called paper.",
            details={"path": text[:200]},
        )
    return store, name


def _texts(pin_file: PinFile, citation_texts: Mapping[str, str]) -> dict[str, str]:
    for name in citation_texts:
        if not _STEM.fullmatch(name) or name.lower() in _OWN_NAMES:
            raise UsageError(
                f"invalid name of a text in a bundle: {name[:100]!r}",
                hint="Use letters, digits and '_ . + -', but not the name of one of the bundle's own files.",
                details={"name": name[:100]},
            )
    return {
        **{name: without_steering(text) for name, text in citation_texts.items()},
        DEFAULT_FILENAME: pin_file.to_yaml(),
        JSON_FILENAME: escape_json(pin_file.to_json()) + "\n",
        VERIFY_FILENAME: _resource("standalone.py"),
        README_FILENAME: without_steering(_readme(pin_file)),
    }


def _readme(pin_file: PinFile) -> str:
    """The text of README.txt. A reader can be written from it alone. The same pins give the same text."""
    pins = "".join(
        f"  {pin.name}\n"
        f"      {pin.num_examples} records of {pin.reference}, split expression {pin.split}\n"
        f"      ordered records digest {pin.entry.records.ordered}\n"
        for pin in pin_file.values()
    )
    return _resource("bundle_readme.txt").replace("@PINS@", pins).replace("@DIGEST@", pin_file.digest)


def _resource(name: str) -> str:
    return package_files("registry.pins").joinpath(name).read_text(encoding="utf-8")
