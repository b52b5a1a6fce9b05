"""How is a split divided into equal parts? As percent expressions, written down before anything is read."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

from registry.errors import UsageError
from registry.splits.instruction import ReadInstruction
from registry.splits.slices import SplitSlice


def even_splits(split: str | ReadInstruction, n: int) -> list[str]:
    """``n`` expressions that divide ``split`` into parts of about the same size, each record in exactly one of them.

    ``split`` is a name, ``all``, or a union of names, each of which is divided on its own. Boundaries are whole
    percent, halves up, as the TFDS documents print them; more than 100 parts get as many decimals as keep all
    boundaries apart.

    >>> even_splits("train", n=3)
    ['train[0%:33%]', 'train[33%:67%]', 'train[67%:100%]']
    >>> even_splits("train+test", n=200)[1]
    'train[0.5%:1%]+test[0.5%:1%]'

    Raises:
        UsageError: ``n`` is below 1, or ``split`` is already sliced.
        SplitSyntaxError: ``split`` is no expression.
    """
    if n < 1:
        raise UsageError(f"a split is divided into 1 part or more, not {n}")
    whole = ReadInstruction.from_spec(split)
    if sliced := [part for part in whole.slices if not part.is_whole]:
        raise UsageError(
            f"{sliced[0]} is sliced already, and percent of a slice have no expression",
            hint="Give names of splits, e.g. even_splits('train+test', n=3).",
        )
    scale = 10 ** max(0, len(str(n - 1)) - 2)
    bounds = [Fraction((200 * scale * place + n) // (2 * n), scale) for place in range(n + 1)]
    names = [part.split_name for part in whole.slices]
    return ["+".join(str(SplitSlice(name, start, stop, "%")) for name in names) for start, stop in pairwise(bounds)]
