"""``write_site``: the pages of a catalog as files for any web server, with a catalog that clients can open.

    catalog  ->  snapshot  ->  pages of each dataset, in worker processes  ->  a staged folder  ->  the site

Pages are rendered from the snapshot that the site contains, so they cannot show anything that the snapshot lacks: other
datasets, names of people, or local paths. Rendering starts at the first page of a dataset and follows every link, so
each link of a site leads to a file. The files of a dataset are kept if no later event concerns it.

Older versions have one short page, made from the list of versions. With all pages, they would take most of the space
and time; to see the records of an older version, use ``registry browse URL``.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from registry.api import Catalog
from registry.catalog import EventFilter, stream_events
from registry.catalog.site_index import INDEX_NAME, SiteIndex, is_local, parse_site_index
from registry.engines import Piece, choose_engine, watch_tasks
from registry.errors import NotStoredError, SiteFormatError, StorageError, UsageError, spell
from registry.model import Reference, VersionState, count_progress, is_absolute, whole_number
from registry.pages.crawling import Address, Crawl, SiteRenderer, group_of, open_snapshot, page_name
from registry.pages.page import DATASETS, Page, SiteView, Visit, file_names
from registry.pages.rendering import catalog_name, first_words, render
from registry.pages.site_files import DATA, MANIFEST, FileFacts, FileGroup, SiteFiles, place_files, sizes_of
from registry.pages.site_index import CATALOG_NAME, write_index
from registry.storage import LocalStore, Store, expand_home, open_store, require_no_secrets, spell_place
from registry.storage.temporary import TemporaryStore

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from registry.model import ProgressCallback

_MOST_IN_SITEMAP: Final = 50_000
_PROVED: Final = "-"
"""In place of the sha256 of a file of the data directory, which the catalog has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteReport:
    """The result of ``write_site``.

    Attributes:
        url: the path or URL of the site.
        num_pages: the number of its pages.
        num_files, num_bytes: the number and the size of its files.
        written, unchanged, removed: the numbers of files that were written, left unchanged, and removed.
        written_bytes: the size of the files that were written.
        problems: the addresses whose pages only show an error, and its message.
        notes: for people.
        index: the values of ``site.json``.
        dry_run: whether this was a dry run, which writes nothing.
    """

    url: str
    num_pages: int
    num_files: int
    num_bytes: int
    written: int
    unchanged: int
    removed: int
    written_bytes: int
    problems: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    index: SiteIndex
    dry_run: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteOptions:
    """What a site contains.

    Attributes:
        datasets: the names of datasets; None for all.
        records: how many records of each split have pages; None for all.
        versions: how many of the newest versions of each dataset have all pages, besides those with an alias; the
            others have one page. None for all.
        base_url: the address of the site, for canonical links, the site map, and code for readers.
        data_url: the URL of the data directory. None: that of the catalog, if it is a URL.
        with_data: copy the files of the versions into the site, as its data directory.
        with_actors: include the names of people who published or changed something.
    """

    datasets: tuple[str, ...] | None = None
    records: int | None = 100
    versions: int | None = 1
    base_url: str | None = None
    data_url: str | None = None
    with_data: bool = False
    with_actors: bool = False


