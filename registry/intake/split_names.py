"""Derives splits from the names of folders and files, or from globs. Pure; the readers of files call it.

    train/cat/1.jpg, my_train.csv, train-00000-of-00002.parquet   ->  train
    data.test.jsonl, eval/1.wav                                   ->  test
    val/1.png, dev.csv.gz, validation.parquet                     ->  validation
    split=test/a.parquet, year=2022/split=extra/a.parquet         ->  test, extra
    photo of a train.jpg, pretrained.csv, train-test-diff.csv     ->  no split

If no name contains the word of a split, all files are the split ``train``. It is an error if only some names do,
because training and test data would be mixed, or files would be left out. The words are those of Hugging Face's
``datasets``, except that words between spaces do not count: a sentence as a file name is not a split.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import translate
from typing import Final
from urllib.parse import unquote

from registry.errors import SourceError, spell
from registry.intake.options import AddOptions
from registry.intake.source import Source, list_names

_WORDS: Final = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev"), "validation"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
}
SPLIT_FOLDER: Final = "split="
"""The prefix of a folder that names a split, as in ``split=test/year=2022/a.parquet``."""

_ORDER: Final = tuple(dict.fromkeys(_WORDS.values()))
# Digits, because COCO has train2017 and val2017.
_WORD: Final = re.compile(rf"({'|'.join(_WORDS)})[0-9]*", re.IGNORECASE)
_SEPARATOR: Final = re.compile(r"[._-]")
_SENTENCE_SEPARATOR: Final = re.compile(r"[._]")  # in "a bullet-train.csv" the hyphen is part of a word
_COUNT: Final = re.compile(r"[0-9]*|of|[0-9a-f]{8,}", re.IGNORECASE)  # The end of "train-00000-of-00002-5f0a9c31".
_NAMED_SHARD: Final = re.compile(r"(?:.*/)?([A-Za-z][A-Za-z0-9_]*)-[0-9]{5,}-of-[0-9]{5,}[-.][^/]*")
_SHARD: Final = re.compile(r"(.*)-[0-9]{5,}-of-([0-9]{5,})(?:-[0-9a-f]{8,})?([^/]*)")  # each may have another hash
_COMPRESSED: Final = frozenset({"bz2", "gz", "xz", "zip", "zst"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedSplits:
    """Files by split.

    Attributes:
        files: the names of each split, sorted. Without globs the splits are in the order train, validation, test;
            with globs, in the order of the globs.
        reason: the origin of the splits, for messages.
        unmatched: names that no glob matches, sorted; empty without globs.
    """

    files: dict[str, list[str]]
    reason: str
    unmatched: list[str] = field(default_factory=list)

    def renamed(self, options: AddOptions) -> NamedSplits:
        """Return the files by the names that the caller chose. Raises the errors of ``rename_splits``."""
        names = options.split_names({split: those[0] for split, those in self.files.items()}, reason=self.reason)
        return replace(self, files={names[split]: those for split, those in self.files.items()})


def find_splits(names: Sequence[str], options: AddOptions, *, folders_only: bool = False) -> NamedSplits:
    """Assign files to splits. The result does not depend on the order of ``names``.

    >>> find_splits(["train.csv", "my_test.csv"], AddOptions()).files
    {'train': ['train.csv'], 'test': ['my_test.csv']}
    >>> find_splits(["photo of a train.jpg", "pier at dawn.jpg"], AddOptions()).files
    {'train': ['photo of a train.jpg', 'pier at dawn.jpg']}

    A folder names a split if it is called ``split=NAME``, if its whole name is the word of a split, or if the name of a
    folder next to it differs only in this word and in numbers (``train_images`` next to ``test_images``). The outermost
    such folder decides. If there is none, the name of the file decides: one of its parts between ``.``, ``_`` and ``-``
    must be such a word, followed only by numbers and the extension. If other parts follow (``test_en.jsonl``), the word
    counts only if other names also contain a split: ``test_scores.csv`` alone may be the scores of a test. A name with
    the words of two splits belongs to no split. Next to files of such splits, ``extra-00000-of-00002.parquet`` is a
    shard of the split ``extra``.

    Args:
        names: names of the files that contain records, joined by ``/``.
        options: the glob of each split, or no globs to derive splits from the names. ``*`` also matches ``/``, and the
            name of a folder matches all files in it.
        folders_only: whether the names of files are ignored, because each file is a record: a picture named
            ``test.png`` is not a split.

    Raises:
        SourceError: only some names contain the word of a split, two globs match the same file, or a glob matches no
            file.
    """
    result = _match_globs(sorted(names), options.splits) if options.splits else _find(names, folders_only=folders_only)
    return replace(result, reason=f"{result.reason}{_describe_missing(names)}")


def rename_splits(source: Source, options: AddOptions) -> Source:
    """Give the splits of a source the names that the caller chose, unless a column names them.

    Raises:
        SourceError: the name of a split is invalid, or two splits would get the same name.
        UsageError: the source lacks a split that is to be renamed.
    """
    if options.split_by or source.split_by:
        return source
    first = {part.split: part.name for part in reversed(source.parts)}
    places = {split: first[split] for split in source.splits}
    return source.with_split_names(options.split_names(places, reason=source.split_reason))


def _describe_missing(names: Sequence[str]) -> str:
    """Describe the first shards that are missing according to the names of others, as after a broken download."""
    shards = Counter((match[1], match[2], match[3]) for match in map(_SHARD.fullmatch, names) if match)
    for (before, count, after), number in sorted(shards.items()):
        if number < int(count):
            return f"; of {before}-*-of-{count}{after}, {number:,} of {int(count):,} shards exist"
    return ""


def _find(names: Sequence[str], *, folders_only: bool) -> NamedSplits:
    """Find the splits by the names of folders and files."""
    folders = _splits_of_folders({name.rpartition("/")[0] for name in names})
    found: dict[str, str] = {}
    weak: dict[str, str] = {}
    by_file = False
    for name in names:
        folder, _, last = name.rpartition("/")
        split = folders[folder]
        if split is None and not folders_only:
            split, is_certain = _split_of_file(last)
            if split is not None and not is_certain:
                weak[name] = split
                continue
            by_file |= split is not None
        if split is not None:
            found[name] = split
    if weak and (found or len(set(weak.values())) > 1):
        found |= weak
        by_file = True
    if not found:
        place = "folder" if folders_only else "folder or file"
        return NamedSplits(files={"train": sorted(names)}, reason=f"one split: no {place} is named after a split")
    found |= {name: match[1] for name in names if name not in found and (match := _NAMED_SHARD.fullmatch(name))}
    if len(found) < len(names):
        raise _partly_named(found, sorted(set(names) - found.keys()))
    files: dict[str, list[str]] = {split: [] for split in (*_ORDER, *sorted(set(found.values()) - {*_ORDER}))}
    for name in sorted(names):
        files[found[name]].append(name)
    by_folder = any(split is not None for split in folders.values())
    places = "folders and files" if by_folder and by_file else "files" if by_file else "folders"
    return NamedSplits(
        files={split: those for split, those in files.items() if those}, reason=f"from the names of {places}"
    )


def split_of_folder(folder: str) -> str | None:
    """Return the split that the name of a folder names, or None.

    >>> split_of_folder("Training"), split_of_folder("split=eval"), split_of_folder("training_day")
    ('train', 'test', None)
    """
    if folder.startswith(SPLIT_FOLDER):
        return _split_of_value(folder)
    match = _WORD.fullmatch(folder)
    return None if match is None else _WORDS[match[1].lower()]


def without_split(name: str) -> str:
    """Remove folders, the extension, the word of a split, and the number of a shard from the name of a file.

    >>> without_split("a/x_train.npy"), without_split("emb-test-00000-of-00002.npy"), without_split("train.npy")
    ('x', 'emb', '')
    """
    stem = _without_extension(name.rpartition("/")[2])
    parts = [part for part in _SEPARATOR.split(stem) if not _WORD.fullmatch(part)]
    while len(parts) > 1 and _COUNT.fullmatch(parts[-1]):
        parts.pop()
    return "_".join(parts)


def check_cases(names: Iterable[str], *, column: str | None = None) -> None:
    """Check that no two splits differ only in case; on some file systems, their shards would be the same files.

    Args:
        names: the names of all splits.
        column: the column with these names, if any.

    Raises:
        SourceError: two names differ only in case.
    """
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.casefold(), name)
        if other != name:
            first, second = sorted([other, name])
            raise SourceError(
                f"the splits {first!r} and {second!r} differ only in case, and their files would have the same names",
                hint="Rename one of them." if column is None else f"Write them alike in the column {column!r}.",
                details={"splits": [first, second]},
            )


def _splits_of_folders(folders: Iterable[str]) -> dict[str, str | None]:
    """Return the split of each folder, which is that of the outermost folder of its path that names a split."""
    every = {
        "/".join(parts[:depth])
        for parts in (folder.split("/") for folder in folders)
        for depth in range(len(parts) + 1)
    }
    siblings: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    forms: dict[str, tuple[tuple[str, str], str]] = {}
    for path in every:
        parent, _, last = path.rpartition("/")
        split, form = _word_in(_SEPARATOR.split(last), last)
        if split is not None:
            forms[path] = (parent, form), split
            siblings[parent, form].add(split)
    own = {path: split for path, (place, split) in forms.items() if place[1] == "" or len(siblings[place]) > 1}
    own |= {path: _split_of_value(path) for path in every if path.rpartition("/")[2].startswith(SPLIT_FOLDER)}
    result: dict[str, str | None] = {"": None}
    for path in sorted(every, key=lambda folder: folder.count("/") if folder else -1):
        if path:
            outer = result[path.rpartition("/")[0]]
            result[path] = outer if outer is not None else own.get(path)
    return result


def _split_of_value(path: str) -> str:
    """Return the split that a folder ``split=NAME`` names."""
    value = unquote(path.rpartition("/")[2].removeprefix(SPLIT_FOLDER))
    return _WORDS.get(value.lower(), value)


def _word_in(parts: Sequence[str], name: str) -> tuple[str | None, str]:
    """Return the split that exactly one of ``parts`` names, and the other parts of the name without numbers."""
    words = [(place, match) for place, part in enumerate(parts) if (match := _WORD.fullmatch(part))]
    if len(words) != 1:
        return None, name
    place, match = words[0]
    if len(parts) == 1:
        return _WORDS[match[1].lower()], ""
    # LibriSpeech has train-clean-100 next to dev-clean.
    rest = [*parts[:place], "", *(part for part in parts[place + 1 :] if not part.isdecimal())]
    return _WORDS[match[1].lower()], f"/{'/'.join(rest)}"


def _split_of_file(name: str) -> tuple[str | None, bool]:
    """Return the split in the name of a file, and whether it counts even if no other name contains a split."""
    has_space = any(character.isspace() for character in name)
    parts = (_SENTENCE_SEPARATOR if has_space else _SEPARATOR).split(_without_extension(name))
    words = [(place, match) for place, part in enumerate(parts) if (match := _WORD.fullmatch(part))]
    splits = {_WORDS[match[1].lower()] for _, match in words}
    if len(splits) != 1:
        return None, False
    return splits.pop(), all(_COUNT.fullmatch(part) for part in parts[words[-1][0] + 1 :])


def _without_extension(name: str) -> str:
    stem, _, extension = name.rpartition(".")
    if stem and extension.lower() in _COMPRESSED:
        name = stem
        stem, _, extension = name.rpartition(".")
    return name if not stem or _WORD.fullmatch(extension) else stem  # "adult.test" has no other extension


def _match_globs(names: Sequence[str], globs: Mapping[str, str]) -> NamedSplits:
    """Return the names that each glob matches."""
    rules = {split: re.compile(translate(glob)) for split, glob in globs.items()}
    files: dict[str, list[str]] = {split: [] for split in globs}
    unmatched = []
    for name in names:
        matching = [split for split, glob in globs.items() if rules[split].match(name) or _is_in(name, glob)]
        if len(matching) > 1:
            both = " and ".join(f"{split}={globs[split]}" for split in matching)
            raise SourceError(
                f"{name!r} matches the globs of two splits: {both}",
                hint=f"Each file must match one glob of {spell('splits')}.",
                details={"file": name, "splits": matching},
            )
        if matching:
            files[matching[0]].append(name)
        else:
            unmatched.append(name)
    for split, glob in globs.items():
        if not files[split]:
            raise SourceError(
                f"the glob {glob!r} of the split {split!r} matches none of these files: {list_names(names)}",
                hint="A glob is compared with the whole name below the source; * also matches /.",
                details={"split": split, "glob": glob},
            )
    return NamedSplits(files=files, reason=f"as given by {spell('splits')}", unmatched=unmatched)


def _is_in(name: str, folder: str) -> bool:
    folder = folder.rstrip("/")
    return name == folder or (bool(folder) and name.startswith(f"{folder}/"))


def _partly_named(found: Mapping[str, str], others: Sequence[str]) -> SourceError:
    """Make the error for files without a split next to files with a split."""
    counts = Counter(found.values())
    first = {split: min(name for name, split_name in found.items() if split_name == split) for split in counts}
    named = ", ".join(f"{split}: {list_names([first[split]], counts[split])}" for split in _ORDER if split in counts)
    globs = {split: _glob_for(first[split], counts[split]) for split in _ORDER if split in counts}
    return SourceError(
        f"only some names contain a split ({named}); these do not: {list_names(others)}",
        hint=f"Give a glob for each split, such as {spell('splits', globs)}; files that none matches are skipped. "
        f"For one split of all files: {spell('splits', {'train': '*'})}",
        details={"splits": dict(counts), "others": list(others[:100])},
    )


def _glob_for(name: str, count: int) -> str:
    """Return a glob that probably matches the ``count`` files of the split that ``name`` belongs to."""
    folder, _, last = name.rpartition("/")
    parts = folder.split("/") if folder else []
    for depth, part in enumerate(parts, start=1):
        if _word_in(_SEPARATOR.split(part), part)[0] is not None:
            return "/".join(parts[:depth]) + "/*"
    if count == 1:
        return name
    return next((f"*{part}*" for part in _SEPARATOR.split(last) if _WORD.fullmatch(part)), name)
