"""Opens WebDataset tars: consecutive files with the same name up to the first dot are a record.

    000000.jpg 000000.cls 000000.json 000001.jpg ...  ->  columns jpg, cls, caption ...; key 000000

The headers of all tars are read first, because every block of rows has the columns of all tars. The keys of JSON
objects are columns, as in JSON lines. ``cls`` is int64 if all files contain integers, otherwise a ClassLabel of their
names; ``txt`` is text, PNG and JPEG are images, and everything else is bytes. A missing file of a sample is null; an
image is then a list of zero or one element. Follows the format of https://github.com/webdataset/webdataset.
"""

from __future__ import annotations

import re
import shlex
import tarfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from registry.errors import FeatureError, SourceError, spell
from registry.features import ClassLabel, Feature, Image, Text
from registry.intake.archives import archive_errors, open_tar, tar_members
from registry.intake.file_parts import MAX_FILE_BYTES, account_for_source, decode_text, refuse_folder_columns
from registry.intake.inference import MAX_CLASSES
from registry.intake.json_files import MAX_COLUMNS
from registry.intake.json_rows import parse_value
from registry.intake.listing import why_skipped
from registry.intake.media_bytes import IMAGES, CheckMedia, extension_of, format_of, is_picture
from registry.intake.options import AddOptions
from registry.intake.python_values import ValueConverter, columns_of, convert_block, estimate_bytes
from registry.intake.source import (
    MAX_BYTES,
    MAX_ROWS,
    PATH,
    BadFileError,
    BadRow,
    Files,
    Rows,
    Source,
    SourcePart,
    is_unicode,
    root_of,
)
from registry.intake.split_names import find_splits, split_of_folder
from registry.shards.arrow_values import import_pyarrow
from registry.splits import counted
from registry.storage import Store
from registry.storage.faults import storage_errors

_CLASSES: Final = frozenset({"cls", "cls2"})
_NUMBERS: Final = _CLASSES | {"index", "inx", "id"}
_NO_CLASS: Final = "-1"  # exports write this for a null label
_LONGEST_NAME: Final = 1000
_TEXTS: Final = frozenset({"txt", "text", "transcript"})
_JSON: Final = frozenset({"json", "jsn"})
_MAX_COLUMNS: Final = 1000
_PEEKED: Final = 200


def is_webdataset(path: Path) -> bool:
    """Whether an archive is a tar in which most of the first samples have several files, or most of all samples.

    If the first headers do not decide, all are read, because a tar may be sorted by the extensions of names.

    Raises:
        SourceError: the tar is damaged.
        StorageError: it cannot be read.
    """
    with storage_errors("read", str(path)), path.open("rb") as file:
        if format_of(file.read(4)) == "zip":
            return False
        file.seek(0)
        sizes: Counter[str] = Counter()
        with open_tar(file, path.name) as tar:
            for number, (key, _, _) in enumerate(_files_in(tar, path.name)):
                if number == _PEEKED and _are_samples(sizes):
                    break
                sizes[key] += 1
    return _are_samples(sizes)


def _are_samples(sizes: Mapping[str, int]) -> bool:
    return 2 * sum(size > 1 for size in sizes.values()) > len(sizes)