def write_site(
    catalog: Catalog,
    out: str | os.PathLike[str],
    options: SiteOptions = SiteOptions(),
    *,
    key: Ed25519PrivateKey | None = None,
    force: bool = False,
    new_log: bool = False,
    dry_run: bool = False,
    progress: ProgressCallback | None = None,
) -> SiteReport:
    """Write the pages of a catalog, and a catalog for ``registry.connect(URL)``, to a folder or bucket.

    Only files that changed are written, each atomically. ``site.json`` and then the first page are written last, so
    readers see either the old or the new site. If a run is killed, the next run finishes it.

    Args:
        catalog: the catalog.
        out: the path or URL of the folder.
        options: what the site contains.
        key: the key that signs the index, ``site.json``.
        force: write into a folder that has other files, and render every page again.
        new_log: replace a site even if the new log does not continue its log; readers of the site will refuse it.
        dry_run: render everything, and write nothing to ``out``.
        progress: called with a ``Progress``.

    Raises:
        ConflictError: the folder has files that are not a site; another run wrote to it at the same time; or the site
            has a log that this one does not continue.
        DatasetNotFoundError: a dataset does not exist.
        UsageError: an address is not a URL, or contains a password.
        StorageError: a file cannot be written.
        MissingExtraError: Jinja is not installed (extra ``pages``).
    """
    for name in ("records", "versions"):
        if (number := getattr(options, name)) is not None:
            whole_number(number, name, least=1, hint="None means all.")
    store = open_store(out)
    with ExitStack() as stack:
        if not dry_run:
            stack.enter_context(store.exclusive(MANIFEST))
            store.clear_abandoned()
        old = SiteFiles.read(store, force=force)
        view, notes = _view(catalog, options)
        # Nothing private: readers of the site could test guesses of a path against the digests in its list of files.
        settings = [_software(), asdict(options), view.name, view.data_url, _name_of(key)]
        newest = catalog.backend.log.page(EventFilter(), newest=1)
        whole = _digest(settings, *(event.hash for event in newest))
        sizes = sizes_of(store, old.files)
        present = {name: it for name, it in old.files.items() if it.sha256 and sizes.get(name) == it.num_bytes}
        if old.key == whole and len(present) == len(old.files) and not force:
            return _report(store, old, read_index(store), notes=notes, dry_run=dry_run)
        folder = TemporaryStore() if dry_run else stack.enter_context(store.stage("site")).store
        if not isinstance(folder, LocalStore):
            raise AssertionError("files are staged on this machine")
        build = _Build(catalog, options, view, store, Path(folder.locate("")), old, {} if force else present, progress)
        index = build.write_catalog(key, new_log=new_log)
        pages = str(Path(stack.enter_context(TemporaryDirectory(prefix="registry-")), CATALOG_NAME))
        shutil.copyfile(folder.locate(CATALOG_NAME), pages)
        try:
            if options.with_data:
                build.copy_data(open_snapshot(pages, f"{store.locate('').rstrip('/')}/{DATA}"), dry_run=dry_run)
            build.render(pages, settings, dry_run=dry_run)
            build.write_extras(open_snapshot(pages, catalog.data_dir))
        finally:
            open_snapshot.cache_clear()
        build.drop_unchanged()
        build.new.key = whole if build.is_complete else ""
        advance = count_progress(progress, "writing", store.locate(""), unit="rows")
        folder.sync()
        placed = place_files(
            store, folder, old, build.new, types=build.types, force=force, dry_run=dry_run, advance=advance
        )
        notes += tuple(f"{name} is not a file of the site, and was not changed" for name in placed.foreign)
        return _report(
            store,
            build.new,
            index,
            written=(*placed.written, *build.copied),
            removed=placed.removed,
            problems=build.problems,
            notes=(*notes, *build.notes),
            dry_run=dry_run,
        )


def read_index(store: Store) -> SiteIndex:
    """The index that the site has."""
    return parse_site_index(store.read_bytes(INDEX_NAME), store.locate(INDEX_NAME))


