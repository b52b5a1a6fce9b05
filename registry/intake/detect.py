"""Finds out what a path or URL contains, and opens it with the reader of its kind.

    path or URL -> listing.list_files -> archives extracted -> the kind of its files -> opener of that kind -> Source

Names decide; for files without a known extension, the first bytes decide. If files of several kinds could be the
records, the caller has to choose. Every file that the reader does not receive is reported as skipped, with the reason.
"""

from __future__ import annotations

import os
import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

from registry.errors import SourceError, UsageError, spell, suggest
from registry.intake.archives import extract, is_archive
from registry.intake.croissant_files import find_document
from registry.intake.hugging_face_folders import files_of_config, is_hugging_face
from registry.intake.in_place import explain_records, format_of_records, refuse_folders_of_others
from registry.intake.kinds import ARCHIVE, KINDS, MEDIA, kind_of, open_kind, sniff_kind
from registry.intake.listing import list_files
from registry.intake.media_bytes import extension_of, format_of
from registry.intake.media_files import is_metadata
from registry.intake.options import AddOptions
from registry.intake.source import Files, FileUse, Role, Source, root_of
from registry.intake.split_names import rename_splits, split_of_folder
from registry.intake.webdataset import is_webdataset
from registry.interop.dataset_card import describe_card, fill_from_card, read_card
from registry.model import Advance, check_split_name
from registry.splits import counted
from registry.storage.faults import storage_errors

_CARD: Final = "README.md"
_DOCUMENTS: Final = (
    *("readme", "license", "licence", "citation", "changelog", "copying", "notice", "authors", "datasheet"),
    "contributing",
)
_DOCUMENT_EXTENSIONS: Final = ("", ".txt", ".md", ".rst", ".html", ".pdf", ".bib", ".cff")
_CHECKSUMS: Final = ("sha256sums", "sha512sums", "sha1sums", "md5sums", "checksums", "checksum", "md5sum", "sha256sum")
_CHECKSUM_EXTENSIONS: Final = (".md5", ".sha1", ".sha256", ".sha512", ".crc")
_DESCRIPTIONS: Final = (
    *("dataset_infos.json", "dataset_info.json", "croissant.json", "dataset-metadata.json", "datapackage.json"),
)
_MOST_NOTES: Final = 3
"""At most this number of text files next to files of another kind are taken for notes, such as ``classes.txt``."""

_NAMED_IN: Final = 2**16
"""The number of bytes of a table or a note that are searched for the names of files."""

_SHORT_STEM: Final = 4
_DIGIT: Final = re.compile(rb"[0-9]")
_BETWEEN_NAMES: Final = re.compile(rb"[\s,;|:=\"'/\\#()<>]+")

_MOST_SNIFFED: Final = 1000
_POINTER_SIZES: Final = range(115, 150)
_OTHER_FORMATS: Final = (
    ((".xlsx", ".xls", ".xlsm", ".ods"), "Read it with pandas: registry.add(pandas.read_excel({path!r}), 'NAME')"),
    ((".dta",), "Read it with pandas: registry.add(pandas.read_stata({path!r}), 'NAME')"),
    ((".sav",), "Read it with pandas: registry.add(pandas.read_spss({path!r}), 'NAME')"),
    ((".sas7bdat", ".xpt"), "Read it with pandas: registry.add(pandas.read_sas({path!r}), 'NAME')"),
    ((".orc",), "Read it with pandas: registry.add(pandas.read_orc({path!r}), 'NAME')"),
    ((".xml",), "Read it with pandas: registry.add(pandas.read_xml({path!r}), 'NAME')"),
    ((".html", ".htm"), "Read a table with pandas: registry.add(pandas.read_html({path!r})[0], 'NAME')"),
    ((".yaml", ".yml"), "Read it in Python, if it is a list: registry.add(yaml.safe_load(open({path!r})), 'NAME')"),
    ((".rda", ".rdata", ".rds"), "Write it in R, then add the file: write.csv(FRAME, 'NAME.csv', row.names = FALSE)"),
    (
        (".db", ".sqlite", ".sqlite3"),
        "Read a table with pandas: registry.add(pandas.read_sql('SELECT * FROM T', 'sqlite:///' + {path!r}), 'NAME')",
    ),
    ((".avro",), "Read it with polars: registry.add(polars.read_avro({path!r}), 'NAME')"),
    (
        (".h5", ".hdf5", ".mat", ".arff", "-ubyte", "-ubyte.gz"),
        "Read it in Python, and pass arrays: registry.add({{'x': array}}, 'NAME')",
    ),
    (
        (".pkl", ".pickle", ".pth"),
        "A pickle can run code, so it is never opened here. Load it in Python: registry.add(object, 'NAME')",
    ),
    ((".rar", ".7z"), "Extract it, then add the folder."),
)
"""Extensions of files that are not read here, and how to add such a file."""


