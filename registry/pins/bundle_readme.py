"""What has somebody to know who unpacks a bundle in ten years? The README.txt of it, exact enough to write a reader."""

from __future__ import annotations

from typing import Final

from registry.pins.pin_file import PinFile

README_NAME: Final = "README.txt"


def write_readme(pin_file: PinFile) -> str:
    """The text for a bundle of these pins; the same for the same pins."""
    pins = "".join(
        f"  {pin.name}\n"
        f"      {pin.num_examples} records of {pin.reference}, split expression {pin.split}\n"
        f"      ordered records digest {pin.entry.records.ordered}\n"
        for pin in pin_file.values()
    )
    return _TEXT.replace("@PINS@", pins).replace("@DIGEST@", pin_file.digest)


_TEXT: Final = """\
THE EXACT RECORDS THAT A PAPER USED

Digest of the pin file, which the paper may print:
  @DIGEST@

Pins, each a list of records:
@PINS@

1. WHAT IS HERE

  dataset.lock.yaml   the pin file: which records, what proves them, where they come from, licence, citation
  dataset.lock.json   the same values as JSON
  verify.py           checks the records here; needs Python 3.9 or later and nothing else
  verify_yaml.py      the part of it that reads dataset.lock.yaml
  data/               the files that hold the records, and no other: <name>[/<config>]/<version>/<file>
  other files         how to cite the data


2. CHECK IT

  python -I -S verify.py

It prints the digest of the pin file, to be compared with the paper's, and a line for each pin. Exit code: 0, all pinned
records are as pinned; 5, something is not, and the line says which file, which record and which digest; 2, wrong usage;
1, it was stopped, or could not write its answer. A file with damage in other records alone is named, with exit code 0.

It proves that the pin file has that digest, that YAML and JSON say the same, and that the records have the digests of
section 5 but "features". It does not prove that the split expression gives the ranges, nor what decoding gives.

  python -I -S verify.py --ids            the ids of the records, one a line, in the order of section 3
  python -I -S verify.py --pin NAME DIR   one pin, with its data in DIR/data or in DIR
  python -I -S verify.py --crc never      faster: without the checksums that are stored with each record

With the Python package shardbook, no network and no catalog:

  registry pin verify dataset.lock.yaml
  python -c 'import registry; print(next(iter(registry.load_pin("dataset.lock.yaml")["NAME"].read())))'


3. WHICH RECORDS

A split is the records of its files, one file after the other, by "index". "files" are those that hold records of the
pin: the file has the records "first_example" .. "first_example" + "num_examples" - 1 of its split, counted from 0.
"ranges" are the records of the pin, from "start" up to, not with, "stop", one range after the other. That order is the
one in which everything below is counted. (Training may have read them in another one: "order", section 7.)

The id of a record is its file's name, two underscores, and its place in that file, counted from 0.


4. HOW A FILE IS READ

TFRecord: records, one after the other, and nothing else. All numbers are little-endian. Each record is

  8 bytes   length of the data, unsigned
  4 bytes   masked CRC-32C of these 8 bytes
  ...       the data
  4 bytes   masked CRC-32C of the data

CRC-32C is the Castagnoli CRC: reflected polynomial 0x82F63B78, register begins with all ones and is inverted at the
end; that of the ASCII text 123456789 is 0xE3069283. Masked: ((crc >> 15 | crc << 17) + 0xA282EAD8) modulo 2^32.

A file that begins with the bytes 1F 8B 08, and whose first 12 bytes are not a length and its checksum, is such a file
compressed by gzip, in one member or several.

The data of a record is a protocol buffer message, tf.train.Example:

  message Example   { Features features = 1; }
  message Features  { map<string, Feature> feature = 1; }
  message Feature   { oneof kind { BytesList bytes_list = 1; FloatList float_list = 2; Int64List int64_list = 3; } }
  message BytesList { repeated bytes value = 1; }
  message FloatList { repeated float value = 1 [packed = true]; }
  message Int64List { repeated int64 value = 1 [packed = true]; }

"features" of a pin says what the keys mean: "json" is the features.json of TensorFlow Datasets (TFDS), with dtype and
shape of each key, names of nested features joined by "/". An image is an encoded PNG or JPEG file. "labels" are the
names of classes, the first for the number 0.


5. DIGESTS OF RECORDS ("records" of a pin)

Every digest here and in section 6 is written as "sha256:" and 64 hex digits, and is taken over the 32 bytes of other
digests, not over their text. All numbers in what is hashed are little-endian.

sha256 of a record: over its data alone, without length and checksums.

  ordered     sha256 over the sha256 of all records of the pin, in order
  unordered   the same over these sorted as byte strings: it does not hang on files or order
  first, middle, last
              id and sha256 of record 0, of record n // 2 and of record n - 1, of n records, counted from 0; null where
              there are none
  finder      two numbers modulo p = 2^256 - 189, each of 64 hex digits, with "-" between them. h(i) is the sha256 of
              record i, as a number with the highest byte first. First the sum of all h(i), then that of all
              (i + 1) * h(i). Where exactly one record was changed, the first moved by d and the second by (i + 1) * d.
              They prove nothing; they find.
  features    for each key, sha256 over leaves (32 bytes each), one for each 1,024 records from record 0 on, the last of
              fewer. A leaf is sha256 over, for each kind of values that its records hold under the key, in the order
              bytes, float, int64: the kind's name and a zero byte; the number of values of each record, 8 bytes each;
              then the values of all records: of bytes, first the length of each, 8 bytes each, then all of them; of
              float, 4 bytes each (IEEE 754); of int64, 8 bytes each (two's complement). A kind without values is left
              out; the leaf of a key under which the 1,024 hold no values is sha256 over nothing. So another spelling of
              the same values has the same digest. There are none of any key where some record is no such message.


6. OTHER DIGESTS

"JSON" is here one text for each value: keys of objects sorted by code points, no spaces, all beyond ASCII as \\uXXXX
(in Python: json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)).

  files[].sha256    over the whole file, as it lies here
  digest            of the pin file: over the JSON of its values without the keys "digest" and "finder" at the top
  finder            of the pin file: two sums, written and taken modulo p as above, over all values that hold no others,
                    empty lists and objects among them, without "digest" and "finder" at the top. For the value v at the
                    key path k, h is sha256 over k, a zero byte and the JSON of v, as a number with the highest byte
                    first; its weight w is the number in the first 16 bytes of sha256 over k, the highest byte first.
                    First the sum of all h, then that of all w * h. A key path is UTF-8: the keys from the top down,
                    joined by "."; for place n of a list, counted from 0, [n] without a "."; for a key that is not a
                    letter A-Z a-z or "_" with such, digits and "-" behind it, ["key"] without a ".", the key as a JSON
                    text in which what is beyond ASCII stands as it is. So: pins[0].records.features["image/data"]
  features.digest   over the JSON of {"features": json as a text, "labels": labels}
  version_digest    by which the catalog that the pin was made from knows the whole version; not to be proved from
                    a part of its files


7. ORDER OF READING ("order" of a pin)

With shuffle "none" files take turns. A file here is what the pin has of it; of several ranges, all files of the first
come first. There are cycle_length slots, visited one after the other, round after round. A visit to an empty slot opens
the next file in it, if there is one; it reads block_length records of the slot's file, or what is left. Where that is
fewer, none included, the slot becomes empty. "generator" says what draws the numbers of a shuffle.
"""
