"""``AddOptions``: the arguments of ``registry.add`` that control how a source is read and how its rows are stored."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final

from registry.argument_types import takes_fields
from registry.errors import SourceError, UsageError, spell, suggest
from registry.model import Description, DescriptionArguments

if TYPE_CHECKING:
    from registry.features import Feature
    from registry.intake.feature_text import Wish

CSV_OPTIONS: Final = ("nulls", "header", "delimiter", "quotes", "encoding")
_OF_PATHS: Final = ("kind", "splits", "records", "paths", "rename_configs", *CSV_OPTIONS)
_FILES: Final = ("csv", "json", "parquet", "arrow", "lines", "images", "audio", "videos", "text", "webdataset")
_KINDS_OF: Final = {
    **dict.fromkeys(CSV_OPTIONS, ("csv", "hugging_face")),  # whose card may name CSV files
    "encoding": ("csv", "lines", "hugging_face"),
    "records": ("json", "croissant", "hugging_face"),
    "rename_configs": ("hugging_face",),
    "paths": (*_FILES, "hugging_face"),
    "splits": (*_FILES, "arrays"),  # the others name their splits
}
"""The kinds of files that options have an effect on."""

_SPLIT_RULES: Final = ("splits", "split_by", "holdout")
_REMEMBERED: Final = {
    **dict.fromkeys(("kind", "records", "delimiter", "encoding", "split_by", "holdout"), str),
    "nulls": list,
    **dict.fromkeys(("header", "quotes", "paths"), bool),
    "splits": dict,
    "rename_splits": dict,
    "rename_columns": dict,
    "seed": int,
}
_CHANGING: Final = (
    *(*CSV_OPTIONS, "rename_columns", "rename_configs", "split_by", "holdout"),
    *("key", "key_by", "retype", "dates", "paths", "skip_bad", "num_shards"),
)


class AddArguments(DescriptionArguments, total=False):
    """The fields of ``AddOptions`` as keyword arguments, for type checkers."""

    kind: str | None
    config: str | None
    records: str | None
    features: Mapping[str, str | Feature | Wish] | None
    schema: str | os.PathLike[str] | None
    retype: bool
    dates: bool
    paths: bool | None
    nulls: Sequence[str]
    header: bool | None
    delimiter: str | None
    quotes: bool | None
    encoding: str | None
    splits: Mapping[str, str] | None
    rename_splits: Mapping[str, str] | None
    rename_columns: Mapping[str, str] | None
    rename_configs: Mapping[str, str] | None
    split_by: str | None
    holdout: str | None
    seed: int
    key: str | None
    key_by: str | None
    skip_bad: int
    in_place: bool
    replace: bool
    num_shards: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AddOptions(Description):
    """The options of an addition; ``Catalog.add`` describes each of them.

    Attributes:
        remembered: the names of the options that come from the previous version.
        remembered_columns: the columns whose new names come from the previous version; they may be missing.
        has_csv_options: False for the ``metadata.csv`` of images. Hints then mention no options for CSV.

    Raises:
        UsageError: ``skip_bad`` or ``num_shards`` is too small, or two columns would get the same name.
    """

    kind: str | None = None
    config: str | None = None
    records: str | None = None
    features: Mapping[str, str | Feature | Wish] | None = None
    schema: str | os.PathLike[str] | None = None
    retype: bool = False
    dates: bool = False
    paths: bool | None = None
    nulls: Sequence[str] = ()
    header: bool | None = None
    delimiter: str | None = None
    quotes: bool | None = None
    encoding: str | None = None
    splits: Mapping[str, str] | None = None
    rename_splits: Mapping[str, str] | None = None
    rename_columns: Mapping[str, str] | None = None
    rename_configs: Mapping[str, str] | None = None
    split_by: str | None = None
    holdout: str | None = None
    seed: int = 0
    key: str | None = None
    key_by: str | None = None
    skip_bad: int = 0
    in_place: bool = False
    replace: bool = False
    num_shards: int | None = None
    remembered: frozenset[str] = frozenset()
    remembered_columns: frozenset[str] = frozenset()
    has_csv_options: bool = True

    def __post_init__(self) -> None:
        Description.__post_init__(self)  # super() does not know a class with slots
        if self.skip_bad < 0:
            raise UsageError(f"skip_bad must be 0 or more, not {self.skip_bad}", hint="Leave it out to skip no row.")
        if self.num_shards is not None and self.num_shards < 1:
            raise UsageError(
                f"num_shards must be 1 or more, not {self.num_shards}",
                hint="Leave it out to choose the number by the size of the data.",
            )
        names = [*(self.rename_columns or {}).values()]
        if len(set(names)) < len(names):
            raise UsageError(
                f"two columns would be named {max(names, key=names.count)!r:.200}",
                hint=f"Choose another name with {spell('rename_columns')}.",
            )

    def wishes(self) -> dict[str, Wish]:
        """The requested types, by column: those of ``schema``, then those of ``features``.

        Raises:
            FeatureError, UsageError, NotStoredError: see ``Catalog.add``.
        """
        from pathlib import Path

        from registry.intake.feature_text import Wish, parse_feature
        from registry.intake.schema import read_schema_file

        wishes = {} if self.schema is None else dict(read_schema_file(Path(self.schema)))
        for name, wanted in (self.features or {}).items():
            if isinstance(wanted, str):
                wishes[name] = parse_feature(wanted)
            else:
                wishes[name] = wanted if isinstance(wanted, Wish) else Wish(text=str(wanted), feature=wanted)
        return wishes

    def typed(self) -> frozenset[str]:
        """The columns whose types are requested. A reader does not split such a column into several."""
        return frozenset(name for name, wish in self.wishes().items() if wish.action != "skip" and not wish.is_inferred)

    def stores_paths(self) -> bool:
        """Whether the names of files are stored as a column.

        By default, they are if the previous version, if any, stores them.
        """
        from registry.intake.source import PATH

        if self.paths is not None:
            return self.paths
        before = [name for name, wish in self.wishes().items() if wish.is_remembered]
        return not before or PATH in before

    def texts(self) -> frozenset[str]:
        """The columns that are requested as text."""
        from registry.features import Tensor
        from registry.features.feature import TEXT

        def is_text(wish: Wish) -> bool:
            has_text = isinstance(wish.feature, Tensor) and wish.feature.dtype == TEXT and not wish.feature.shape
            return has_text and (wish.arrow_type is None or str(wish.arrow_type) == "string")

        return frozenset(name for name, wish in self.wishes().items() if is_text(wish) and not wish.is_inferred)

    def source_config(self) -> str | None:
        """The config of the source to read, or None."""
        return self.config or next(iter(self.rename_configs or ()), None)

    def dataset_config(self) -> str | None:
        """The config of the dataset, which may have another name than in the source. Raises UsageError."""
        renamed, config = self.rename_configs or {}, self.source_config()
        if renamed and (config not in renamed or len(renamed) > 1):
            raise UsageError(
                "only the config that is being read can be renamed",
                hint=f"Write {spell('rename_configs', {str(config): 'NAME'})}, and add the other configs one by one.",
                details={"config": config, "renamed": list(renamed)[:100]},
            )
        return renamed.get(config or "", config)

    def for_source(self) -> AddOptions:
        """Return these options with the original names of columns in the source, which readers use."""
        names = {new: old for old, new in (self.rename_columns or {}).items()}
        return replace(
            self, features={names.get(name, name): wish for name, wish in self.wishes().items()}, schema=None
        )

    def split_names(self, places: Mapping[str, str], *, reason: str) -> dict[str, str]:
        """Return the new name of each split of a source.

        Args:
            places: the names of the splits, and a file of each, for messages.
            reason: the origin of the splits, for messages.

        Raises:
            SourceError: the name of a split is invalid, or two splits would get the same name.
            UsageError: the source lacks a split that is to be renamed.
        """
        from registry.model import check_split_name

        names, wanted = list(places), self.rename_splits or {}
        for name in wanted:
            if name not in names and "rename_splits" not in self.remembered:
                raise UsageError(
                    f"the source has no split {name!r} to rename",
                    hint=suggest(name, names, have="The splits are:"),
                    details={"split": name[:200], "splits": names[:100]},
                )
        renamed: dict[str, str] = {}
        for name in names:
            try:
                new = check_split_name(wanted.get(name, name))
            except UsageError as error:
                raise SourceError(
                    f"{places[name]}: {error.message} (splits: {reason.partition(';')[0]})",
                    hint=f"Rename it: {spell('rename_splits', {name[:80]: 'NAME'})}",
                    details={"split": name[:200]},
                ) from error
            if new in renamed.values():
                other = next(old for old in renamed if renamed[old] == new)
                raise SourceError(
                    f"the splits {other!r} and {name!r} would have one name: {new}",
                    hint=f"Choose another name with {spell('rename_splits')}.",
                    details={"splits": [other, name]},
                )
            renamed[name] = new
        return renamed

    def refuse_changes(self, *more: str) -> None:
        """Refuse options, and ``more``, that would change records of files that stay in place. Raises UsageError."""
        self._refuse(
            (*_CHANGING, *more),
            "files that are read in place cannot be changed by these options",
            f"Leave out {spell('in_place')}, or these options.",
        )

    def require_object(self) -> None:
        """Refuse options that would have no effect on a Python object. Raises UsageError."""
        self._refuse(
            _OF_PATHS,
            "only paths and URLs can be read with these options",
            "Leave them out. The splits of objects: catalog.add({'train': ..., 'test': ...}, NAME)",
        )

    def require_kind(self, kind: str, names: Iterable[str] = ()) -> None:
        """Refuse options that have no effect on files of this kind: ``names``, or all. Raises UsageError."""
        without_effect = [name for name in names or _KINDS_OF if kind not in _KINDS_OF[name]]
        if self.paths is False:  # such files have no column of paths
            without_effect = [name for name in without_effect if name != "paths"]
        given = {*self._given(without_effect)}
        way = f" If the files are CSV: {spell('kind', 'csv')}" if given & {*CSV_OPTIONS} else ""
        way += (
            f" The source names its splits. To read its files by their names: {spell('kind=KIND')}"
            if "splits" in given
            else ""
        )
        self._refuse(
            without_effect, f"files of the kind {kind} cannot be read with these options", f"Leave them out.{way}"
        )

    def with_remembered(self, intake: Mapping[str, Any]) -> AddOptions:
        """Return these options with those of the previous version that control how a source is read and split.

        Options of this call take precedence. A rule for splits replaces all earlier rules, and an empty text removes
        them. New names of columns are added to the earlier ones.

        Args:
            intake: the entry ``intake`` in the metadata of the previous version.
        """
        options = intake.get("options")
        before: Mapping[str, Any] = options if isinstance(options, Mapping) else {}
        given = {*self._given(_REMEMBERED)}
        if not given.isdisjoint(_SPLIT_RULES):
            given |= {*_SPLIT_RULES, "seed"}
        result: dict[str, Any] = {
            name: value
            for name, value in before.items()
            if name not in given and name in _REMEMBERED and _has_form(value, _REMEMBERED[name])
        }
        own, names = self.rename_columns or {}, before.get("rename_columns", {})
        names = names if _has_form(names, dict) else {}
        names = {old: new for old, new in names.items() if old not in own and new not in own.values()}
        columns = {"rename_columns": {**names, **own}} if names else {}
        remembered = {"remembered": frozenset(result), "remembered_columns": frozenset(names)}
        return replace(self, **(result | columns | remembered))

    def new_columns(self) -> dict[str, str]:
        """The columns that this call renames; they must exist."""
        return {old: new for old, new in (self.rename_columns or {}).items() if old not in self.remembered_columns}

    def describe(self) -> dict[str, Any]:
        """Describe the options that are not empty, for ``with_remembered`` of the next version."""
        values = {name: getattr(self, name) for name in self._given(_REMEMBERED) if getattr(self, name) != ""}
        return {name: list(value) if name == "nulls" else value for name, value in values.items()}

    def _given(self, names: Iterable[str]) -> list[str]:
        """Return the ``names`` of options that differ from their defaults."""
        defaults = {field.name: field.default for field in fields(self)}
        return [name for name in names if getattr(self, name) not in (defaults[name], [], (), {})]

    def _refuse(self, names: Iterable[str], problem: str, hint: str) -> None:
        """Raise UsageError if this call has one of the options ``names``."""
        if given := [name for name in self._given(names) if name not in self.remembered]:
            raise UsageError(f"{problem}: {', '.join(map(spell, given))}", hint=hint, details={"options": given})


def _has_form(value: Any, kind: type) -> bool:
    """Whether a value of the metadata of a version has the type of an option; the values in it are texts."""
    inside = [*value, *(value.values() if isinstance(value, dict) else ())] if isinstance(value, list | dict) else []
    return isinstance(value, kind) and all(isinstance(text, str) for text in inside)


takes_options: Final = takes_fields(AddOptions, AddArguments)
"""Decorates a call with ``**options: Unpack[AddArguments]``."""
