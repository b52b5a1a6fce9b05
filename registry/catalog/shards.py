"""The stored files of published splits in SQL: shards and their lengths, by ranges and by position.

A slice that touches ten of a million shards costs a few index look-ups, even with outdated statistics on PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from registry.catalog.backend import LengthBlock
from registry.catalog.names import is_named
from registry.catalog.rows import json_agg, read_attachment, read_json, read_reference
from registry.catalog.selection import NAMES, NUMBER, is_version, named_config, published_versions
from registry.catalog.session import reading
from registry.catalog.tables import attachment, builder, builder_config, dataset_version, shard, split
from registry.catalog.values import stored_values
from registry.model import Reference, Shard, ShardedFileTemplate, Version

if TYPE_CHECKING:
    from registry.model import DatasetVersion

_DIGESTS: Final = 500
_VERSIONS: Final = 500
_ROWS: Final = 10_000


@dataclass(frozen=True)
class SqlShards:
    """``ShardCalls`` in SQL. Two objects with the same engine are equal."""

    engine: sa.Engine

    def between(self, version: DatasetVersion, split_name: str, first: int, stop: int) -> tuple[Shard, ...]:
        # A subquery, for the reason given at _SPLIT.
        split_id = (
            sa.select(split.c.id)
            .select_from(published_versions())
            .join(split, split.c.version_id == dataset_version.c.id)
            .where(is_version(version.name, version.config, version.version), split.c.name == split_name)
            .scalar_subquery()
        )
        query = (
            sa.select(
                shard.c.shard_index,
                shard.c.first_example,
                shard.c.num_examples,
                shard.c.num_bytes,
                shard.c.sha256,
                shard.c.entity_tag,
            )
            .where(shard.c.split_id == split_id, shard.c.shard_index >= first, shard.c.shard_index < stop)
            .order_by(shard.c.shard_index)
        )
        with reading(self.engine) as connection, stored_values():
            return tuple(
                Shard(
                    index=index,
                    first_example=start,
                    num_examples=examples,
                    num_bytes=size,
                    sha256=digest,
                    entity_tag=tag,
                )
                for index, start, examples, size, digest, tag in connection.execute(query)
            )

    def find(self, name: str, config: str | None, digests: Collection[str]) -> dict[str, tuple[Version, str, int]]:
        versions: dict[str, tuple[Version, str, int]] = {}
        wanted = sorted(digests)
        with reading(self.engine) as connection:
            for start in range(0, len(wanted), _DIGESTS):
                is_asked = shard.c.sha256.in_(wanted[start : start + _DIGESTS])
                query = (
                    sa.select(*NUMBER, split.c.name, shard.c.shard_index, shard.c.sha256)
                    .select_from(published_versions())
                    .join(split, split.c.version_id == dataset_version.c.id)
                    .join(shard, shard.c.split_id == split.c.id)
                    .where(is_named(name), named_config(config), is_asked)
                    .order_by(*NUMBER, split.c.position, shard.c.shard_index)
                )
                for major, minor, patch, split_name, index, digest in connection.execute(query):
                    versions[digest] = (Version(major, minor, patch), split_name, index)
        return versions

    def files_of(
        self, references: Collection[Reference], *, attachments: bool = False
    ) -> dict[Reference, list[tuple[str, int]]]:
        result: dict[Reference, list[tuple[str, int]]] = {reference: [] for reference in references}
        wanted = [
            (reference.name, reference.config or "", *reference.exact.parts)
            for reference in result
            if reference.exact is not None
        ]
        number = (builder.c.name, builder_config.c.name, *NUMBER)
        with reading(self.engine) as connection, stored_values():
            for start in range(0, len(wanted), _VERSIONS):
                query = (
                    sa.select(*NAMES, *NUMBER, split, shard.c.shard_index, shard.c.num_bytes.label("file_bytes"))
                    .select_from(published_versions())
                    .join(split, split.c.version_id == dataset_version.c.id)
                    .join(shard, shard.c.split_id == split.c.id)
                    .where(sa.tuple_(*number).in_(wanted[start : start + _VERSIONS]))
                    .order_by(split.c.version_id, split.c.position, shard.c.shard_index)
                )
                rows = connection.execute(query, execution_options={"yield_per": _ROWS})
                for _, of_split in groupby(rows, key=attrgetter("id")):
                    first = next(of_split)
                    files = ShardedFileTemplate(
                        dataset=first.filename_dataset,
                        template=first.filename_template,
                        file_format=first.filename_format,
                    )
                    name_shard = files.namer(first.name, first.num_shards)
                    result[read_reference(first)] += [
                        (name_shard(row.shard_index), row.file_bytes) for row in chain([first], of_split)
                    ]
                query = (
                    sa.select(*NAMES, *NUMBER, attachment)
                    .select_from(published_versions())
                    .join(attachment, attachment.c.version_id == dataset_version.c.id)
                    .where(sa.tuple_(*number).in_(wanted[start : start + _VERSIONS]))
                )
                for row in connection.execute(query) if attachments else ():
                    file = read_attachment(row._mapping)
                    result[read_reference(row)].append((file.place, file.num_bytes))
        return result

    def lengths_between(self, split_id: int, first: int, stop: int) -> LengthBlock:
        return self._block(self._ask(_range_query(), split_id=split_id, first=first, stop=stop))

    def lengths_at(self, split_id: int, position: int, block: int) -> LengthBlock | None:
        row = self._ask(_position_query(), split_id=split_id, position=position, block=block)
        return None if row is None or row.first is None else self._block(row)

    def empty_between(self, split_id: int, first: int, stop: int) -> Sequence[int]:
        row = self._ask(_empty_shards_query(), split_id=split_id, first=first, stop=stop)
        with stored_values():
            return tuple(read_json(row.empty) or ())

    def version_of(self, split_id: int) -> Reference | None:
        query = (
            sa.select(builder.c.name, builder_config.c.name, *NUMBER)
            .select_from(published_versions())
            .join(split, split.c.version_id == dataset_version.c.id)
            .where(split.c.id == sa.bindparam("split_id", type_=sa.Integer))
        )
        row = self._ask(query, split_id=split_id)
        with stored_values():
            return None if row is None else Reference.exactly(row[0], row[1] or None, Version(*row[2:]))

    def _ask(self, query: sa.Select[Any], **parameters: int) -> Any:
        """The only row of ``query``, or None."""
        with reading(self.engine) as connection, stored_values():
            return connection.execute(query, parameters).first()

    def _block(self, row: Any) -> LengthBlock:
        with stored_values():
            lengths = read_json(row.lengths) or ()
            return LengthBlock(first=row.first, start=row.start or 0, lengths=tuple(lengths), following=row.following)


# A subquery, so that PostgreSQL plans for a split of average size. For a split that is newer than the statistics, it
# would expect a single shard, take any index that begins with the split, and read a million rows.
_SPLIT: Final = shard.c.split_id == sa.select(sa.bindparam("split_id", type_=sa.Integer)).scalar_subquery()


@cache
def _range_query() -> sa.Select[Any]:
    """The lengths of shards ``first``..``stop``."""
    return _lengths_query(sa.bindparam("first", type_=sa.Integer), sa.bindparam("stop", type_=sa.Integer))


@cache
def _position_query() -> sa.Select[Any]:
    """The lengths of the block of ``block`` shards that contains record ``position``."""
    block = sa.bindparam("block", type_=sa.Integer)
    # The shard with records among those that start there. It is ordered by the index alone: ordered by number too,
    # PostgreSQL would read and sort the whole run of empty shards before it.
    result = (
        sa.select((shard.c.shard_index // block * block).label("first"))
        .where(_SPLIT, shard.c.first_example <= sa.bindparam("position", type_=sa.BigInteger), shard.c.num_examples > 0)
        .order_by(shard.c.first_example.desc())
        .limit(1)
        .subquery("found")
    )
    return _lengths_query(result.c.first, result.c.first + block)


def _lengths_query(first: sa.ColumnElement[int], stop: sa.ColumnElement[int]) -> sa.Select[Any]:
    """For shards ``first``..``stop``: first record, lengths as JSON, and the first record of the next shard."""
    in_order = (
        sa.select(shard.c.num_examples)
        .where(_SPLIT, shard.c.shard_index >= first, shard.c.shard_index < stop)
        .order_by(shard.c.shard_index)
        .correlate_except(shard)
        .subquery("in_order")
    )
    return sa.select(
        first.label("first"),
        stop.label("stop"),
        _first_example(first).label("start"),
        sa.select(json_agg(in_order.c.num_examples)).scalar_subquery().label("lengths"),
        _first_example(stop).label("following"),
    )


def _first_example(index: sa.ColumnElement[int]) -> sa.ScalarSelect[int]:
    return (
        sa.select(shard.c.first_example)
        .where(_SPLIT, shard.c.shard_index == index)
        .correlate_except(shard)
        .scalar_subquery()
    )


@cache
def _empty_shards_query() -> sa.Select[Any]:
    """The indices of the empty shards in ``first``..``stop``, as JSON."""
    in_order = (
        sa.select(shard.c.shard_index)
        .where(
            _SPLIT,
            # A literal, as in ix_shard_empty: a plan made for any parameters cannot use a partial index.
            shard.c.num_examples == sa.literal_column("0"),
            shard.c.shard_index >= sa.bindparam("first", type_=sa.Integer),
            shard.c.shard_index < sa.bindparam("stop", type_=sa.Integer),
        )
        .order_by(shard.c.shard_index)
        .subquery("in_order")
    )
    return sa.select(json_agg(in_order.c.shard_index).label("empty"))