def open_source(
    location: str | os.PathLike[str], options: AddOptions | None = None, *, progress: Advance | None = None
) -> Source:
    """Open what ``location`` contains.

    Args:
        location: a path or URL of a file or folder.
        options: the forced kind, and the globs of splits.
        progress: called with the number of bytes that arrived, while files are downloaded.

    Raises:
        SourceError: no kind or several kinds match, or the files cannot be used.
        UsageError: ``options.kind`` is not a kind, or the name of a split is invalid.
        NotStoredError: the location does not exist.
        StorageError: a file cannot be read or downloaded.
    """
    options = options or AddOptions()
    if options.kind is not None and options.kind not in KINDS:
        raise UsageError(
            f"{options.kind!r:.60} is not a kind of source",
            hint=suggest(options.kind, KINDS, have="The kinds are:", most=len(KINDS)),
            details={"kind": options.kind[:60], "known": list(KINDS)},
        )
    for split in options.splits or ():
        check_split_name(split)
    config = options.source_config()
    choose = None if config is None else partial(files_of_config, config)
    files = list_files(location, progress=progress, choose=choose)
    return rename_splits(_open(files, options, is_extracted=False), options)


def _open(files: Files, options: AddOptions, *, is_extracted: bool) -> Source:
    if not files.names:
        raise _empty(files)
    if options.kind is not None:
        names = _names_of_kind(options.kind, files)
        _refuse_pointers(files, names)
        return _open_kind(options.kind, files, names, options)
    _refuse_pointers(files, [name for name in files.names if kind_of(name) is not None] or files.names)
    if is_hugging_face(files):
        return _open_kind("hugging_face", files, files.names, options)
    if find_document(files) is not None:
        return _open_kind("croissant", files, files.names, options)
    refuse_folders_of_others(files.names, files.location, is_extracted=is_extracted)
    records = next((name for name in files.names if format_of_records(name) is not None), None)
    if records is not None:  # notes next to the archives are not data
        raise explain_records(files.store, records, _folder_of(files, is_extracted=is_extracted))
    found = _group(files)
    archives = found.pop(ARCHIVE, [])
    if archives and not found:
        return _open_archives(files, archives, options, is_extracted=is_extracted)
    if len(found) == 1 and not archives:
        ((kind, names),) = found.items()
        return _open_kind(kind, files, names, options)
    records_beside = [name for names in found.values() for name in names]
    if archives and all(map(is_metadata, records_beside)):  # columns of the files in the archives
        return _open_archives(files, archives, options, is_extracted=is_extracted, metadata=records_beside)
    raise _ambiguous(files, found, archives) if found else _unknown(files)


def _refuse_pointers(files: Files, names: Iterable[str]) -> None:
    """Refuse ``names`` if they only say where Git LFS has the data, as in a clone without it. Raises SourceError."""
    small = {name for name, size in zip(files.names, files.sizes, strict=True) if size in _POINTER_SIZES}
    for name in islice(filter(small.__contains__, names), _MOST_SNIFFED):
        if format_of(_head_of(files, name)) == "Git LFS pointer":
            raise SourceError(
                f"{name} is a pointer of Git LFS, not the file itself",
                hint="Download the files of the repository: git lfs pull",
                details={"location": files.location, "file": name},
            )


