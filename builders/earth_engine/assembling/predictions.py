"""Writes predictions as files for Earth Engine: one record for each record of the export, in its order.

    written = write_predictions((model(tile) for tile in tiles), "exports/", "out/", "classes", bands=["class"])
    assemble("out/", output="classes.tif")
    print(written.upload_command("users/me/classes"))

The mixer of the export is copied beside them byte for byte.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from registry.builders.earth_engine.assembling.assemble import are_files, find_files
from registry.builders.earth_engine.assembling.band_layout import check_same_form, fit_exactly, measure_bands
from registry.builders.earth_engine.assembling.patches import (
    ArrayPatches,
    Layout,
    PatchValues,
    check_iterable,
    other_bands,
)
from registry.builders.earth_engine.exporting.files import ExportFiles, WrittenFiles
from registry.builders.earth_engine.exporting.options import ExportOptions, read_size
from registry.builders.earth_engine.kinds import Encoding, kind_of, to_flat
from registry.builders.earth_engine.mixer import Mixer
from registry.builders.earth_engine.stored.kept_split import FoundMixer, find_mixer
from registry.errors import ShardMismatchError, UsageError
from registry.storage import Store, open_store
from registry.tfrecord import read_records
from registry.wire import FlatValue, encode_example


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenPredictions:
    """What was written.

    Attributes:
        store: the folder.
        filenames: of the records, in order.
        mixer: name of the copied mixer; None where the export had none.
        num_patches: records in all.
        num_bytes: of all files together, as they are stored.
    """

    store: Store
    filenames: tuple[str, ...]
    mixer: str | None
    num_patches: int
    num_bytes: int = field(compare=False)

    def upload_command(self, asset_id: str, *, bucket: str | None = None) -> str:
        """The command line that uploads the files to Earth Engine as one image; nothing here runs it.

        Args:
            asset_id: of the image to be made.
            bucket: ``gs://`` URL of the folder where the files are then: Earth Engine takes them from Google Cloud
                Storage only. None for the folder they were written to, if it is there, else ``gs://BUCKET``.

        Raises:
            UsageError: there is no mixer, without which no image can be made.
        """
        if self.mixer is None:
            raise UsageError(
                "there is no mixer beside these predictions, and Earth Engine makes no image without it",
                hint="Write them with the export, or its mixer, in place of a number: like='exports/'.",
                details={"option": "like"},
            )
        if bucket is None:
            bucket = self.store.url if self.store.url.startswith("gs://") else "gs://BUCKET"
        uris = [f"{bucket.rstrip('/')}/{name}" for name in (*self.filenames, self.mixer)]
        return shlex.join(["earthengine", "upload", "image", f"--asset_id={asset_id}", *uris])


def write_predictions(
    predictions: Any,
    like: Any,
    folder: str | os.PathLike[str] | Store,
    prefix: str,
    *,
    bands: Sequence[str] | None = None,
    encoding: Encoding = "native",
    crop: bool = False,
    kernel_size: Any = None,
    tensor_depths: Mapping[str, int] | None = None,
    layout: Layout | None = None,
    split: str | None = None,
    compressed: bool = True,
    max_file_size: int = 2**30,
    overwrite: bool = False,
    advance: Callable[[int], None] | None = None,
) -> WrittenPredictions:
    """Write one record for each patch, in the order in which they come, as many as the export ``like`` has.

    Args:
        predictions: an iterable of arrays, patch by patch or in batches: see ``patches``. Patches may have the
            margin of the export or none.
        like: the export: its folder, one of its files or the beginning of their paths; or its mixer, as a path, text,
            document or Mixer; or the published version that was imported; or the number of its records.
        folder: where the files go.
        prefix: of their names.
        bands: names for the bands of arrays; of mappings, the bands that are written.
        encoding: ``native`` keeps the type: uint8 as bytes, other integers as int64, floats as floats of 32 bits;
            ``float`` makes floats of all.
        crop: write the patches without their margins.
        kernel_size: that the patches were exported with; needed where arrays do not tell the margin.
        tensor_depths: depths of the array bands of mappings.
        layout: how the axes of an array's patch lie, ``"HW"``, ``"CHW"`` or ``"HWC"``.
        split: whose mixer is meant, where a version has several.
        compressed: gzip.
        max_file_size: most bytes of a file before compression.
        overwrite: replace the files of that prefix.
        advance: called with the number of records written.

    Raises:
        ShardMismatchError: fewer or more patches than the export has, or patches of unequal size.
        FeatureError: a patch is no array of numbers, or not of the type of the first one.
        UsageError: an invalid option.
        AlreadyStoredError: there are files of that prefix.
        StorageError: a file cannot be written. In every case nothing of this call is left.
    """
    options = ExportOptions(compressed=compressed, max_file_size=max_file_size, encoding=encoding)
    expected, found = read_like(like, split=split)
    depths = dict(tensor_depths or {})
    patches = ArrayPatches(items=check_iterable(predictions), bands=bands, depths=depths, layout=layout)
    kernel = found.kernel if found is not None and kernel_size is None else None
    encode = _Encoder(
        mixer=None if found is None else found.mixer,
        kernel=kernel if kernel_size is None else read_size(kernel_size, "kernel_size", least=0),
        depths=depths,
        encoding=options.encoding,
        crop=crop,
    )
    store = folder if isinstance(folder, Store) else open_store(folder)
    with ExportFiles(
        store, prefix, compressed=options.compressed, max_file_size=options.max_file_size, overwrite=overwrite
    ) as files:
        count = 0
        for patch in patches:
            if count == expected:
                raise _wrong_count(expected, None)
            files.write(encode_example(encode(patch)))
            count += 1
            if advance is not None:
                advance(1)
        if count != expected:
            raise _wrong_count(expected, count)
        written: WrittenFiles = files.commit(None if found is None else found.to_bytes())
    return WrittenPredictions(
        store=store,
        filenames=written.filenames,
        mixer=written.mixer,
        num_patches=count,
        num_bytes=written.num_bytes,
    )


def read_like(like: Any, *, split: str | None = None) -> tuple[int, FoundMixer | None]:
    """The number of an export's records, and its mixer if it has one. Raises UsageError for what is no export."""
    if type(like) is int:
        if like < 1:
            raise UsageError(
                f"an export has one record at least, not {like}",
                hint="Give the number of records, or the export itself.",
                details={"option": "like"},
            )
        return like, None
    if _is_mixer(like):
        found: FoundMixer | None = find_mixer(like, split=split)
    else:
        if not are_files(like):
            raise UsageError(
                f"{like!r:.60} is no export",
                hint="Give its folder, its mixer, or the number of its records.",
                details={"option": "like"},
            )
        files, found = find_files(like)
        if found is None:  # patches were dropped at a maskedThreshold: the files alone tell how many there are
            return sum(1 for store, name in files for _ in read_records(store, name)), None
    assert found is not None  # noqa: S101 (for mypy)
    return found.mixer.total_patches, found


