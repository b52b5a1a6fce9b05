"""Signs a pin file, in a file beside it, and checks who signed it.

The signed text is an in-toto statement, version 1, in a DSSE envelope, version 1, as JSON (protocol.md and envelope.md
of github.com/secure-systems-lab/dsse): tools that know both check it without this software. The description of the pins
in it is for people; the sha256 of the file is what it proves. Base64 is read in its standard spelling only. Unknown
fields are kept and ignored, as DSSE requires. Keys are in ``registry.pins.keys``.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from registry.errors import PinChangedError, PinFormatError, PreparedFormatError, SignatureError, UsageError
from registry.features.json_node import parse_json
from registry.pins.citation import Citation
from registry.pins.document import canonical_json
from registry.pins.keys import key_id
from registry.pins.pin_file import PinFile

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey


PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: Final = "urn:dataset-registry:pin:1"  # in published signatures: it outlives the old name

_STATEMENT: Final = "the signed text is no statement of a pin"


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedBy:
    """The result of a check that succeeded.

    Attributes:
        keyids: the given keys that signed, by name (``keys.key_id``).
        unchecked: other keys that the envelope names; their signatures were not checked.
        name: of the file when it was signed.
        sha256: of the file, 64 hex digits.
        digest: the pin file's own digest.
    """

    keyids: tuple[str, ...]
    unchecked: tuple[str, ...]
    name: str
    sha256: str
    digest: str


def sign_pin(data: bytes, key: Ed25519PrivateKey, *, name: str, envelope: str | bytes | None = None) -> str:
    """The envelope with a signature over the pin file ``data``, as JSON text. The same key gives the same text.

    Args:
        data: the bytes of the file.
        key: that signs (``keys.load_private_key``).
        name: of the file, without its folder.
        envelope: an envelope of the same file and name that others signed: one more signature is added to it.

    Raises:
        PinFormatError, PinChangedError: ``data`` is not a valid pin file.
        SignatureError: ``envelope`` is not an envelope, or is one of another file.
        UsageError: ``name`` is not the name of a file.
    """
    if not name or not name.isprintable() or "/" in name or len(name) > 255:
        raise UsageError(f"{name!r:.80} is not the name of a file", hint="Give it without its folder.")
    pins = PinFile.from_yaml(data, name)
    statement = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": hashlib.sha256(data).hexdigest()}}],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "lock_version": pins.document.lock_version,
            "digest": pins.digest,
            "pins": {pin.name: str(Citation.of(pin.entry)) for pin in pins.values()},
        },
    }
    blank = Envelope.of(PAYLOAD_TYPE, canonical_json(statement).encode())
    signed = blank if envelope is None else Envelope.parse(envelope)
    if (signed.payload_type, signed.payload) != (blank.payload_type, blank.payload):
        raise SignatureError(
            f"the envelope is not of {name} as it is now: its signatures would not be of what you sign",
            hint="Sign into a new envelope, or take the file that the others signed.",
            details={"name": name},
        )
    return signed.signed(Signature.of(key_id(key.public_key()), key.sign(blank.signed_bytes))).to_text()


def check_signature(data: bytes, envelope_text: str | bytes, public_keys: Iterable[Ed25519PublicKey]) -> SignedBy:
    """Who signed the pin file ``data``.

    There must be a signature of a given key, and all signatures of given keys must be valid.

    Args:
        data: the bytes of the file.
        envelope_text: what ``sign_pin`` gave.
        public_keys: the keys that are trusted (``keys.load_public_key``).

    Raises:
        SignatureError: no envelope, none of these keys, an invalid signature, or another file.
        UsageError: no key is given.
    """
    keys = {key_id(key): key for key in public_keys}
    if not keys:
        raise UsageError("no key is given to check the signature with", hint="Give the public key of who signed.")
    envelope = _parse_envelope(envelope_text)
    keyids = _check_keys(envelope, keys)
    name, signed_sha256, digest = _read_statement(envelope)
    sha256 = hashlib.sha256(data).hexdigest()
    if sha256 != signed_sha256:
        raise SignatureError(
            f"the file is not the one that was signed as {name}: its sha256 is {sha256}, signed is {signed_sha256}",
            hint="It was changed, or is another file. Take it again from where it was published.",
            details={"name": name, "sha256": sha256, "signed": signed_sha256},
        )
    try:
        found = PinFile.from_yaml(data, name).digest
    except (PinFormatError, PinChangedError) as error:
        raise SignatureError(
            f"{name} was signed as it is, and is no pin file: {error.message}", details={"name": name}
        ) from error
    if found != digest:
        raise SignatureError(
            f"{name} was signed with the digest {digest}, and has the digest {found}",
            hint="Whoever signed it did not use shardbook. Ask for a new signature.",
            details={"name": name, "digest": found, "signed": digest},
        )
    unchecked = tuple(one.keyid for one in envelope.signatures if one.keyid not in keys)
    return SignedBy(keyids=keyids, unchecked=unchecked, name=name, sha256=sha256, digest=digest)


def read_signed_sha256(envelope_text: str | bytes) -> str:
    """The sha256 of the file that an envelope names, 64 hex digits. No signature is checked.

    Raises:
        SignatureError: not an envelope of a pin.
    """
    return _read_statement(_parse_envelope(envelope_text))[1]


def _parse_envelope(text: str | bytes) -> Envelope:
    envelope = Envelope.parse(text)
    if envelope.payload_type != PAYLOAD_TYPE:
        raise _refusal("the envelope is not of a pin", f"it holds {envelope.payload_type!r:.80}, not {PAYLOAD_TYPE!r}")
    return envelope


def _check_keys(envelope: Envelope, keys: Mapping[str, Ed25519PublicKey]) -> tuple[str, ...]:
    """The given keys that signed; their signatures are valid."""
    from cryptography.exceptions import InvalidSignature

    signers = [one.keyid or "a key without a name" for one in envelope.signatures]
    given = [one for one in envelope.signatures if one.keyid in keys]
    if not given:
        raise SignatureError(
            f"signed by {' and '.join(signers[:10])}, and that is none of the given keys: {' '.join(keys)}",
            hint="Give the public key of who signed, if you trust it.",
            details={"signers": signers, "given": list(keys)},
        )
    for one in given:
        try:
            keys[one.keyid].verify(one.sig, envelope.signed_bytes)
        except InvalidSignature as error:
            raise SignatureError(
                f"the signature of {one.keyid} does not hold: the envelope was changed, or another key signed",
                hint="Take the signature again from where it was published, beside the file that it is of.",
                details={"keyid": one.keyid},
            ) from error
    return tuple(one.keyid for one in given)


def _read_statement(envelope: Envelope) -> tuple[str, str, str]:
    """The name and sha256 of the file and the pin file's own digest, as they were signed."""
    statement = _parse_json(envelope.payload, _STATEMENT)
    if not isinstance(statement, dict) or statement.get("_type") != STATEMENT_TYPE:
        raise _refusal(_STATEMENT, f"its _type is not {STATEMENT_TYPE}")
    if statement.get("predicateType") != PREDICATE_TYPE:
        raise _refusal(
            _STATEMENT, f"its predicateType is {statement.get('predicateType')!r:.80}, not {PREDICATE_TYPE!r}"
        )
    match statement:
        case {
            "subject": [{"name": str(name), "digest": {"sha256": str(sha256)}}],
            "predicate": {"digest": str(digest)},
        }:
            return name, sha256, digest
    raise _refusal(_STATEMENT, "it does not name one file, its sha256 and the digest of its pins")