def _open_archives(
    files: Files, archives: Sequence[str], options: AddOptions, *, is_extracted: bool, metadata: Sequence[str] = ()
) -> Source:
    tars = [name for name in archives if is_webdataset(root_of(files.store) / name)]
    if tars == archives and not metadata:
        return _open_kind("webdataset", files, archives, options)
    if is_extracted:
        raise SourceError(
            f"{files.location} contains archives in an archive: {', '.join(archives[:5])}",
            hint="Extract them, then add the folder.",
            details={"location": files.location, "archives": list(archives[:100])},
        )
    inside = extract(replace(files, skipped=_skip_others(files, [*archives, *metadata])), archives, beside=metadata)
    source = _open(_without_common_folder(inside), options, is_extracted=True)
    return replace(source, summary=f"{counted(len(archives), 'archive')}: {source.summary}")


def _open_kind(kind: str, files: Files, names: Sequence[str], options: AddOptions) -> Source:
    """Open ``names`` with the reader of ``kind``, and report the other files as skipped."""
    if kind in MEDIA:
        names = sorted({*names, *filter(is_metadata, files.names)})
    if options.kind == kind and kind != "webdataset" and all(map(is_archive, names)):
        inside = extract(replace(files, skipped=_skip_others(files, names)), names)
        return _open(_without_common_folder(inside), options, is_extracted=True)
    options.require_kind(kind)
    given = files
    if len(names) < len(files.names):
        given = replace(files.only(names), skipped=_skip_others(files, names, kind=kind))
    source = open_kind(kind, given, options)
    if _CARD in files.names and _CARD not in names:
        card = read_card(files.store)
        uses = [
            replace(file, reason=describe_card(card)) if (file.name, file.role) == (_CARD, "metadata") else file
            for file in source.files
        ]
        source = replace(source, metadata=fill_from_card(source.metadata, card), files=uses)
    return source


def _names_of_kind(kind: str, files: Files) -> Sequence[str]:
    """Return the files with an extension of the forced kind; if there is none, the archives, or files of no kind.

    A ``.txt`` file may be a table of text: if it is a note, the reader refuses it.
    """
    archives = [name for name in files.names if is_archive(name)]
    if kind == "webdataset":
        return archives or files.names
    if not KINDS[kind].extensions:  # the reader needs all of them
        return files.names
    names = [name for name in files.names if name.lower().endswith(KINDS[kind].extensions)]
    if kind in MEDIA or kind == "text":
        return names or archives or files.names
    # Side files may also have the extension of the kind.
    records = [name for name in names or files.names if _why_side_file(name) is None]
    if names:
        return records or names
    texts = (".txt",) if kind in ("csv", "json") else ()
    unknown = [name for name in records if kind_of(name) is None or name.lower().endswith(texts)]
    return archives or unknown or records or files.names


def _group(files: Files) -> dict[str, list[str]]:
    """Group the files that may be records by kind."""
    result: defaultdict[str, list[str]] = defaultdict(list)
    others: list[str] = []
    for name in files.names:
        kind = kind_of(name)
        if kind is None:
            others.append(name)
        else:
            result[kind].append(name)
    if not any(result.values()):
        for name in others[:_MOST_SNIFFED]:
            if _how_to_read(files, name) is None and _why_side_file(name) is None:
                kind = sniff_kind(root_of(files.store) / name)
                if kind is not None:
                    result[kind].append(name)
    if any(kind in result for kind in MEDIA):
        # They have columns of the media, not records of their own.
        result = defaultdict(
            list, {k: [name for name in those if not is_metadata(name)] for k, those in result.items()}
        )
    # README.md counts as one of the texts of a folder only if there is no other text.
    records = {kind: [name for name in those if _why_side_file(name) is None] for kind, those in result.items()}
    records = {kind: those for kind, those in records.items() if those}
    if len(records) > 1 and not _are_described(files, records):
        records.pop("text", None)
    records = records or {kind: those for kind, those in result.items() if those}
    if [*records] == ["text"] and len(records["text"]) <= _MOST_NOTES:
        unknown = sum(files.size_of(name) for name in others if _why_side_file(name) is None)
        if sum(map(files.size_of, records["text"])) < unknown:  # notes about data of another kind
            return {}
    return records


