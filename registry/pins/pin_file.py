"""``PinFile``: the pins of a file by name, under one digest. It reads, checks, merges and writes the file."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from registry.argument_types import typed_methods
from registry.errors import ConflictError, NotStoredError, PinChangedError, PinFormatError, PinNotFoundError, UsageError
from registry.masking import remove_secrets
from registry.pins.consistency import find_faults
from registry.pins.document import LOCK_VERSION, PinDocument, canonical_json, check_form, find_changed, seal, to_plain
from registry.pins.pin import Pin, pins_html
from registry.pins.places import Places
from registry.pins.yaml_text import YamlDocument, join_key, read_yaml, write_yaml
from registry.storage import expand_home, open_parent, open_store, require_plain

if TYPE_CHECKING:
    from registry.model import SlicingRule
    from registry.order import ReadConfig
    from registry.reading import Slice
    from registry.splits import ReadInstruction

DEFAULT_FILENAME = "dataset.lock.yaml"

_MOST_TRIES: Final = 100
"""Attempts to write a file that others write too: each failure means that another writer succeeded."""

_COMMENT = """The exact records that were used. What the fields mean: docs/pinning.md of {software}.
Check it: registry pin verify FILE    Read it: registry.load_pin(FILE)["NAME"].read()"""


@typed_methods
class PinFile(Mapping[str, Pin]):
    r"""The pins of a file: a mapping from their names to ``Pin`` objects.

    ``Dataset.pin()`` and ``registry.load_pin()`` return a PinFile, because one file may contain several pins.
    ``pins["train"]`` returns a pin by its name, or by a split expression that only one of them has.

    Attributes:
        content: all values of the file, including fields that this release does not know.
        document: the known fields, validated.
        places: the places that are searched for the files of the pins.

    >>> import registry, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with registry.connect(f"{folder.name}/catalog.db") as catalog:
    ...     built = catalog.build("digits")
    ...     pins = catalog.dataset("digits:1.*").pin({"train": "train[:80%]", "test": "train[80%:]"})
    >>> list(pins), pins["train[80%:]"].name, pins["test"].num_examples
    (['train', 'test'], 'test', 359)
    >>> path = pins.save(f"{folder.name}/dataset.lock.yaml")
    >>> registry.load_pin(path) == pins
    True
    >>> folder.cleanup()

    A file that is invalid, or was edited, is rejected with the line and the field:

    >>> try:
    ...     PinFile.from_yaml(b"lock_version: 1\nlock_version: 1\n", "dataset.lock.yaml")
    ... except ValueError as error:
    ...     print(error)
    dataset.lock.yaml: line 2, lock_version: the key is given twice, in line 1 and here
    """

    def __init__(self, content: Mapping[str, Any], document: PinDocument, places: Places) -> None:
        """``content`` has the values of the file, including unknown fields; ``document`` has the known fields."""
        self.content = content
        self.document = document
        self.places = places
        self._pins = {entry.name: Pin(entry, places) for entry in document.pins}

    @classmethod
    def of(
        cls,
        entries: Sequence[Mapping[str, Any]],
        *,
        created_by: str,
        places: Places | None = None,
        base: PinFile | None = None,
    ) -> PinFile:
        """A new file from ``entries``, the plain values of its pins.

        Args:
            entries: one mapping for each pin, as ``make_entry`` returns it.
            created_by: name and version of the software that makes the file.
            places: the places to search for the files of the pins.
            base: a file whose unknown fields are kept.

        Raises:
            PinFormatError: an entry is invalid.
        """
        content: dict[str, Any] = {"lock_version": LOCK_VERSION, "created_by": created_by}
        content |= {"digest": "", "finder": "", "pins": list(entries)}
        if base is not None:
            content |= {key: value for key, value in base.content.items() if key not in content}
        content["digest"], content["finder"] = seal(content)
        return cls._checked(YamlDocument(content, {}), "the pin", Places() if places is None else places)

    @classmethod
    def from_yaml(cls, data: bytes, source: str, *, places: Places | None = None) -> PinFile:
        """The pins in YAML text.

        Args:
            data: the text, UTF-8.
            source: name of the file, for messages.
            places: the places to search for the files of the pins. None means ``Places()``.

        Raises:
            PinFormatError: the text is not a valid pin file; every fault has its key path and line.
            PinChangedError: the text was changed since it was written; the message names the field if only one was.
        """
        return cls._checked(read_yaml(data, source), source, Places() if places is None else places)

    def with_places(self, places: Places) -> PinFile:
        """A copy of these pins that searches for their files in ``places``."""
        return PinFile(self.content, self.document, places)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, places: Places | None = None) -> PinFile:
        """The pins in a file.

        Args:
            path: path or URL of the file.
            places: the places to search for the files of the pins. None means ``Places()``.

        Raises:
            PinFormatError: the file is not a valid pin file; every fault has its key path and line.
            PinChangedError: the file was changed since it was written.
            NotStoredError: the file does not exist.
            StorageError: the file cannot be read.
        """
        text = require_plain(os.fspath(path))
        store, name = open_parent(text)
        if name in ("", ".", ".."):
            raise NotStoredError(f"no pin file at {text!r}, which is a folder", hint="Name a file in it.")
        try:
            data = store.read_bytes(name)
        except NotStoredError as error:
            raise NotStoredError(
                f"no pin file at {text}",
                hint="To create one: registry pin create REF SPLIT -o FILE",
                details=error.details,
            ) from error
        return cls.from_yaml(data, text, places=places)

    @classmethod
    def _checked(cls, read: YamlDocument, source: str, places: Places) -> PinFile:
        content = read.value
        lock_version = content.get("lock_version")
        if type(lock_version) is int and lock_version > LOCK_VERSION:
            raise PinFormatError.of(
                source,
                [
                    (
                        "lock_version",
                        read.lines.get("lock_version"),
                        f"expected at most {LOCK_VERSION}, found {lock_version}",
                    )
                ],
                hint="Install a newer release: pip install --upgrade shardbook",
            )
        document, wrong = check_form(content)
        told = ((_key_path(keys, content), problem) for keys, problem in wrong)
        _refuse(source, read, [(key, problem[:1].lower() + problem[1:]) for key, problem in told])
        assert document is not None  # noqa: S101 (otherwise a fault was raised)
        sealed = seal(content)
        is_changed = sealed != (document.digest, document.finder)
        key = find_changed(content, to_plain(document)) if is_changed else None
        if key is None:  # otherwise the changed field explains more than its contradictions
            _refuse(source, read, find_faults(document))
        if is_changed:
            where = f"line {_line(read.lines, key)}, {key}: this was" if key and read.lines else f"{key or 'it'} was"
            raise PinChangedError(
                f"{source}: {where} changed since the file was written: its digest does not match its content",
                hint="Get the file again from where it was published. If the change is intended, make a new pin file.",
                details={"file": source, "key": key, "digest": document.digest, "found": sealed[0]},
            )
        return cls(content, document, places)

    def without_secrets(self) -> PinFile:
        """These pins without passwords and signatures in URLs, which older releases stored; else ``self``."""
        entries = [_without_secrets(entry) for entry in self.content["pins"]]
        return self if entries == self.content["pins"] else self._with(entries)

    @property
    def digest(self) -> str:
        """``sha256:`` and 64 hex digits over all values of the file."""
        return self.document.digest

    def to_yaml(self) -> str:
        """The text of the file. The same values give the same text."""
        # A file that was written under the distribution's old name keeps its bytes: its text may be signed.
        was_named = str(self.content["created_by"]).startswith("dataset-registry ")
        comment = _COMMENT.format(software="dataset-registry" if was_named else "shardbook")
        # Known fields have the order of the format; unknown ones come after them.
        return write_yaml(_in_order(to_plain(self.document), self.content), comment=comment)

    def to_json(self) -> str:
        """The values of the file as one line of JSON with sorted keys."""
        return canonical_json(self.content)

    def save(
        self,
        path: str | os.PathLike[str] = DEFAULT_FILENAME,
        *,
        force: bool = False,
        expected: str | None = None,
    ) -> str:
        """Write the file atomically and return its absolute path. A file with the same content is not touched.

        Args:
            path: the path of the file.
            force: replace an existing file that has other content.
            expected: the digest of the file to replace. None replaces any file.

        Raises:
            AlreadyStoredError: a file with other content exists, and ``force`` is False.
            ConflictError: the existing file does not have the digest ``expected``: somebody changed it in the meantime.
            StorageError: the file cannot be written.
        """
        place = expand_home(path).absolute()
        store, data = open_store(place.parent), self.to_yaml().encode()
        with store.exclusive(place.name):
            there = store.read_bytes(place.name) if store.exists(place.name) else None
            if there == data:
                return str(place)
            if expected is not None and (found := _digest_of(there)) != expected:
                raise ConflictError(
                    f"{os.fspath(path)} was changed by somebody else in the meantime",
                    hint="Run the same command again.",
                    details={"path": str(place), "expected": expected, "found": found},
                )
            with store.create(place.name, overwrite=force) as file:
                file.write(data)
        return str(place)

    def add_to(self, path: str | os.PathLike[str], base: PinFile) -> PinFile:
        """Write these pins, which are ``base`` and new pins, to the file at ``path``, from which ``base`` was read.

        If the file was changed in the meantime, the new pins are added to its current pins.

        Args:
            path: path of the file.
            base: the pins as they were read from it.

        Returns:
            The pins that were written.

        Raises:
            ConflictError: the file now has another pin of that name, or it changes repeatedly.
            PinFormatError, PinChangedError: the file at ``path`` is now invalid.
            StorageError: the file cannot be read or written.
        """
        new = [name for name in self._pins if name not in base._pins]
        result = self
        for _ in range(_MOST_TRIES):
            try:
                result.save(path, force=True, expected=base.digest)
            except ConflictError:
                if not new:
                    raise
                base = PinFile.load(path, places=self.places)
                result = base.merged(self.only(new))
            else:
                return result
        result.save(path, force=True, expected=base.digest)
        return result

    def merged(self, other: PinFile) -> PinFile:
        """This file with the pins of ``other`` added, and the unknown fields of both.

        Raises:
            ConflictError: two different pins have the same name.
        """
        entries = list(self.content["pins"])
        for entry in other.content["pins"]:
            if entry["name"] in self._pins and entry != self.content["pins"][list(self).index(entry["name"])]:
                raise name_taken(self[entry["name"]], entry["split"])
            if entry["name"] not in self._pins:
                entries.append(entry)
        both = PinFile({**other.content, **self.content}, self.document, self.places)
        return PinFile.of(entries, created_by=other.document.created_by, places=self.places, base=both)

    def only(self, names: Collection[str]) -> PinFile:
        """A file with some of these pins, chosen as in ``choose``.

        Raises:
            PinNotFoundError: a name is unknown.
        """
        chosen = {pin.name for pin in self.choose(names)}
        entries = [entry for entry in self.content["pins"] if entry["name"] in chosen]
        return self if len(chosen) == len(self) else self._with(entries)

    def _with(self, entries: Sequence[Mapping[str, Any]]) -> PinFile:
        return PinFile.of(entries, created_by=self.document.created_by, places=self.places, base=self)

    def slice_of(
        self,
        split: str | ReadInstruction | None = None,
        read_config: ReadConfig | None = None,
        *,
        slicing: SlicingRule | str | None = None,
        rounding: str | None = None,
    ) -> Slice:
        """The slice of the only pin in the file, for functions that accept a dataset.

        Args:
            split: the pinned expression, or None.
            read_config: the order. None means the pinned order.
            slicing: the pinned slicing rule, or None.
            rounding: the pinned rounding, or None.

        Raises:
            UsageError: the file has several pins, or an argument differs from the pinned one.
            NotStoredError, FetchNotAllowedError: the files are not found, as in ``Pin.read``.
            RecordsMismatchError: the files hold other records.
        """
        if len(self._pins) != 1:
            names = list(self._pins)
            raise UsageError(
                f"expected a file with one pin, found {len(names)}: {', '.join(names[:20])}",
                hint=f"Choose one, e.g. load_pin(...)[{names[0]!r}]" if names else None,
                details={"known": names[:100]},
            )
        (pin,) = self._pins.values()
        return pin.slice_of(split, read_config, slicing=slicing, rounding=rounding)

    def choose(self, names: Collection[str] | None) -> list[Pin]:
        """The pins with these names or split expressions, in the order of the file; all pins for None or no names.

        Raises:
            PinNotFoundError: a name is unknown.
        """
        wanted = {self.find(name).name for name in names or self}
        return [pin for pin in self.values() if pin.name in wanted]

    def find(self, name: str) -> Pin:
        """The pin with that name, or the only one with that split expression.

        Raises:
            PinNotFoundError: the name is unknown, or several pins have the expression; the hint lists their names.
        """
        if name in self._pins:
            return self._pins[name]
        of_split = [pin for pin in self._pins.values() if pin.split == name]
        if len(of_split) == 1:
            return of_split[0]
        if of_split:
            raise PinNotFoundError(
                f"{len(of_split)} pins have the expression {name!r}",
                hint=f"Use a name instead: {', '.join(pin.name for pin in of_split)}.",
                details={"name": name, "known": [pin.name for pin in of_split]},
            )
        raise PinNotFoundError.of(name, self._pins, where="the pin file")

    def __getitem__(self, name: str) -> Pin:
        return self.find(name)

    def __contains__(self, name: object) -> bool:
        return name in self._pins or [pin.split for pin in self._pins.values()].count(name) == 1  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[str]:
        return iter(self._pins)

    def __len__(self) -> int:
        return len(self._pins)

    def __eq__(self, other: object) -> bool:
        return self.content == other.content if isinstance(other, PinFile) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)

    def _repr_html_(self) -> str:
        return pins_html(repr(self), self.values())

    def __repr__(self) -> str:
        return f"<PinFile {self.digest[:19]}: {', '.join(self)}>"


def name_taken(pin: Pin, split: str) -> ConflictError:
    """The error for a new pin of ``split`` that has the name of the existing ``pin``."""
    return ConflictError(
        f"the file already has another pin {pin.name!r}: {pin.reference} {pin.split}",
        hint=f"Choose another name: NAME={split}",
        details={"name": pin.name},
    )


def _without_secrets(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a pin without secrets; fields that this release does not know are kept."""

    def cleaned(value: Mapping[str, Any]) -> dict[str, Any]:
        return {**value, "locations": [remove_secrets(url) for url in value["locations"]]}

    provenance = dict(entry["provenance"])
    if "homepage" in provenance:
        provenance["homepage"] = remove_secrets(provenance["homepage"])
    if "sources" in provenance:
        provenance["sources"] = [{**source, "url": remove_secrets(source["url"])} for source in provenance["sources"]]
    files = [cleaned(file) if "locations" in file else file for file in entry["files"]]
    return {**cleaned(entry), "files": files, "provenance": provenance}