class _Build:
    """The new files of a site, while they are made in a folder of this machine."""

    def __init__(
        self,
        catalog: Catalog,
        options: SiteOptions,
        view: SiteView,
        store: Store,
        folder: Path,
        old: SiteFiles,
        present: dict[str, FileFacts],
        progress: ProgressCallback | None,
    ) -> None:
        self._catalog, self._options, self._view, self._store = catalog, options, view, store
        self._folder, self._old, self._present, self._progress = folder, old, present, progress
        self.new = SiteFiles(groups={"": FileGroup()})
        self.types: dict[str, str] = {}
        self.copied: list[str] = []
        self.problems: list[tuple[str, str]] = []
        self.is_complete = True  # else the next run tries again what failed
        self.notes: list[str] = []

    def write_catalog(self, key: Ed25519PrivateKey | None, *, new_log: bool) -> SiteIndex:
        """Write the snapshot and ``site.json``."""
        staged = open_store(self._folder)
        before = None
        with suppress(NotStoredError, SiteFormatError):
            before = read_index(self._store)
            staged.write_bytes(INDEX_NAME, before.to_json())  # the new index is compared with it
            # With these files, an unchanged catalog is not written again.
            for name, facts in _files_of(before).items():
                if self._present.get(name) == facts:
                    staged.create_from(name, self._store, name)
        index = write_index(
            self._catalog.backend,
            staged,
            datasets=self._options.datasets,
            data_url=self._view.data_url,
            with_actors=self._options.with_actors,
            key=key,
            new_log=new_log,
            place=self._store.locate(""),
            progress=self._progress,
        )
        group = self.new.groups[""].files
        group.update(_files_of(index))
        self._add(INDEX_NAME, index.to_json())
        # Whoever has just read the old index still gets its snapshot; the next change removes it.
        if before is not None and before.path in self._present:
            group[before.path] = self._present[before.path]
        return index

    def copy_data(self, copies: Catalog, *, dry_run: bool) -> None:
        """Copy the shards and attachments of the versions into the site; those that are there are not sent again."""
        before = sizes_of(self._store, [DATA])
        versions = [
            it for each in copies.datasets() for it in copies.versions(Reference(name=each.name, config=each.config))
        ]
        versions = [version for version in versions if version.state is not VersionState.DROPPED]
        report = self._catalog.copy(
            [version.reference for version in versions], copies, dry_run=dry_run, progress=self._progress
        )
        self.problems += [(str(it.reference), it.error.message) for it in report.failed if it.error is not None]
        self.is_complete &= not report.failed
        group = self.new.groups.setdefault(f"/{DATA}", FileGroup())
        for version in versions:
            for location in copies.look_up(version.reference).facts.locations if not dry_run else ():
                if not is_absolute(location):
                    files = self._store.scan(f"{DATA}/{location}")
                    group.files.update((it.name, FileFacts(it.num_bytes, _PROVED)) for it in files if not it.is_folder)
        self.copied += group.files.keys() - before.keys()

    def render(self, pages: str, settings: Sequence[object], *, dry_run: bool) -> None:
        """Render the groups of pages that changed, and every page that others lead to."""
        # With the data, the site also has files that the catalog reads elsewhere on this machine.
        has_data = self._options.with_data and self._store.local_root is not None and not dry_run
        data_dir = f"{self._store.local_root}/{DATA}" if has_data else self._catalog.data_dir
        source = open_snapshot(pages, data_dir)
        keys = _keys_of(source, settings)
        roots: dict[str, set[Address]] = {"": {()}}
        for summary in source.datasets():
            if not summary.is_withdrawn:  # to others, only links lead
                config = () if summary.config is None else (summary.config,)
                roots.setdefault(summary.name, set()).add((DATASETS, summary.name, *config))
        for name in list(roots):
            group = self._old.groups.get(name)
            if name and group is not None and group.key == keys[name] and group.files.keys() <= self._present.keys():
                self.new.groups[name] = FileGroup(group.key, dict(group.files), set(group.links))
                del roots[name]
        # Copies are read in the site. Otherwise, pages show the records of these versions, but not their places.
        places = () if self._options.with_data else self._catalog.backend.locations.outside()
        outside = {str(it): first for it, (first, *_) in places if is_local(first)}
        folders = {first.removesuffix(f"/{reference.replace(':', '/')}") for reference, first in outside.items()}
        renderer = SiteRenderer(
            snapshot=pages,
            data_dir=data_dir,
            folder=str(self._folder),
            view=self._view,
            records=self._options.records,
            versions=self._options.versions,
            private=_private(data_dir, self._catalog.data_dir, pages, str(expand_home("~")), *sorted(folders)),
            outside=outside,
        )
        advance = count_progress(self._progress, "rendering", unit="rows")
        with choose_engine(None, num_bytes=None) as engine:
            while roots:
                pieces = [Piece(renderer, self._crawl(name, paths)) for name, paths in roots.items()]
                watch = watch_tasks(advance, "tasks", total=len(pieces))
                for crawl, crawled in engine.run(pieces, doing="rendered pages", failure=StorageError, watch=watch):
                    is_new = crawl.group not in self.new.groups or not crawl.group
                    group = self.new.groups.setdefault(crawl.group, FileGroup())
                    group.files.update(crawled.files)
                    group.links |= crawled.links
                    known = keys.get(crawl.group, "") if crawled.is_complete else ""
                    group.key = known if is_new else group.key and known
                    self.types |= crawled.types
                    self.problems += crawled.problems
                    self.is_complete &= crawled.is_complete
                    if advance is not None:
                        advance(crawled.num_pages)
                roots = self._missing()

    def _crawl(self, name: str, paths: Iterable[Address]) -> Crawl:
        group = self.new.groups.get(name, FileGroup())
        before = self._old.groups.get(name, FileGroup()).files
        present = {file: facts for file, facts in before.items() if file in self._present}
        return Crawl(group=name, roots=tuple(sorted(paths)), present=present, done=frozenset(group.files))

    def _missing(self) -> dict[str, set[Address]]:
        """The addresses that pages of other groups lead to, and that have no file yet, by group."""
        result: dict[str, set[Address]] = {}
        for path in {path for group in self.new.groups.values() for path in group.links}:
            files = self.new.groups.get(group_of(path), FileGroup()).files
            if page_name(path) not in files and "/".join(file_names(path)) not in files:
                result.setdefault(group_of(path), set()).add(path)
        return result

    def write_extras(self, source: Catalog) -> None:
        """Write what programs look for: ``llms.txt``, the page of addresses that do not exist, and the site map."""
        url = self._view.url
        missing = {"code": "not_found", "message": "There is no such page.", "hint": None}
        visit = Visit(catalog=source, is_live=False, site=self._view)
        html, _ = render(Page(name="error", title="Not found", values=missing), visit, root=url)
        self._add("404.html", html.encode())
        self._add("llms.txt", _for_models(source, self._view).encode())
        self._add(".nojekyll", b"")  # GitHub Pages leaves out files whose names begin with an underscore otherwise
        if url is None:
            return
        places = [name for name in self.new.files if name.endswith("index.html") and _is_main(name)][:_MOST_IN_SITEMAP]
        entries = "".join(f"<url><loc>{url}{quote(name)}</loc></url>\n" for name in sorted(places))
        head = '<?xml version="1.0" encoding="UTF-8"?>\n<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n'
        self._add("sitemap.xml", f"{head}{entries}</urlset>\n".replace("&", "&amp;").encode())
        if url.count("/") == 3:  # robots.txt is only read at the root of a host
            self._add("robots.txt", f"User-agent: *\nAllow: /\nSitemap: {url}sitemap.xml\n".encode())

    def _add(self, name: str, content: bytes) -> None:
        self.new.groups[""].files[name] = FileFacts(len(content), hashlib.sha256(content).hexdigest())
        (self._folder / name).write_bytes(content)

    def drop_unchanged(self) -> None:
        """Remove the files of the whole catalog that the site has already; those of datasets were never written."""
        for name, facts in self.new.groups[""].files.items():
            if self._present.get(name) == facts:
                (self._folder / name).unlink(missing_ok=True)