def _are_described(files: Files, records: Mapping[str, Sequence[str]]) -> bool:
    """Whether text files next to other files are data.

    They are if there are many, if a table or the name of a file names one, or if one names a file, such as captions,
    and no metadata file describes the files.
    """
    texts = records.get("text", ())
    if not 0 < len(texts) <= _MOST_NOTES or _find_pair(records, "text") is not None:
        return len(texts) > 0

    words = [name.rpartition("/")[2].encode() for name in texts]
    tables = [*records.get("csv", ()), *records.get("json", ())][:_MOST_NOTES]
    if any(word in _head_of(files, name) for name in tables for word in words):
        return True
    if any(map(is_metadata, files.names)):
        return False
    media = {name.rpartition("/")[2].encode() for kind in MEDIA for name in records.get(kind, ())}
    # Transcripts name 19-198-0001.flac without its extension. A note may have the word "cat", or the number 2.
    media |= {stem for name in media if len(stem := name.rpartition(b".")[0]) > _SHORT_STEM and _DIGIT.search(stem)}
    return any(not media.isdisjoint(_BETWEEN_NAMES.split(_head_of(files, name))) for name in texts)


def _head_of(files: Files, name: str) -> bytes:
    path = root_of(files.store) / name
    with storage_errors("read", str(path)), path.open("rb") as file:
        return file.read(_NAMED_IN)


def _find_pair(records: Mapping[str, Sequence[str]], *kinds: str) -> tuple[str, str] | None:
    """Return the first file of ``kinds`` and the image, sound or video of the same name: ``1.txt`` and ``1.png``."""
    media = {name.rpartition(".")[0]: name for kind in MEDIA for name in records.get(kind, ())}
    texts = (name for kind in kinds for name in records.get(kind, ()) if name.rpartition(".")[0] in media)
    return next(((text, media[text.rpartition(".")[0]]) for text in texts), None)


def _why_side_file(name: str) -> str | None:
    """Explain why a file next to records is not a record itself. Returns None if it may be a record."""
    last = name.rpartition("/")[2].lower()
    extension = extension_of(last)
    stem = last.removesuffix(extension)
    if extension in _DOCUMENT_EXTENSIONS and stem.replace("-", ".").replace("_", ".").split(".")[0] in _DOCUMENTS:
        return "documentation"
    if extension in _CHECKSUM_EXTENSIONS or (stem in _CHECKSUMS and extension in ("", ".txt")):
        return "checksums"
    return "a description for other software" if last in _DESCRIPTIONS else None


def _skip_others(files: Files, names: Iterable[str], *, kind: str | None = None) -> tuple[FileUse, ...]:
    """Report the files that are not among ``names`` as skipped, in addition to those that were skipped earlier."""
    used = set(names)
    if len(used) == len(files.names):
        return files.skipped
    others: defaultdict[tuple[Role, str], list[str]] = defaultdict(list)
    reasons = {None: "no known kind", ARCHIVE: "an archive beside other files", "text": "a note"}
    for name in files.names:
        if name in used:
            continue
        if name == _CARD:
            others["metadata", "the dataset card"].append(name)
        else:
            reason = _why_side_file(name) or reasons.get(kind_of(name), f"not {kind}")
            others["skipped", reason].append(name)
    uses = [use for (role, reason), some in sorted(others.items()) for use in files.uses(some, role, reason=reason)]
    return (*files.skipped, *uses)


def _without_common_folder(files: Files) -> Files:
    """Make the only folder of an archive the source, if it contains all files."""
    while files.names and "/" in files.names[0]:
        folder = files.names[0].partition("/")[0]
        if split_of_folder(folder) is not None or not all(name.startswith(f"{folder}/") for name in files.names):
            break
        inside = len(folder) + 1
        files = replace(files, store=files.store.child(folder), names=[name[inside:] for name in files.names])
    return files


def _folder_of(files: Files, *, is_extracted: bool) -> str:
    """The folder of the files, for a command that needs one."""
    if is_extracted:
        return "DIR"
    if "://" in files.location or root_of(files.store) == Path(files.location).resolve():
        return files.location
    return str(root_of(files.store))