def open_webdataset(files: Files, options: AddOptions) -> Source:
    """Open WebDataset tars; see the module. Each tar is a part, whose name decides its split.

    Raises:
        SourceError: a tar is damaged, the files of a sample are not next to each other, a key occurs twice in a tar,
            there are no samples, a folder in the only split has the name of another, or names of splits are ambiguous.
        StorageError: a tar cannot be read.
    """
    refuse_folder_columns(files.names, options.splits, hint="Rename the folders.")
    splits = find_splits(files.names, options)
    result = _Found()
    root = root_of(files.store)
    unique = {split: result.scan(root, names) for split, names in splits.files.items()}
    if [*splits.files] == ["train"] and not options.splits:
        _refuse_splits(result.folders)
    if not result.num_samples:
        raise SourceError(
            f"{files.location}: no samples in {counted(len(files.names), 'tar')}",
            hint="A sample consists of files with the same name up to the first dot, such as 0001.jpg and 0001.cls.",
            details={"location": files.location},
        )
    spread = {column for column in _JSON & result.columns.keys() if column not in options.typed()}
    columns = tuple(sorted(result.columns.keys() - spread))
    hints: dict[str, Feature] = {
        column: Image(shape=(None, None, None)) for column in columns if is_picture(f"x.{column}")
    }
    texts = frozenset(column for column, number in result.numbers.items() if not number.are_integers)
    for column in texts & _CLASSES:
        if (label := result.numbers[column].label()) is not None:
            hints[column] = label
    has_path = options.stores_paths() and PATH not in columns
    if has_path:
        hints[PATH] = Text()
    return Source(
        kind="webdataset",
        summary=f"{result.num_samples:,} samples in {counted(len(files.names), 'WebDataset tar')}, "
        f"with {', '.join(sorted(result.columns))}",
        parts=[
            SourcePart(
                split=split,
                name=name,
                read=TarPart(
                    store=files.store,
                    name=name,
                    columns=columns,
                    texts=texts,
                    has_unique_keys=unique[split],
                    has_path=has_path,
                ),
            )
            for split, names in splits.files.items()
            for name in names
        ],
        hints=hints,
        path_column=PATH if has_path else "",
        may_lack_columns=bool(spread),
        files=account_for_source(files, splits, "tar"),
        split_reason=splits.reason,
    )


def split_name(name: str) -> tuple[str, str]:
    """Return the key of a member, which ends at the first dot of its last part, and its extension in lower case.

    >>> split_name("a.b/0001.Seg.PNG"), split_name("a/readme")
    (('a.b/0001', 'seg.png'), ('a/readme', ''))
    """
    folder, slash, last = name.rpartition("/")
    stem, _, extension = last.partition(".")
    return f"{folder}{slash}{stem}", extension.lower()


@dataclass(slots=True)
class _Numbers:
    """The files of an extension that usually contain numbers: whether all do, and their distinct texts."""

    are_integers: bool = True
    names: set[str] | None = field(default_factory=set)

    def add(self, data: bytes | None) -> None:
        """Add the text of a file, or None if it is too long for a number or the name of a class."""
        text = None if data is None else data.decode(errors="replace").strip()
        if self.are_integers:
            is_plain = text is not None and _INTEGER.fullmatch(text) is not None
            self.are_integers = is_plain and -(2**63) <= int(text or 0) < 2**63
        if text is None:
            self.names = None
        elif self.names is not None and len(self.names) <= MAX_CLASSES:
            self.names.add(text)

    def label(self) -> ClassLabel | None:
        """Return the classes, sorted by name, or None if there are too many, or if a text cannot be a name."""
        names = sorted((self.names or set()) - {_NO_CLASS})
        if not names or len(names) > MAX_CLASSES or not names[0]:
            return None
        try:
            return ClassLabel(names=names)
        except FeatureError:
            return None


_INTEGER: Final = re.compile(r"-?[1-9][0-9]{0,18}|0")


@dataclass(slots=True)
class _Found:
    """The contents of tars, from their headers.

    Attributes:
        columns: the number of samples with each column.
        numbers: the columns of numbers.
        folders: the folders of samples, with the first tar that has each.
        num_samples: the number of samples.
    """

    columns: Counter[str] = field(default_factory=Counter)
    numbers: defaultdict[str, _Numbers] = field(default_factory=lambda: defaultdict(_Numbers))
    folders: dict[str, str] = field(default_factory=dict)
    num_samples: int = 0

    def scan(self, root: Path, names: Sequence[str]) -> bool:
        """Read the headers of the tars of a split. Returns whether keys are unique among the tars."""
        seen: set[int] = set()  # hashes, because a split may have many millions of keys
        is_unique = True
        for name in names:
            path = root / name
            with storage_errors("read", str(path)), path.open("rb") as file, open_tar(file, name) as tar:
                samples: dict[str, set[str]] = {}
                for key, members in groupby(_files_in(tar, name), itemgetter(0)):
                    extensions: set[str] = set()
                    for _, extension, member in members:
                        extensions.add(extension)
                        if extension in _NUMBERS:
                            content = _read(tar, member, name) if member.size <= _LONGEST_NAME else None
                            self.numbers[extension].add(content)
                    if (first := samples.setdefault(key, extensions)) is not extensions:
                        raise _repeated(name, key, twice=first & extensions)
                    is_unique = is_unique and hash(key) not in seen
                    seen.add(hash(key))
                    self.folders.setdefault(key.rpartition("/")[0], name)
                    self.num_samples += 1
                    self.columns.update(extensions)
            if len(self.columns) > _MAX_COLUMNS:
                raise SourceError(
                    f"{name}: the files have more than {_MAX_COLUMNS:,} different extensions, so they are not samples",
                    hint=f"Extract the tar, then add the folder: mkdir data && tar -xf {name} -C data",
                    details={"file": name},
                )
        return is_unique


