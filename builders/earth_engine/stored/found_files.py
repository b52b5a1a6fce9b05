"""Finds the files of an export in a folder by their names, in order and complete.

    <prefix>-00000.tfrecord.gz ... <prefix>-mixer.json      an image; ``.tfrecord`` where it was not compressed
    <prefix>00000.tfrecord.gz  ... <prefix>mixer.json       the same, as older exports are named
    <prefix>.tfrecord.gz                                    a table, or predictions in one file

Exports are downloaded by hand, file by file, so missing files and second downloads are named. Suffixes may be of any
case. A prefix may end in digits or a dash, so a name can be read in two ways: the wanted prefix decides.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from registry.builders.earth_engine.mixer import Mixer
from registry.errors import PreparedFormatError, UsageError, suggest
from registry.storage import Store, open_store

_MOST_LISTED: Final = 10
_NAMES_HINT: Final = (
    "An image is PREFIX-00000.tfrecord.gz and so on, with PREFIX-mixer.json; a table is PREFIX.tfrecord.gz."
)
_AGAIN: Final = "Download what is missing again, and leave one of what is there twice."
_SUFFIX: Final = r"\.tfrecord(?:\.gz)?"
SHARD = re.compile(rf"(?P<prefix>.*?)(?P<dash>-?)(?P<digits>[0-9]{{5,}})(?P<suffix>{_SUFFIX})", re.I | re.S)
TABLE = re.compile(rf"(?P<prefix>.+?)(?P<suffix>{_SUFFIX})", re.I | re.S)
MIXER = re.compile(r"(?P<prefix>.*?)(?P<dash>-?)mixer\.json", re.I | re.S)
_MARK: Final = r"(?P<mark> ?\([0-9]{1,3}\)| copy(?: [0-9]{1,3})?| - Copy(?: \([0-9]{1,3}\))?| [0-9]{1,2})"

_COPIES: Final = (
    re.compile(
        r"(?P<mark>(?:Copy|Kopie|Copie|Copia|Cópia) (?:of|von|de|di|van) )(?P<before>.+)(?P<after>)", re.I | re.S
    ),
    re.compile(rf"(?P<before>.+?){_MARK}(?P<after>{_SUFFIX}|\.json)", re.I | re.S),
    re.compile(rf"(?P<before>.+?\.tfrecord)(?:{_MARK}|-[0-9]{{1,3}})(?P<after>\.gz)", re.I | re.S),
    re.compile(rf"(?P<before>.+?{_SUFFIX}|.+?\.json){_MARK}(?P<after>)", re.I | re.S),
)
"""How browsers, Drive and file managers name the second file of a name."""
_UNFINISHED = re.compile(r"(?P<name>.+)\.(?:crdownload|part|partial|download|gstmp)", re.I | re.S)
_USUAL_DIGITS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundExport:
    """The files of one export.

    Attributes:
        store: the folder.
        prefix: what their names begin with, without the dash.
        filenames: in the order of the export; one at least.
        mixer: where the patches lie on the map; None of a table, and of an image without one: an export with a
            ``maskedThreshold`` has none.
        mixer_name: its file.
        is_table: whether it is one file without a number, and without a mixer.
        notes: what there is to know of the folder: one sentence each.
    """

    store: Store
    prefix: str
    filenames: tuple[str, ...]
    mixer: Mixer | None
    mixer_name: str | None
    is_table: bool
    notes: tuple[str, ...] = ()


def find_export(folder: str | os.PathLike[str] | Store, *, prefix: str | None = None) -> FoundExport:
    """The export in a folder, its files in order.

    Args:
        folder: path or URL of the folder, or of one file of the export; or a store.
        prefix: of the names, where the folder holds several exports; ``sub/name`` is the export ``name`` in ``sub``.

    Raises:
        UsageError: several exports and no prefix, or a prefix that none has.
        PreparedFormatError: the folder holds no such files; shards are lost, or there twice, and each is named; or the
            mixer is malformed.
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
        prefix = exports[0]
    elif prefix not in exports:
        raise _no_such(store, prefix, exports, groups)
    return _gather(store, prefix, groups)


def _open_folder(folder: str | os.PathLike[str] | Store) -> tuple[Store, str | None]:
    """The folder, and the name of the file in it where that was given."""
    if isinstance(folder, Store):
        return folder, None
    text = os.fspath(folder)
    if "://" not in text:
        path = os.path.expanduser(text)  # noqa: PTH111 - text stays text: "~" of nobody is a name, and no error
        if os.path.isfile(path):  # noqa: PTH113 - as above
            parent, name = os.path.split(path)
            return open_store(parent or "."), name
        return open_store(text), None
    parent, _, name = text.rstrip("/").rpartition("/")
    if MIXER.fullmatch(name) or TABLE.fullmatch(name):
        store = open_store(parent)
        if store.exists(name):
            return store, name
    return open_store(text), None