MAX_BYTES: Final = 16 * 2**20
"""Longest envelope that is read."""

MOST_SIGNATURES: Final = 100
_LONGEST_KEYID: Final = 1000


def encode_for_signing(payload_type: str, payload: bytes) -> bytes:
    """The bytes that are signed: DSSE's pre-authentication encoding.

    >>> encode_for_signing("http://example.com/HelloWorld", b"hello world")
    b'DSSEv1 29 http://example.com/HelloWorld 11 hello world'
    """
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


@dataclass(frozen=True, slots=True)
class Signature:
    """One signature: the key that it names, its bytes, and ``values``, its JSON object in the envelope."""

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
        SignatureError: the text is not an envelope; the message says why.
    """

    payload_type: str
    payload: bytes
    signatures: tuple[Signature, ...]
    values: Mapping[str, Any] = field(repr=False, compare=False)

    @classmethod
    def of(cls, payload_type: str, payload: bytes) -> Envelope:
        """An envelope without signatures."""
        values = {"payloadType": payload_type, "payload": base64.b64encode(payload).decode(), "signatures": []}
        return cls(payload_type, payload, (), values)

    @classmethod
    def parse(cls, text: str | bytes) -> Envelope:
        """The envelope in a JSON text."""
        values = _parse_json(text, "no envelope")
        if not isinstance(values, dict):
            raise _refusal("no envelope", "it is no JSON object")
        payload_type = _text(values, "payloadType", "no envelope")
        payload = _from_base64(values, "payload", "no envelope")
        told = values.get("signatures")
        if not isinstance(told, list) or not 1 <= len(told) <= MOST_SIGNATURES:
            raise _refusal("no envelope", f"'signatures' is a list of 1 to {MOST_SIGNATURES} signatures")
        signatures: list[Signature] = []
        for place, one in enumerate(told):
            what = f"no envelope: signatures[{place}]"
            if not isinstance(one, dict):
                raise _refusal(what, "it is no JSON object")
            keyid = one.get("keyid", "")
            if not isinstance(keyid, str) or len(keyid) > _LONGEST_KEYID or not keyid.isprintable():
                raise _refusal(what, "'keyid' is no line of text")
            if any(keyid == other.keyid for other in signatures):
                raise _refusal(what, f"a second signature of the key {keyid or 'without a name'}")
            signatures.append(Signature(keyid, _from_base64(one, "sig", what), one))
        return cls(payload_type, payload, tuple(signatures), values)

    @property
    def signed_bytes(self) -> bytes:
        """The bytes that every signature signs."""
        return encode_for_signing(self.payload_type, self.payload)

    def signed(self, signature: Signature) -> Envelope:
        """The envelope with one more signature; it replaces one of the same key."""
        signatures = tuple({one.keyid: one for one in (*self.signatures, signature)}.values())
        values = {**self.values, "signatures": [one.values for one in signatures]}
        return Envelope(self.payload_type, self.payload, signatures, values)

    def to_text(self) -> str:
        """The envelope as JSON, for a file; the same for the same values."""
        return json.dumps(self.values, indent=2, ensure_ascii=True) + "\n"


def _parse_json(text: str | bytes, what: str) -> Any:
    """The values of a JSON text that all readers of JSON take for the same values.

    Raises:
        SignatureError: not such a text, or longer than ``MAX_BYTES``; the message begins with ``what``.
    """
    if len(text) > MAX_BYTES:
        raise _refusal(what, f"it is longer than {MAX_BYTES} bytes")
    try:
        return parse_json(text.decode("utf-8") if isinstance(text, bytes) else text, what).value
    except UnicodeDecodeError as error:
        raise _refusal(what, f"no UTF-8 text: {error.reason} at byte {error.start}") from error
    except PreparedFormatError as error:
        raise _refusal(what, error.message.removeprefix(f"{what}: ")) from error


def _refusal(what: str, problem: str) -> SignatureError:
    """The error for an invalid signed text."""
    return SignatureError(
        f"{what}: {problem}",
        hint="Take the signature again from where it was published, beside the file that it is of.",
        details={"problem": problem},
    )


def _text(values: Mapping[str, Any], key: str, what: str) -> str:
    value = values.get(key)
    if not isinstance(value, str):
        raise _refusal(what, f"{key!r} is missing, or no text")
    return value


def _from_base64(values: Mapping[str, Any], key: str, what: str) -> bytes:
    text = _text(values, key, what)
    try:
        data = base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise _refusal(what, f"{key!r} is no standard base64") from error
    if base64.b64encode(data).decode() != text:  # unused bits at its end make another spelling of the same bytes
        raise _refusal(what, f"{key!r} is no standard base64")
    return data
