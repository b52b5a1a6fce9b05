"""What is a state a state of? Digests of a plan and of an order, which change with everything that moves a record."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from registry.order import Order, ReadConfig
from registry.reading.state import Source
from registry.splits import Plan

_ORDER_FIELDS: Final = (
    "interleave_cycle_length",
    "interleave_block_length",
    "shuffle_files",
    "shuffle_seed",
    "shuffle_reshuffle_each_iteration",
    "shuffle",
    "seed",
    "global_seed",
    "op_seed_index",
)


def describe_source(plan: Plan, order: Order, *, dataset: str) -> Source:
    """The source of a read of ``plan`` in ``order``, the order of its first epoch; ``dataset`` is the exact version."""
    return Source(
        dataset=dataset,
        split=plan.expression,
        plan=_digest(
            {
                "ranges": [[part.split, part.start, part.stop] for part in plan.ranges],
                "splits": [
                    [split.name, len(split.shard_lengths), split.shard_lengths.num_examples] for split in plan.splits
                ],
            }
        ),
        order=_digest({"config": _order_fields(order.config), "files": _sorted_files(order)}),
        seed=_seed(order.config),
        num_examples=order.num_examples,
    )


def _order_fields(config: ReadConfig) -> dict[str, Any]:
    return {name: getattr(config, name) for name in _ORDER_FIELDS}


def _seed(config: ReadConfig) -> int | None:
    return config.seed if config.shuffle == "global" else config.shuffle_seed


def _sorted_files(order: Order) -> str | None:
    """A function that sorts files has no other digest than what it does."""
    if order.config.interleave_sort_fn is None or order.file_order is None:
        return None
    return hashlib.sha256(order.file_order.astype("<i8").tobytes()).hexdigest()


def _digest(value: object) -> str:
    return "sha256:" + hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