def _find_of_file(store: Store, file: str, names: Sequence[str]) -> FoundExport:
    """The export of which ``file`` is a part."""
    copy = parse_copy(file, frozenset(names))
    if copy is None:
        for prefix, group in group_names(names, None).items():
            if file in group.tables:
                return _gather(store, prefix, {prefix: NamedFiles(tables=[file], mixers=group.mixers)})
            if file in group.mixers and not group.shards and not group.tables:
                raise _no_such(store, prefix, [], {prefix: group})
            if file in group.mixers or any(shard.filename == file for shard in group.shards):
                return _gather(store, prefix, {prefix: _as_named(group, file)})
    known = f"it is named as a copy of {copy.original}" if copy is not None else "it is named as none"
    raise PreparedFormatError(
        f"{store.locate(file)} is no file of an export: {known}",
        hint=_NAMES_HINT if copy is None else f"Rename it to {copy.original}, if it is the only one.",
        details={"folder": store.url, "file": file},
    )


def _as_named(group: NamedFiles, file: str) -> NamedFiles:
    """The group with the shards whose names end as that of ``file``, where they are there compressed and not."""
    numbers = [shard.number for shard in group.shards]
    match = SHARD.fullmatch(file)
    if match is None or len(set(numbers)) == len(numbers):
        return group
    return replace(group, shards=[one for one in group.shards if suffix_of(one.filename) == match["suffix"]])


def _gather(store: Store, prefix: str, groups: dict[str, NamedFiles]) -> FoundExport:
    """The export of ``prefix``, which has files."""
    group = groups[prefix]
    problems, details = _problems(prefix, group)
    if problems:
        raise PreparedFormatError(
            f"{store.url}: the files of {prefix!r} are not all there once{_listed(problems)}",
            hint=_AGAIN,
            details={"folder": store.url, "prefix": prefix, "problems": problems[:100], **details},
        )
    notes: list[str] = []
    mixer_name = _choose_mixer(store, group, notes)
    strangers = [name for one, other in sorted(groups.items()) if one != prefix for name in other.mixers]
    if (
        mixer_name is None
        and len(strangers) == 1
        and not any(other.shards for one, other in groups.items() if one != prefix)
    ):
        notes.append(f"{strangers[0]} lies beside the files, and has another prefix: it is not taken for their mixer.")
    notes += [f"{copy.filename} is a download that did not end." for copy in group.copies if not copy.is_whole]
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
    """What is lost or there twice, in words and as names."""
    problems: list[str] = []
    missing: list[str] = []
    doubled: list[str] = []
    copies: defaultdict[str, list[NamedCopy]] = defaultdict(list)
    for copy in group.copies:
        copies[copy.original].append(copy)
    files = [shard.filename for shard in group.shards] + group.tables
    places: dict[int, str] = {}
    for shard in sorted(group.shards, key=lambda shard: (shard.number, shard.filename)):
        twin = places.setdefault(shard.number, shard.filename)
        if twin != shard.filename:
            doubled.append(shard.filename)
            problems.append(f"{shard.filename}: shard {shard.number} is there twice, see {twin}")
    if (group.shards and group.tables) or len(group.tables) > 1:
        first, second = [*(shard.filename for shard in group.shards[:1]), *group.tables][:2]
        doubled.append(second)
        problems.append(f"{second}: it has the prefix {prefix!r}, and so has {first}: give the file that is meant")
    for original in sorted(one for one in copies if one in files or number_of(one) in places):
        for copy in copies[original]:
            if copy.is_whole:
                doubled.append(copy.filename)
                problems.append(f"{copy.filename}: it is a second download of {original}")
    if group.shards:
        usual = max((shard.pattern for shard in group.shards), key=[one.pattern for one in group.shards].count)
        lost = _lost_numbers(places, copies)
        for number in lost:
            stand_in = next((copy for one, own in copies.items() for copy in own if number_of(one) == number), None)
            name = usual % number if stand_in is None else stand_in.original
            missing.append(name)
            problems.append(f"{name}: it is missing{'' if stand_in is None else _say_stand_in(stand_in)}")
        dashes = {shard.pattern.rpartition("%0")[0].endswith("-") for shard in group.shards}
        if len(dashes) > 1 and not doubled:
            problems.append(f"{group.shards[0].filename} and others are named in two ways: they are two exports")
    return problems, {"missing": missing[:100], "doubled": doubled[:100]}


