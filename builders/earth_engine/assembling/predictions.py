"""Writes predictions as TFRecords that Earth Engine imports: one record for each record of the export, in order.

    written = write_predictions((model(tile) for tile in tiles), "exports/", "out/", "classes", bands=["class"])
    assemble("out/", output="classes.tif")
    print(written.upload_command("users/me/classes"))

The mixer of the export is copied unchanged to the same folder.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
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
from registry.splits import counted
from registry.storage import Store, open_store
from registry.tfrecord import read_records
from registry.wire import FlatValue, encode_example


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenPredictions(WrittenFiles):
    """What ``write_predictions`` wrote: the files, and ``store``, the folder with them. Each record is a patch."""

    store: Store

    def upload_command(self, asset_id: str, *, bucket: str | None = None) -> str:
        """Return the command line that uploads the files to Earth Engine as one image. It is not run.

        Args:
            asset_id: the asset ID of the new image.
            bucket: ``gs://`` URL of the folder to which you copied the files, because Earth Engine imports only from
                Google Cloud Storage. None uses the folder they were written to, or ``gs://BUCKET``.

        Raises:
            UsageError: the mixer is missing, which Earth Engine requires.
        """
        if self.mixer is None:
            raise UsageError(
                "these predictions have no mixer, which Earth Engine requires",
                hint="Write them with the export or its mixer instead of a number: like='exports/'.",
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
    """Write one record for each patch, in order. The number of patches must be that of the export ``like``.

    Args:
        predictions: an iterable of arrays of shape (H, W), (C, H, W) or (H, W, C), of batches of them, or of mappings
            of band to array. Patches may include the margin.
        like: the export: its folder, one of its files or their common prefix; its mixer as a path, JSON text,
            document or Mixer; the imported version; or the number of its records.
        folder: path, URL or store to write to.
        prefix: prefix of the files.
        bands: names of the bands of arrays; for mappings, the bands to write.
        encoding: ``"native"`` stores uint8 as bytes, other integers as int64 and floats as float32; ``"float"``
            stores all numbers as float32.
        crop: write the patches without their margin.
        kernel_size: width and height in pixels of the export's kernel; required if the margin is ambiguous.
        tensor_depths: depths of array bands in mappings, by name.
        layout: the axes of one patch in an array: ``"HW"``, ``"CHW"`` or ``"HWC"``.
        split: the split whose mixer to use, if a version has several.
        compressed: compress with gzip.
        max_file_size: maximum bytes of a file before compression.
        overwrite: replace existing files with this prefix.
        advance: called with the number of records written since the last call.

    Returns:
        The names and sizes of the files.

    Raises:
        ShardMismatchError: the number of patches differs from the export, or patches differ in size.
        FeatureError: a patch is not an array of numbers, or its dtype differs from the first patch.
        UsageError: an option is invalid.
        AlreadyStoredError: files with this prefix exist, and ``overwrite`` is False.
        StorageError: a file cannot be written. After any error, no file of this call is left.
    """
    options = ExportOptions(compressed=compressed, max_file_size=max_file_size, encoding=encoding)
    expected, actual = read_like(like, split=split)
    depths = dict(tensor_depths or {})
    patches = ArrayPatches(items=check_iterable(predictions), bands=bands, depths=depths, layout=layout)
    kernel = actual.kernel if actual is not None and kernel_size is None else None
    encode = _Encoder(
        mixer=None if actual is None else actual.mixer,
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
        written = files.commit(None if actual is None else actual.to_bytes())
    return WrittenPredictions(**asdict(written), store=store)


def read_like(like: Any, *, split: str | None = None) -> tuple[int, FoundMixer | None]:
    """The number of records of an export, and its mixer or None. Raises UsageError for other values."""
    if type(like) is int:
        if like < 1:
            raise UsageError(
                f"like: expected at least 1 record, found {like}",
                hint="Give the number of records, or the export itself.",
                details={"option": "like"},
            )
        return like, None
    if _is_mixer(like):
        mixer: FoundMixer | None = find_mixer(like, split=split)
    else:
        if not are_files(like):
            raise UsageError(
                f"like: expected an export, a mixer or a number of records, found {like!r:.60}",
                hint="For example: like='exports/'.",
                details={"option": "like"},
            )
        files, mixer = find_files(like)
        if mixer is None:  # maskedThreshold dropped patches, so only the files show their number
            return sum(1 for store, name in files for _ in read_records(store, name)), None
    assert mixer is not None  # noqa: S101 (for mypy)
    return mixer.mixer.total_patches, mixer


def _is_mixer(like: Any) -> bool:
    """Whether ``like`` is a mixer or contains one, instead of naming files."""
    if isinstance(like, Mixer | Mapping) or hasattr(like, "metadata") or hasattr(like, "custom"):
        return True
    text = os.fspath(like) if isinstance(like, str | os.PathLike) else ""
    return text.lstrip("\ufeff \n\r\t").startswith("{") or text.lower().endswith(".json")


class _Encoder:
    """Encodes the values of a patch, and checks them against the first patch."""

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
                "crop requires a mixer, which contains the size of a patch",
                hint="Give the export or its mixer: like='exports/'.",
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
            features[name] = to_flat(stored, kind_of(first.dtype, name, self._encoding), name)
        return features


def _wrong_count(expected: int, actual: int | None) -> ShardMismatchError:
    return ShardMismatchError(
        f"expected {counted(expected, 'patch')}, one for each record of the export; "
        f"found {'more' if actual is None else f'{actual:,}'}",
        hint="Give the patches in the order of the export: do not shuffle, drop or repeat the model's input. An array "
        "with three axes is one patch, (bands, height, width); for batches of one band, pass layout='HW'.",
        details={"expected": expected, "found": actual},
    )
