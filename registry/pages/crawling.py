"""Renders the pages of one dataset as files of a site: from their first page on, every page and file that is linked.

Datasets are rendered in worker processes, each of which opens the snapshot. A snapshot never changes, so the answers of
its catalog are cached while the pages of a dataset are rendered, because they make the same calls.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from registry.api import Catalog
from registry.api.locations import ClientDataDirectory
from registry.catalog import open_catalog
from registry.catalog.wrapper import CatalogWrapper, pass_call
from registry.errors import NotFoundError, RegistryError, StorageError
from registry.model import DatasetVersion, Reference, Version
from registry.pages.dataset import older
from registry.pages.page import DATASETS, Media, Page, SiteView, Visit, file_names, version_path
from registry.pages.rendering import json_of, render, rendered_error
from registry.pages.routes import answer
from registry.pages.site_files import FileFacts

if TYPE_CHECKING:
    from registry.api import Dataset
    from registry.api.provenance import CatalogSource
    from registry.catalog import CatalogBackend, VersionSummary

Address: TypeAlias = tuple[str, ...]
Twins: TypeAlias = dict[Address, tuple[Page, str]]

_NOT_MADE = "This page could not be created when the site was written: {}"


def group_of(path: Address) -> str:
    """The group of files that a page belongs to: the name of its dataset, or ``""`` for the whole catalog."""
    return path[1] if path[0:1] == (DATASETS,) and len(path) > 1 else ""


def page_name(path: Address) -> str:
    """The file of the page at an address."""
    return "/".join((*file_names(path), "index.html"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Crawl:
    """Pages of one group to render.

    Attributes:
        group: the name of the group, see ``group_of``.
        roots: where to begin.
        present: the files that the site has. Those that do not change are not written.
        done: the files that were rendered before.
    """

    group: str
    roots: tuple[Address, ...]
    present: Mapping[str, FileFacts] = field(default_factory=dict)
    done: Collection[str] = ()


@dataclass(slots=True, kw_only=True)
class Crawled:
    """The files of the pages that were rendered.

    Attributes:
        files: by name.
        types: the content types of media, by the names of their files.
        links: addresses in other groups that the pages lead to.
        problems: the addresses that have no page, and why.
        is_complete: whether nothing but missing pages is among the problems, so that another run would do the same.
        num_pages: the number of pages.
    """

    files: dict[str, FileFacts] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    links: set[Address] = field(default_factory=set)
    problems: list[tuple[str, str]] = field(default_factory=list)
    is_complete: bool = True
    num_pages: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteRenderer:
    """Renders groups of pages.

    Attributes:
        snapshot: the path of the catalog that the site contains.
        data_dir: the path or URL of the data directory.
        folder: the path of the staged folder that gets the files.
        view: the site.
        records: how many records of each split have pages; None for all.
        versions: how many of the newest versions of each dataset have all pages; None for all.
        private: a pattern of what no page may contain: paths of this machine.
        outside: the folders of versions outside of the data directory, which the snapshot does not name.
    """

    snapshot: str
    data_dir: str
    folder: str
    view: SiteView
    records: int | None
    versions: int | None
    private: str
    outside: Mapping[str, str]

    def __call__(self, crawl: Crawl) -> Crawled:
        """Render the pages of a group, and write the files that differ from those of the site."""
        catalog = open_snapshot(self.snapshot, self.data_dir)
        catalog.forget()
        catalog.outside = self.outside
        view = replace(self.view, brief=self._brief(catalog, crawl.group)) if crawl.group else self.view
        result, waiting, seen, twins = Crawled(), list(crawl.roots), set(crawl.roots), dict[Address, tuple[Page, str]]()
        while waiting:
            path = waiting.pop()
            if crawl.done and (page_name(path) in crawl.done or "/".join(file_names(path)) in crawl.done):
                continue
            visit = Visit(catalog=catalog, path=path, is_live=False, most_records=self.records, site=view)
            targets = self._write(visit, crawl, result, twins)
            for target in sorted(targets - seen, key=len, reverse=True):  # the first page of the records comes first
                seen.add(target)
                if group_of(target) == crawl.group:
                    waiting.append(target)
                else:
                    result.links.add(target)
        return result

    def _write(self, visit: Visit, crawl: Crawl, result: Crawled, twins: Twins) -> set[Address]:
        path, targets = visit.path, set[Address]()
        name = "/".join(file_names(path))
        if path[:1] == ("static",):
            contents = {name: files("registry.pages").joinpath(*path).read_bytes()}
        else:
            page, text = self._answer(visit, result, twins)
            if isinstance(page, Media):
                contents = {name: page.content}
                result.types[name] = page.content_type or "application/octet-stream"
            else:
                html, targets = render(page, visit)
                folder = f"{name}/" if name else ""
                parts = {f"{folder}index.html": html, f"{folder}index.json": text}
                contents = {part: re.sub(self.private, "…", content).encode() for part, content in parts.items()}
                result.num_pages += 1
        for part, content in contents.items():
            facts = FileFacts(len(content), hashlib.sha256(content).hexdigest())
            result.files[part] = facts
            if crawl.present.get(part) != facts:
                _write_file(Path(self.folder, part), content)
        return targets

    def _answer(self, visit: Visit, result: Crawled, twins: Twins) -> tuple[Any, str]:
        """A page and its JSON, or media. A page that fails is words about it, so that links to it work.

        ``twins`` are pages that another address shows, too: that of the version of a dataset, and of its first split.
        """
        path = visit.path
        try:
            if visit.site is not None and path in visit.site.brief:
                page: Page | Media = older(visit, path)
            elif path in twins:
                return twins.pop(path)
            else:
                page = answer(visit)
            if isinstance(page, Media):
                return page, ""
            public = _with_public_faults(page, path, result)
            text = json_of(public)
            if public is not page:  # the problems of the other address are reported, too
                return public, text
            if page.name == "dataset" and path != page.values["version_path"]:
                twins[page.values["version_path"]] = page, text
            elif page.name == "records" and path[-1] == "records":
                twins[*path, page.values["split"]] = page, text
            return page, text
        except RegistryError as error:
            result.problems.append(("/".join(path), error.message))
            if isinstance(error, NotFoundError):
                problem: RegistryError = error
            else:  # the message may have paths of this machine
                result.is_complete = False
                problem = StorageError(_NOT_MADE.format(error.code), hint=None, details={})
            if "media" in path[3:5]:
                return Media(content=f"{problem.message}\n".encode(), content_type="text/plain; charset=utf-8"), ""
            return rendered_error(problem, visit)

    def _brief(self, catalog: SnapshotCatalog, name: str) -> frozenset[Address]:
        """The addresses of the versions of a dataset that have one short page."""
        if self.versions is None:
            return frozenset()
        result, names = set(), catalog.configs
        for reference in names.get(name) or names.get(catalog.present_name(name), []):
            summaries = catalog.versions(reference)
            pages: set[Version | None] = {alias.version for alias in catalog.aliases.list(reference.dataset)}
            readable = [it for it in summaries if str(it.status) != "dropped"]
            pages |= {it.version for it in readable[: self.versions]} | {it.canonical for it in summaries}
            result |= {version_path(it.reference) for it in readable if it.version not in pages}
        return frozenset(result)


def _write_file(place: Path, content: bytes) -> None:
    """Write a file. Its folder is made where it is missing, so only for the first of the two files of a page."""
    try:
        place.write_bytes(content)
    except FileNotFoundError:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)


def _with_public_faults(page: Page, path: Address, result: Crawled) -> Page:
    """A page of records without the messages of records that cannot be read, which may have paths of this machine."""
    if page.values.get("is_unreadable"):  # statistics, which may be there again
        result.is_complete = False
    if page.name not in ("record", "records"):
        return page
    values = dict(page.values)
    parts = [values, *values.get("rows", ())]
    faults = [part["problem"] for part in parts if part["problem"] is not None]
    if not faults:
        return page
    result.is_complete = False
    result.problems.append(("/".join(path), faults[0]["message"]))
    public = [
        part if part["problem"] is None else {**part, "problem": {**part["problem"], **_said(part["problem"]["code"])}}
        for part in parts
    ]
    return replace(page, values=public[0] | ({"rows": public[1:]} if "rows" in values else {}))


def _said(code: str) -> dict[str, Any]:
    return {"message": _NOT_MADE.format(code), "hint": None}


class _Remembered(CatalogWrapper):
    """The catalog protocol of a snapshot, with every answer cached."""

    def __init__(self, backend: CatalogBackend) -> None:
        self._backend, self.url, self.file = backend, backend.url, backend.file
        self.answers: dict[tuple[Any, ...], Any] = {}

    def _call(self, call: str, *args: Any, **kwargs: Any) -> Any:
        values = (*args, *kwargs.items())
        key = call, *(value.reference if isinstance(value, DatasetVersion) else value for value in values)
        try:
            if key not in self.answers:
                self.answers[key] = pass_call(self._backend, call, *args, **kwargs)
        except TypeError:  # a value that cannot be a key
            return pass_call(self._backend, call, *args, **kwargs)
        return self.answers[key]


class SnapshotCatalog(Catalog):
    """The catalog of a snapshot. It returns the same ``Dataset`` again, which caches what it has read."""

    outside: Mapping[str, str] = {}
    """The folders of versions on this machine that are not below the data directory, by reference."""

    def _source(self, version: DatasetVersion) -> CatalogSource:
        place = self.outside.get(str(version.reference))
        return super()._source(version if place is None else replace(version, location=place, location_steps=()))

    def look_up(self, reference: Any, **options: Any) -> Dataset:
        """See ``Catalog.look_up``."""
        key = "look_up", str(getattr(reference, "reference", reference)), *options.items()
        answers = cast("_Remembered", self.backend).answers
        if key not in answers:
            dataset = super().look_up(reference, **options)
            answers[key] = answers.setdefault(("look_up", str(dataset.reference)), dataset)
        return cast("Dataset", answers[key])

    @cached_property
    def configs(self) -> dict[str, list[Reference]]:
        """The configs of all datasets by name."""
        result: dict[str, list[Reference]] = {}
        for it in self.datasets():
            result.setdefault(it.name, []).append(Reference(name=it.name, config=it.config))
        return result

    def versions(
        self, reference: Any, *, below: Version | None = None, limit: int | None = None, **options: Any
    ) -> tuple[VersionSummary, ...]:
        """See ``Catalog.versions``. All are read once: every page of a dataset has some of them."""
        key, answers = ("versions", str(reference), *options.items()), cast("_Remembered", self.backend).answers
        if key not in answers:
            answers[key] = super().versions(reference, **options)
        every: tuple[VersionSummary, ...] = answers[key]
        start = 0 if below is None else bisect_left(every, True, key=lambda it: it.version < below)
        return every[start:][:limit]

    def forget(self) -> None:
        """Forget every answer but the list of datasets, which every group needs, to bound memory."""
        memory = cast("_Remembered", self.backend)
        memory.answers = {key: answer for key, answer in memory.answers.items() if key[0] == "datasets"}


@cache
def open_snapshot(path: str, data_dir: str) -> SnapshotCatalog:
    """The catalog of a snapshot, opened once in each process."""
    backend = cast("CatalogBackend", _Remembered(open_catalog(path, create=False)))
    return SnapshotCatalog(backend, directory=ClientDataDirectory(backend, data_dir))
