"""The splits of a version: what an expression selects, how it was rounded, how two relate, and equal parts.

Without a query, and in a site of files, the page shows the splits with their shards and some worked examples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from registry.api import Dataset
from registry.envelope import fields_of
from registry.errors import NotFoundError, RegistryError, UsageError
from registry.model import SlicingRule
from registry.pages.dataset import code_of, version_values
from registry.pages.page import Page, Visit
from registry.pages.previews import first_split
from registry.pages.routes import PARAMETERS
from registry.splits import RecordRange, even_splits, k_fold, print_ranges
from registry.splits.explanation import explanation_values
from registry.splits.plan import file_values, range_values, rule_values

_MOST_SPLITS: Final = 50
_MOST_SHARDS: Final = 200
_MOST_FILES: Final = 200
_MOST_RANGES: Final = 200
_MOST_TERMS: Final = 50
_MOST_PARTS: Final = 50
_MOST_LETTERS: Final = 2000
_UNITS: Final = ("%", "abs", "shard")


def splits(visit: Visit, dataset: Dataset, rest: tuple[str, ...]) -> Page:
    """The splits, and what the expressions of the address read."""
    if rest:
        raise NotFoundError(f"there is no page {'/'.join(rest)!r:.200} of splits")
    query = {name: visit.query.get(name, "").strip() for name in PARAMETERS["splits:splits"]}
    errors: dict[str, dict[str, Any]] = {}

    def attempt(field: str, make: Callable[[], Any], *, needs: tuple[str, ...] = ()) -> Any:
        """The result, or None if the fields are empty or wrong: their errors are shown beside them."""
        if not query[field] or any(not query[name] or name in errors for name in needs):
            return None
        try:
            if len(query[field]) > _MOST_LETTERS:
                raise UsageError(f"an expression on a page must not exceed {_MOST_LETTERS:,} characters")
            return make()
        except (UsageError, NotFoundError) as error:
            errors[field] = fields_of(error, "code", "hint") | {"message": str(error)}

    plan = attempt("split", lambda: _plan_values(visit, dataset, query["split"]))
    relation = attempt("other", lambda: _relation_values(dataset, query), needs=("split",))
    values = {
        **version_values(dataset),
        "notes": dataset.notes,
        "form": query,
        "units": _UNITS,
        "slicing": dataset.slicing,
        "plan": plan,
        "relation": relation,
        "parts": attempt("n", lambda: _parts(dataset, query)),
        "examples": [] if plan or errors else list(_examples(dataset)),
        "splits": _split_values(dataset, plan, relation),
        "num_splits": len(dataset.splits),
        "errors": errors,
    }
    title = f"Splits of {dataset.reference}"
    return Page(name="splits", title=title, values=values, status=400 if errors else 200)


def _plan_values(visit: Visit, dataset: Dataset, expression: str) -> dict[str, Any]:
    explanation = dataset.explain(expression)
    plan, reasons = explanation.plan, explanation_values(explanation)
    code = code_of(visit, dataset.reference, plan.expression)
    rules = [_rule_values(dataset, expression, rule) for rule in SlicingRule]
    return {
        "expression": plan.expression,
        "num_examples": plan.num_examples,
        **rule_values(plan),
        "ranges": range_values(plan.ranges[:_MOST_RANGES]),
        "overlaps": range_values(plan.overlaps[:_MOST_RANGES]),
        "overlaps_text": print_ranges(plan.overlaps),
        "files": [file_values(file) for file in plan[:_MOST_FILES]],
        "num_files": len(plan),
        "terms": reasons["terms"][:_MOST_TERMS],
        "num_terms": len(reasons["terms"]),
        "sentences": reasons["files"],
        "rules": rules,
        "rules_differ": rules[0] != {**rules[1], "slicing": rules[0]["slicing"]},
        "code": {name: text for name, text in code.items() if name != "SQL"},
    }


def _rule_values(dataset: Dataset, expression: str, rule: SlicingRule) -> dict[str, Any]:
    """What an expression reads under a rule, or why the rule refuses it."""
    try:
        plan = dataset.resolve(expression, slicing=rule)
    except (UsageError, NotFoundError) as error:
        return {"slicing": rule, "num_examples": None, "ranges": "", "refusal": str(error).partition("\n")[0]}
    return {
        "slicing": rule,
        "num_examples": plan.num_examples,
        "ranges": print_ranges(plan.ranges),
        "refusal": "",
    }


def _relation_values(dataset: Dataset, query: Mapping[str, str]) -> dict[str, Any]:
    relation = dataset.relation(query["split"], query["other"])
    sets = {name: getattr(relation, name) for name in ("common", "only_first", "only_second", "missing")}
    other = dataset.resolve(query["other"])
    return {
        **fields_of(relation, "kind", "is_disjoint", "is_covering"),
        "other": other.expression,
        "ranges": range_values(other.ranges[:_MOST_RANGES]),
        "common": range_values(relation.common[:_MOST_RANGES]),
        "sets": [
            {"name": name, "num_examples": _num_examples(spans), "ranges": print_ranges(spans)}
            for name, spans in sets.items()
        ],
    }


def _num_examples(ranges: Iterable[RecordRange]) -> int:
    return sum(span.num_examples for span in ranges)


def _parts(dataset: Dataset, query: Mapping[str, str]) -> dict[str, Any]:
    """Equal parts, or folds, of the expression ``of``: each with what it reads."""
    n, unit, whole = query["n"], query["unit"] or "%", query["of"] or first_split(tuple(dataset.splits)) or "train"
    if not n.isdecimal() or not 1 <= int(n[:9]) <= _MOST_PARTS:
        raise UsageError(f"expected a number of parts from 1 to {_MOST_PARTS}, found {n!r:.40}")
    if query["by"] not in ("", "even", "fold"):
        raise UsageError(f"unknown kind of parts {query['by']!r:.40}", hint="Write even or fold.")
    if unit not in _UNITS:
        raise UsageError(f"unknown unit {unit!r:.40}", hint=f"Write {' or '.join(_UNITS)}.")
    options: dict[str, Any] = {"unit": unit}
    if query["by"] == "fold":
        rows = [{"validation": it.validation, "train": it.train} for it in k_fold(whole, int(n), **options)]
        call = f"k_fold({whole!r}, {int(n)}, unit={unit!r})"
    else:
        drops = query["drop_remainder"] != ""
        options |= {"drop_remainder": True} if drops else {}
        rows = [{"part": part} for part in even_splits(whole, int(n), **options)]
        call = f"even_splits({whole!r}, {int(n)}, unit={unit!r}{', drop_remainder=True' if drops else ''})"
    plans = [{name: dataset.resolve(part) for name, part in row.items()} for row in rows]
    return {
        "of": whole,
        "heads": list(rows[0]),
        "rows": [[fields_of(plan, "expression", "num_examples") for plan in row.values()] for row in plans],
        "code": f"from registry import {call.partition('(')[0]}\n\n{call}",
    }


def _examples(dataset: Dataset) -> Iterable[dict[str, Any]]:
    """Expressions over the first split that can be read, with what they read."""
    name = first_split(tuple(dataset.splits))
    for text in () if name is None else ("{}[:80%]", "{}[80%:]", "{}[:10]", "{}[-10:]", "even({}, 3)[0]", "all"):
        try:
            plan = dataset.resolve(text.format(name))
        except RegistryError:  # the split has fewer records
            continue
        yield {**fields_of(plan, "expression", "num_examples"), "ranges": print_ranges(plan.ranges)}


def _split_values(
    dataset: Dataset, plan: Mapping[str, Any] | None, relation: Mapping[str, Any] | None
) -> list[dict[str, Any]]:
    """The splits, each with the parts of its bar: shards, and what the expressions select, as shares of its records.

    Those that the expressions select come first if there are many.
    """
    spans = {
        "selected": plan["ranges"] if plan else [],
        "other": relation["ranges"] if relation else [],
        "twice": relation["common"] if relation else plan["overlaps"] if plan else [],
    }
    chosen = {span["split"] for part in spans.values() for span in part}
    names = sorted(dataset.splits, key=lambda name: name not in chosen)[:_MOST_SPLITS]
    rows = []
    for name in names:
        split = dataset.splits[name]
        size, lengths = max(1, split.num_examples), split.shard_lengths
        places = range(1, split.num_shards) if split.num_shards <= _MOST_SHARDS else ()
        row = fields_of(split, "name", "num_examples", "num_shards", "num_bytes")
        row["shards"] = [lengths.start(place) / size for place in places]
        for kind, part in spans.items():
            inside = [(it["start"] / size, it["stop"] / size) for it in part if it["split"] == name]
            row[kind] = [{"start": start, "width": stop - start} for start, stop in inside]
        rows.append(row)
    return rows
