"""Combines the sources of several splits into one source. ``objects``, ``hugging_face_card`` and others call it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from registry.errors import SourceError
from registry.features import Audio, Feature, Image, Tensor
from registry.features.feature import TEXT
from registry.intake.file_rows import FilePart
from registry.intake.media_bytes import CheckMedia, bytes_of, common_picture, is_file_feature
from registry.intake.source import Source, SourcePart


def combine_splits(sources: Mapping[str, Source], *, split_reason: str) -> Source:
    """Combine several sources into one. Each of them becomes one split.

    Kind and metadata are those of the first if they differ. Paths of files stay as they are.

    Args:
        sources: a source for each split; a source that has splits itself gives all its records to this split.
        split_reason: why the splits are what they are, for people.

    Raises:
        SourceError: the sources define a column differently, or only some of them are text.
    """
    first_name, first = next(iter(sources.items()))
    hints: dict[str, Feature] = {}
    parts: list[SourcePart] = []
    for name, source in sources.items():
        if source.is_text != first.is_text:
            raise SourceError(
                f"the splits {first_name!r} ({first.kind}) and {name!r} ({source.kind}) cannot be combined: "
                "only one of them is text without types",
                hint="Convert one of them, or add them as two datasets.",
            )
        for column, feature in source.hints.items():
            other = hints.setdefault(column, feature)
            if other == feature:
                continue
            if isinstance(other, Image) and isinstance(feature, Image) and other.dtype == feature.dtype:
                hints[column] = common_picture(other, feature)
                continue
            if not _are_files(other, feature):
                raise SourceError(
                    f"column {column!r} is {other} in the split {first_name!r}, and {feature} in {name!r}",
                    hint="Give all splits the same features.",
                )
            hints[column] = bytes_of("an image" if Image in (type(other), type(feature)) else "a media")
        parts += [replace(part, split=name) for part in source.parts]
    # Pictures that became PNG for an Image stay as they are among others.
    parts = [
        replace(part, read=replace(part.read, convert=CheckMedia()))
        if isinstance(part.read, FilePart) and type(hints.get(part.read.column)) is Tensor
        else part
        for part in parts
    ]
    kinds = {source.kind for source in sources.values()}
    return Source(
        kind=first.kind if len(kinds) == 1 else "objects",
        summary="; ".join(f"{name}: {source.summary}" for name, source in sources.items()),
        parts=parts,
        hints=hints,
        is_text=first.is_text,
        path_column=first.path_column if all(source.path_column for source in sources.values()) else "",
        may_lack_columns=any(source.may_lack_columns for source in sources.values()),
        files=[
            replace(use, split=name) if use.role == "records" else use
            for name, source in sources.items()
            for use in source.files
        ],
        metadata=first.metadata,
        origins=[origin for source in sources.values() for origin in source.origins],
        split_reason=split_reason,
    )


def _are_files(first: Feature, second: Feature) -> bool:
    """Whether both are features of files that only bytes can hold together: PNGs and GIFs, or sounds of two rates."""
    if isinstance(first, Audio) and isinstance(second, Audio):
        return first.lazy_decode and second.lazy_decode
    pair = (first, second)
    plain = [feature for feature in pair if type(feature) is Tensor and feature.dtype == TEXT and not feature.shape]
    return bool(plain) and all(feature in plain or is_file_feature(feature) for feature in pair)