def _view(catalog: Catalog, options: SiteOptions) -> tuple[SiteView, tuple[str, ...]]:
    url = options.base_url
    if url is not None:
        require_no_secrets(url, "the address of the site")
        if not re.fullmatch(r"https?://[^\s?#<>\"]+", url):
            raise UsageError(f"{url!r:.200} is not the address of a site", hint="Write https://host/path/.")
        url = url.rstrip("/") + "/"
    if options.with_data and options.data_url is not None:
        raise UsageError("with_data and data_url cannot be combined", hint="Leave out the data URL.")
    data, notes = f"{DATA}/" if options.with_data else options.data_url, ()
    if data is None and "://" in catalog.data_dir and not is_local(catalog.data_dir):
        data = catalog.data_dir
    if data is None:
        options_of_data = f"{spell('with_data', True)} or {spell('data_url=URL')}"
        note = (
            f"readers of the site cannot find the records, because the place of the data is unknown: {options_of_data}"
        )
        return SiteView(name=catalog_name(Visit(catalog=catalog)), url=url), (note,)
    return SiteView(name=catalog_name(Visit(catalog=catalog)), url=url, data_url=data.rstrip("/") + "/"), notes


def _keys_of(source: Catalog, settings: Sequence[object]) -> dict[str, str]:
    """A text for each group of pages that changes with everything that they are made of: settings and events."""
    newest: dict[str, str] = {}
    whole = last = ""
    for event in stream_events(source.backend.log, EventFilter()):
        name, last = event.dataset.partition("/")[0], event.hash
        newest[name] = event.hash
        whole = event.hash if not name else whole
    result = {"": _digest(settings, last)}
    names = {summary.name for summary in source.datasets()}
    for name in newest.keys() - names - {""}:  # former names: their events are about the dataset of today
        newest[source.present_name(name)] = last
    return result | {name: _digest(settings, whole, newest.get(name, "")) for name in names}