def _refuse_splits(folders: Mapping[str, str]) -> None:
    """Refuse folders in tars that name other splits than train. Raises SourceError."""
    for folder, name in folders.items():
        if other := next((part for part in folder.split("/") if split_of_folder(part) not in (None, "train")), None):
            raise SourceError(
                f"{name}: the folder {other!r} in the tar names a split, but all samples of a tar are in one split",
                hint="Make a tar for each split, such as train.tar and test.tar. If all samples are one split: "
                f"{spell('splits', {'train': '*'})}",
                details={"file": name, "folder": folder},
            )


def _repeated(name: str, key: str, *, twice: set[str]) -> SourceError:
    """Make the error for a key that occurs again after other keys in a tar; ``twice`` are its repeated extensions."""
    if twice:
        return SourceError(
            f"{name}: the key {key!r} occurs twice: two samples have a file '{key}.{min(twice)}'",
            hint="Rename the files of one of them, or remove them, and make the tar again.",
            details={"file": name, "key": key},
        )
    return SourceError(
        f"{name}: the files of the sample {key!r} are not next to each other",
        hint=f"Sort the tar by name: mkdir data && tar -xf {shlex.quote(name)} -C data && "
        "tar --sort=name -cf sorted.tar -C data .",
        details={"file": name, "key": key},
    )


def _files_in(
    tar: tarfile.TarFile, name: str, refuse: Callable[[str, str], None] | None = None
) -> Iterator[tuple[str, str, tarfile.TarInfo]]:
    """The files of samples in order: key, extension and member. ``refuse`` gets the names of others, and the reason."""
    for member in tar_members(tar, name):
        if member.isdir() or why_skipped(member.name) is not None:
            continue
        key, extension = split_name(member.name)
        if member.isreg() and extension:
            yield key, extension, member
        elif refuse is not None:
            refuse(member.name, "its name has no extension" if member.isreg() else "it is not a regular file")


def _read(tar: tarfile.TarFile, member: tarfile.TarInfo, name: str) -> bytes:
    with archive_errors(name):
        content = tar.extractfile(member)
        return b"" if content is None else content.read()


