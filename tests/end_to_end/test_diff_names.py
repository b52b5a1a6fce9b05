"""A diff has names of classes, dates and times, wherever the numbers are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import registry
from registry.features import ClassLabel, FeaturesDict, Sequence, Tensor

DAY = "date32[day]: days since 1970-01-01."


class Fleet(registry.DatasetBuilder):
    """Cars."""

    VERSION = "1.0.0"

    def features(self) -> FeaturesDict:
        kind = ClassLabel(names=["car", "bus", "tram"])
        return FeaturesDict(
            {
                "id": "int64",
                "kind": kind,
                "sold": Tensor(shape=(), dtype="int32", description=DAY),
                "stops": Sequence(Tensor(shape=(), dtype="int32", description=DAY)),
                "parts": Sequence(kind),
                "nested": Sequence(Sequence(kind)),
            }
        )

    rows: Any = ((0, 0, 19730, [1, 2], [0, 1], [[0], [1, 2]]), (1, -1, 1, [], [2], []), (2, 1, 3, [], [], []))

    def splits(self) -> Any:
        names = ("id", "kind", "sold", "stops", "parts", "nested")
        return {"train": [(row[0], dict(zip(names, row, strict=True))) for row in self.rows]}


CHANGED = ((0, 2, 19731, [1, 3], [0, 2], [[0], [1, 1]]), (1, 0, 1, [4], [2, 1], []), (3, 1, 10, [], [], []))


def test_a_diff_has_names_and_dates(tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db") as catalog:
        catalog.build(Fleet)
        catalog.build(type("Fleet", (Fleet,), {"VERSION": "2.0.0", "rows": CHANGED}))
        (diff,) = catalog.diff("fleet:1.0.0", "fleet:2.0.0").records
    said = " | ".join(map(str, diff.first))
    for text in (
        "kind is 'tram', was 'car'",
        "sold is 2024-01-09, was 2024-01-08",
        "stops differs in 1 of 2 values; the one at [1] is 1970-01-04 and was 1970-01-03",
        "parts differs in 1 of 2 values; the one at [1] is 'tram' and was 'bus'",
        "row 1 of nested differs in 1 of 2 values; the one at [1] is 'bus' and was 'tram'",
        "kind is 'bus', was -1",
        "stops is ['1970-01-05'] of shape (1,), was [] of shape (0,)",
        "parts is [] of shape (0,), was ['tram'] of shape (1,)",
    ):
        assert text in said