def _lost_numbers(places: Iterable[int], copies: Iterable[str]) -> list[int]:
    """The numbers that are missing: all of them, as long as they are no more than can be real."""
    known = set(places)
    stood_for = {number for number in map(number_of, copies) if number is not None}
    last = max(known | stood_for)
    if last < len(known) + 10_000:
        return sorted(set(range(last + 1)) - known)
    return sorted(set(range(len(known) + _MOST_LISTED)) - known)


def _say_stand_in(copy: NamedCopy) -> str:
    if not copy.is_whole:
        return f"; {copy.filename} is a download of it that did not end"
    return f"; {copy.filename} seems to be it: rename that file"


def _choose_mixer(store: Store, group: NamedFiles, notes: list[str]) -> str | None:
    """The mixer of a group: one, or several that say the same."""
    copies = [copy for copy in group.copies if copy.is_whole and MIXER.fullmatch(copy.original)]
    names = sorted(group.mixers, key=lambda name: (not name.endswith("-mixer.json"), name))
    if not names:
        if copies:
            raise PreparedFormatError(
                f"{store.url}: {copies[0].original} is missing{_say_stand_in(copies[0])}",
                hint=_AGAIN,
                details={"folder": store.url, "missing": [copies[0].original], "doubled": []},
            )
        return None
    others = [*names[1:], *(copy.filename for copy in copies)]
    if others:
        mixer = Mixer.read(store, names[0])
        for other in others:
            if Mixer.read(store, other) != mixer:
                raise PreparedFormatError(
                    f"{store.url}: {other} says something else than {names[0]}: they are of two exports",
                    hint="Leave the one that belongs to the files.",
                    details={"folder": store.url, "missing": [], "doubled": [other]},
                )
            notes.append(f"{other} says the same as {names[0]}.")
    return names[0]


def _several(store: Store, prefixes: Sequence[str]) -> UsageError:
    return UsageError(
        f"{store.url} holds {len(prefixes)} exports: {_some(prefixes)}",
        hint=f"Say which one: prefix={prefixes[0]!r}; --prefix {prefixes[0]}",
        details={"folder": store.url, "prefixes": list(prefixes[:100])},
    )


def _no_such(store: Store, prefix: str, exports: Sequence[str], groups: dict[str, NamedFiles]) -> UsageError:
    has_mixer = prefix in groups and bool(groups[prefix].mixers)
    known = f"it has {_some(exports)}" if exports else "it has none"
    return UsageError(
        f"{store.url} holds no TFRecords of the prefix {prefix!r}"
        + (f", only {groups[prefix].mixers[0]}" if has_mixer else f"; {known}"),
        hint="Download the files as well." if has_mixer else suggest(prefix, exports) or _NAMES_HINT,
        details={"folder": store.url, "prefix": prefix, "prefixes": list(exports[:100])},
    )


def _nothing(store: Store, groups: dict[str, NamedFiles]) -> PreparedFormatError:
    """The error for a folder of no exports, which says what is there, if that is nearly one."""
    problems = [
        f"{copy.original}: it is missing{_say_stand_in(copy)}" for group in groups.values() for copy in group.copies
    ] + [f"{name}: its TFRecords are missing" for group in groups.values() for name in group.mixers]
    if problems:
        return PreparedFormatError(
            f"{store.url} holds no whole export{_listed(problems)}",
            hint=_AGAIN,
            details={"folder": store.url, "problems": problems[:100]},
        )
    if store.local_root is not None and not store.local_root.exists():
        return PreparedFormatError(
            f"{store.local_root} is no folder: there is none of this name",
            hint="Check the path. Of several exports in one folder, give the folder and the prefix: prefix='area'; "
            "--prefix area.",
            details={"folder": store.url, "problems": []},
        )
    names = store.list()
    if zipped := sorted(name for name in names if "/" not in name and name.lower().endswith(".zip")):
        return PreparedFormatError(
            f"{store.url} holds no TFRecords of Earth Engine, but {_some(zipped)}",
            hint="Unpack what was downloaded first, every part of it into one folder.",
            details={"folder": store.url, "problems": zipped[:100]},
        )
    below = sorted({name.partition("/")[0] for name in names if "/" in name and TABLE.fullmatch(name)})
    return PreparedFormatError(
        f"{store.url} holds no TFRecords of Earth Engine",
        hint=f"There are some below it: give {store.locate(below[0])}." if below else _NAMES_HINT,
        details={"folder": store.url, "problems": []},
    )


def _some(names: Sequence[str]) -> str:
    more = len(names) - _MOST_LISTED
    return ", ".join(names[:_MOST_LISTED]) + (f" and {more} more" if more > 0 else "")


