"""Which examples does a plan give? The records of its files, in the plan's order, decoded by the dataset's features."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from registry.errors import CorruptExampleError
from registry.features import FeaturesDict
from registry.splits import FileInstruction, Plan
from registry.storage import Store
from registry.tfrecord import read_records


class Reader:
    """The examples of a plan. Iterating again starts again; nothing is opened before the first record is asked for.

    Examples come in plan order: the parts of a union as written, shards by their index, records as stored.
    """

    def __init__(self, plan: Plan, *, store: Store, features: FeaturesDict) -> None:
        self.plan = plan
        self.features = features
        self._store = store

    def __len__(self) -> int:
        """Number of examples."""
        return self.plan.num_examples

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Examples as dicts of numpy arrays, shaped and typed as ``features`` says.

        Raises:
            CorruptRecordError: framing or checksum of a record is wrong.
            CorruptExampleError: a record does not hold the features; the message names file and record.
            ShardMismatchError: a file holds fewer records than the catalog says.
        """
        for instruction in self.plan:
            for index, record in enumerate(self._read(instruction), start=instruction.skip):
                try:
                    yield self.features.decode_example(record)
                except CorruptExampleError as error:
                    raise CorruptExampleError(
                        f"{instruction.filename}: record {index}: {error.message}",
                        hint=error.hint,
                        details={**error.details, "path": instruction.filename, "record": index},
                    ) from error

    def records(self) -> Iterator[bytes]:
        """The stored records, serialized tf.train.Examples, checked and not decoded."""
        for instruction in self.plan:
            yield from self._read(instruction)

    def __repr__(self) -> str:
        return f"<Reader {self.plan.expression}: {len(self)} examples>"

    def _read(self, instruction: FileInstruction) -> Iterator[bytes]:
        return read_records(
            self._store,
            instruction.filename,
            skip=instruction.skip,
            take=instruction.take,
            num_records=instruction.examples_in_shard,
        )
