"""What does the name of a file say? Which export it is of, and its place in it; or that it is a second download.

A prefix may end in digits or a dash, so a name can be read in two ways: with the prefix that is wanted, if one is.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

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
