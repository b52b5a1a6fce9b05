"""What a version remembers of the types that its caller requested, so that the next addition has them too.

    --feature when=date32 --feature label=ClassLabel   ->   {"requested": ["label", "when"]} in the version's metadata

The types themselves are those of the version before. Its classes keep their numbers, and new ones follow them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from registry.features import ClassLabel, Feature, FeaturesDict, Tensor
from registry.features import Sequence as SequenceFeature
from registry.intake.feature_text import Wish, parse_feature
from registry.intake.source import Source
from registry.shards.arrow_values import import_pyarrow

AS_BEFORE: Final = "as in the version before"
_KINDS_OF_FOLDERS: Final = ("images", "audio", "videos", "text")
"""The kinds whose label is the name of a folder, as text; in other sources, numbers may refer to the declared names."""


def describe_requests(wishes: Mapping[str, Wish], skipped: Sequence[str]) -> dict[str, list[str]]:
    """The entries of ``custom["intake"]`` that say which types were requested, and which columns were left out."""
    requested = sorted(name for name, wish in wishes.items() if wish.action != "skip")
    return {key: names for key, names in (("requested", requested), ("skipped", sorted(skipped))) if names}


def remembered_wishes(features: FeaturesDict, custom: Mapping[str, Any]) -> dict[str, Wish]:
    """The requests of the additions before, by column.

    Args:
        features: the features of the version before.
        custom: its custom metadata: ``intake``, and ``arrow_types`` with the types of times.
    """
    entry = custom.get("intake")
    if not isinstance(entry, Mapping):
        return {}
    kinds = custom.get("arrow_types")
    words = kinds if isinstance(kinds, Mapping) else {}
    wishes = {name: Wish(text="skip", action="skip", is_remembered=True) for name in _names(entry.get("skipped"))}
    for name in _names(entry.get("requested")):
        feature = features.get(name)
        if isinstance(feature, ClassLabel):
            wishes[name] = Wish(text=AS_BEFORE, action="classes", classes=feature, is_remembered=True)
        elif feature is not None:
            wishes[name] = Wish(
                text=AS_BEFORE,
                feature=feature,
                arrow_type=_with_lists(feature, words[name]) if isinstance(words.get(name), str) else None,
                optional=True if isinstance(feature, Tensor) and getattr(feature, "optional", False) else None,
                is_remembered=True,
            )
    return wishes


def _with_lists(feature: Feature, word: str) -> Any:
    """The Arrow type of a column whose innermost values have the type that ``word`` names."""
    if isinstance(feature, SequenceFeature):
        sizes, inner = [feature.length], _with_lists(feature.feature, word)
    else:
        sizes, inner = list(feature.shape) if isinstance(feature, Tensor) else [], parse_feature(word).arrow_type
    for size in reversed(sizes):
        inner = import_pyarrow().list_(inner, -1 if size is None else size)
    return inner


def continue_classes(source: Source, features: FeaturesDict) -> dict[str, Feature]:
    """``source.hints`` in which the classes of folders keep the numbers of the version before; new ones follow."""
    hints = dict(source.hints)
    if source.kind in _KINDS_OF_FOLDERS:
        for name, hint in hints.items():
            before = features.get(name)
            if isinstance(hint, ClassLabel) and isinstance(before, ClassLabel) and before.names and hint.names:
                hints[name] = ClassLabel(names=append_classes(before.names, hint.names))
    return hints


def append_classes(before: Sequence[str], names: Sequence[str]) -> list[str]:
    """``before``, then the other ``names``, sorted.

    >>> append_classes(["dog", "cat"], ["ant", "cat", "eel"])
    ['dog', 'cat', 'ant', 'eel']
    """
    return [*before, *sorted(set(names) - set(before))]


def _names(value: Any) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []
