"""Options that are counts: any value that is not a whole number is refused at once, with the option's name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from registry import slim
from registry.errors import WrongTypeError

CALLS: dict[str, Callable[[Any], Any]] = {
    "capacity": lambda number: slim.prefetch_queue(range(1), capacity=number),
    "num_threads": lambda number: slim.prefetch_queue(range(1), num_threads=number),
    "n": lambda number: slim.prefetch_queue(range(2)).dequeue_many(number),
    "num_records": lambda number: slim.single_pass_read("f").read_up_to(number),
    "skip_header_lines": lambda number: slim.TextLineReader("f", number),
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("f").write_bytes(b"")


@pytest.mark.parametrize("number", [1.5, "1", None, float("nan")])
@pytest.mark.parametrize("option", CALLS)
def test_a_value_that_is_not_a_whole_number_is_refused(option: str, number: Any) -> None:
    with pytest.raises(WrongTypeError) as caught:
        CALLS[option](number)
    assert str(caught.value) == f"{option} must be a whole number, not {number!r}"


@pytest.mark.parametrize("option", [option for option in CALLS if option != "num_records"])
def test_numbers_of_numpy_are_numbers(option: str) -> None:
    CALLS[option](np.int64(1))
