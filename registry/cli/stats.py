"""``registry stats``: shows the statistics of a version, split beside split, and computes them for older versions."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from registry.cli.commands import Session, examples, session_command, version_values
from registry.cli.completion import complete_split
from registry.cli.options import processes_option, reference_argument
from registry.cli.output import Block, Fields, Table, can_print, size
from registry.cli.progress import show_progress
from registry.errors import NotFoundError, UsageError, spell, suggest

if TYPE_CHECKING:  # numpy is loaded when statistics are read
    from registry.statistics import Classes, FeatureStatistics, Frequent, NumberStatistics

_NARROW: Final = 20
_WIDE: Final = 40
_MOST_LINES: Final = 50


@session_command(
    "stats",
    engine="describing",
    at=True,
    locked=True,
    epilog=examples(
        "registry stats digits",
        "registry stats digits train --column label",
        "registry stats mnist:3.0.1 --compute -j 4",
        "registry stats digits --format json",
    ),
)
@reference_argument
@click.argument("split", metavar="[SPLIT]", required=False, shell_complete=complete_split)
@click.option("--column", metavar="NAME", help="Show one feature in detail: quantiles, histogram, frequent values.")
@click.option("--compute", is_flag=True, help="Read all records, compute the statistics, and attach them.")
@processes_option
def stats(
    session: Session, reference: str, split: str | None, *, column: str | None, compute: bool, processes: int | None
) -> None:
    """Show statistics of every feature of a version, over all of its records.

    The table has a line for each split, and marks what differs from the largest one: classes that are missing, a mean
    that is shifted, another share of nulls. Of texts, the numbers are lengths in characters; of audio, seconds.
    Statistics are computed once, by --compute, and kept with the version.
    """
    from registry.statistics import find_differences

    if processes is not None and not compute:
        raise UsageError(f"{spell('processes', processes)} is for {spell('compute', True)}", hint="Leave it out.")
    with session.connect_unless_pinned() as catalog:
        dataset = session.look_up(catalog, reference)
        if compute:
            with show_progress(session.out) as progress:
                statistics = dataset.compute_statistics(processes=processes, progress=progress)
        else:
            statistics = dataset.statistics
    differences = find_differences(statistics)
    splits = _chosen(statistics, split, "split")
    paths = _chosen(dict.fromkeys(path for name in splits for path in statistics[name]), column, "column")
    tree = statistics.to_json()
    value = {
        **version_values(dataset.reference),
        "splits": {
            name: tree[name] | {"features": {path: tree[name]["features"][path] for path in paths}} for name in splits
        },
        "differences": [it._asdict() for it in differences if it.split in splits and it.feature in paths],
    }

    def human(_: Any) -> Iterator[Block]:
        marks: dict[tuple[str, str], list[str]] = {}
        for difference in differences:
            marks.setdefault((difference.split, difference.feature), []).append(difference.text)
        counts = ", ".join(f"{statistics[name].num_examples:,} examples in {name}" for name in splits)
        yield f"{dataset.reference}: {counts or 'no splits'}"
        yield ""
        rows = [(path, name, statistics[name][path], marks.get((name, path), [])) for path in paths for name in splits]
        if column is None:
            yield Table([_row(*row) for row in rows], {head: head for head in _row(*rows[0])} if rows else {})
        for place, (path, name, feature, remarks) in enumerate(rows if column is not None else ()):
            if place:
                yield ""
            yield Fields({"feature": path, "split": name, **_details(feature, remarks)})

    session.out.present("stats", value, human)


def _chosen(names: Any, chosen: str | None, what: str) -> list[str]:
    """All names, or the chosen one.

    Raises:
        NotFoundError: there is no such name.
    """
    if chosen is not None and chosen not in names:
        raise NotFoundError(f"no {what} {chosen!r} in the statistics", hint=suggest(chosen, names))
    return list(names) if chosen is None else [chosen]


def _row(path: str, split: str, feature: FeatureStatistics, remarks: Sequence[str]) -> dict[str, Any]:
    """The line of a feature in the table."""
    from registry.statistics import measured

    numbers = measured(feature)
    least, middle, most = "", "", ""
    if feature.heights is not None and feature.widths is not None and feature.heights.count:
        least = f"{feature.heights.min}x{feature.widths.min}"
        most = f"{feature.heights.max}x{feature.widths.max}"
    elif numbers is not None:
        least, middle, most = _number(numbers.min), _number(numbers.mean), _number(numbers.max)
    return {
        "FEATURE": path,
        "SPLIT": split,
        "KIND": feature.dtype if feature.kind == "number" else feature.kind,
        "VALUES": feature.count,
        "NULLS": feature.nulls,
        "MIN": least,
        "MEAN": middle,
        "MAX": most,
        "DISTINCT": _distinct(feature),
        "DISTRIBUTION": _distribution(feature),
        "REMARKS": "; ".join((*remarks, *_faults(feature, remarks))),
    }


def _distribution(feature: FeatureStatistics) -> str:
    """A bar for each class, or for each part of the range; the formats of files."""
    from registry.statistics import measured

    if feature.formats is not None:
        return ", ".join(f"{name} {count:,}" for name, count in feature.formats.items())
    if feature.classes is not None:
        return bars(feature.classes.counts or (), _NARROW)
    numbers = measured(feature)
    return "" if numbers is None or numbers.histogram is None else bars(numbers.histogram.counts, _NARROW)


def _faults(feature: FeatureStatistics, remarks: Sequence[str]) -> Iterator[str]:
    """What people should know of the values, in a few words, besides ``remarks``, which may name missing classes."""
    is_named = any(remark.startswith("lacks ") for remark in remarks)
    if feature.nan:
        yield f"{feature.nan:,} NaN"
    if infinite := feature.infinities + feature.negative_infinities:
        yield f"{infinite:,} infinite"
    if feature.classes is not None and feature.classes.num_unused and not is_named:
        names = ", ".join(feature.classes.unused[:5])
        yield f"never: {names}{' ...' if feature.classes.num_unused > 5 else ''}"
    if feature.classes is not None and feature.classes.num_unlabeled:
        yield f"{feature.classes.num_unlabeled:,} without a label"


def _details(feature: FeatureStatistics, remarks: Sequence[str]) -> dict[str, Any]:
    """All facts of a feature, with a line for each bin of its histogram."""
    result: dict[str, Any] = {"kind": feature.kind, "dtype": feature.dtype, "nulls": feature.nulls or ""}
    if feature.kind == "number":
        result |= _described(feature)
    if feature.classes is not None:
        result |= {"values": feature.count, "classes": "\n".join(_class_lines(feature.classes, feature.frequent))}
    for name in ("text_lengths", "file_sizes", "heights", "widths", "seconds", "sample_rates", "channels"):
        if (numbers := getattr(feature, name)) is not None:
            result[name.replace("_", " ")] = _summary(numbers)
    for place, numbers in enumerate(feature.lengths):
        result["lengths" if not place else f"lengths {place + 1}"] = _summary(numbers)
    for name in ("formats", "modes"):
        if counts := getattr(feature, name):
            result[name] = ", ".join(f"{key} {count:,}" for key, count in counts.items())
    if feature.kind in ("text", "image", "audio"):
        result["distinct"] = _distinct(feature)
    result["frequent"] = "" if feature.classes is not None else "\n".join(_frequent_lines(feature))
    result["remarks"] = "; ".join((*remarks, *_faults(feature, remarks)))
    return result


def _described(numbers: NumberStatistics) -> dict[str, Any]:
    result: dict[str, Any] = {"values": numbers.count, "distinct": _distinct(numbers)}
    if numbers.mean is not None:
        result |= {name: _number(getattr(numbers, name)) for name in ("min", "mean", "std", "max")}
        result["zeros"] = numbers.zeros
    if numbers.quantiles is not None:
        result["quantiles"] = "  ".join(f"{percent}% {_number(value)}" for percent, value in numbers.quantiles.items())
    if numbers.histogram is not None:
        edges, counts = numbers.histogram.edges, numbers.histogram.counts
        labels = [f"{_number(low)} to {_number(high)}" for low, high in itertools.pairwise(edges)]
        result["histogram"] = "\n".join(_bar_lines(labels, counts))
    return result


def _class_lines(classes: Classes, frequent: Sequence[Frequent]) -> Iterator[str]:
    """A line for each class, or the number of classes if there are too many."""
    if classes.counts is None:
        yield f"{classes.num_classes:,}"
        return
    unused = (number for number, count in enumerate(classes.counts) if not count)
    names = dict(zip(unused, classes.unused, strict=False)) | {entry.value: entry.name or "" for entry in frequent}
    labels = [names.get(number) or str(number) for number in range(len(classes.counts))]
    yield from _bar_lines(labels[:_MOST_LINES], classes.counts[:_MOST_LINES])
    if len(labels) > _MOST_LINES:
        yield f"and {len(labels) - _MOST_LINES:,} more; --format json lists them all"


def _bar_lines(labels: Sequence[str], counts: Sequence[int]) -> Iterator[str]:
    width, most = max(map(len, labels), default=0), max(counts, default=0)
    fill = "█" if can_print("█") else "#"
    for label, count in zip(labels, counts, strict=True):
        yield f"{label:<{width}}  {fill * -(-count * _WIDE // max(1, most))} {count:,}"


def _frequent_lines(feature: FeatureStatistics) -> Iterator[str]:
    for entry in feature.frequent[:10]:
        name = entry.value if entry.name is None else entry.name
        cut = "" if entry.num_bytes is None else f" ... ({size(entry.num_bytes)})"
        yield f"{entry.count:,}  {name}{cut}"


def _summary(numbers: NumberStatistics) -> str:
    if numbers.mean is None:
        return ""
    return f"{_number(numbers.min)} to {_number(numbers.max)}, mean {_number(numbers.mean)}"


def _distinct(numbers: NumberStatistics) -> str:
    if numbers.distinct is None:
        return ""
    return f"{'about ' if numbers.distinct.error else ''}{numbers.distinct.count:,}"


def _number(value: float | None) -> str:
    """A number in few digits.

    >>> _number(1797), _number(4.490818), _number(0.1), _number(None)
    ('1,797', '4.491', '0.1', '')
    """
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def bars(counts: Sequence[int], most: int) -> str:
    """Counts as bars of text, at most ``most`` of them: neighbours share a bar where there are more counts.

    >>> bars([1, 0, 8, 4], 20)
    '▁ █▄'
    """
    shades = " ▁▂▃▄▅▆▇█" if can_print("▁▂▃▄▅▆▇█") else " .:-=+*#@"
    joined = -(-len(counts) // most) or 1
    sums = [sum(counts[start : start + joined]) for start in range(0, len(counts), joined)]
    highest = max(sums, default=0)
    return "".join(shades[-(-count * (len(shades) - 1) // highest)] if count else " " for count in sums)