@dataclass(frozen=True, slots=True, kw_only=True)
class TarPart:
    """Reads the samples of a tar as rows; it is the ``read`` of a ``SourcePart``.

    Attributes:
        store: where the tar is stored.
        name: its name.
        columns: the extensions of all tars of the source that are columns, sorted.
        texts: the columns that usually contain numbers, but are text here.
        has_unique_keys: whether no two tars of the split have the same key; otherwise keys start with the name of the
            tar.
        has_path: whether the keys are a column ``path``, the last one.
    """

    store: Store
    name: str
    columns: Sequence[str]
    texts: frozenset[str]
    has_unique_keys: bool
    has_path: bool

    def spreads(self, extension: str) -> bool:
        """Whether the keys of these JSON files become columns."""
        return extension in _JSON and extension not in self.columns

    def __call__(self) -> Iterator[Rows]:
        """Read the samples in order."""
        path = root_of(self.store) / self.name
        block: list[tuple[int, str, dict[str, Any]]] = []
        bad: list[BadRow] = []
        seen: set[str] = set()
        num_bytes = 0

        def refuse(name: str, reason: str) -> None:
            bad.append(BadRow(file=f"{self.name}/{name}", line=None, reason=reason))

        with storage_errors("read", str(path)), path.open("rb") as file, open_tar(file, self.name) as tar:
            samples = groupby(_files_in(tar, self.name, refuse), itemgetter(0))
            for number, (key, members) in enumerate(samples, start=1):
                key_path = key if self.has_unique_keys else f"{self.name}/{key}"
                row = self._read_sample(tar, number, key_path, members)
                if isinstance(row, BadRow):
                    bad.append(row)
                else:
                    block.append((number, key_path, row))
                    num_bytes += estimate_bytes(row)
                    seen |= row.keys()
                    if len(seen) > MAX_COLUMNS + len(self.columns):
                        raise self._too_many_columns()
                if num_bytes >= MAX_BYTES or len(block) + len(bad) >= MAX_ROWS:
                    yield from self._rows(block, bad)
                    block.clear()
                    bad.clear()
                    num_bytes = 0
        yield from self._rows(block, bad)

    def _read_sample(
        self, tar: tarfile.TarFile, number: int, path: str, members: Iterable[tuple[str, str, tarfile.TarInfo]]
    ) -> dict[str, Any] | BadRow:
        """Return the row of a sample, or a report of its first fault."""
        fault = partial(BadRow, file=self.name, line=number)
        if not is_unicode(path):
            return fault(reason=f"its name is not UTF-8: {path!a}")
        row: dict[str, Any] = dict.fromkeys(self.columns)
        spread: dict[str, Any] = {}
        read: set[str] = set()
        for _, extension, member in members:
            try:
                if extension in read:
                    raise BadFileError("it occurs twice in the sample")
                if member.size > MAX_FILE_BYTES:
                    raise BadFileError("it is larger than 2 GiB")
                read.add(extension)
                data = _read(tar, member, self.name)
                if self.spreads(extension):
                    self._spread(extension, decode_text("", data), spread)
                else:
                    row[extension] = _convert(extension, data, is_text=extension in self.texts)
            except BadFileError as error:
                place = "" if error.place is None else f" at character {error.place + 1}"
                return fault(column=extension, reason=f"{error}{place}")
        return row | spread | ({PATH: path} if self.has_path else {})

    def _spread(self, column: str, text: str, row: dict[str, Any]) -> None:
        """Add the keys of a JSON object to ``row``. Any other value is a column itself."""
        value = parse_value(text)
        for key, inner in value.items() if isinstance(value, dict) else ((column, value),):
            name = key
            while name in self.columns or (name == PATH and self.has_path):  # a file also has this name
                name = f"{column}.{name}"
            if name in row:
                raise BadFileError(f"the column {name!r:.80} occurs twice in the sample")
            row[name] = inner

    def _too_many_columns(self) -> SourceError:
        column = next(filter(self.spreads, sorted(_JSON)))
        return SourceError(
            f"{self.name}: the JSON files have more than {MAX_COLUMNS:,} different keys",
            hint=f"To store each as text: {spell('features', {column: 'Text'})}",
            details={"file": self.name, "limit": MAX_COLUMNS},
        )

    def _rows(self, block: Sequence[tuple[int, str, dict[str, Any]]], bad: Sequence[BadRow]) -> Iterator[Rows]:
        """Yield samples in one table, or in several if the types of their JSON differ."""
        if bad:
            yield Rows(table=import_pyarrow().table({}), lines=(), keys=(), bad=tuple(bad))
        if block:
            lines, keys, rows = map(list, zip(*block, strict=True))
            columns = columns_of(rows)
            yield from convert_block(columns, 0, len(rows), ValueConverter(), name=self.name, lines=lines, keys=keys)


def _convert(column: str, data: bytes, *, is_text: bool) -> Any:
    if is_text:
        text = decode_text("", data).strip()
        return None if text == _NO_CLASS and column in _CLASSES else text
    if column in _NUMBERS:
        return int(decode_text("", data).strip())  # found while the headers were read
    if column in _TEXTS:
        return decode_text("", data)
    if column in _JSON:
        text = decode_text("", data)
        parse_value(text)
        return text
    if extension_of(f"x.{column}") in IMAGES:
        return _CHECK(f"x.{column}", data)
    return data


_CHECK: Final = CheckMedia()
