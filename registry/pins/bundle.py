"""How does a paper keep its records for ten years? One tar: the pin, its shards, and a check that needs Python alone.

pins --shards, each hashed on its way--> paper.tar: paper/{dataset.lock.yaml, dataset.lock.json, verify.py,
                                verify_yaml.py, README.txt, CITATION.bib ..., data/<name>[/<config>]/<version>/<file>}

The same pins give the same bytes: members are sorted, and have no time, owner or mode of their own.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tarfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any, Final

from registry.errors import PinChangedError, ShardMismatchError, StorageError, UsageError
from registry.escaping import escape_json, without_steering
from registry.pins.document import canonical_json
from registry.pins.measure import AdvanceBytes
from registry.pins.pin_file import DEFAULT_FILENAME, PinFile
from registry.pins.places import (
    PinnedFile,
    RejectedSource,
    ShardLocator,
    Source,
    copy_checked,
    list_files,
    no_right_bytes,
)
from registry.storage import Store, open_store

JSON_FILENAME: Final = "dataset.lock.json"
VERIFY_FILENAME: Final = "verify.py"
VERIFY_YAML_FILENAME: Final = "verify_yaml.py"
README_FILENAME: Final = "README.txt"
DATA_FOLDER: Final = "data"

_OWN_NAMES: Final = frozenset(
    name.lower()
    for name in (DEFAULT_FILENAME, JSON_FILENAME, VERIFY_FILENAME, VERIFY_YAML_FILENAME, README_FILENAME, DATA_FOLDER)
)
_SUFFIX: Final = ".tar"
_STEM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}")
_BLOCK: Final = 512
_RECORD: Final = 20 * _BLOCK


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleReport:
    """What was written.

    Attributes:
        path: of the tar, or its URL.
        num_bytes, sha256: of the tar; 64 hex digits.
        digest: of the pin file in it, ``sha256:`` and 64 hex digits.
        members: the names of the files in it, sorted.
        problems: places of shards that were passed over, each with what was wrong there.
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
    overwrite: bool = False,
    citation_texts: Mapping[str, str],
    advance: AdvanceBytes | None = None,
) -> BundleReport:
    """Write pins, the shards that they need and what checks them into a tar, whose one folder is named as the tar is.

    Shards are looked for as ``restore`` does. After ``tar xf paper.tar`` the file ``paper/dataset.lock.yaml`` is read
    with ``Places(beside="paper")``, and checked by ``python -I -S paper/verify.py``.

    Args:
        pin_file: the pins.
        names: which of them, by name or expression; the pin file in the bundle then holds these alone. None is all.
        path: of the tar, ending with ``.tar``: a local path or a URL.
        overwrite: replace a file that is there.
        citation_texts: texts by file name, such as ``CITATION.bib``, which lie beside the pin file.
        advance: called with the number of bytes copied since the last call.

    Raises:
        UsageError: a name that a bundle, or a file in it, cannot have; or a pin names a URL with a password.
        PinNotFoundError: no such pin.
        ConflictError: two pins want different bytes in one file.
        AlreadyStoredError: there is a file of that name, and ``overwrite`` is False.
        ShardMismatchError: a shard is nowhere as it was pinned, and somewhere as it was not; no tar is left.
        NotStoredError: a shard is nowhere at all; no tar is left.
        FetchNotAllowedError: the same, and places that the pins name were not asked (``PinFile.places``).
    """
    store, filename = _open_target(path)
    chosen = pin_file.only(names or ())
    if chosen.without_secrets() is not chosen:
        raise UsageError(
            "the pins name a URL with a password or another secret, which everybody could read in the bundle",
            hint="Take it out of the pin file with: registry pin update FILE; and change the password.",
        )
    files = list_files(pin.entry for pin in chosen.values())
    top = filename.removesuffix(_SUFFIX)
    texts = {f"{top}/{name}": text.encode() for name, text in _texts(chosen, citation_texts).items()}
    shards = {f"{top}/{DATA_FOLDER}/{file.path}": file for file in files}
    search = _Search(files, pin_file)
    while True:
        sources = search.sources()
        try:
            with store.create(filename, overwrite=overwrite) as file:
                tar = _Tar(file, advance)
                for name in sorted([*texts, *shards]):
                    if name in texts:
                        tar.add(name, texts[name])
                    else:
                        tar.add_shard(name, shards[name], sources[shards[name].path])
                tar.end()
        except _BadSourceError as error:
            search.refuse(error)
        else:
            return BundleReport(
                path=store.locate(filename),
                num_bytes=tar.num_bytes,
                sha256=tar.hasher.hexdigest(),
                digest=chosen.digest,
                members=tuple(sorted([*texts, *shards])),
                problems=search.problems(),
            )


def check_json(path: str, pins: PinFile) -> None:
    """Hold the pin file as JSON in an unpacked bundle against ``pins``, read from the YAML file at ``path``.

    ``verify.py`` does so, and both are to give one answer. Of a pin file that is in no bundle, nothing is checked.

    Raises:
        PinChangedError: the two files differ, or the JSON file is missing.
    """
    yaml = Path(path).expanduser()
    if "://" in path or yaml.name != DEFAULT_FILENAME or not yaml.with_name(VERIFY_FILENAME).is_file():
        return
    twin = yaml.with_name(JSON_FILENAME)
    try:
        is_same = canonical_json(json.loads(twin.read_bytes())) == pins.to_json()
    except (OSError, ValueError, RecursionError):
        is_same = False
    if not is_same:
        raise PinChangedError(
            f"{twin}: it does not say what {yaml.name} beside it says",
            hint="Unpack the bundle again: tar xf paper.tar",
            details={"file": str(twin), "key": None, "digest": pins.digest},
        )


