"""Finds the files of an export in a folder by their names, puts them in order and checks that they are complete.

    <prefix>-00000.tfrecord.gz ... <prefix>-mixer.json      an image; ``.tfrecord`` if it was not compressed
    <prefix>00000.tfrecord.gz  ... <prefix>mixer.json       the same, as older exports are named
    <prefix>.tfrecord.gz                                    a table, or predictions in one file

Exports are often downloaded by hand, file by file, so errors name missing files and second downloads. The case of
suffixes is ignored. A prefix may end in digits or a dash, so a name can be ambiguous: the requested prefix decides.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from os.path import isfile
from typing import Final, NamedTuple

from registry.builders.earth_engine.mixer import Mixer
from registry.errors import PreparedFormatError, UsageError, suggest
from registry.model import listed, listed_below
from registry.storage import Store, expand_home, open_parent, open_store

_MOST: Final = 10
_NAMES_HINT: Final = (
    "An image is PREFIX-00000.tfrecord.gz and so on, with PREFIX-mixer.json; a table is PREFIX.tfrecord.gz."
)
_AGAIN: Final = "Download missing files again, and remove duplicates and incomplete downloads."
_SUFFIX: Final = r"\.tfrecord(?:\.gz)?"
SHARD = re.compile(rf"(?P<prefix>.*?)(?P<dash>-?)(?P<digits>[0-9]{{5,}})(?P<suffix>{_SUFFIX})", re.I | re.S)
TABLE = re.compile(rf"(?P<prefix>.+?)(?P<suffix>{_SUFFIX})", re.I | re.S)
MIXER = re.compile(r"(?P<prefix>.*?)(?P<dash>-?)mixer\.json", re.I | re.S)
_LIKE_THEM = re.compile(r"\.tfrecord|mixer\b.*\.json", re.I | re.S)
"""In the name of a file that may belong to an export: ``area-00001.tfrecord (1).gz``, ``area-mixer (1).json``."""
_COPY = re.compile(r"(?P<prefix>.*?)-?(?P<digits>[0-9]{5,})[ (]", re.S)
"""The beginning of the name of a second download of a shard by a browser."""
_COPY_OF: Final = "Copy of "
"""The prefix that Google Drive adds to the name of a copy."""
_USUAL_DIGITS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundExport:
    """The files of one export.

    Attributes:
        store: the folder.
        prefix: prefix of the files, without the dash.
        filenames: names of the TFRecord files in the order of the export; at least one.
        mixer: the places of the patches; None for a table, and for an image without a mixer (``maskedThreshold``).
        mixer_name: name of the mixer's file, or None.
        is_table: whether the export is a single file without a number and without a mixer.
        notes: findings about the folder, one sentence each.
    """

    store: Store
    prefix: str
    filenames: tuple[str, ...]
    mixer: Mixer | None
    mixer_name: str | None
    is_table: bool
    notes: tuple[str, ...] = ()


def find_export(folder: str | os.PathLike[str] | Store, *, prefix: str | None = None) -> FoundExport:
    """Find the export in a folder.

    Args:
        folder: path or URL of the folder, or of one file of the export; or a store.
        prefix: prefix of the export, if the folder contains several; ``sub/name`` is the export ``name`` in ``sub``.

    Raises:
        UsageError: the folder contains several exports and ``prefix`` is None, or no export has the prefix.
        PreparedFormatError: the folder does not contain an export; files are missing, duplicated or renamed: the error
            names each; or the mixer is malformed.
        StorageError: the folder or the mixer cannot be read.
    """
    store, file = _open_folder(folder)
    if prefix is not None and "/" in prefix and file is None:
        below, _, prefix = prefix.rpartition("/")
        store = store.child(below)
    names = [name for name in store.list() if "/" not in name]
    if file is not None and prefix is None:
        return _find_of_file(store, file, names)
    groups = group_names(names, prefix)
    exports = sorted(name for name, group in groups.items() if group.shards or group.tables)
    if prefix is None:
        if len(exports) > 1:
            raise _several(store, exports)
        if not exports:
            raise _nothing(store, groups)
        return _gather(store, exports[0], groups, unread=_unread(names, groups, ""))
    if prefix not in exports:
        raise _no_such(store, prefix, exports, groups)
    return _gather(store, prefix, groups, unread=_unread(names, groups, prefix))


def _unread(names: Sequence[str], groups: dict[str, NamedFiles], prefix: str) -> list[str]:
    """The files with ``prefix`` that look like those of an export, and are in no group.

    Also second downloads and copies of shards that are missing, which are a table or another image by their names:
    ``area-00002 (1).tfrecord.gz``, ``Copy of area-00002.tfrecord.gz``.
    """
    images = {own: group for own, group in groups.items() if group.shards or group.mixers}
    numbers = {own: {shard.number for shard in group.shards} for own, group in images.items()}
    read = set(groups[prefix].names) if prefix else set()
    for name in (name for group in groups.values() for name in group.names):
        original = name.removeprefix(_COPY_OF)
        copy = _COPY.match(original) or (None if original == name else SHARD.fullmatch(original))
        if copy is None or copy["prefix"] not in numbers or int(copy["digits"]) in numbers[copy["prefix"]]:
            read.add(name)
    begin = re.compile(rf"(?:{_COPY_OF})?{re.escape(prefix)}[-. 0-9]" if prefix else "[^.]")
    return [name for name in sorted(names) if name not in read and begin.match(name) and _LIKE_THEM.search(name)]


def _open_folder(folder: str | os.PathLike[str] | Store) -> tuple[Store, str | None]:
    """The folder, and the name of the file if ``folder`` is a file."""
    if isinstance(folder, Store):
        return folder, None
    text = os.fspath(folder)
    is_local = "://" not in text
    store, name = open_parent(text if is_local else text.rstrip("/"))
    may_be_file = name and isfile(expand_home(text)) if is_local else MIXER.fullmatch(name) or TABLE.fullmatch(name)  # noqa: PTH113 (of any length)
    return (store, name) if may_be_file and store.exists(name) else (open_store(text), None)


def _find_of_file(store: Store, file: str, names: Sequence[str]) -> FoundExport:
    """The export that ``file`` belongs to."""
    for prefix, group in group_names(names, None).items():
        if file in group.tables:
            return _gather(store, prefix, {prefix: NamedFiles(tables=[file], mixers=group.mixers)})
        if file in group.mixers and not group.shards and not group.tables:
            raise _no_such(store, prefix, [], {prefix: group})
        if file in group.mixers or any(shard.filename == file for shard in group.shards):
            return _gather(store, prefix, {prefix: _as_named(group, file)})
    raise PreparedFormatError(
        f"{store.locate(file)} is not a file of an export: its name does not match",
        hint=_NAMES_HINT,
        details={"folder": store.url, "file": file},
    )


def _as_named(group: NamedFiles, file: str) -> NamedFiles:
    """The group with only the shards that have the suffix of ``file``, if compressed and plain shards exist."""
    numbers = [shard.number for shard in group.shards]
    match = SHARD.fullmatch(file)
    if match is None or len(set(numbers)) == len(numbers):
        return group
    return replace(group, shards=[shard for shard in group.shards if suffix_of(shard.filename) == match["suffix"]])


def _gather(store: Store, prefix: str, groups: dict[str, NamedFiles], unread: Sequence[str] = ()) -> FoundExport:
    """Collect and check the files of the export with ``prefix``, of which none may be among those that are not read."""
    group = groups[prefix]
    problems, details = _problems(prefix, group)
    problems += [f"{name}: its name is not that of a file of an export" for name in unread]
    if problems:
        raise PreparedFormatError(
            f"{store.url}: files of {prefix!r} are missing, duplicated or renamed{listed_below(problems, _MOST)}",
            hint=_AGAIN,
            details={"folder": store.url, "prefix": prefix, "problems": problems[:100], **details},
        )
    notes: list[str] = []
    mixer_name = _choose_mixer(store, group, notes)
    strangers = [name for group_name, other in sorted(groups.items()) if group_name != prefix for name in other.mixers]
    if (
        mixer_name is None
        and len(strangers) == 1
        and not any(other.shards for group_name, other in groups.items() if group_name != prefix)
    ):
        notes.append(f"{strangers[0]} has another prefix than the files, so it is not used as their mixer.")
    filenames = tuple(shard.filename for shard in sorted(group.shards)) or tuple(group.tables)
    return FoundExport(
        store=store,
        prefix=prefix,
        filenames=filenames,
        mixer=None if mixer_name is None else Mixer.read(store, mixer_name),
        mixer_name=mixer_name,
        is_table=not group.shards and mixer_name is None,
        notes=tuple(notes),
    )


def _problems(prefix: str, group: NamedFiles) -> tuple[list[str], dict[str, list[str]]]:
    """Missing and duplicated files, as sentences and as names."""
    problems: list[str] = []
    missing: list[str] = []
    doubled: list[str] = []
    places: dict[int, str] = {}
    for shard in sorted(group.shards, key=lambda shard: (shard.number, shard.filename)):
        twin = places.setdefault(shard.number, shard.filename)
        if twin != shard.filename:
            doubled.append(shard.filename)
            problems.append(f"{shard.filename}: shard {shard.number} is duplicated by {twin}")
    if (group.shards and group.tables) or len(group.tables) > 1:
        first, second = [*(shard.filename for shard in group.shards[:1]), *group.tables][:2]
        doubled.append(second)
        problems.append(f"{second}: it has the same prefix {prefix!r} as {first}; give the path of the right file")
    if group.shards:
        usual = max((shard.pattern for shard in group.shards), key=[member.pattern for member in group.shards].count)
        missing = [usual % number for number in _lost_numbers(places)]
        problems += [f"{name}: it is missing" for name in missing]
        dashes = {shard.pattern.rpartition("%0")[0].endswith("-") for shard in group.shards}
        if len(dashes) > 1 and not doubled:
            problems.append(
                f"{group.shards[0].filename} and others mix two styles of names, so they belong to two exports"
            )
    return problems, {"missing": missing[:100], "doubled": doubled[:100]}


def _lost_numbers(places: Iterable[int]) -> list[int]:
    """The missing numbers; only the first few if a number is too large to be plausible."""
    known = set(places)
    last = max(known)
    return sorted(set(range(last + 1 if last < len(known) + 10_000 else len(known) + _MOST)) - known)


def _choose_mixer(store: Store, group: NamedFiles, notes: list[str]) -> str | None:
    """The mixer of a group; several are accepted if they are equal."""
    names = sorted(group.mixers, key=lambda name: (not name.endswith("-mixer.json"), name))
    if not names:
        return None
    if others := names[1:]:
        mixer = Mixer.read(store, names[0])
        for other in others:
            if Mixer.read(store, other) != mixer:
                raise PreparedFormatError(
                    f"{store.url}: {other} differs from {names[0]}, so they belong to two exports",
                    hint="Keep only the mixer of these files.",
                    details={"folder": store.url, "missing": [], "doubled": [other]},
                )
            notes.append(f"{other} is equal to {names[0]}.")
    return names[0]


def _several(store: Store, prefixes: Sequence[str]) -> UsageError:
    return UsageError(
        f"{store.url} contains {len(prefixes)} exports: {listed(prefixes, _MOST)}",
        hint=f"Choose one: prefix={prefixes[0]!r}; --prefix {prefixes[0]}",
        details={"folder": store.url, "prefixes": list(prefixes[:100])},
    )


def _no_such(store: Store, prefix: str, exports: Sequence[str], groups: dict[str, NamedFiles]) -> UsageError:
    has_mixer = prefix in groups and bool(groups[prefix].mixers)
    known = f"its exports are {listed(exports, _MOST)}" if exports else "it contains no exports"
    return UsageError(
        f"{store.url} contains no TFRecords with the prefix {prefix!r}"
        + (f", only {groups[prefix].mixers[0]}" if has_mixer else f"; {known}"),
        hint="Download the TFRecord files too." if has_mixer else suggest(prefix, exports) or _NAMES_HINT,
        details={"folder": store.url, "prefix": prefix, "prefixes": list(exports[:100])},
    )


def _nothing(store: Store, groups: dict[str, NamedFiles]) -> PreparedFormatError:
    """The error for a folder without an export; it names mixers without records, archives and subfolders."""
    problems = [f"{name}: its TFRecords are missing" for group in groups.values() for name in group.mixers]
    if problems:
        return PreparedFormatError(
            f"{store.url} contains no complete export{listed_below(problems, _MOST)}",
            hint=_AGAIN,
            details={"folder": store.url, "problems": problems[:100]},
        )
    if store.local_root is not None and not store.local_root.exists():
        return PreparedFormatError(
            f"the folder {store.local_root} does not exist",
            hint="Check the path. To choose one of several exports in a folder, give the folder and the prefix: "
            "prefix='area'; --prefix area.",
            details={"folder": store.url, "problems": []},
        )
    names = store.list()
    if zipped := sorted(name for name in names if "/" not in name and name.lower().endswith(".zip")):
        return PreparedFormatError(
            f"{store.url} contains no TFRecords of Earth Engine, only archives: {listed(zipped, _MOST)}",
            hint="Unpack all archives into one folder first.",
            details={"folder": store.url, "problems": zipped[:100]},
        )
    below = sorted({name.partition("/")[0] for name in names if "/" in name and TABLE.fullmatch(name)})
    return PreparedFormatError(
        f"{store.url} contains no TFRecords of Earth Engine",
        hint=f"A subfolder contains some: give {store.locate(below[0])}" if below else _NAMES_HINT,
        details={"folder": store.url, "problems": []},
    )


class NamedShard(NamedTuple):
    """A file with a number in its name; ``pattern`` is the name with ``%05d`` instead of the number."""

    number: int
    filename: str
    pattern: str
    digits: int = _USUAL_DIGITS


@dataclass(slots=True)
class NamedFiles:
    """The files with one prefix."""

    shards: list[NamedShard] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)
    mixers: list[str] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """The names of all of them."""
        return [*(shard.filename for shard in self.shards), *self.tables, *self.mixers]


def group_names(names: Sequence[str], wanted: str | None) -> dict[str, NamedFiles]:
    """Group files by prefix; an ambiguous name belongs to the prefix ``wanted``."""
    groups: defaultdict[str, NamedFiles] = defaultdict(NamedFiles)
    for name in names:
        if name.startswith(".") and not (wanted or "").startswith("."):  # metadata files of file systems: ._name
            continue
        if mixer := MIXER.fullmatch(name):
            groups[_as_wanted(mixer["prefix"], mixer["dash"], wanted)].mixers.append(name)
        elif (shard := _parse_shard(name, wanted)) is not None:
            groups[shard[0]].shards.append(shard[1])
        elif table := TABLE.fullmatch(name):
            groups[table["prefix"]].tables.append(name)
    for prefix in list(groups):
        _take_out_dates(prefix, groups, wanted)
    return dict(groups)


def _take_out_dates(prefix: str, groups: defaultdict[str, NamedFiles], wanted: str | None) -> None:
    """Treat ``samples_20240131.tfrecord.gz`` as a table: shards have five digits and start at 0."""
    group = groups[prefix]
    if prefix == wanted or group.mixers or any(shard.number == 0 for shard in group.shards):
        return
    for shard in group.shards:
        if shard.digits > _USUAL_DIGITS and (table := TABLE.fullmatch(shard.filename)):
            groups[table["prefix"]].tables.append(shard.filename)
    group.shards = [shard for shard in group.shards if shard.digits <= _USUAL_DIGITS]


def _parse_shard(name: str, wanted: str | None) -> tuple[str, NamedShard] | None:
    """The prefix and number of a shard from its file name; None if it has no number."""
    match = SHARD.fullmatch(name)
    if match is None:
        return None
    prefix, dash, digits, suffix = match["prefix"], match["dash"], match["digits"], match["suffix"]
    num_digits = len(digits)
    own = SHARD.fullmatch(name[len(wanted) :]) if wanted is not None and name.startswith(wanted) else None
    if own and wanted is not None and not own["prefix"] and (own["dash"] or len(own["digits"]) == _USUAL_DIGITS):
        prefix, dash, digits = wanted, own["dash"], own["digits"]  # all that follows the prefix is the number
    elif not dash and num_digits > _USUAL_DIGITS:  # the prefix ends in digits: site2024 and 00000
        prefix, digits = prefix + digits[:-_USUAL_DIGITS], digits[-_USUAL_DIGITS:]
    pattern = f"{prefix}{dash}".replace("%", "%%") + f"%0{min(len(digits), _USUAL_DIGITS)}d{suffix}"
    return prefix, NamedShard(int(digits), name, pattern, num_digits)


def _as_wanted(prefix: str, dash: str, wanted: str | None) -> str:
    """The prefix of a mixer; the dash belongs to it if the requested prefix ends in a dash."""
    return wanted if wanted is not None and wanted == prefix + dash else prefix


def suffix_of(filename: str) -> str:
    """The suffix of a shard, such as ``.tfrecord.gz``."""
    match = SHARD.fullmatch(filename)
    return "" if match is None else match["suffix"]
