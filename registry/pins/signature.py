"""Signs a pin file and checks signatures. The signature is a separate file next to the pin file.

It contains an in-toto statement, version 1, in a DSSE envelope, version 1, as JSON (protocol.md and envelope.md of
github.com/secure-systems-lab/dsse). Other tools for these formats can check it. The statement proves the sha256 of the
file; its description of the pins is for people. Base64 is accepted in its standard spelling only. Unknown fields are
kept and ignored, as DSSE requires. Keys are in ``registry.pins.keys``.

The index of a site contains its signature. It is also a DSSE signature, with its own payload type, so that a signature
of a pin file is never valid for a site.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from registry.catalog.site_index import SiteIndex, SiteSignature
from registry.errors import PinChangedError, PinFormatError, PreparedFormatError, SignatureError, UsageError
from registry.json_node import parse_json
from registry.pins.citation import Citation
from registry.pins.document import canonical_json
from registry.pins.keys import key_id
from registry.pins.pin_file import PinFile

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey


PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: Final = "urn:dataset-registry:pin:1"  # in published signatures: it outlives the old name

SITE_TYPE: Final = "application/vnd.shardbook.site.v1+json"
"""The payload type of the index of a site."""

_STATEMENT: Final = "the signed text is not a statement about a pin file"


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedBy:
    """The result of a check that succeeded.

    Attributes:
        keyids: the names (``keys.key_id``) of the trusted keys that signed.
        unchecked: other keys in the envelope; their signatures were not checked.
        name: the name of the file when it was signed.
        sha256: the sha256 of the file, 64 hex digits.
        digest: the pin file's own digest.
    """

    keyids: tuple[str, ...]
    unchecked: tuple[str, ...]
    name: str
    sha256: str
    digest: str


def sign_pin(data: bytes, key: Ed25519PrivateKey, *, name: str, envelope: str | bytes | None = None) -> str:
    """Sign the pin file ``data``. Returns the envelope as JSON text; the same key gives the same text.

    Args:
        data: the bytes of the file.
        key: the private key (``keys.load_private_key``).
        name: the name of the file, without its folder.
        envelope: an envelope for the same file and name, to which the signature is added; None makes a new one.

    Raises:
        PinFormatError, PinChangedError: ``data`` is not a valid pin file.
        SignatureError: ``envelope`` is invalid, or is for another file.
        UsageError: ``name`` is not the name of a file.
    """
    if not name or not name.isprintable() or "/" in name or len(name) > 255:
        raise UsageError(f"{name!r:.80} is not the name of a file", hint="Leave out the folder, e.g. dataset.lock.yaml")
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
            f"the envelope does not match the current content of {name}, so your signature cannot be added to it",
            hint="Write a new envelope, or get the file that the others signed.",
            details={"name": name},
        )
    return signed.signed(Signature.of(key_id(key.public_key()), key.sign(blank.signed_bytes))).to_text()


def check_signature(data: bytes, envelope_text: str | bytes, public_keys: Iterable[Ed25519PublicKey]) -> SignedBy:
    """Check the signatures of the pin file ``data``.

    At least one trusted key must have signed, and all signatures of trusted keys must be valid.

    Args:
        data: the bytes of the file.
        envelope_text: the result of ``sign_pin``.
        public_keys: the trusted keys (``keys.load_public_key``).

    Returns:
        The keys that signed, and the signed name and digests of the file.

    Raises:
        SignatureError: the envelope is invalid or for another file, or has no valid signature of a trusted key.
        UsageError: ``public_keys`` is empty.
    """
    keys = _by_name(public_keys)
    envelope = _parse_envelope(envelope_text)
    keyids = _check_keys(envelope, keys)
    name, signed_sha256, digest = _read_statement(envelope)
    sha256 = hashlib.sha256(data).hexdigest()
    if sha256 != signed_sha256:
        raise SignatureError(
            f"the file is not the signed {name}: sha256 mismatch: expected {signed_sha256}, found {sha256}",
            hint="It was changed, or is another file. Get it again from where it was published.",
            details={"name": name, "sha256": sha256, "signed": signed_sha256},
        )
    try:
        found = PinFile.from_yaml(data, name).digest
    except (PinFormatError, PinChangedError) as error:
        raise SignatureError(
            f"{name} has a valid signature, but is not a valid pin file: {error.message}",
            details={"name": name},
        ) from error
    if found != digest:
        raise SignatureError(
            f"{name}: the signed digest is wrong: expected {found}, found {digest}",
            hint="The signer did not use shardbook. Ask for a new signature.",
            details={"name": name, "digest": found, "signed": digest},
        )
    unchecked = tuple(signature.keyid for signature in envelope.signatures if signature.keyid not in keys)
    return SignedBy(keyids=keyids, unchecked=unchecked, name=name, sha256=sha256, digest=digest)


def read_signed_sha256(envelope_text: str | bytes) -> str:
    """The sha256 of the file in an envelope, 64 hex digits. No signature is checked.

    Raises:
        SignatureError: it is not an envelope for a pin file.
    """
    return _read_statement(_parse_envelope(envelope_text))[1]


def sign_index(index: SiteIndex, key: Ed25519PrivateKey) -> SiteIndex:
    """``index`` with a signature of all its other fields. The same key gives the same signature."""
    sig = key.sign(encode_for_signing(SITE_TYPE, index.signed_bytes))
    return replace(index, signature=SiteSignature(keyid=key_id(key.public_key()), sig=sig))


def verify_index(index: SiteIndex, public_keys: Iterable[Ed25519PublicKey]) -> str:
    """Check the signature of the index of a site.

    Args:
        index: the parsed index.
        public_keys: the trusted keys (``keys.load_public_key``).

    Returns:
        The name of the trusted key that signed.

    Raises:
        SignatureError: the index is not signed, was signed by another key, or was changed.
        UsageError: ``public_keys`` is empty.
    """
    keys = _by_name(public_keys)
    if index.signature is None:
        raise SignatureError(
            f"the site is not signed: expected a signature of {' or '.join(keys)}",
            hint="Ask its publisher to sign it: registry site --sign KEY",
            details={"signers": [], "given": list(keys)},
        )
    signature = Signature.of(index.signature.keyid, index.signature.sig)
    envelope = Envelope.of(SITE_TYPE, index.signed_bytes).signed(signature)
    return _check_keys(envelope, keys, subject="the index of the site")[0]


def _by_name(public_keys: Iterable[Ed25519PublicKey]) -> dict[str, Ed25519PublicKey]:
    keys = {key_id(key): key for key in public_keys}
    if not keys:
        raise UsageError("no public key to check the signature with", hint="Pass the public key of the signer.")
    return keys


def _parse_envelope(text: str | bytes) -> Envelope:
    envelope = Envelope.parse(text)
    if envelope.payload_type != PAYLOAD_TYPE:
        raise _refusal(
            "the envelope is not for a pin file", f"expected {PAYLOAD_TYPE!r}, found {envelope.payload_type!r:.80}"
        )
    return envelope


def _check_keys(
    envelope: Envelope, keys: Mapping[str, Ed25519PublicKey], *, subject: str = "the envelope"
) -> tuple[str, ...]:
    """The names of the trusted keys that signed, after a check of their signatures."""
    from cryptography.exceptions import InvalidSignature

    signers = [signature.keyid or "a key without a name" for signature in envelope.signatures]
    signatures = [signature for signature in envelope.signatures if signature.keyid in keys]
    if not signatures:
        raise SignatureError(
            f"expected a signature of {' or '.join(keys)}, found {' and '.join(signers[:10])}",
            hint="If you trust the signer, pass their public key.",
            details={"signers": signers, "given": list(keys)},
        )
    for signature in signatures:
        try:
            keys[signature.keyid].verify(signature.sig, envelope.signed_bytes)
        except InvalidSignature as error:
            raise SignatureError(
                f"the signature of {signature.keyid} is invalid: {subject} was changed, or another key signed",
                hint="Get the signature again from where it was published, next to its file.",
                details={"keyid": signature.keyid},
            ) from error
    return tuple(signature.keyid for signature in signatures)


def _read_statement(envelope: Envelope) -> tuple[str, str, str]:
    """The name and sha256 of the file and the pin file's own digest, as they were signed."""
    statement = _parse_json(envelope.payload, _STATEMENT)
    if not isinstance(statement, dict) or statement.get("_type") != STATEMENT_TYPE:
        raise _refusal(_STATEMENT, f"expected the _type {STATEMENT_TYPE}")
    if statement.get("predicateType") != PREDICATE_TYPE:
        raise _refusal(
            _STATEMENT, f"expected the predicateType {PREDICATE_TYPE!r}, found {statement.get('predicateType')!r:.80}"
        )
    match statement:
        case {
            "subject": [{"name": str(name), "digest": {"sha256": str(sha256)}}],
            "predicate": {"digest": str(digest)},
        }:
            return name, sha256, digest
    raise _refusal(_STATEMENT, "expected one file with its sha256 and the digest of its pins")


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
    """One signature: the name of its key, its bytes, and ``values``, its JSON object in the envelope."""

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

    ``parse`` raises SignatureError, with the reason, for a text that is not an envelope.
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
        values = _parse_json(text, "not an envelope")
        if not isinstance(values, dict):
            raise _refusal("not an envelope", "expected a JSON object")
        payload_type = _text(values, "payloadType", "not an envelope")
        payload = _from_base64(values, "payload", "not an envelope")
        told = values.get("signatures")
        if not isinstance(told, list) or not 1 <= len(told) <= MOST_SIGNATURES:
            raise _refusal("not an envelope", f"'signatures': expected a list of 1 to {MOST_SIGNATURES} signatures")
        signatures: list[Signature] = []
        for place, node in enumerate(told):
            subject = f"not an envelope: signatures[{place}]"
            if not isinstance(node, dict):
                raise _refusal(subject, "expected a JSON object")
            keyid = node.get("keyid", "")
            if not isinstance(keyid, str) or len(keyid) > _LONGEST_KEYID or not keyid.isprintable():
                raise _refusal(subject, "'keyid': expected one line of text")
            if any(keyid == other.keyid for other in signatures):
                raise _refusal(subject, f"a second signature of the key {keyid or 'without a name'}")
            signatures.append(Signature(keyid, _from_base64(node, "sig", subject), node))
        return cls(payload_type, payload, tuple(signatures), values)

    @property
    def signed_bytes(self) -> bytes:
        """The bytes that every signature signs."""
        return encode_for_signing(self.payload_type, self.payload)

    def signed(self, signature: Signature) -> Envelope:
        """The envelope with one more signature; it replaces one of the same key."""
        signatures = tuple({signed.keyid: signed for signed in (*self.signatures, signature)}.values())
        values = {**self.values, "signatures": [signed.values for signed in signatures]}
        return Envelope(self.payload_type, self.payload, signatures, values)

    def to_text(self) -> str:
        """The envelope as JSON, for a file; the same for the same values."""
        return json.dumps(self.values, indent=2, ensure_ascii=True) + "\n"