def read_verify_script(source: str = "standalone.py") -> str:
    """The text of the ``verify.py`` of a bundle; of ``standalone_yaml.py``, that of its ``verify_yaml.py``."""
    return package_files("registry.pins").joinpath(source).read_text(encoding="utf-8")


def _readme(pin_file: PinFile) -> str:
    """README.txt, exact enough to write a reader from it; the same for the same pins."""
    pins = "".join(
        f"  {pin.name}\n"
        f"      {pin.num_examples} records of {pin.reference}, split expression {pin.split}\n"
        f"      ordered records digest {pin.entry.records.ordered}\n"
        for pin in pin_file.values()
    )
    return read_verify_script("bundle_readme.txt").replace("@PINS@", pins).replace("@DIGEST@", pin_file.digest)


class _BadSourceError(Exception):
    """A shard could not be copied from where it was found; never seen outside of here."""

    def __init__(self, wanted: PinnedFile, refusal: RejectedSource) -> None:
        super().__init__(str(refusal))
        self.wanted = wanted
        self.refusal = refusal


class _Search:
    """Where each shard comes from. A place that turns out to be bad while it is copied is not named again."""

    def __init__(self, files: list[PinnedFile], pin_file: PinFile) -> None:
        self._files = files
        self._places = pin_file.places
        self._refused: dict[str, list[RejectedSource]] = {}

    def sources(self) -> dict[str, Source]:
        """The first place of each shard that may be right; an error that names all shards that have none."""
        found, missing = {}, []
        for wanted in self._files:
            finding = ShardLocator(wanted, self._places, refused=self._refused.get(wanted.path, ()))
            source = next(finding.sources(), None)
            self._refused[wanted.path] = finding.refusals
            if source is None:
                missing.append((wanted, finding.refusals))
            else:
                found[wanted.path] = source
        if missing:
            raise no_right_bytes(missing)
        return found

    def refuse(self, error: _BadSourceError) -> None:
        """Do not name that place again."""
        self._refused[error.wanted.path].append(error.refusal)

    def problems(self) -> tuple[str, ...]:
        """Every place that was passed over."""
        return tuple(str(refusal) for path in sorted(self._refused) for refusal in self._refused[path])


class _Tar:
    """Writes a tar from front to back. The standard library makes its headers, and reads it in the tests."""

    def __init__(self, file: Any, advance: AdvanceBytes | None) -> None:
        self.hasher = hashlib.sha256()
        self.num_bytes = 0
        self._file = file
        self._advance = advance

    def add(self, name: str, content: bytes) -> None:
        """A small file."""
        self._begin(name, len(content))
        self._write(content)
        self._fill(_BLOCK)

    def add_shard(self, name: str, wanted: PinnedFile, source: Source) -> None:
        """A pinned file, which is hashed while it is copied."""
        self._begin(name, wanted.file.num_bytes)
        try:
            copy_checked(wanted, source, self._copy)
        except (ShardMismatchError, StorageError) as error:
            if error.details.get("doing") == "write":  # the tar cannot be written: no other source would help
                raise
            raise _BadSourceError(wanted, RejectedSource.of(source.url, error)) from error
        self._fill(_BLOCK)

    def end(self) -> None:
        """The end of the archive: two empty blocks, and as many as make a whole record."""
        self._write(bytes(2 * _BLOCK))
        self._fill(_RECORD)

    def _begin(self, name: str, num_bytes: int) -> None:
        member = tarfile.TarInfo(name)  # a regular file of user and group 0, without a time
        member.size = num_bytes
        member.mode = 0o644
        self._write(member.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict"))

    def _copy(self, piece: bytes) -> None:
        self._write(piece)
        if self._advance is not None:
            self._advance(len(piece))

    def _fill(self, unit: int) -> None:
        self._write(bytes(-self.num_bytes % unit))

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self.hasher.update(data)
        self.num_bytes += len(data)


def _open_target(path: str | os.PathLike[str]) -> tuple[Store, str]:
    text = os.fspath(path)
    folder, _, name = text.rpartition("/") if "://" in text else ("", "", Path(text).name)
    if not name.endswith(_SUFFIX) or not _STEM.fullmatch(name.removesuffix(_SUFFIX)):
        raise UsageError(
            f"{text[:200]!r} cannot be a bundle: its name has letters, digits and '_ . + -', and ends with .tar",
            hint="Name it paper.tar, for example; the folder in it is then called paper.",
            details={"path": text[:200]},
        )
    return open_store(folder or Path(text).expanduser().absolute().parent), name


def _texts(pin_file: PinFile, citation_texts: Mapping[str, str]) -> dict[str, str]:
    for name in citation_texts:
        if not _STEM.fullmatch(name) or name.lower() in _OWN_NAMES:
            raise UsageError(
                f"{name[:100]!r} cannot be the name of a text in a bundle",
                hint="Names have letters, digits and '_ . + -', and are not those of the bundle's own files.",
                details={"name": name[:100]},
            )
    return {
        **{name: without_steering(text) for name, text in citation_texts.items()},
        DEFAULT_FILENAME: pin_file.to_yaml(),
        JSON_FILENAME: escape_json(pin_file.to_json()) + "\n",
        VERIFY_FILENAME: read_verify_script(),
        VERIFY_YAML_FILENAME: read_verify_script("standalone_yaml.py"),
        README_FILENAME: without_steering(_readme(pin_file)),
    }