def _listed(lines: Sequence[str]) -> str:
    shown = "".join(f"\n  {line}" for line in lines[:_MOST_LISTED])
    return shown + (f"\n  and {len(lines) - _MOST_LISTED} more" if len(lines) > _MOST_LISTED else "")


class NamedShard(NamedTuple):
    """A file with a number in its name; ``pattern`` is the name with ``%05d`` in the place of the number."""

    number: int
    filename: str
    pattern: str
    digits: int = _USUAL_DIGITS


class NamedCopy(NamedTuple):
    """A second file of a name, or a download that did not end, which is not ``is_whole``."""

    filename: str
    original: str
    is_whole: bool = True


@dataclass(slots=True)
class NamedFiles:
    """The files of one prefix. ``copies`` are second ones of a name, and downloads that did not end."""

    shards: list[NamedShard] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)
    mixers: list[str] = field(default_factory=list)
    copies: list[NamedCopy] = field(default_factory=list)


def group_names(names: Sequence[str], wanted: str | None) -> dict[str, NamedFiles]:
    """The files by their prefix; a name that can be read in two ways is of the prefix ``wanted``."""
    groups: defaultdict[str, NamedFiles] = defaultdict(NamedFiles)
    present = frozenset(names)
    for name in names:
        if name.startswith(".") and not (wanted or "").startswith("."):  # what file systems keep beside files: ._name
            continue
        if (copy := parse_copy(name, present)) is not None:
            groups[_prefix_of(copy.original, wanted)].copies.append(copy)
        elif mixer := MIXER.fullmatch(name):
            groups[_as_wanted(mixer["prefix"], mixer["dash"], wanted)].mixers.append(name)
        elif (shard := _parse_shard(name, wanted)) is not None:
            groups[shard[0]].shards.append(shard[1])
        elif table := TABLE.fullmatch(name):
            groups[table["prefix"]].tables.append(name)
    for prefix in list(groups):
        _take_out_dates(prefix, groups, wanted)
    return dict(groups)


def _take_out_dates(prefix: str, groups: defaultdict[str, NamedFiles], wanted: str | None) -> None:
    """``samples_20240131.tfrecord.gz`` is a table: shards have five digits, and one of them is the first."""
    group = groups[prefix]
    if prefix == wanted or group.mixers or any(shard.number == 0 for shard in group.shards):
        return
    for shard in group.shards:
        if shard.digits > _USUAL_DIGITS and (table := TABLE.fullmatch(shard.filename)):
            groups[table["prefix"]].tables.append(shard.filename)
    group.shards = [shard for shard in group.shards if shard.digits <= _USUAL_DIGITS]


def _parse_shard(name: str, wanted: str | None) -> tuple[str, NamedShard] | None:
    """The prefix and the place of a shard, by the name of its file; None where that has no number."""
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
    """The prefix of a mixer: where one that ends in a dash is asked for, the dash is a part of it."""
    return wanted if wanted is not None and wanted == prefix + dash else prefix


def _prefix_of(name: str, wanted: str | None) -> str:
    if mixer := MIXER.fullmatch(name):
        return _as_wanted(mixer["prefix"], mixer["dash"], wanted)
    if (shard := _parse_shard(name, wanted)) is not None:
        return shard[0]
    table = TABLE.fullmatch(name)
    return table["prefix"] if table else name


def parse_copy(name: str, present: frozenset[str]) -> NamedCopy | None:
    """Of which file of an export this is a second one, or an unfinished download; None where it is none."""
    if unfinished := _UNFINISHED.fullmatch(name):
        original = unfinished["name"]
        is_of_export = MIXER.fullmatch(original) or TABLE.fullmatch(original)
        return NamedCopy(name, original, is_whole=False) if is_of_export else None
    original = name
    marks: list[str] = []
    while match := next(filter(None, (form.fullmatch(original) for form in _COPIES)), None):
        original, marks = match["before"] + match["after"], [*marks, match["mark"] or ""]
    if not marks:
        return None
    if MIXER.fullmatch(original) or SHARD.fullmatch(original):
        return NamedCopy(name, original)
    # A table may be named so by its author, unless the other one is there.
    is_doubled = TABLE.fullmatch(original) and original in present and not any(mark.strip().isdigit() for mark in marks)
    return NamedCopy(name, original) if is_doubled else None


def suffix_of(filename: str) -> str:
    """How the name of a shard ends: ``.tfrecord.gz``."""
    match = SHARD.fullmatch(filename)
    return "" if match is None else match["suffix"]


def number_of(name: str) -> int | None:
    """The number in the name of a shard; None where it has none."""
    match = SHARD.fullmatch(name)
    return None if match is None else int(match["digits"][-_USUAL_DIGITS:] if not match["dash"] else match["digits"])