def _parse_json(text: str | bytes, subject: str) -> Any:
    """The values of a JSON text. Texts about which JSON parsers could disagree are rejected.

    Raises:
        SignatureError: the text is invalid, or longer than ``MAX_BYTES``; the message begins with ``subject``.
    """
    if len(text) > MAX_BYTES:
        raise _refusal(subject, f"it is longer than {MAX_BYTES} bytes")
    try:
        return parse_json(text.decode("utf-8") if isinstance(text, bytes) else text, subject).value
    except UnicodeDecodeError as error:
        raise _refusal(subject, f"not UTF-8: {error.reason} at byte {error.start}") from error
    except PreparedFormatError as error:
        raise _refusal(subject, error.message.removeprefix(f"{subject}: ")) from error


def _refusal(subject: str, problem: str) -> SignatureError:
    """The error for an invalid signed text."""
    return SignatureError(
        f"{subject}: {problem}",
        hint="Get the signature again from where it was published, next to its file.",
        details={"problem": problem},
    )


def _text(values: Mapping[str, Any], key: str, subject: str) -> str:
    value = values.get(key)
    if not isinstance(value, str):
        raise _refusal(subject, f"{key!r} is missing, or is not a text")
    return value


def _from_base64(values: Mapping[str, Any], key: str, subject: str) -> bytes:
    text = _text(values, key, subject)
    try:
        data = base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise _refusal(subject, f"{key!r} is not standard base64") from error
    if base64.b64encode(data).decode() != text:  # unused bits at the end allow other spellings of the same bytes
        raise _refusal(subject, f"{key!r} is not standard base64")
    return data
