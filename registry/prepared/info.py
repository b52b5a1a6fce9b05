"""Defines a prepared version as a value, and reads and writes it as TFDS's dataset_info.json.

The format is proto3 JSON: camelCase names, defaults omitted, 64-bit integers as text, keys sorted. snake_case names are
read too. Unknown fields are kept in ``metadata.extra`` and written back. ``folder`` calls it for the files of a folder.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias, TypeVar

from registry.errors import PreparedFormatError, UsageError
from registry.features import FeaturesDict, features_from_json
from registry.json_node import JsonNode, parse_json
from registry.masking import mask_all, remove_secrets
from registry.model import (
    DEFAULT_TEMPLATE,
    DatasetMetadata,
    DatasetVersion,
    Reference,
    ShardedFileTemplate,
    ShardLengths,
    Split,
    Version,
    check_config,
    check_name,
    check_splits,
)

T = TypeVar("T")

FILENAME: Final = "dataset_info.json"

NAMED_FORMATS: Final = ("tfrecord", "array_record", "parquet", "riegeli", "parquet_columns")
"""The values of ``fileFormat``: those of TFDS, and one of ours. ``registry.shards`` defines which can be read."""

_KNOWN: Final = (
    *("name", "version", "configName", "configDescription", "configTags", "description", "citation", "location"),
    *("redistributionInfo", "releaseNotes", "supervisedKeys", "splits", "fileFormat", "disableShuffling"),
)


def info_to_json(prepared: PreparedDataset) -> str:
    """Return the text of dataset_info.json, indented by 2 and without a final newline, as TFDS writes it.

    Secrets in the URLs of homepage and downloads are removed, because others read the file.
    """
    metadata, extra = prepared.metadata, mask_all(dict(prepared.metadata.extra))
    homepage = remove_secrets(metadata.homepage)
    keys = metadata.supervised_keys
    fields = {
        "citation": metadata.citation,
        "configDescription": metadata.config_description,
        "configName": prepared.config,
        "configTags": list(metadata.config_tags),
        "description": metadata.description,
        "disableShuffling": prepared.disable_shuffling,
        "fileFormat": prepared.file_format,
        "location": _merge(extra.get("location"), urls=[homepage] if homepage else []),
        "name": prepared.name,
        "redistributionInfo": _merge(extra.get("redistributionInfo"), license=metadata.license),
        "releaseNotes": dict(metadata.release_notes),
        "splits": [_write_split(split, extra.get("splits", {}).get(split.name)) for split in prepared.splits],
        "supervisedKeys": extra.get("supervisedKeys")
        if keys is None
        else {"tuple": {"items": [{"featureKey": key} for key in keys]}},
        "version": str(prepared.version),
    }
    known = {name: value for name, value in fields.items() if value}
    unknown = {name: value for name, value in extra.items() if name not in fields}
    return json.dumps(known | unknown, indent=2, sort_keys=True, allow_nan=False)


def info_from_json(text: str, features: FeaturesDict) -> PreparedDataset:
    """Return the version that the text of a dataset_info.json describes; its schema comes from features.json.

    Raises:
        PreparedFormatError: invalid JSON, or a malformed field; ``details['key']`` is its path.
    """
    root = parse_json(text, FILENAME)
    fields = root.fields()
    for name in ("name", "version"):
        if name not in fields:
            root.fail(f"the field {name!r} is missing")
    name = checked(fields["name"], check_name)
    config = _text(fields, "configName")
    file_format = _text(fields, "fileFormat") or "tfrecord"
    if file_format not in NAMED_FORMATS:
        fields["fileFormat"].fail(
            f"unknown file format {file_format[:80]!r}", hint=f"Known: {', '.join(NAMED_FORMATS)}."
        )
    extra = {node.key: node.value for known, node in fields.items() if known not in _KNOWN}
    urls = _take(fields, "location", "urls", extra)
    license_text = _take(fields, "redistributionInfo", "license", extra)
    homepages = [url.text() for url in urls.elements()] if urls else []
    if len(homepages) > 1:
        extra["location"] = extra.get("location", {}) | {"urls": homepages}
    release_notes = fields["releaseNotes"].entries() if "releaseNotes" in fields else {}
    try:
        return PreparedDataset(
            name=name,
            config=checked(fields["configName"], check_config) if config else None,
            version=checked(fields["version"], Version.parse),
            splits=_read_splits(fields, name, file_format, extra),
            features=features,
            metadata=DatasetMetadata(
                description=_text(fields, "description"),
                homepage=homepages[0] if homepages else "",
                citation=_text(fields, "citation"),
                license=license_text.text() if license_text else "",
                supervised_keys=_read_supervised_keys(fields.get("supervisedKeys"), extra),
                config_description=_text(fields, "configDescription"),
                config_tags=tuple(tag.text() for tag in fields["configTags"].elements())
                if "configTags" in fields
                else (),
                release_notes={version: note.text() for version, note in release_notes.items()},
                extra=extra,
            ),
            file_format=file_format,
            disable_shuffling="disableShuffling" in fields and fields["disableShuffling"].boolean(),
        )
    except UsageError as error:
        root.fail(error.message, hint=error.hint, cause=error)


def _write_split(split: Split, extra: Mapping[str, Any] | None) -> dict[str, Any]:
    return _merge(
        extra,
        name=split.name,
        shardLengths=[str(length) for length in split.shard_lengths],
        numBytes=str(split.num_bytes) if split.num_bytes else "",
        filepathTemplate=split.files.template,
    )


def _read_splits(fields: dict[str, JsonNode], name: str, file_format: str, extra: dict[str, Any]) -> tuple[Split, ...]:
    splits: list[Split] = []
    rests: dict[str, Any] = {}
    nodes = fields["splits"].elements() if "splits" in fields else []
    for node in nodes:
        split, rest = _read_split(node, name, file_format)
        if any(split.name == other.name for other in splits):
            node.fail(f"the split name {split.name!r} is used twice")
        splits.append(split)
        if rest:
            rests[split.name] = rest
    if rests:
        extra["splits"] = rests
    _check_files(splits, nodes)
    return tuple(splits)


def _check_files(splits: list[Split], nodes: list[JsonNode]) -> None:
    """Refuse two splits that share a file: it would be read and copied as both."""
    if len(splits) == 1 or all(split.files.template == DEFAULT_TEMPLATE for split in splits):
        return
    owners: dict[str, str] = {}
    for split, node in zip(splits, nodes, strict=True):
        for filename in split.filenames:
            owner = owners.setdefault(filename, split.name)
            if owner != split.name:
                node.fields().get("filepathTemplate", node).fail(
                    f"the splits {owner!r} and {split.name!r} share the file {filename[:120]}",
                    hint="A template that splits share must contain {SPLIT}. Prepare the dataset again with such a "
                    "template.",
                )


def _read_split(node: JsonNode, dataset: str, file_format: str) -> tuple[Split, dict[str, Any]]:
    fields = node.fields()
    if "name" not in fields:
        node.fail("the name of the split is missing")
    if "numShards" in fields and "shardLengths" not in fields and fields["numShards"].integer():
        node.fail(
            "it has shards, but not their lengths",
            hint="It was written by TFDS 1 or older. Load it once with that version of TFDS, which adds the lengths.",
        )
    template = _text(fields, "filepathTemplate") or DEFAULT_TEMPLATE
    try:
        split = Split(
            name=fields["name"].text(),
            shard_lengths=ShardLengths(fields["shardLengths"].integers() if "shardLengths" in fields else ()),
            num_bytes=fields["numBytes"].integer() if "numBytes" in fields else 0,
            files=ShardedFileTemplate(dataset=dataset, template=template, file_format=file_format),
        )
    except UsageError as error:
        node.fail(error.message, hint=error.hint, cause=error)
    known = ("name", "shardLengths", "numBytes", "filepathTemplate")
    return split, {inner.key: inner.value for name, inner in fields.items() if name not in known}


def _read_supervised_keys(node: JsonNode | None, extra: dict[str, Any]) -> tuple[str, ...] | None:
    """The keys if they are a plain tuple, or input and output in the old form; others are kept in ``extra``."""
    if node is None:
        return None
    fields = node.fields()
    if fields.keys() == {"input", "output"}:
        return fields["input"].text(), fields["output"].text()
    items = fields["tuple"].fields().get("items") if fields.keys() == {"tuple"} else None
    result = [item.fields() for item in items.elements()] if items else []
    if result and all(item.keys() == {"featureKey"} for item in result):
        return tuple(item["featureKey"].text() for item in result)
    if node.value:
        extra["supervisedKeys"] = node.value
    return None


def _take(fields: dict[str, JsonNode], message: str, name: str, extra: dict[str, Any]) -> JsonNode | None:
    """The field ``name`` of a message; its other fields are added to ``extra``."""
    inner = fields[message].fields() if message in fields else {}
    if rest := {node.key: node.value for known, node in inner.items() if known != name}:
        extra[message] = rest
    return inner.get(name)


def _merge(extra: Mapping[str, Any] | None, **fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value} | dict(extra or {})


def _text(fields: dict[str, JsonNode], name: str) -> str:
    return fields[name].text() if name in fields else ""


def checked(node: JsonNode, check: Callable[[str], T]) -> T:
    """Return the result of ``check`` for the text of ``node``; an error names the path of the node."""
    text = node.text()
    try:
        return check(text)
    except UsageError as error:
        node.fail(error.message, hint=error.hint, cause=error)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedDataset:
    """One prepared version, as ``dataset_info.json``, ``features.json`` and the label files describe it.

    Attributes:
        name, config, version: config is None if the builder has no configs.
        splits: in the order of the file, which is the order of ``all``; with file names and shard lengths.
        features: the schema, with the names of its labels if there are label files.
        metadata: descriptions, supervised keys, release notes. ``metadata.extra`` keeps unknown fields unchanged: by
            their names, those of splits under ``splits`` by split name, and those of the messages ``location`` and
            ``redistributionInfo`` under these names.
        file_format: ``tfrecord``, or another of ``NAMED_FORMATS``.
        disable_shuffling: whether the records are in the order of generation.
        experiments, version_to_prepare: flags that the version overrides, and the last version of the builder's code
            that can prepare it. TFDS's files do not contain them; the build or the publisher supplies them.
    """

    name: str
    version: Version
    splits: tuple[Split, ...]
    features: FeaturesDict
    config: str | None = None
    metadata: DatasetMetadata = field(default_factory=DatasetMetadata)
    file_format: str = "tfrecord"
    disable_shuffling: bool = False
    experiments: Mapping[str, bool] = field(default_factory=dict)
    version_to_prepare: str | None = None

    def __post_init__(self) -> None:
        check_name(self.name)
        if self.config is not None:
            check_config(self.config)
        check_splits(self.splits, str(self.reference))

    def renamed(self, name: str) -> PreparedDataset:
        """Return the same version of a dataset called ``name``. Its files keep their names.

        Raises:
            ReferenceSyntaxError: the name is invalid.
        """
        return replace(
            self,
            name=name,
            splits=tuple(replace(split, files=split.files.with_literal_dataset()) for split in self.splits),
        )

    @property
    def reference(self) -> Reference:
        """The exact reference of this version."""
        return Reference.exactly(self.name, self.config, self.version)


def describe(version: DatasetVersion) -> PreparedDataset:
    """Return the description of a published version, for its folder."""
    return PreparedDataset(
        name=version.name,
        config=version.config,
        version=version.version,
        splits=version.splits,
        features=features_from_json(version.features_json).with_labels(version.labels),
        metadata=version.metadata,
        file_format=version.file_format,
        disable_shuffling=version.disable_shuffling,
        experiments=version.experiments,
        version_to_prepare=version.version_to_prepare,
    )


SupervisedKeys: TypeAlias = "str | tuple[SupervisedKeys, ...] | dict[str, SupervisedKeys]"
"""The name of a feature, or a tuple or dict of names."""


def supervised_keys(metadata: DatasetMetadata) -> SupervisedKeys | None:
    """Return the supervised keys of a version, or None if it has none.

    A plain tuple of names is a field of ``metadata``; other structures are kept as in ``dataset_info.json``.

    >>> supervised_keys(DatasetMetadata(supervised_keys=("image", "label")))
    ('image', 'label')
    >>> sides = {"dict": {"dict": {"x": {"featureKey": "left"}, "y": {"featureKey": "right"}}}}
    >>> kept = {"supervisedKeys": {"tuple": {"items": [sides, {"featureKey": "label"}]}}}
    >>> supervised_keys(DatasetMetadata(extra=kept))
    ({'x': 'left', 'y': 'right'}, 'label')

    Raises:
        PreparedFormatError: the stored structure is malformed.
    """
    if metadata.supervised_keys is not None:
        return metadata.supervised_keys
    result = metadata.extra.get("supervisedKeys")
    return None if not result else _read(result, "supervisedKeys")


def _read(node: Any, key: str) -> SupervisedKeys:
    if isinstance(node, Mapping) and len(node) == 1:
        ((kind, inner),) = node.items()
        if kind in ("featureKey", "feature_key") and isinstance(inner, str):
            return inner
        if kind == "tuple" and isinstance(inner, Mapping) and isinstance(items := inner.get("items"), list):
            return tuple(_read(item, f"{key}.tuple.items[{place}]") for place, item in enumerate(items))
        if kind == "dict" and isinstance(inner, Mapping) and isinstance(items := inner.get("dict"), Mapping):
            return {name: _read(item, f"{key}.dict.dict.{name}") for name, item in sorted(items.items())}
    raise PreparedFormatError(
        f"{key}: expected a featureKey, or a tuple or dict of them, found {node!r:.80}",
        hint="Prepare the dataset again with TFDS.",
        details={"key": key},
    )
