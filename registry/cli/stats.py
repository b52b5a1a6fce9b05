"""``registry stats``: shows the statistics of a version by split, and computes them for older versions."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from registry.cli.commands import Session, session_command, version_values
from registry.cli.completion import complete_split
from registry.cli.options import processes_option, reference_argument
from registry.cli.output import Block, Fields, Table, can_print
from registry.cli.progress import show_progress
from registry.errors import (
    NotFoundError,
    UsageError,
    spell,
    suggest,
)
from registry.splits import counted
from registry.statistics.rows import (
    bin_labels,
    content_facts,
    feature_rows,
    frequent_text,
    kind_text,
    number_facts,
    remarks_text,
    unit_of,
)

if TYPE_CHECKING:
    from registry import Dataset
    from registry.features.feature import Leaf
    from registry.statistics import Classes, FeatureStatistics, Moment, Statistics
    from registry.statistics.rows import Unit

_NARROW: Final = 20
_WIDE: Final = 40
_MOST_LINES: Final = 50
_MOST_BRIEF: Final = 20


@session_command("stats", engine="describing", at=True, locked=True)
@reference_argument
@click.argument("split", metavar="[SPLIT]", required=False, shell_complete=complete_split)
@click.option("--column", metavar="NAME", help="Show one feature in detail: quantiles, histogram, frequent values.")
@click.option("--compute", is_flag=True, help="Read all records, compute the statistics, and attach them.")
@processes_option("With --compute: processes that read records.")
def stats(
    session: Session, reference: str, split: str | None, *, column: str | None, compute: bool, processes: int | None
) -> None:
    """Show statistics of every feature of a version, over all of its records.

    The table has a line for each split, and marks differences from the largest split: missing classes, a shifted mean,
    another share of nulls. For texts, the numbers are lengths in characters; for audio, seconds. Texts with few values
    are drawn as categories, and the remarks name the most frequent. Lines above the table count exact duplicates within
    a split, and records that occur in two splits.
    Publishing a version computes its statistics, unless its files stay in place. For a version without statistics,
    --compute reads all records once, and attaches the result for all readers.

    Examples:
        registry stats digits
        registry stats digits train --column label
        registry stats mnist:3.0.1 --compute -j 4
        registry stats digits --format json
    """
    from registry.statistics import duplicate_sentences, find_differences

    if processes is not None and not compute:
        raise UsageError(
            f"{spell('processes', processes)} needs {spell('compute', True)}",
            hint=f"Leave it out, or add {spell('compute', True)}.",
        )
    with session.dataset(reference) as dataset:
        splits = _chosen(dataset.splits, split, "split")  # before the work
        leaves = _leaves_of(dataset)
        _chosen(leaves, column, "column")
        if compute:
            with show_progress(session.out) as progress:
                statistics = dataset.compute_statistics(processes=processes, progress=progress)
        else:
            statistics = dataset.statistics
    differences, moments = find_differences(statistics), statistics.moments or {}
    paths = _chosen(_in_source_order(dataset, statistics, splits), column, "column")
    tree = statistics.to_json()
    value = {
        **version_values(dataset.reference),
        "splits": {
            name: tree[name] | {"features": {path: tree[name]["features"][path] for path in paths}} for name in splits
        },
        "differences": [it._asdict() for it in differences if it.split in splits and it.feature in paths],
    }

    def human(_: Any) -> Iterator[Block]:
        counts = ", ".join(f"{counted(statistics[name].num_examples, 'example')} in {name}" for name in splits)
        yield f"{dataset.reference}: {counts or 'no splits'}"
        yield from duplicate_sentences(statistics, splits)
        if dataset.metadata.path_column in leaves:
            yield f"Records have the path of their file as {dataset.metadata.path_column}, so no two of them are equal."
            yield f"To compare them without it: registry split check {dataset.reference} SPLIT SPLIT --by content"
        yield ""
        if column is None:
            rows = list(feature_rows(statistics, splits, paths, moments=moments, draw=_draw))
            yield Table(rows, {head: head for head in rows[0]} if rows else {})
            return
        for place, (path, name) in enumerate(itertools.product(paths, splits)):
            if place:
                yield ""
            marks = [it.text for it in differences if (it.split, it.feature) == (name, path)]
            details = _details(statistics[name][path], marks, moments.get(path), leaves.get(path))
            yield Fields({"feature": path, "split": name, **details})

    session.out.present("stats", value, human)


def brief_values(statistics: Statistics) -> dict[str, Any]:
    """A few facts of each feature, by split."""
    names = ("kind", "count", "nulls", "nan", "min", "max", "mean", "distinct")
    return {
        split: {path: {name: it[name] for name in names if name in it} for path, it in tree["features"].items()}
        for split, tree in statistics.to_json().items()
    }


def brief_blocks(dataset: Dataset, statistics: Statistics) -> Iterator[Block]:
    """A line for each feature in the largest split."""
    if not statistics:
        return
    largest = max(statistics, key=lambda split: statistics[split].num_examples)
    paths = _in_source_order(dataset, statistics, [largest])
    rows = list(feature_rows(statistics, [largest], paths, moments=statistics.moments, draw=_draw))
    heads = [head for head in rows[0] if head not in ("SPLIT", "VALUES")] if rows else []
    where = f"registry stats {dataset.reference}"
    yield ""
    yield f"statistics of {largest}; more: {where}"
    yield Table(rows, {head: head for head in heads}, limit=_MOST_BRIEF, where=f"{where} lists them all")


def _in_source_order(dataset: Dataset, statistics: Statistics, splits: Sequence[str]) -> list[str]:
    """The features of some splits, in the order in which their source had them."""
    from registry.features.containers import sort_paths

    paths = dict.fromkeys(path for name in splits for path in statistics[name])
    return sort_paths(paths, dataset.metadata.in_source_order(list(dataset.features)))


def _draw(counts: Sequence[int]) -> str:
    return bars(counts, _NARROW)


def _leaves_of(dataset: Dataset) -> dict[str, Leaf]:
    """The leaves of the schema, by their path in the statistics."""
    from registry.features.containers import columns_of, content_path

    return {content_path(column.names): column.leaf for column in columns_of(dataset.features)}


def _chosen(names: Any, chosen: str | None, what: str) -> list[str]:
    """All names, or the chosen one.

    Raises:
        NotFoundError: the name does not exist.
    """
    if chosen is not None and chosen not in names:
        hint = suggest(chosen, names)
        if what == "split" and (name := chosen.partition("[")[0]) in names:
            hint = f"Statistics exist only for whole splits: {name}"
        raise NotFoundError(f"no {what} {chosen!r} in the statistics", hint=hint)
    return list(names) if chosen is None else [chosen]


def _details(
    feature: FeatureStatistics, marks: Sequence[str], time: Moment | None, leaf: Leaf | None
) -> dict[str, Any]:
    """All facts of a feature, with a line for each bin of its histogram."""
    unit = unit_of(feature, time)
    result: dict[str, Any] = {
        "kind": kind_text(feature, unit, number="number"),
        "dtype": feature.dtype,
        "nulls": feature.nulls or "",
    }
    if feature.kind == "number":
        result |= number_facts(feature, unit)
    if feature.kind == "number" and feature.histogram is not None:
        result["histogram"] = "\n".join(_bar_lines(bin_labels(feature.histogram, unit), feature.histogram.counts))
    if feature.classes is not None:
        result |= {"values": feature.count, "classes": "\n".join(_class_lines(feature.classes, leaf))}
    result |= content_facts(feature)
    result["frequent"] = "" if feature.classes is not None else "\n".join(_frequent_lines(feature, unit))
    result["remarks"] = remarks_text(feature, marks)
    return result


def _class_lines(classes: Classes, leaf: Leaf | None) -> Iterator[str]:
    """A line for each class, or the number of classes if there are too many."""
    if classes.counts is None:
        yield f"{classes.num_classes:,}"
        return
    names = getattr(leaf, "names", None) or range(len(classes.counts))
    labels = [_one_line(str(name)) for name in names[:_MOST_LINES]]
    yield from _bar_lines(labels, classes.counts[: len(labels)])
    if len(classes.counts) > _MOST_LINES:
        yield f"and {len(classes.counts) - _MOST_LINES:,} more; --format json lists them all"


def _bar_lines(labels: Sequence[str], counts: Sequence[int]) -> Iterator[str]:
    width, most = max(map(len, labels), default=0), max(counts, default=0)
    fill = "█" if can_print("█") else "#"
    for label, count in zip(labels, counts, strict=True):
        yield f"{label:<{width}}  {fill * -(-count * _WIDE // max(1, most))} {count:,}"


def _frequent_lines(feature: FeatureStatistics, unit: Unit) -> Iterator[str]:
    for entry in feature.frequent[:10]:
        yield f"{entry.count:,}  {_one_line(frequent_text(entry, unit))}"


def _one_line(text: str) -> str:
    return text.replace("\r", r"\r").replace("\n", r"\n")


def bars(counts: Sequence[int], most: int) -> str:
    """Draw counts as bars of text. If there are more than ``most`` counts, neighbours share a bar.

    >>> len(bars([1, 0, 8, 4], 20)), len(bars([1, 0, 8, 4], 2))
    (4, 2)
    """
    shades = " ▁▂▃▄▅▆▇█" if can_print("▁▂▃▄▅▆▇█") else " .:-=+*#@"
    joined = -(-len(counts) // most) or 1
    sums = [sum(counts[start : start + joined]) for start in range(0, len(counts), joined)]
    highest = max(sums, default=0)
    return "".join(shades[-(-count * (len(shades) - 1) // highest)] if count else " " for count in sums)
