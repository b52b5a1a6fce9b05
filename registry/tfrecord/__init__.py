"""TFRecord files: records framed with masked CRC32C checksums, written, read, walked and verified.

    u64 length | u32 masked CRC of those 8 bytes | payload | u32 masked CRC of the payload       (little-endian)

``read_records`` reads records in order; ``open_shard`` reads any records, many at once. Files are not compressed by
default; a gzip file is recognized by its first bytes. ``registry.wire`` decodes the payloads.
"""

from registry.tfrecord.block import Places, RecordBlock, Verify, check_verify, join_blocks
from registry.tfrecord.frames import Frames, frame_records
from registry.tfrecord.framing import (
    FRAMING_BYTES,
    HEADER_BYTES,
    MAX_RECORD_BYTES,
    FileFacts,
    RecordWriter,
    frame_record,
    is_gzip,
    is_header,
    masked_crc32c,
)
from registry.tfrecord.index import IndexFolder
from registry.tfrecord.reader import hash_file, read_records, walk_file
from registry.tfrecord.shard import MappedShard, StreamedShard, open_shard
from registry.tfrecord.window import read_blocks

__all__ = [
    "FRAMING_BYTES",
    "HEADER_BYTES",
    "MAX_RECORD_BYTES",
    "FileFacts",
    "Frames",
    "IndexFolder",
    "MappedShard",
    "Places",
    "RecordBlock",
    "RecordWriter",
    "StreamedShard",
    "Verify",
    "check_verify",
    "frame_record",
    "frame_records",
    "hash_file",
    "is_gzip",
    "is_header",
    "join_blocks",
    "masked_crc32c",
    "open_shard",
    "read_blocks",
    "read_records",
    "walk_file",
]