def _is_mixer(like: Any) -> bool:
    """Whether it is a mixer, or what has one: no files."""
    if isinstance(like, Mixer | Mapping) or hasattr(like, "metadata") or hasattr(like, "custom"):
        return True
    text = os.fspath(like) if isinstance(like, str | os.PathLike) else ""
    return text.lstrip("\ufeff \n\r\t").startswith("{") or text.lower().endswith(".json")


class _Encoder:
    """The values of a patch to those of a record: checked against the first patch."""

    def __init__(self, *, mixer: Mixer | None, kernel: Any, depths: Mapping[str, int], encoding: Encoding, crop: bool):
        self._mixer = mixer
        self._kernel = kernel
        self._depths = depths
        self._encoding: Encoding = encoding
        self._crop = crop
        self._first: PatchValues | None = None
        self._tiles: dict[str, Any] = {}
        if crop and mixer is None:
            raise UsageError(
                "the margin cannot be cut off: without a mixer the size of a patch is not known",
                hint="Give the export, or its mixer, as like=...",
                details={"options": ["crop", "like"]},
            )

    def __call__(self, patch: PatchValues) -> dict[str, FlatValue]:
        """The record's features."""
        if self._first is None:
            self._first = patch
            if self._mixer is not None:
                layouts = measure_bands(
                    patch,
                    list(patch.bands),
                    self._mixer.patch,
                    kernel=self._kernel,
                    depths=self._depths,
                    dtypes=None,
                )
                self._tiles = {layout.name: layout.tile for layout in layouts}
        elif patch.bands.keys() != self._first.bands.keys():
            raise other_bands(patch, list(self._first.bands))
        features = {}
        for name, values in patch.bands.items():
            first = self._first.bands[name]
            check_same_form(patch.place, name, values, shape=first.shape, dtype=first.dtype)
            stored = self._tiles[name].crop(values) if self._crop else values
            stored = fit_exactly(stored, first.dtype, name, str(patch.place))
            features[name] = to_flat(stored, kind_of(first.dtype, self._encoding), name)
        return features


def _wrong_count(expected: int, found: int | None) -> ShardMismatchError:
    return ShardMismatchError(
        f"the export has {expected:,} record{'' if expected == 1 else 's'}; "
        f"the predictions have {'more' if found is None else f'{found:,}'}",
        hint="Give one patch for each record of the export, in its order: do not shuffle, drop, or repeat what the "
        "model reads. An array of three axes is one patch, (bands, height, width): of batches of one band say "
        "layout='HW'.",
        details={"expected": expected, "found": found},
    )
