"""Describes a version as a Croissant document: JSON-LD with its metadata, files, splits and fields.

It follows the Croissant format 1.1 of MLCommons (http://mlcommons.org/croissant/1.1). The document is made from the
catalog and the attached statistics: the same version gives the same document, and unknown values are left out.
"""

from __future__ import annotations

import glob
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import numpy as np

from registry.errors import UsageError
from registry.escaping import escape_json
from registry.features import ClassLabel, Feature, FeaturesDict
from registry.features import Sequence as SequenceFeature
from registry.features.containers import content_path
from registry.features.feature import TEXT, Shape
from registry.interop.croissant_statistics import count_annotation, field_annotations
from registry.interop.croissant_terms import CONFORMS_TO, ENUMERATION, NAMESPACES, SPLIT, STATISTICS
from registry.model import DatasetVersion, Shard, Split
from registry.statistics import Statistics
from registry.storage import require_no_secrets

REQUIRED: Final = ("description", "license", "name", "url", "creator", "datePublished")
"""The properties that Croissant requires of every dataset; a version may lack some."""

_TERMS: Final = (
    *("annotation", "arrayShape", "citeAs", "column", "containedIn", "equivalentProperty", "excludes", "extract"),
    *("field", "fileObject", "fileProperty", "fileSet", "format", "includes", "isArray", "isLiveDataset", "jsonPath"),
    *("key", "md5", "parentField", "path", "readLines", "recordSet", "references", "regex", "repeated", "replace"),
    *("samplingRate", "sdVersion", "separator", "source", "subField", "transform", "unArchive", "value"),
)
_CONTEXT: Final[dict[str, Any]] = {
    "@language": "en",
    "@vocab": NAMESPACES["sc"],
    **NAMESPACES,
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "description": {"@container": "@language"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "name": {"@container": "@language"},
    **{term: f"cr:{term}" for term in _TERMS},
}

_FORMATS: Final = {
    "tfrecord": "https://www.tensorflow.org/tutorials/load_data/tfrecord",
    "array_record": "https://github.com/google/array_record",
    "riegeli": "https://github.com/google/riegeli",
}
"""Formats without a media type. For these, Croissant accepts the URL of a page that describes the format."""

_SCHEME: Final = r"[a-zA-Z][a-zA-Z0-9+.-]*:"
_SCHEMES: Final = ("http", "https", "s3", "gs", "file")
"""The URL schemes that a document may contain."""

_PARQUET: Final = "application/x-parquet"

_MEANINGS: Final = {
    "train": "cr:TrainingSplit",
    "training": "cr:TrainingSplit",
    "val": "cr:ValidationSplit",
    "valid": "cr:ValidationSplit",
    "validation": "cr:ValidationSplit",
    "dev": "cr:ValidationSplit",
    "test": "cr:TestSplit",
}


def describe_croissant(
    version: DatasetVersion,
    features: FeaturesDict,
    shards: Mapping[str, Sequence[Shard]],
    *,
    statistics: Statistics | None = None,
    base_url: str | None = None,
    creators: Sequence[str] = (),
) -> dict[str, Any]:
    """The Croissant document of a version, as plain values in a fixed order.

    Args:
        version: the published version.
        features: the schema of an example, with the names of its labels.
        shards: the stored files of each split.
        statistics: the statistics of the version, which become annotations of the fields, or None.
        base_url: the URL of the folder of the shards; None writes paths relative to the document.
        creators: the names of the dataset's authors, which the catalog does not have.

    Raises:
        UsageError: ``base_url`` is not a usable URL, or contains a password.
    """
    base = _check_base(base_url)
    told: dict[str, Any] = {
        "@context": _CONTEXT | (STATISTICS if statistics else {}),
        "@type": "sc:Dataset",
        "conformsTo": CONFORMS_TO,
        "name": version.reference.dataset,
        "description": version.metadata.description or _summary(version),
        "version": str(version.version),
        "identifier": str(version.reference),
        "datePublished": version.published_at.isoformat() if version.published_at else "",
        "license": _license(version.metadata.license),
        # Viewers turn it into a link, so schemes such as ``javascript:`` are rejected.
        "url": version.metadata.homepage if _is_address(version.metadata.homepage) else base,
        "citeAs": version.metadata.citation,
        "keywords": list(version.metadata.config_tags),
        "creator": [{"@type": "sc:Person", "name": name} for name in creators],
        "publisher": {"@type": "sc:Person", "name": version.published_by} if version.published_by else None,
        "isLiveDataset": False,
        "distribution": _distribution(version, shards, base),
        "recordSet": _record_sets(version, features, statistics),
    }
    return {name: value for name, value in told.items() if value or value is False}


def croissant_to_json(document: Mapping[str, Any]) -> str:
    """The text of a document, with a final newline. The same version gives the same UTF-8 bytes.

    It can be embedded in a script element of a web page: ``<`` is escaped, so no text in it ends the element.
    """
    return json_for_page(document, ensure_ascii=False) + "\n"


def json_for_page(value: Any, *, ensure_ascii: bool) -> str:
    """``value`` as indented JSON with escaped ``<`` and control characters, which occur only in strings."""
    return escape_json(json.dumps(value, indent=2, ensure_ascii=ensure_ascii).replace("<", "\\u003c"))


def missing_properties(document: Mapping[str, Any]) -> list[str]:
    """The properties that Croissant requires and that ``document`` lacks."""
    return [name for name in REQUIRED if not document.get(name)]


def _distribution(
    version: DatasetVersion, shards: Mapping[str, Sequence[Shard]], base: str | None
) -> list[dict[str, Any]]:
    """Every shard with its sha256, a file set for each split, and one of all shards, the source of the fields."""
    encoding = _FORMATS.get(version.file_format, _PARQUET)
    files: list[dict[str, Any]] = []
    sets: list[dict[str, Any]] = []
    for split in version.splits:
        for shard in shards[split.name]:
            filename = split.filename(shard.index)
            files.append(
                {
                    "@type": "cr:FileObject",
                    "@id": f"shards/{'/'.join(map(id_part, filename.split('/')))}",
                    "name": filename,
                    "contentUrl": quote(filename) if base is None else f"{base}/{quote(filename)}",
                    "contentSize": f"{shard.num_bytes} B",
                    "encodingFormat": encoding,
                    "sha256": shard.sha256,
                }
            )
        sets.append(
            {
                "@type": "cr:FileSet",
                "@id": f"{split.name}-shards",
                "name": f"{split.name}-shards",
                "description": f"The shards of {split.name}.",
                "encodingFormat": encoding,
                "includes": _glob(split),
            }
        )
    if sets:
        whole = {
            "@type": "cr:FileSet",
            "@id": "shards",
            "name": "shards",
            "description": "The shards of every split.",
            "containedIn": [{"@id": record_set["@id"]} for record_set in sets],
            "encodingFormat": encoding,
            "includes": sorted({record_set["includes"] for record_set in sets}),
        }
        sets.append(whole)
    return files + sets


def _record_sets(
    version: DatasetVersion, features: FeaturesDict, statistics: Statistics | None
) -> list[dict[str, Any]]:
    if not version.splits:
        return []
    labels = [_enumeration(stem, names) for stem, names in features.labels().items() if names]
    fields = _fields(features, "examples", statistics)
    ids = {field["@id"] for field in fields}
    split_field = _split_field(version.splits, ids)
    examples = {
        "@type": "cr:RecordSet",
        "@id": "examples",
        "name": "examples",
        "description": _summary(version),
        "annotation": [count_annotation(_free_id("examples/count", ids), version.num_examples)],
        "field": ([] if split_field is None else [split_field]) + fields,
    }
    return [_splits(version.splits), *labels, *([examples] if examples["field"] else [])]


def _splits(splits: Sequence[Split]) -> dict[str, Any]:
    """The splits with their sizes, and with their purpose if all split names are well known."""
    columns: dict[str, str | list[str]] = {"name": "sc:Text"}
    if all(split.name in _MEANINGS for split in splits):
        columns["url"] = "sc:URL"
    columns |= {name: ["cr:Int64", "sc:Integer"] for name in ("num_examples", "num_bytes", "num_shards")}
    rows = [
        {
            "name": split.name,
            "url": _MEANINGS.get(split.name),
            "num_examples": split.num_examples,
            "num_bytes": split.num_bytes,
            "num_shards": split.num_shards,
        }
        for split in splits
    ]
    about = "The splits: examples, bytes of serialized records, and shard files of each."
    return _table("splits", SPLIT, columns, rows, key="name", about=about)


def _enumeration(stem: str, names: Sequence[str]) -> dict[str, Any]:
    rows = [{"index": index, "name": name} for index, name in enumerate(names)]
    columns: dict[str, str | list[str]] = {"index": ["cr:Int64", "sc:Integer"], "name": "sc:Text"}
    about = f"The names of the classes of {stem!r}, by number."
    return _table(label_set_id(stem), ENUMERATION, columns, rows, key="index", about=about)


def _table(
    place: str,
    data_type: str,
    columns: Mapping[str, str | list[str]],
    rows: Sequence[Mapping[str, Any]],
    *,
    key: str,
    about: str,
) -> dict[str, Any]:
    """A small record set with its records in the document."""
    return {
        "@type": "cr:RecordSet",
        "@id": place,
        "name": place,
        "description": about,
        "dataType": data_type,
        "key": {"@id": f"{place}/{key}"},
        "field": [
            {"@type": "cr:Field", "@id": f"{place}/{name}", "name": name, "dataType": kind}
            for name, kind in columns.items()
        ],
        "data": [{f"{place}/{name}": row[name] for name in columns} for row in rows],
    }


def _split_field(splits: Sequence[Split], taken: set[str]) -> dict[str, Any] | None:
    """The field with the split of an example; None if the file names do not contain it."""
    files = splits[0].files
    if "{SPLIT}" not in files.template or any(split.files != files for split in splits):
        return None
    place = _free_id("examples/split", taken)
    names = "|".join(split.name for split in splits)
    before = "^(?:.*/)?" if "/" in files.template else "^"
    pattern = _filled(splits[0], mark_split=True, escape=_escape, number="[0-9]+", index="[0-9]+")
    return {
        "@type": "cr:Field",
        "@id": place,
        "name": place.rpartition("/")[2],
        "description": "The split that the example is of.",
        "dataType": "sc:Text",
        "source": {
            "fileSet": {"@id": "shards"},
            "extract": {"fileProperty": "fullpath" if "/" in files.template else "filename"},
            "transform": {"regex": f"{before}{pattern.replace(_SPLIT, f'({names})')}$"},
        },
        "references": {"field": {"@id": "splits/name"}},
    }


def _free_id(place: str, taken: set[str]) -> str:
    while place in taken:  # a feature has this name
        place += "_"
    return place


_SPLIT: Final = "\0split\0"
_INDEX: Final = "\0index\0"
_NUMBER: Final = "\0number\0"


def _glob(split: Split) -> str:
    """The glob pattern of a split's file names."""
    digits = max(5, len(str(split.num_shards)))
    return _filled(split, escape=glob.escape, number=f"{split.num_shards:0{digits}d}", index="*")


def _filled(split: Split, *, escape: Callable[[str], str], number: str, index: str, mark_split: bool = False) -> str:
    """The file name template of a split with ``index`` and ``number`` filled in, and the rest escaped."""
    files = split.files
    text = files.template.format(
        DATASET=files.dataset,
        SPLIT=_SPLIT if mark_split else split.name,
        FILEFORMAT=files.file_format,
        SHARD_INDEX=_INDEX,
        NUM_SHARDS=_NUMBER,
        SHARD_X_OF_Y=f"{_INDEX}-of-{_NUMBER}",
    )
    return escape(text).replace(_INDEX, index).replace(_NUMBER, number)


def _escape(text: str) -> str:
    """Text escaped for a regular expression, in a way that all dialects understand."""
    return re.sub(r"([\\.^$*+?{}\[\]|()])", r"\\\1", text)


def _license(text: str) -> str | dict[str, str]:
    """An SPDX id or a URL unchanged; other text, and URLs with other schemes, as a CreativeWork of that name."""
    text = text.strip()
    is_plain = not re.search(r"\s", text) and (_is_address(text) or not re.match(_SCHEME, text))
    return text if is_plain else {"@type": "sc:CreativeWork", "name": text}


def _is_address(text: str) -> bool:
    return re.match(rf"({'|'.join(_SCHEMES)}):", text, re.IGNORECASE) is not None


def _summary(version: DatasetVersion) -> str:
    sizes = ", ".join(f"{split.num_examples:,} in {split.name}" for split in version.splits)
    return f"{version.reference}: {version.num_examples:,} examples{f', {sizes}' if len(version.splits) > 1 else ''}."


def _check_base(base_url: str | None) -> str | None:
    """``base_url`` without its final slash."""
    if base_url is None:
        return None
    if not re.match(_SCHEME, base_url) or re.search(r"\s", base_url):
        raise UsageError(
            f"{base_url!r:.120} is not the URL of a folder",
            hint="Use the URL of the folder with the shards, e.g. https://example.org/mnist/3.0.1",
            details={"url": base_url[:120]},
        )
    require_no_secrets(base_url, "the address")
    if not _is_address(base_url):
        raise UsageError(
            f"files cannot be downloaded from {base_url!r:.120}",
            hint=f"Use a URL with one of the schemes {', '.join(_SCHEMES)}, e.g. https://example.org/mnist/3.0.1",
            details={"url": base_url[:120]},
        )
    return base_url.rstrip("/")


_MEDIA: Final[dict[str, str | list[str]]] = {
    "Image": "sc:ImageObject",
    "LabeledImage": ["cr:SegmentationMask", "sc:ImageObject"],
    "Video": "sc:VideoObject",
    "Audio": "sc:AudioObject",
    "BBox": "cr:BoundingBox",
}
"""Features that are one value in Croissant, for arrays of any shape; by the name of the class or a base class."""

_ATOMS: Final = {"b": "sc:Boolean", "i": "sc:Integer", "u": "sc:Integer", "f": "sc:Float"}
_PRECISE: Final = {"i": "cr:Int", "u": "cr:UInt", "f": "cr:Float"}
_BOX_FORMAT: Final = "REL_YXYX"
"""The format of a bounding box without a format. The names are those of Keras and TFDS."""


def label_set_id(stem: str) -> str:
    """The id of the record set that lists the classes of a label, by the stem of its file."""
    return f"labels/{id_part(stem)}"


def id_part(name: str) -> str:
    """``name`` as one part of an id. Different names give different parts.

    Ids are relative IRIs, and readers accept no spaces in them, not even escaped ones. So characters other than
    letters, digits, ``_``, ``-`` and ``.`` are replaced by their code point between tildes.

    >>> id_part("größe"), id_part("a/b c"), id_part("..")
    ('größe', 'a~2f~b~20~c', '~2e~~2e~')
    """
    pattern = r"[^\w-]" if not name.strip(".") else r"[^\w.-]"  # "." and ".." would point to another path
    return re.sub(pattern, lambda match: f"~{ord(match[0]):x}~", name)


def _fields(
    features: Mapping[str, Feature], parent: str, statistics: Statistics | None, names: tuple[str, ...] = ()
) -> list[dict[str, Any]]:
    """One ``cr:Field`` for each feature, in the order of the schema.

    Args:
        features: the schema of an example, or of a part of it.
        parent: the id of the record set or of the field around, the prefix of the ids of these fields.
        statistics: the statistics of the version, or None.
        names: the names of the features around.
    """
    result = []
    for name, feature in features.items():
        place = {"@type": "cr:Field", "@id": f"{parent}/{id_part(name)}", "name": name}
        field = _field(feature, place, statistics, (*names, name))
        if field is not None:
            result.append(field)
    return result


def _field(
    feature: Feature, place: dict[str, Any], statistics: Statistics | None, names: tuple[str, ...]
) -> dict[str, Any] | None:
    """One field, or None for an empty dict, which stores nothing."""
    described = _described(feature)
    lengths: Shape = ()
    while isinstance(feature, SequenceFeature) and not _media(feature):
        lengths = (*lengths, feature.length)
        feature = feature.feature
        described = described or _described(feature)
    field = place | ({"description": described} if described else {})
    if isinstance(feature, FeaturesDict):
        subfields = _fields(feature, place["@id"], statistics, names)
        return field | _array(lengths) | {"subField": subfields} if subfields else None
    media = _media(feature)
    own = getattr(feature, "shape", ())
    shape = lengths if media or not isinstance(own, tuple) else lengths + own
    source: dict[str, Any] = {"fileSet": {"@id": "shards"}, "extract": {"column": "/".join(names)}}
    if media == "cr:BoundingBox" and (box_format := getattr(feature, "bbox_format", _BOX_FORMAT)):
        source["format"] = box_format
    if media == "sc:AudioObject" and (rate := getattr(feature, "sample_rate", None)):
        source["samplingRate"] = rate
    field |= {"dataType": media or _data_type(feature), **_array(shape), "source": source}
    if isinstance(feature, ClassLabel) and feature.names:
        stem = "-".join(names).replace("/", ".")
        field["references"] = {"field": {"@id": f"{label_set_id(stem)}/index"}}
    if statistics is not None and (notes := field_annotations(statistics, content_path(names), place["@id"])):
        field["annotation"] = notes
    return field


def _media(feature: Feature) -> str | list[str] | None:
    return next((_MEDIA[kind.__name__] for kind in type(feature).__mro__ if kind.__name__ in _MEDIA), None)


def _data_type(feature: Feature) -> str | list[str]:
    dtype = getattr(feature, "dtype", None)
    if not isinstance(dtype, np.dtype) or dtype == TEXT:
        return "sc:Text"
    if dtype.name == "bfloat16":  # not NumPy's own, and Croissant has no name for it
        return "sc:Float"
    atom = _ATOMS[dtype.kind]
    if dtype.kind not in _PRECISE:
        return atom
    # The precise type comes first, because readers use the first; the other is for readers that only know schema.org.
    types = [f"{_PRECISE[dtype.kind]}{8 * dtype.itemsize}", atom]
    return [*types, "cr:Label"] if isinstance(feature, ClassLabel) else types


def _array(shape: Shape) -> dict[str, Any]:
    """The array properties of a field: sizes joined by commas, with -1 for a size that differs between examples."""
    if not shape:
        return {}
    return {"isArray": True, "arrayShape": ",".join("-1" if size is None else str(size) for size in shape)}


def _described(feature: Feature) -> str:
    values = f"Values: {feature.value_range}." if feature.value_range else ""
    return " ".join(filter(None, (feature.description, values)))