def _in_order(model: Any, value: Any) -> Any:
    if isinstance(value, Mapping) and isinstance(model, Mapping):
        known = {key: _in_order(model[key], value[key]) for key in model if key in value}
        return known | {key: value[key] for key in value if key not in known}
    if isinstance(value, list) and isinstance(model, list):
        return [_in_order(part, inner) for part, inner in zip(model, value, strict=True)]
    return value


def _digest_of(data: bytes | None) -> str | None:
    """The digest of the pin file ``data``; None if it is invalid or was changed."""
    try:
        return None if data is None else PinFile.from_yaml(data, "the file").digest
    except (PinFormatError, PinChangedError):
        return None


def _refuse(source: str, read: YamlDocument, faults: Sequence[tuple[str, str]]) -> None:
    """Raise PinFormatError for ``faults``, if there are any."""
    if faults:
        raise PinFormatError.of(source, [(key, _line(read.lines, key), problem) for key, problem in faults])


def _key_path(location: Sequence[str | int], content: Any) -> str:
    path = ""
    for key in location:
        if key == "[key]" and not (isinstance(content, Mapping) and key in content):
            break  # pydantic marks an invalid key this way
        path = join_key(path, key)
        is_there = (
            isinstance(content, list) if isinstance(key, int) else isinstance(content, Mapping) and key in content
        )
        content = content[key] if is_there else None
    return path


def _line(lines: Mapping[str, int], key: str | None) -> int | None:
    """The line of ``key`` or, for a missing field, of the nearest enclosing value."""
    while key:
        if key in lines:
            return lines[key]
        key = key[: max(key.rfind("."), key.rfind("["), 0)]
    return None
