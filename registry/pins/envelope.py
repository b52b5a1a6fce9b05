"""What is a signed text made of? A DSSE envelope: the payload, its type, and signatures over both. No keys here.

The form is that of DSSE v1 (github.com/secure-systems-lab/dsse, protocol.md and envelope.md), as JSON. Base64 is read
in its one standard spelling alone. Fields that are not known are kept and ignored, as that document asks.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from registry.errors import SignatureError

MAX_BYTES: Final = 16 * 2**20
"""Longest envelope that is read."""

MOST_SIGNATURES: Final = 100
_LONGEST_KEYID: Final = 1000


def encode_for_signing(payload_type: str, payload: bytes) -> bytes:
    """The bytes that a signature is over: DSSE's pre-authentication encoding.

    >>> encode_for_signing("http://example.com/HelloWorld", b"hello world")
    b'DSSEv1 29 http://example.com/HelloWorld 11 hello world'
    """
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


@dataclass(frozen=True, slots=True)
class Signature:
    """One signature: who says to have made it, and its bytes; ``values`` is how it stands in the envelope."""

    keyid: str
    sig: bytes
    values: Mapping[str, Any] = field(repr=False, compare=False)

    @classmethod
    def of(cls, keyid: str, sig: bytes) -> Signature:
        """The signature of a key."""
        return cls(keyid, sig, {"keyid": keyid, "sig": base64.b64encode(sig).decode()})


@dataclass(frozen=True, slots=True)
class Envelope:
    """A payload with its type and signatures; ``values`` are the fields of its JSON text.

    Raises by ``parse``:
        SignatureError: the text is no envelope; the message says what it lacks.
    """

    payload_type: str
    payload: bytes
    signatures: tuple[Signature, ...]
    values: Mapping[str, Any] = field(repr=False, compare=False)

    @classmethod
    def of(cls, payload_type: str, payload: bytes) -> Envelope:
        """An envelope that nobody has signed yet."""
        values = {"payloadType": payload_type, "payload": base64.b64encode(payload).decode(), "signatures": []}
        return cls(payload_type, payload, (), values)

    @classmethod
    def parse(cls, text: str | bytes) -> Envelope:
        """The envelope in a JSON text."""
        values = parse_json(text, "no envelope")
        if not isinstance(values, dict):
            raise refusal("no envelope", "it is no JSON object")
        payload_type = _text(values, "payloadType", "no envelope")
        payload = _from_base64(values, "payload", "no envelope")
        told = values.get("signatures")
        if not isinstance(told, list) or not 1 <= len(told) <= MOST_SIGNATURES:
            raise refusal("no envelope", f"'signatures' is a list of 1 to {MOST_SIGNATURES} signatures")
        signatures: list[Signature] = []
        for place, one in enumerate(told):
            what = f"no envelope: signatures[{place}]"
            if not isinstance(one, dict):
                raise refusal(what, "it is no JSON object")
            keyid = one.get("keyid", "")
            if not isinstance(keyid, str) or len(keyid) > _LONGEST_KEYID or not keyid.isprintable():
                raise refusal(what, "'keyid' is no line of text")
            if any(keyid == other.keyid for other in signatures):
                raise refusal(what, f"a second signature of the key {keyid or 'without a name'}")
            signatures.append(Signature(keyid, _from_base64(one, "sig", what), one))
        return cls(payload_type, payload, tuple(signatures), values)

    @property
    def signed_bytes(self) -> bytes:
        """What every signature is over."""
        return encode_for_signing(self.payload_type, self.payload)

    def signed(self, signature: Signature) -> Envelope:
        """The envelope with one more signature, or with this one for that of the same key."""
        kept: Sequence[Signature] = self.signatures
        if any(one.keyid == signature.keyid for one in kept):
            signatures = tuple(signature if one.keyid == signature.keyid else one for one in kept)
        else:
            signatures = (*kept, signature)
        values = {**self.values, "signatures": [one.values for one in signatures]}
        return Envelope(self.payload_type, self.payload, signatures, values)

    def to_text(self) -> str:
        """The envelope as JSON, for a file; the same for the same values."""
        return json.dumps(self.values, indent=2, ensure_ascii=True) + "\n"


def parse_json(text: str | bytes, what: str) -> Any:
    """The values of a JSON text, without what readers of JSON disagree about.

    Raises:
        SignatureError: no JSON, too long, a key given twice, or a number that is none or too large; it begins with
            ``what``.
    """

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, value in found:
            if name in values:
                raise refusal(what, f"the key {name!r:.60} is given twice")
            values[name] = value
        return values

    def number(found: str) -> float:
        value = float(found)
        if not math.isfinite(value):  # 1e999, which would be written back as Infinity, and that is no JSON
            raise refusal(what, f"the number {found:.60} is too large")
        return value

    def no_number(found: str) -> NoReturn:
        raise refusal(what, f"{found} is no number")

    if len(text) > MAX_BYTES:
        raise refusal(what, f"it is longer than {MAX_BYTES} bytes")
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        return json.loads(text, object_pairs_hook=pairs, parse_float=number, parse_constant=no_number)
    except UnicodeDecodeError as error:
        raise refusal(what, f"no UTF-8 text: {error.reason} at byte {error.start}") from error
    except json.JSONDecodeError as error:
        raise refusal(what, f"no JSON: {error.msg} in line {error.lineno}, column {error.colno}") from error
    except (ValueError, RecursionError) as error:
        if isinstance(error, SignatureError):
            raise
        raise refusal(what, "no JSON that can be read: nested too deep, or a number too long") from error


def refusal(what: str, problem: str) -> SignatureError:
    """The error that says what of the signed text is not as it has to be."""
    return SignatureError(
        f"{what}: {problem}",
        hint="Take the signature again from where it was published, beside the file that it is of.",
        details={"problem": problem},
    )


def _text(values: Mapping[str, Any], key: str, what: str) -> str:
    value = values.get(key)
    if not isinstance(value, str):
        raise refusal(what, f"{key!r} is missing, or no text")
    return value


def _from_base64(values: Mapping[str, Any], key: str, what: str) -> bytes:
    text = _text(values, key, what)
    try:
        data = base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise refusal(what, f"{key!r} is no standard base64") from error
    if base64.b64encode(data).decode() != text:  # bits at its end that no byte takes: another spelling of the same
        raise refusal(what, f"{key!r} is no standard base64")
    return data