def _empty(files: Files) -> SourceError:
    reasons: defaultdict[str, int] = defaultdict(int)
    for use in files.skipped:
        reasons[use.reason] += use.num_files
    told = ", ".join(f"{number:,} ({reason})" for reason, number in sorted(reasons.items()))
    return SourceError(
        f"{files.location} contains no files" + (f" that can be used; skipped: {told}" if told else ""),
        hint=f"Copy the files that the links point to, then add the copy: cp -rL {shlex.quote(files.location)} COPY"
        if any(reason.startswith("a link that leads out") for reason in reasons)
        else "Check the path.",
        details={"location": files.location, "skipped": dict(reasons)},
    )


def _ambiguous(files: Files, found: Mapping[str, Sequence[str]], archives: Sequence[str]) -> SourceError:
    by_number = sorted(found, key=lambda kind: (-len(found[kind]), kind))
    counts = [counted(len(found[kind]), KINDS[kind].noun) for kind in by_number]
    if archives:
        counts.append(counted(len(archives), "archive"))
    flags = [spell("kind", kind) for kind in by_number]
    choice = f"{', '.join(flags[:-1])} or {flags[-1]}" if len(flags) > 1 else flags[0]
    tables = [kind for kind in by_number if kind in ("csv", "json", "parquet")]
    media = [kind for kind in by_number if kind in MEDIA]
    described = f"{KINDS[media[0]].noun}s" if media else "files in the archives" if archives else ""
    hint = f"Choose the records; the other files are skipped: {choice}"
    if (pair := _find_pair(found, "text", "json")) is not None:
        way = f", add a tar of the folder: tar --sort=name -cf NAME.tar -C {shlex.quote(files.location)} ."
        way = f": {spell('kind', 'webdataset')}" if files.location.endswith(".tar") else way
        hint += f". To have {pair[0]} and {pair[1]} in one record{way}"
    elif tables and described:
        names = [name.rpartition("/")[2] for name in found[tables[0]]]
        extension = {"csv": ".csv", "json": ".jsonl", "parquet": ".parquet"}[tables[0]]
        hint += (
            f". If {names[0]} describes the {described}, call it metadata{extension}, with a column file_name"
            if len(names) == 1
            else f". If {names[0]}, {names[1]} describe the {described}, give each a folder with its files, "
            f"call it metadata{extension} there, with a column file_name"
        )
    elif media and "text" in by_number:
        stems = {name.rpartition("/")[2].rpartition(".")[0] for kind in media for name in found[kind]}
        texts = [name.rpartition("/")[2] for name in found["text"]]
        if len(texts) <= _MOST_NOTES:
            hint += f". If {texts[0]} describes the {described}, write it as metadata.csv, with a column file_name"
        elif text := next((name for name in texts if name.rpartition(".")[0] in stems), None):
            hint += f". To have {text} and a file of the same name in one record, move them into one folder, and add "
            hint += "a tar of it"
    elif tables and "text" in by_number:
        hint += ". To have the texts and the columns in one record, write each text into a column of the table"
    elif archives:
        hint += ". To add the files in the archives, name the archives instead of the folder"
    return SourceError(
        f"{files.location} contains files of several kinds: {', '.join(counts)}",
        hint=hint,
        details={"location": files.location, "kinds": {kind: len(found[kind]) for kind in by_number}},
    )


def _unknown(files: Files) -> SourceError:
    unknown = [name for name in files.names if kind_of(name) is None and _why_side_file(name) is None] or files.names
    names = ", ".join(map(repr, unknown[:3])) + (" ..." if unknown[3:] else "")
    hints = {_how_to_read(files, name) for name in unknown[:3]}
    return SourceError(
        f"{files.location}: the kind of {names} is unknown",
        hint=(hints.pop() if len(hints) == 1 else None)
        or f"Name the kind: {spell('kind=KIND')}, with one of {', '.join(KINDS)}. "
        "Or read the files in Python, and pass rows: registry.add([{'id': 1}, {'id': 2}], 'NAME')",
        details={"location": files.location, "files": list(files.names[:100])},
    )


def _how_to_read(files: Files, name: str) -> str | None:
    """Explain how to add a file that is read by other software, or return None for other files."""
    path = root_of(files.store) / name
    if not path.is_relative_to(Path(files.location).resolve()):  # a temporary copy from an archive or a URL
        path = Path(name)
    ending = name.lower()
    return next((hint.format(path=str(path)) for ends, hint in _OTHER_FORMATS if ending.endswith(ends)), None)