def _software() -> str:
    """A digest of the templates and of all code, which pages call: what an older version made is made again."""
    digest = hashlib.sha256()
    for path in sorted(Path(str(files("registry"))).rglob("*.*")):
        if path.is_file() and path.suffix != ".pyc":
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _files_of(index: SiteIndex) -> dict[str, FileFacts]:
    """The files that an index names."""
    return {
        index.path: FileFacts(index.compressed_bytes, index.compressed_sha256),
        CATALOG_NAME: FileFacts(index.num_bytes, index.sha256),
    }


def _name_of(key: Ed25519PrivateKey | None) -> str:
    from registry.pins.keys import key_id

    return "" if key is None else key_id(key.public_key())


def _digest(*values: object) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()


def _private(*places: str) -> str:
    """A pattern of paths of this machine, as HTML, JSON and URLs spell them; ``/data`` alone says nothing."""
    from markupsafe import escape

    paths = (path for place in places for path in spell_place(place) if path.startswith("/") and path.count("/") > 1)
    texts = {text for path in paths for text in (path, quote(path), json.dumps(path)[1:-1])}
    spellings = sorted(texts | {str(escape(text)) for text in texts}, key=len, reverse=True)
    # The first character stands alone, because regular expressions search for one quickly.
    return rf"/(?<![\w.%~-]/)(?:{'|'.join(re.escape(text[1:]) for text in spellings)})" if spellings else r"(?!)"


def _is_main(name: str) -> bool:
    """Whether the site map has a page: the first ones of the catalog, of datasets and of versions."""
    return bool(
        re.fullmatch(r"(?:[^/]+/){0,1}index\.html|datasets/[^/]+/(?:[^/]+/)?(?:\d+\.\d+\.\d+/)?index\.html", name)
    )


def _for_models(source: Catalog, view: SiteView) -> str:
    """``llms.txt``: Markdown that says how a program reads the site, with a line for each dataset."""
    place = view.url or ""
    lines = [
        f"# {view.name}",
        "",
        "> A catalog of published, versioned datasets. Every page index.html has its values beside it in index.json.",
        "",
        f"- [All datasets]({place}index.json)",
        f"- [The catalog as an SQLite file]({place}{CATALOG_NAME})",
        f"- [Its digest, and that of its event log]({place}{INDEX_NAME})",
        f'- In Python: `registry.connect("{place or "URL of this site"}")` (package shardbook)',
        "",
        "## Datasets",
        "",
    ]
    for summary in source.datasets():
        if not summary.is_withdrawn:
            path = (DATASETS, summary.name, *(() if summary.config is None else (summary.config,)))
            address = place + quote(page_name(path).removesuffix("html") + "json")
            about = first_words(summary.description, 200)
            lines.append(f"- [{summary.dataset}]({address}): {summary.num_examples:,} records. {about}".rstrip())
    return "\n".join(lines) + "\n"


def _report(
    store: Store,
    files: SiteFiles,
    index: SiteIndex,
    *,
    written: Sequence[str] = (),
    removed: Sequence[str] = (),
    problems: Sequence[tuple[str, str]] = (),
    notes: Sequence[str] = (),
    dry_run: bool,
) -> SiteReport:
    every = files.files
    return SiteReport(
        url=store.locate("").rstrip("/"),
        num_pages=sum(name.endswith("index.html") for name in every),
        num_files=len(every),
        num_bytes=sum(facts.num_bytes for facts in every.values()),
        written=len(written),
        unchanged=len(every) - len(written),
        removed=len(removed),
        written_bytes=sum(every[name].num_bytes for name in written),
        problems=tuple(problems),
        notes=tuple(notes),
        index=index,
        dry_run=dry_run,
    )
