"""Derives the name of a dataset from where its source is, and writes that place in one form.

    ./flowers/train.csv -> the name flowers, the place /home/ann/flowers/train.csv

Many files are called ``train.csv``. Such names say what a file is for, not which data it has, so the folder above
gives the name. The place is kept with the version: it tells a later ``train.csv`` of a stranger from this one.
"""

from __future__ import annotations

import os
import posixpath
import re
from typing import Final
from urllib.parse import unquote, urlsplit, urlunsplit

from registry.errors import UsageError
from registry.intake.hub import is_hub, repository_of
from registry.masking import has_secret, remove_secrets
from registry.model import fold_name, is_generic, plain_name
from registry.storage import local_path

_SUFFIXES: Final = re.compile(r"(\.(gz|bz2|xz|zst|zip|tar|tgz))*$", re.IGNORECASE)

_SIGNED: Final = re.compile(  # of a signed link, whose signature and dates differ each time
    r"(x-amz-|x-goog-).*|awsaccesskeyid|googleaccessid|expires|key-pair-id|policy|s[eprtv]|sip|spr|sk[eostv](id)?|sktid",
    re.IGNORECASE,
)
_PORTS: Final = {"http": 80, "https": 443}


def name_of_path(location: str) -> str:
    """The name of a dataset that is added from ``location`` without a name.

    >>> name_of_path("./Sensor Data.csv.gz"), name_of_path("/srv/photos/"), name_of_path("https://host/a/prices.csv?x=1")
    ('sensor_data', 'photos', 'prices')
    >>> name_of_path("titanic/metadata.json"), name_of_path("/srv/flowers/data/train-00000-of-00002.parquet")
    ('titanic', 'flowers')
    >>> name_of_path("s3://flowers/train.csv"), name_of_path("/srv/flowers/data.tar.gz")
    ('flowers', 'flowers')

    Raises:
        StorageError: ``location`` is not a path.
        UsageError: the names of the file and of the folders above are all generic, or the first that is not contains
            no letter or digit.
    """
    return derive_name(location)[0]


def derive_name(location: str) -> tuple[str, str]:
    """``name_of_path``, and where the name comes from if that is not the last part of ``location``, else ``""``.

    >>> derive_name("/srv/flowers/train.csv"), derive_name("/srv/flowers")
    (('flowers', "from the folder 'flowers' above 'train'"), ('flowers', ''))
    """
    parts = _parts(location)
    for part in parts:
        name = plain_name(part)
        folded = re.sub(r"_+", "_", fold_name(name))
        if not name:
            break
        if not is_generic(folded):
            origin = "" if part is parts[0] else f"from the folder {part!r} above {parts[0]!r}"
            return (folded if folded[0].isalpha() else f"data_{folded}"), origin
    raise UsageError(f"no name can be derived from {location!r:.200}", hint="Name the dataset: --as NAME", details={})


def _parts(location: str) -> list[str]:
    """The names that may name the dataset: of the file, without its endings, and of the folders above."""
    path = None if is_hub(location) else local_path(location)
    if is_hub(location):
        parts = repository_of(location)[0].split("/")
    elif path is None:
        url = urlsplit(location)
        # A host says nothing about the data; a bucket may.
        bucket = [] if url.scheme.lower() in _PORTS else [url.netloc.rpartition("@")[2]]
        if "@" in url.netloc and url.scheme.lower() not in _PORTS:  # abfs://container@account/...
            bucket = [url.netloc.partition("@")[0]]
        parts = [*bucket, *filter(None, unquote(url.path).split("/"))]
    else:
        # Path.absolute would keep "..", and Path.resolve would follow a link, which keeps its own name.
        parts = [part for part in os.path.abspath(path).replace("\\", "/").split("/") if part]  # noqa: PTH100
    if not parts:
        return []
    stem = _SUFFIXES.sub("", parts[-1])
    return [stem.rpartition(".")[0] or stem, *reversed(parts[:-1])]


def place_of(location: str) -> str:
    """Where a source is: its absolute path without links, or its URL without anything secret.

    Two texts for one place give the same result, and so do two revisions of a repository of the hub.

    >>> place_of("https://ann:PW@Host:443/a/../b.csv?page=2&token=PW"), place_of("s3://flowers/raw/")
    ('https://host/b.csv?page=2', 's3://flowers/raw')

    Raises:
        StorageError: ``location`` is not a path.
    """
    if is_hub(location):
        return f"hf://{repository_of(location)[0]}"
    local = local_path(location)
    if local is not None:
        return os.path.realpath(local)
    url = urlsplit(remove_secrets(location))
    scheme, netloc, path, query = url.scheme.lower(), url.netloc.lower(), url.path, url.query
    if scheme in _PORTS:
        netloc = netloc.removesuffix(f":{_PORTS[scheme]}")
        path = posixpath.normpath(path) if path else ""
    if has_secret(location):
        query = "&".join(pair for pair in query.split("&") if not _SIGNED.fullmatch(pair.partition("=")[0]))
    return urlunsplit((scheme, netloc, path.rstrip("/"), query, ""))
