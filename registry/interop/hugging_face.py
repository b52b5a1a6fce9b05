"""Gives exported records to Hugging Face's ``datasets``, as an Arrow file that its software maps into memory.

The file is in a cache folder. Its name is derived from the content of the version, the records and the schema, so that
it is written once, and a later call, or another process, uses it again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from registry.errors import require_extra
from registry.interop.dataset_card import KEPT
from registry.interop.export_tables import write_stream
from registry.splits import Plan
from registry.storage import expand_home, open_store

if TYPE_CHECKING:
    import datasets

_FORM: Final = 1
"""Increased when the same records are written in another form, so that older files are not used."""

_FOLDER: Final = "shardbook"


def load_plan(
    plan: Plan,
    batches: Callable[[], Iterable[pa.RecordBatch]],
    schema: pa.Schema,
    *,
    content_digest: str,
    cache_dir: str | os.PathLike[str] | None,
    kept: Any = None,
) -> datasets.Dataset:
    """The records of ``plan`` as a ``datasets.Dataset``.

    Args:
        plan: which records of the version.
        batches: reads them; called only if the file does not exist yet.
        schema: the schema of the batches, with Hugging Face's metadata.
        content_digest: the content of the version.
        kept: the features that some columns had before they were added, see ``KEPT``.
        cache_dir: the folder of the cache; None is that of Hugging Face's software, ``HF_DATASETS_CACHE``.

    Raises:
        MissingExtraError: ``datasets`` is not installed (extra ``huggingface``).
        StorageError: the file cannot be written.
    """
    with require_extra("huggingface", package="datasets", needed_for="a dataset of Hugging Face"):
        import datasets
    folder = expand_home(datasets.config.HF_DATASETS_CACHE if cache_dir is None else cache_dir) / _FOLDER
    store = open_store(folder)
    name = f"{_name(plan, schema, content_digest)}.arrow"
    if not store.exists(name):
        with store.create(name, overwrite=True) as file:  # a process that was faster wrote the same bytes
            write_stream(batches(), schema, file)
    names = {split.name for split in plan.splits}
    split = datasets.NamedSplit(names.pop()) if len(names) == 1 else None
    about = json.loads(schema.metadata[b"huggingface"])["info"] | {"features": None}  # the file has the features
    result = datasets.Dataset.from_file(str(folder / name), info=datasets.DatasetInfo(**about), split=split)
    return _as_before(result, kept if isinstance(kept, dict) else {})


def _as_before(found: datasets.Dataset, row: dict[str, Any]) -> datasets.Dataset:
    """``found`` with the features that its columns had before they were added; as it is if they do not fit."""
    import datasets

    known = {name: row[name] for name in found.features if name in row and isinstance(row[name], dict)}
    known = {name: node for name, node in known.items() if node.get("_type") in KEPT}
    if not known:
        return found
    try:
        features = datasets.Features({**found.features, **datasets.Features.from_dict(known)})
        return found if features == found.features else found.cast(features)
    except Exception:  # noqa: BLE001 (the library raises what it meets in a description that does not fit)
        return found


def load_all(row: dict[str, Any]) -> datasets.DatasetDict:
    """A ``datasets.DatasetDict`` of what ``load_plan`` gave for each name."""
    import datasets

    return datasets.DatasetDict(row)


def _name(plan: Plan, schema: pa.Schema, content_digest: str) -> str:
    ranges = [(span.split, span.start, span.stop) for span in plan.ranges]
    digest = hashlib.sha256(repr((_FORM, content_digest, ranges)).encode())
    digest.update(schema.serialize())
    return digest.hexdigest()[:40]
