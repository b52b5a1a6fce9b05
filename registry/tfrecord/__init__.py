"""How do records lie in a shard file? TFRecord framing with masked CRC32C: written, read, walked and verified.

    u64 length | u32 masked CRC of those 8 bytes | payload | u32 masked CRC of the payload       (little-endian)

No compression by default; a gzip file is known by its first bytes. What a payload means, ``registry.wire`` says.
"""

from registry.tfrecord.crc import masked_crc32c
from registry.tfrecord.framing import frame_record
from registry.tfrecord.reader import FileFacts, read_records, walk_file
from registry.tfrecord.writer import RecordWriter

__all__ = ["FileFacts", "RecordWriter", "frame_record", "masked_crc32c", "read_records", "walk_file"]
