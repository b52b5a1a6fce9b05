"""Downloads dataset repositories of the Hugging Face Hub: ``hf://org/name`` or ``hf://org/name@revision``.

``huggingface_hub`` caches the files, and needs no connection for a cached revision. It reads the token of the user
itself; the token never appears in a message or version. No code of a repository is run.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

from registry.errors import NotStoredError, SourceError, StorageError, UsageError, require_extra, spell, warn
from registry.intake.source import Origin
from registry.storage.faults import storage_errors

_SCHEME: Final = "hf://"
_LOCATION: Final = re.compile(
    r"hf://(?:datasets/)?(?P<repository>[\w.-]+(?:/[\w.-]+)?)(?:@(?P<revision>[^@\s]+))?/?", re.ASCII
)
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_CARD: Final = "README.md"
_HOW_TO_LOG_IN: Final = "Log in with `hf auth login`, or set HF_TOKEN"


Choose: TypeAlias = Callable[[Path, Sequence[str]], Sequence[str] | None]
"""Chooses files of a repository. Receives a folder with its card, and the names of all files. None means all files."""


def is_hub(location: str) -> bool:
    """Whether a location is a repository of the hub.

    >>> is_hub("hf://org/flowers"), is_hub("flowers.csv")
    (True, False)
    """
    return location.startswith(_SCHEME)


def repository_of(location: str) -> tuple[str, str | None]:
    """Return the repository and the revision that a location names; the revision is None for the newest.

    >>> repository_of("hf://datasets/org/flowers@v1.0"), repository_of("hf://squad")
    (('org/flowers', 'v1.0'), ('squad', None))

    Raises:
        UsageError: the location is neither ``hf://org/name`` nor ``hf://org/name@revision``.
    """
    match = _LOCATION.fullmatch(location)
    if match is None:
        raise UsageError(
            f"{location!r:.200} is not a repository of the hub",
            hint=f"Write hf://org/name or hf://org/name@revision. One of its configs: {spell('config=NAME')}",
            details={"location": location[:200]},
        )
    return match["repository"], match["revision"]


def download_repository(location: str, progress: Callable[[int], None], choose: Choose | None = None) -> Path:
    """Download a repository into the cache of ``huggingface_hub``.

    If the hub does not answer, the cached files are used, with a RegistryWarning that some may be missing.

    Args:
        location: ``hf://org/name[@revision]``.
        progress: called with the number of bytes that arrived.
        choose: chooses the files to download. None: all.

    Returns:
        The folder of the files, which are links into the cache. The folder is named after the commit.

    Raises:
        NotStoredError: there is no such repository or revision, or it is private.
        SourceError: the repository requires consent to its terms.
        StorageError: the hub does not answer, and the files are not in the cache; or the branch moved meanwhile.
        MissingExtraError: huggingface_hub is not installed.
        UsageError: the location is invalid; see ``repository_of``.
    """
    repository, revision = repository_of(location)
    with require_extra("huggingface", package="huggingface_hub", needed_for="adding from the Hugging Face Hub"):
        import huggingface_hub
    hub = huggingface_hub.HfApi(endpoint=os.environ.get("HF_ENDPOINT"))
    commit, patterns = None, None
    with suppress(Exception):  # snapshot_download has the same fault, or reads from the cache
        commit = hub.dataset_info(repository, revision=revision).sha
    with _hub_errors(repository, revision):
        if commit is not None and choose is not None:
            names = hub.list_repo_files(repository, repo_type="dataset", revision=commit)
            if _CARD in names:
                card = hub.hf_hub_download(repository, _CARD, repo_type="dataset", revision=commit)
                with tempfile.TemporaryDirectory() as made:  # in the cache, a file is a link to another folder
                    shutil.copyfile(card, Path(made, _CARD))
                    chosen = choose(Path(made), names)
                patterns = None if chosen is None else list(map(glob.escape, chosen))
        folder = hub.snapshot_download(
            repository,
            repo_type="dataset",
            revision=revision,
            allow_patterns=patterns,
            tqdm_class=_progress_bar(progress),
        )
    if patterns is not None and Path(folder).name != commit:
        raise StorageError(
            f"{location} changed during the download: expected the commit {commit}, found {Path(folder).name}",
            hint=f"Try again, or name the commit: {_SCHEME}{repository}@{Path(folder).name}",
            details={"repository": repository, "expected": commit, "found": Path(folder).name},
        )
    if commit is None:
        warn(
            f"the hub does not answer, so {location} was read from the cache: files that were never downloaded "
            "are missing"
        )
    return Path(folder)


def describe_origins(folder: Path, location: str, names: Sequence[str]) -> tuple[Origin, ...]:
    """Return the origin of the files of a downloaded repository, with the commit and the sha256 of each file.

    Raises:
        SourceError: a cached file does not match the digest that the hub states.
    """
    repository, _ = repository_of(location)
    origins = []
    for name in names:
        path = folder / name
        with storage_errors("read", str(path)), path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        expected = path.resolve().name  # the sha256 of a large file, or the hash of git
        if _SHA256.fullmatch(expected) and expected != digest:
            raise SourceError(
                f"{location}: {name} is damaged in the cache: expected the sha256 {expected}, found {digest}",
                hint=f"Remove it, and add the repository again: rm {shlex.quote(str(path.resolve()))}",
                details={"file": name, "path": str(path.resolve())},
            )
        url = f"{_SCHEME}datasets/{repository}@{folder.name}/{name}"
        origins.append(Origin(url=url, num_bytes=path.stat().st_size, sha256=digest))
    return tuple(origins)


def link_files(snapshot: Path, target: Path) -> None:
    """Make a folder of the files of a downloaded repository: hard links if they are on the same disk, else copies.

    Raises:
        SourceError: a link leads out of the cache of the repository.
        StorageError: the disk is full or not writable.
    """
    cache = snapshot.resolve().parent.parent
    for folder, _, names in os.walk(snapshot):
        for name in names:
            path = Path(folder, name)
            real = path.resolve()
            if not real.is_relative_to(cache):
                raise SourceError(
                    f"{path} leads out of the cache, to {real}",
                    hint=f"Remove it: rm {shlex.quote(str(path))}",
                    details={"path": str(path), "target": str(real)},
                )
            link = target / path.relative_to(snapshot)
            with storage_errors("write", str(link)):
                link.parent.mkdir(parents=True, exist_ok=True)
                try:
                    os.link(real, link)
                except OSError:  # another disk
                    shutil.copyfile(real, link)


@contextmanager
def _hub_errors(repository: str, revision: str | None) -> Iterator[None]:
    from huggingface_hub import errors

    text = f"{_SCHEME}{repository}" + (f"@{revision}" if revision else "")
    details = {"repository": repository, "revision": revision}
    try:
        yield
    except errors.GatedRepoError as error:
        raise SourceError(
            f"{text} requires that you accept its terms",
            hint=f"Accept them on the page of the dataset. {_HOW_TO_LOG_IN}.",
            details=details,
        ) from error
    except errors.RevisionNotFoundError as error:
        raise NotStoredError(
            f"{text}: the revision does not exist in this repository",
            hint="Name a branch, a tag or a commit, or leave it out for the newest.",
            details=details,
        ) from error
    except (errors.RepositoryNotFoundError, errors.HFValidationError) as error:
        raise NotStoredError(
            f"{text}: the dataset does not exist on the hub, or is private",
            hint=f"Check the name. If it is private: {_HOW_TO_LOG_IN}.",
            details=details,
        ) from error
    except (errors.HfHubHTTPError, errors.LocalEntryNotFoundError, OSError) as error:
        raise StorageError(
            f"{text} cannot be downloaded, and is not in the cache: {type(error).__name__}",
            hint="Check the connection and the disk. HF_HUB_OFFLINE=1 allows no request; HF_ENDPOINT names the hub.",
            details=details,
        ) from error


def _progress_bar(progress: Callable[[int], None]) -> type[Any]:
    """Return a class of silent progress bars that report the number of bytes to ``progress``."""
    from tqdm.auto import tqdm  # type: ignore[import-untyped]

    class Bar(tqdm):  # type: ignore[misc]  # its base has no types
        def __init__(self, *args: Any, **options: Any) -> None:
            options.pop("name", None)
            super().__init__(*args, **{**options, "disable": True})
            self._counts_bytes = options.get("unit") == "B"

        def update(self, n: float | None = 1) -> bool | None:
            if self._counts_bytes and n:
                progress(int(n))
            return None

    return Bar
