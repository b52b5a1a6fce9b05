"""How are counts and ranges said in a sentence?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from registry.splits.layout import RecordRange

_SHOWN: Final = 20


def counted(number: int, thing: str) -> str:
    """``number`` of a thing whose plural has an s.

    >>> counted(1, "record"), counted(1797, "record")
    ('1 record', '1,797 records')
    """
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def print_ranges(ranges: Iterable[RecordRange]) -> str:
    """Ranges in words, empty ones left out; of very many the first ones, and how many more there are.

    >>> print_ranges([RecordRange(split="train", start=0, stop=1200), RecordRange(split="test", start=5, stop=5)])
    'records train 0..1,200'
    """
    filled = [one for one in ranges if one.num_examples]
    shown = " + ".join(f"{one.split} {one.start:,}..{one.stop:,}" for one in filled[:_SHOWN])
    more = f" + {len(filled) - _SHOWN:,} more ranges" if len(filled) > _SHOWN else ""
    return f"records {shown}{more}" if filled else "no records"
