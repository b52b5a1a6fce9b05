"""Compares two versions, and finds the smallest step of the version number that allows the changes.

    PATCH   the same records and features in the same order; other bytes, shards or words
    MINOR   the same records with additional features
    MAJOR   anything else: records, their order, features removed or retyped, splits, the slicing rule

These are the rules of the TFDS versioning document, computed from the published schemas, splits and fingerprints. No
records are read. ``proof`` compares the result with the step between two numbers.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

from registry.display import time_type_of
from registry.envelope import fields_of
from registry.features import (
    BBox,
    ClassLabel,
    Feature,
    FeaturesDict,
    LabeledImage,
    RawFeature,
    Sequence,
    Tensor,
    Text,
    features_from_json,
)
from registry.features.containers import Column, columns_of, content_path
from registry.features.feature import TEXT, Leaf
from registry.model import DatasetVersion, Reference, SplitFingerprint, Version, block_size, listed
from registry.model.version import MAX_PART
from registry.splits import counted


class ChangeLevel(IntEnum):
    """The part of the number that must be raised; NONE means the same content."""

    NONE = 0
    PATCH = 1
    MINOR = 2
    MAJOR = 3

    @property
    def part(self) -> str:
        """The name of the part. Even without a change, a new number raises the patch part."""
        return self.name.lower() if self else "patch"

    @classmethod
    def between(cls, old: Version, new: Version) -> ChangeLevel:
        """Return the level of changes that the step from ``old`` up to ``new`` allows.

        >>> ChangeLevel.between(Version(3, 0, 1), Version(3, 1, 0)).name
        'MINOR'
        """
        if old.major != new.major:
            return cls.MAJOR
        if old.minor != new.minor:
            return cls.MINOR
        return cls.PATCH if old.patch != new.patch else cls.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One difference between two versions.

    Attributes:
        level: the smallest step of the number that allows it.
        kind: ``records``, ``features``, ``splits``, ``slicing``, ``order``, ``storage`` or ``metadata``.
        where: the split or feature that differs, or ``""``.
        text: a description for people.
        brief: the description in fewer words, for a list of reasons in one line.
    """

    level: ChangeLevel
    kind: str
    where: str
    text: str
    brief: str = ""

    def __post_init__(self) -> None:
        if not self.brief:
            object.__setattr__(self, "brief", self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class FingerprintedVersion:
    """A version and the fingerprints of its splits, which are all that a comparison needs.

    If there are no fingerprints, ``unread`` says why they could not be computed.
    """

    version: DatasetVersion
    fingerprints: Mapping[str, SplitFingerprint]
    unread: str = "its files were not read"

    @property
    def reference(self) -> Reference:
        """The version's exact reference."""
        return self.version.reference


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """All differences between two versions, the highest level first.

    Attributes:
        old, new: the versions.
        changes: the differences; empty if the content is the same.
        common: the features that both versions have with the same type, except that one of them may be optional or
            have more classes. Records are compared by their values.
        differing: for each common split, pairs of ranges of records (in old, in new) that may differ; empty if none do.
        key: the feature whose values are the keys of the records in both versions, as recorded by ``registry add``, or
            None. Records are matched by their keys, whatever else has changed.
        is_keyed_by_content: whether the keys of a version are computed from the content, so no feature is the key. A
            changed record then has another key and another place, so it cannot be matched with its old form.
    """

    old: Reference
    new: Reference
    changes: tuple[Change, ...]
    common: tuple[str, ...]
    differing: Mapping[str, tuple[tuple[range, range], ...]]
    key: str | None = None
    is_keyed_by_content: bool = False

    @property
    def level(self) -> ChangeLevel:
        """The smallest step of the number that allows all changes."""
        return max((change.level for change in self.changes), default=ChangeLevel.NONE)

    @property
    def smallest(self) -> Version | None:
        """The smallest number that may follow the old one with these changes; None if no number is left."""
        number = None if self.old.request is None else self.old.request.exact
        if number is None:
            raise AssertionError("versions that are compared are exact")
        for level in range(max(self.level, ChangeLevel.PATCH), ChangeLevel.MAJOR + 1):
            part = ChangeLevel(level).part
            if getattr(number, part) < MAX_PART:
                return number.bump(part)
        return None

    def to_json(self) -> list[dict[str, Any]]:
        """Each difference as plain values: its level, kind, place and text."""
        return [
            {"level": change.level.name.lower(), **fields_of(change, "kind", "where", "text")}
            for change in self.changes
        ]

    @property
    def reasons(self) -> tuple[Change, ...]:
        """The differences that decide the level."""
        return tuple(change for change in self.changes if change.level is self.level)


def compare_versions(old: FingerprintedVersion, new: FingerprintedVersion) -> Changes:
    """Return the differences from ``old`` to ``new``, by schema, splits and fingerprints."""
    features = _features(old.version), _features(new.version)
    before, after = map(_columns, features)
    common = _common(before, after)
    old, new = (_with_features(side, common) for side in (old, new))
    result = [
        *_compare_splits(old.version, new.version),
        *_compare_features(before, after),
        *_compare_empty_dicts(*features),
        *_compare_records(
            old, new, [path for path in common if _is_optional(before[path]) == _is_optional(after[path])]
        ),
        *_compare_rules(old.version, new.version),
        *_compare_storage(old.version, new.version),
        *_compare_metadata(old.version, new.version),
    ]
    if old.version.content_digest != new.version.content_digest and not any(
        change.kind != "metadata" for change in result
    ):
        text = "schema or shards contain other bytes for the same records"
        result.append(Change(level=ChangeLevel.PATCH, kind="storage", where="", text=text))
    result.sort(key=lambda change: -change.level)
    shared = [name for name in old.fingerprints if name in new.fingerprints]
    kinds = _key_kind(old.version), _key_kind(new.version)
    return Changes(
        old=old.reference,
        new=new.reference,
        changes=tuple(result),
        common=common,
        differing={name: _differing_ranges(old.fingerprints[name], new.fingerprints[name], common) for name in shared},
        key=common_key(old.version, new.version, common),
        is_keyed_by_content="content" in kinds,
    )


def _with_features(version: FingerprintedVersion, paths: Collection[str]) -> FingerprintedVersion:
    """The version without fingerprints that lack a feature: a service stores what the program of a publisher states."""
    whole = {name: split for name, split in version.fingerprints.items() if split.features.keys() >= set(paths)}
    return replace(version, fingerprints=whole)


def common_features(old: DatasetVersion, features: FeaturesDict) -> tuple[str, ...]:
    """The features that ``old`` and a version with ``features`` have with comparable values, sorted."""
    return _common(_columns(_features(old)), _columns(features))


def _common(before: Mapping[str, Column], after: Mapping[str, Column]) -> tuple[str, ...]:
    return tuple(sorted(path for path in before if path in after and _are_comparable(before[path], after[path])))


def _key_kind(version: DatasetVersion) -> str | None:
    """How ``registry add`` made the keys; None for other versions."""
    match version.metadata.custom.get("intake"):
        case {"key": {"kind": str(kind)}}:
            return kind
    return None


def common_key(old: DatasetVersion, new: DatasetVersion, common: Collection[str]) -> str | None:
    """The path of the feature in ``common`` that is the key of the records in both versions, or None."""
    keys: set[str] = set()
    for version in (old, new):
        match version.metadata.custom.get("intake"):  # written by ``intake.plan``
            case {"key": {"kind": "column" | "path", "columns": [str(column)]}}:
                keys.add(content_path([column]))
            case _:
                return None
    path = keys.pop()
    return path if not keys and path in common else None


def _major(kind: str, where: str, text: str, brief: str = "") -> Change:
    return Change(level=ChangeLevel.MAJOR, kind=kind, where=where, text=text, brief=brief)


def _compare_splits(old: DatasetVersion, new: DatasetVersion) -> Iterator[Change]:
    before, after = [split.name for split in old.splits], [split.name for split in new.splits]
    for name in before:
        if name not in after:
            yield _major(
                "splits", name, f"split {name} was removed, with {counted(old.split(name).num_examples, 'record')}"
            )
    for name in after:
        if name not in before:
            yield _major("splits", name, f"split {name} is new, with {counted(new.split(name).num_examples, 'record')}")
    if before != after and sorted(before) == sorted(after):
        text = f"the splits have another order, which is the order of 'all': {', '.join(after)}"
        yield _major("splits", "", text)


def _compare_features(before: Mapping[str, Column], after: Mapping[str, Column]) -> Iterator[Change]:
    for path, column in sorted(before.items()):
        if path not in after:
            yield _major("features", path, f"feature {path} was removed ({_describe(column)})", f"{path} was removed")
        elif _type(column) != _type(after[path]):
            text = f"feature {path} is {_describe(after[path], column)}, was {_describe(column, after[path])}"
            brief = _brief(path, column, after[path])
            if classes := _describe_classes(column.leaf, after[path].leaf):
                text, brief = f"{text}; {classes}", f"{brief} ({classes})"
            if not _are_comparable(column, after[path]):
                text = f"{text}; its values were not compared"
            yield _major("features", path, text, brief)
    for path, column in sorted(after.items()):
        if path not in before:
            text = f"feature {path} is new ({_describe(column)})"
            yield Change(level=ChangeLevel.MINOR, kind="features", where=path, text=text, brief=f"{path} is new")


def _brief(path: str, before: Column, after: Column) -> str:
    """A change of type in few words: ``p is Text, was float64``, ``label has 3 classes, had 2``."""
    classes = [column.leaf.num_classes for column in (before, after) if isinstance(column.leaf, ClassLabel)]
    if len(classes) == 2 and not (before.lengths or after.lengths):
        had, has = classes
        if had == has:
            return f"{path} has other classes"
        return f"{path} has {has:,} {'class' if has == 1 else 'classes'}, had {had:,}"
    is_now, was = (describe_type(*pair) for pair in ((after, before), (before, after)))
    return f"{path} is {is_now}, was {was}"


def _compare_empty_dicts(old: FeaturesDict, new: FeaturesDict) -> Iterator[Change]:
    """Changes of dicts without features, which store nothing but are visible to readers."""
    before, after = _dicts(old), _dicts(new)
    for path in sorted(path for path, is_empty in before.items() if is_empty and path not in after):
        yield _major("features", path, f"feature {path} was removed (a dict without features)")
    for path in sorted(path for path, is_empty in after.items() if is_empty and path not in before):
        text = f"feature {path} is new (a dict without features)"
        yield Change(level=ChangeLevel.MINOR, kind="features", where=path, text=text)


def _compare_records(old: FingerprintedVersion, new: FingerprintedVersion, common: Collection[str]) -> Iterator[Change]:
    names = [split.name for split in new.version.splits]
    for split in old.version.splits:
        if split.name not in names or old.version.content_digest == new.version.content_digest:
            continue
        for side in (old, new):
            if split.name not in side.fingerprints:
                text = (
                    f"split {split.name} was not compared: {side.reference} was published without fingerprints, "
                    f"and {side.unread}"
                )
                yield _major("records", split.name, text)
        if split.name not in old.fingerprints or split.name not in new.fingerprints:
            continue
        before, after = old.fingerprints[split.name], new.fingerprints[split.name]
        if before.num_examples != after.num_examples:
            text = f"{split.name} has {counted(after.num_examples, 'record')}, had {before.num_examples:,}"
            yield _major("records", split.name, f"split {text}", text)
            continue
        paths = [path for path in common if before.features[path].digest != after.features[path].digest]
        if paths:
            first = _differing_ranges(before, after, tuple(paths))[0][0]
            values = f"split {split.name} has other values of {', '.join(paths[:5])}" + (
                f" and {len(paths) - 5} more features" if len(paths) > 5 else ""
            )
            text = f"{values}, the first of them in records {first.start}..{first.stop}"
            yield _major("records", split.name, text, values)


def _compare_rules(old: DatasetVersion, new: DatasetVersion) -> Iterator[Change]:
    if old.slicing is not new.slicing:
        text = f"split expressions follow the rule {new.slicing.value}, followed {old.slicing.value}"
        yield _major("slicing", "", text)
    if old.disable_shuffling is not new.disable_shuffling:
        text = f"shuffling is {'disabled' if new.disable_shuffling else 'enabled'}, which changes the reading order"
        yield _major("order", "", text)


def _compare_storage(old: DatasetVersion, new: DatasetVersion) -> Iterator[Change]:
    found = []
    for split in old.splits:
        other = next((candidate for candidate in new.splits if candidate.name == split.name), split)
        if other.num_examples == split.num_examples and other.shard_lengths != split.shard_lengths:
            is_recut = other.num_shards == split.num_shards
            was = " with other boundaries" if is_recut else f", had {counted(split.num_shards, 'shard')}"
            found.append(f"split {split.name} has {counted(other.num_shards, 'shard')}{was}")
    if old.file_format != new.file_format:
        found.append(f"shards are {new.file_format} files, were {old.file_format}")
    for text in found:
        yield Change(level=ChangeLevel.PATCH, kind="storage", where="", text=text)


def _compare_metadata(old: DatasetVersion, new: DatasetVersion) -> Iterator[Change]:
    for field in (
        "description", "homepage", "citation", "license", "supervised_keys", "config_description", "config_tags",
    ):  # fmt: skip
        before, after = getattr(old.metadata, field), getattr(new.metadata, field)
        if before != after:
            text = f"{field} is {_shown(after)}, was {_shown(before)}"
            yield Change(level=ChangeLevel.PATCH, kind="metadata", where=field, text=text)


def _differing_ranges(
    old: SplitFingerprint, new: SplitFingerprint, paths: tuple[str, ...]
) -> tuple[tuple[range, range], ...]:
    """The records that may differ: runs of blocks, in ``old`` and in ``new``.

    If the splits differ in length, only the equal blocks at their start are excluded.
    """
    if block_size(old.num_examples) != block_size(new.num_examples):
        return ((range(old.num_examples), range(new.num_examples)),)
    blocks = min(old.num_blocks, new.num_blocks)
    differs = [
        any(old.features[path].blocks[i] != new.features[path].blocks[i] for path in paths) for i in range(blocks)
    ]
    if old.num_examples != new.num_examples:
        first = differs.index(True) if True in differs else blocks
        start = min(first * block_size(old.num_examples), old.num_examples, new.num_examples)
        return ((range(start, old.num_examples), range(start, new.num_examples)),)
    result: list[range] = []
    for index in (index for index, is_other in enumerate(differs) if is_other):
        block = old.block(index)
        if result and result[-1].stop == block.start:
            block = range(result.pop().start, block.stop)
        result.append(block)
    return tuple((name, name) for name in result)


def _features(version: DatasetVersion) -> FeaturesDict:
    return features_from_json(version.features_json).with_labels(version.labels)


def _columns(features: FeaturesDict) -> dict[str, Column]:
    return {content_path(column.names): column for column in columns_of(features)}


def _dicts(feature: Feature, names: tuple[str, ...] = ()) -> dict[str, bool]:
    """The dicts of features below ``feature`` by path, and whether each is empty."""
    while isinstance(feature, Sequence):
        feature = feature.feature
    if not isinstance(feature, FeaturesDict):
        return {}
    result = {content_path(names): not feature} if names else {}
    for name, inner in feature.items():
        result |= _dicts(inner, (*names, name))
    return result


def _type(column: Column) -> tuple[object, ...]:
    """The part of a type that readers depend on: not the encoding of a tensor, and not its documentation."""
    return _values(column), _class_name(column.leaf), _is_optional(column), _classes(column.leaf)


def _values(column: Column) -> tuple[object, ...]:
    """The part of a type on which the meaning of its values depends, without classes, and whether it is optional."""
    leaf = column.leaf
    own: object = None
    if isinstance(leaf, BBox):
        own = leaf.bbox_format
    elif isinstance(leaf, Tensor):
        own = time_type_of(leaf)
    elif isinstance(leaf, RawFeature):
        own = leaf.class_name
    kind = "Tensor" if isinstance(leaf, Text) else _class_name(leaf)  # an optional text is a tensor
    return kind, leaf.dtype, leaf.shape, column.lengths, column.words, own


def _is_optional(column: Column) -> bool:
    return isinstance(column.leaf, Tensor) and column.leaf.optional and not column.lengths


def _classes(leaf: Leaf) -> tuple[int | None, tuple[str, ...] | None]:
    return (leaf.num_classes, leaf.names) if isinstance(leaf, ClassLabel | LabeledImage) else (None, None)


def _are_comparable(before: Column, after: Column) -> bool:
    """Whether equal values have the same meaning: new classes may follow, and one of the columns may be optional."""
    (_, old), (_, new) = _classes(before.leaf), _classes(after.leaf)
    is_renumbered = (old is None) != (new is None) or any(a != b for a, b in zip(old or (), new or (), strict=False))
    return _values(before) == _values(after) and not is_renumbered


def _class_name(leaf: Leaf) -> str:
    if isinstance(leaf, Text):  # also the language of a translation
        return "Text"
    name = type(leaf).__name__
    return "Tensor" if name == "Scalar" else name


def _describe_classes(before: Leaf, after: Leaf) -> str:
    """The names of classes that are new, gone or have another number."""
    names = [leaf.names for leaf in (before, after) if isinstance(leaf, (ClassLabel, LabeledImage)) and leaf.names]
    if len(names) != 2:
        return ""
    old, new = ({name: number for number, name in enumerate(labels)} for labels in names)
    groups = {
        "new": [repr(name) for name in new if name not in old],
        "gone": [repr(name) for name in old if name not in new],
        "renumbered": [f"{name!r} {old[name]} -> {new[name]}" for name in old if new.get(name, old[name]) != old[name]],
    }
    return "; ".join(f"{word}: {listed(texts, 5)}" for word, texts in groups.items() if texts)


def describe_type(column: Column, other: Column | None = None) -> str:
    """The type of a feature in few words: ``float64``, ``Sequence of Text``, ``ClassLabel of 10 classes``.

    For labels, it also names a difference from ``other``. It has no documentation, encoding and names of classes.
    """
    return _describe(column, other).replace("Tensor ", "")


def _describe(column: Column, other: Column | None = None) -> str:
    text = _describe_leaf(column.leaf, None if other is None else other.leaf)
    for length, word in reversed(list(zip(column.lengths, column.words, strict=True))):
        text = f"{word} of {text}" if length is None else f"{word} of {length} {text}"
    return text


def _describe_leaf(leaf: Leaf, rival: Leaf | None) -> str:
    name = _class_name(leaf)
    if isinstance(leaf, RawFeature):
        return f"{name} of {leaf.class_name}"
    if isinstance(leaf, (ClassLabel, LabeledImage)):
        text = f"{name} of {leaf.num_classes} classes"
        if isinstance(leaf, LabeledImage):
            text += f" {leaf.dtype} {leaf.shape}"
        if not isinstance(rival, type(leaf)) or rival.num_classes != leaf.num_classes or rival.names == leaf.names:
            return text
        is_named = leaf.names is not None and rival.names is not None
        return text if is_named else f"{text} {'without' if leaf.names is None else 'with'} names"
    if name == "Text":
        return name
    if isinstance(leaf, BBox):
        name += f" {leaf.bbox_format or 'of no format'}" if leaf.bbox_format != "REL_YXYX" else ""
    if isinstance(leaf, Tensor) and leaf.optional:
        name = f"optional {name}"
    dtype = "text" if leaf.dtype == TEXT else time_type_of(leaf) or leaf.dtype
    return f"{name} {dtype} {leaf.shape}" if leaf.shape else f"{name} {dtype}"


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=list)
    return text if len(text) <= 60 else text[:59] + "…"
