"""Sends requests to one bucket through obstore: with timeouts, retries within one budget, and typed errors.

Ctrl-C does not interrupt obstore's synchronous calls, so this module uses the asynchronous ones, which can be cancelled
(``network.run``). ``object_store`` builds a Store on it.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from types import ModuleType
from typing import IO, Any, Final, TypeAlias, TypeVar

from registry.errors import AlreadyStoredError, NotStoredError, RegistryError, StorageUnavailableError
from registry.storage.faults import HashedFile, replaced
from registry.storage.network import (
    Limits,
    Operation,
    TransientFault,
    begin,
    call_with_retries,
    result_of,
    retried,
    run,
    unavailable,
)
from registry.storage.object_library import (
    bad_settings,
    bucket_options,
    is_no_bucket,
    load_obstore,
    misses_bucket,
    printable_fault,
    typed_fault,
)

T = TypeVar("T")

_Ask: TypeAlias = Callable[[ModuleType, Any], Coroutine[Any, Any, T]]
"""Sends one or more requests, given the library obstore and its client."""

PART_BYTES: Final = 8 * 2**20
"""Longer objects are uploaded in parts of this size, a few at the same time."""

_PARTS_AT_ONCE: Final = 4
_DIGEST: Final = re.compile(r'"([0-9a-f]{32})(-1)?"')
_PAGE: Final = 1000
_WRITER: Final = "registrywriter"
"""Name of the user metadata that names the writer and identifies a conditional put; Azure accepts only letters."""

_WRITER_END: Final = "/"
_TYPE: Final = "Content-Type"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectFacts:
    """A store's metadata of one object: its full key, its size in bytes, its ETag if it has one, its last change.

    ``generation`` is the number of the object at Google, or its id in an S3 bucket with versions: no two have the same.
    An ETag may be an MD5, which other bytes can have, too.
    """

    key: str
    num_bytes: int
    entity_tag: str | None
    changed_at: datetime | None = None
    generation: str | None = None


class BucketClient:
    """A bucket or an Azure container. ``open_bucket`` makes it; threads share it, and a fork renews it."""

    def __init__(self, scheme: str, bucket: str) -> None:
        self._scheme = scheme
        self._bucket = bucket
        self._peer = f"{scheme}://{bucket}"
        self._made: tuple[int, ModuleType, tuple[Any, Any]] | None = None
        self._tags_are_digests = True
        self.limits = Limits.from_environment()

    def __reduce__(self) -> tuple[Any, ...]:
        return open_bucket, (self._scheme, self._bucket)

    def facts(self, key: str, *, location: str) -> ObjectFacts:
        """Fetch the metadata of one object.

        Raises:
            NotStoredError: it does not exist.
        """
        return _facts(self._ask("read", location, lambda api, store: api.head_async(store, key)))

    def sign(self, key: str, *, seconds: int, location: str) -> str:
        """Return a URL with which anybody can read an object."""
        expiry = timedelta(seconds=seconds)
        result: str = self._ask("read", location, lambda api, store: api.sign_async(store, "GET", key, expiry))
        return result

    def begin_range(self, facts: ObjectFacts, start: int, stop: int, *, location: str) -> Future[memoryview]:
        """Start one request for bytes start..stop of an object, if its ETag is still that of ``facts``.

        An object that is read whole is compared with its ETag if that is a digest: bytes that differ were damaged in
        transit and are requested again.

        The future raises StorageError if the object was replaced meanwhile.
        """
        options: dict[str, Any] = {"range": (start, stop)}
        if facts.entity_tag is not None:
            options["if_match"] = facts.entity_tag
        is_whole = start == 0 and stop == facts.num_bytes

        async def ask(api: ModuleType, store: Any) -> memoryview:
            async def fetch() -> tuple[str | None, memoryview]:
                answer = await api.get_async(store, facts.key, options=options)
                if facts.entity_tag is not None and _tag(answer.meta) not in (None, facts.entity_tag):
                    raise replaced(location)  # the server does not support If-Match
                content = memoryview(await answer.bytes_async())
                if len(content) != stop - start:
                    raise TransientFault(f"expected {stop - start} bytes, received {len(content)}")
                return facts.entity_tag if is_whole else None, content

            return await self._intact(fetch)

        api, store = self._store(uploading=False, doing="read", location=location)
        attempt = partial(self._typed, api, store, ask, doing="read", location=location)
        return begin(retried(Operation("read", location, self._peer, self.limits), attempt))

    def list(self, prefix: str, *, location: str) -> list[ObjectFacts]:
        """List every object below ``prefix``, a folder or "" for all, in any order.

        After a fault, the listing continues after the last name that was received.
        """
        result: dict[str, ObjectFacts] = {}

        async def ask(api: ModuleType, store: Any) -> None:
            offset = max(result) if result else None
            async for page in api.list(store, prefix or None, offset=offset, chunk_size=_PAGE):
                result.update((facts.key, facts) for facts in map(_facts, page))

        self._ask("list", location, ask)
        return list(result.values())

    def list_level(self, prefix: str, *, location: str) -> tuple[Sequence[str], Sequence[ObjectFacts]]:
        """List the folders and the objects directly in ``prefix``, a folder or "" for all."""
        result = self._ask("list", location, lambda api, store: api.list_with_delimiter_async(store, prefix or None))
        return [str(item) for item in result["common_prefixes"]], [_facts(item) for item in result["objects"]]

    def get(self, key: str, *, limit: int, location: str) -> bytes | None:
        """Fetch a whole object in one request; None if it is longer than ``limit`` bytes.

        The bytes are compared with the ETag, as in ``begin_range``.

        Raises:
            NotStoredError: it does not exist.
        """

        async def ask(api: ModuleType, store: Any) -> bytes | None:
            async def fetch() -> tuple[str | None, bytes | None]:
                answer = await api.get_async(store, key)
                num_bytes = answer.meta["size"]
                if num_bytes > limit:
                    return None, None
                content = bytes(await answer.bytes_async())
                if len(content) != num_bytes:
                    raise TransientFault(f"expected {num_bytes} bytes, received {len(content)}")
                return _tag(answer.meta), content

            return await self._intact(fetch)

        return self._ask("read", location, ask)

    async def _intact(self, fetch: Callable[[], Coroutine[Any, Any, tuple[str | None, T]]]) -> T:
        """Return the content that ``fetch`` finds with its ETag; fetch it a second time if the ETag contradicts it.

        The ETags of objects that S3 encrypts with a key of KMS or of the customer look like digests, but are not. Such
        a store sends the same bytes again; damage in transit does not repeat. This is not left to the retries, because
        there may be a single try.
        """
        tag, content = await fetch()
        if not self._tags_are_digests or not _contradicts(tag, content):
            return content
        tag, again = await fetch()
        if again == content:
            self._tags_are_digests = False
        elif _contradicts(tag, again):
            raise TransientFault("the server sent bytes that do not match their ETag")
        return again

    def put(
        self,
        key: str,
        content: bytes,
        *,
        overwrite: bool,
        writer: str = "",
        content_type: str | None = None,
        location: str,
    ) -> str | None:
        """Write a small object in one request that stores all of it or nothing.

        Args:
            key: the full key.
            content: the bytes.
            overwrite: replace an object of this name.
            writer: kept in the object's metadata; ``writer_of`` returns it.
            content_type: with ``overwrite``, the type that the store sends to browsers.
            location: the URL for messages.

        Returns:
            Its ETag, if the store has such tags.

        Raises:
            AlreadyStoredError: the name is taken and ``overwrite`` is False; the store itself decides.
        """
        if overwrite:
            attributes = {_TYPE: content_type} if content_type else None

            def ask(api: ModuleType, store: Any) -> Coroutine[Any, Any, Any]:
                put: Coroutine[Any, Any, Any] = api.put_async(
                    store, key, content, attributes=attributes, use_multipart=False
                )
                return put

            return _tag(self._ask("write", location, ask))
        mark = f"{writer}{_WRITER_END}{uuid.uuid4().hex}"
        result = self._ask_once(
            location,
            lambda api, store: api.put_async(store, key, content, mode="create", attributes={_WRITER: mark}),
            is_done=lambda: self._mark_of(key, location=location) == mark,
        )
        return _tag(result) if result is not None else self.facts(key, location=location).entity_tag

    def require_writable(self, key: str, *, location: str) -> None:
        """Check whether objects may be written, with a conditional request that cannot succeed, so it writes none.

        Args:
            key: a key that no object has.
            location: the URL for messages.

        Raises:
            StorageError: objects may not be written.
        """

        async def ask(api: ModuleType, store: Any) -> bool:
            try:
                await api.put_async(store, key, b"", mode={"e_tag": '"none"', "version": "1"})
            except api.exceptions.PreconditionError as error:
                if misses_bucket(error):
                    raise
                return False
            return True

        if self._ask("write", location, ask):  # the server does not support such conditions
            self.delete([key], location=location)

    def upload(
        self,
        key: str,
        file: IO[bytes] | HashedFile,
        num_bytes: int,
        *,
        overwrite: bool,
        writer: str = "",
        content_type: str | None = None,
        before_end: Callable[[], None] | None = None,
        location: str,
    ) -> str | None:
        """Write a large object in parts; it appears, or replaces the old one, when the last part has arrived.

        Each part is retried separately, within the same limits. Without ``overwrite``, the caller must ensure that
        nothing else uses the name. ``before_end`` is called when the file was read to its end; if it raises an error,
        the object does not appear, and its parts are removed. ``writer``, ``content_type`` and the result are those of
        ``put``.
        """
        attributes = ({_WRITER: f"{writer}{_WRITER_END}"} if writer else {}) | (
            {_TYPE: content_type} if content_type else {}
        )
        before = self._present(key, location=location) if overwrite else None

        async def parts() -> AsyncIterator[bytes]:
            # In other threads: disks are slow, and `before_end` sends requests, which the event loop has to serve.
            while part := await asyncio.to_thread(file.read, PART_BYTES):
                yield part
            if before_end is not None:
                await asyncio.to_thread(before_end)

        async def ask(api: ModuleType, store: Any) -> Any:
            file.seek(0)
            return await api.put_async(
                store,
                key,
                parts(),
                attributes=attributes or None,
                use_multipart=True,
                chunk_size=PART_BYTES,
                max_concurrency=_PARTS_AT_ONCE,
            )

        for number in range(1, self.limits.tries + 1):
            try:
                return _tag(self._attempt(ask, None, "write", location, uploading=True))
            except (TransientFault, NotStoredError) as error:
                if isinstance(error, NotStoredError) and is_no_bucket(error):
                    raise
                # Only the answer to the last request may be lost; or it was sent twice, and the second one failed.
                there = self._is_there(key, num_bytes, before, location=location)
                if there is not None and (not writer or self.writer_of(key, location=location) == writer):
                    return there.entity_tag
                fault = error if isinstance(error, TransientFault) else TransientFault("the upload was lost")
                # obstore has retried by itself, except after an answer that broke off in the middle.
                if fault.was_retried or number == self.limits.tries:
                    raise unavailable(fault, doing="write", path=location, tries=self.limits.tries) from error
        raise AssertionError("unreachable")

    def copy(self, key: str, final: str, *, location: str) -> None:
        """Copy an object to a free name within the bucket; the bytes stay on the server.

        Raises:
            AlreadyStoredError: the name is taken; the store itself decides.
            NotStoredError: the object ``key`` does not exist.
        """
        self._ask_once(
            location,
            lambda api, store: api.copy_async(store, key, final, overwrite=False),
            is_done=lambda: self._are_equal(key, final, location=location),
        )

    def delete(self, keys: Sequence[str], *, location: str) -> None:
        """Remove objects, in one request if the store supports it; missing objects are not an error."""
        if not keys:
            return
        one_or_more = keys[0] if len(keys) == 1 else list(keys)
        try:
            self._ask("remove", location, lambda api, store: api.delete_async(store, one_or_more))
        except NotStoredError as error:  # Google and Azure stop at an object that does not exist
            if is_no_bucket(error):
                raise
            for key in keys if len(keys) > 1 else ():
                self.delete([key], location=location)

    def _ask(self, doing: str, location: str, ask: _Ask[T], *, limits: Limits | None = None) -> T:
        """Send a request that is safe to repeat."""
        operation = Operation(doing, location, self._peer, limits or self.limits)
        return call_with_retries(operation, lambda seconds: self._attempt(ask, seconds, doing, location))

    def _ask_once(self, location: str, ask: _Ask[T], *, is_done: Callable[[], bool]) -> T | None:
        """Send a conditional write. If a later attempt finds the name taken, the first one may have taken it.

        Returns None if the answer was lost.
        """
        tries = 0

        def attempt(seconds: float) -> T | None:
            nonlocal tries
            tries += 1
            try:
                return self._attempt(ask, seconds, "write", location)
            except AlreadyStoredError:
                if tries == 1 or not is_done():
                    raise
            return None

        return call_with_retries(Operation("write", location, self._peer, self.limits), attempt)

    def _attempt(self, ask: _Ask[T], seconds: float | None, doing: str, location: str, *, uploading: bool = False) -> T:
        api, store = self._store(uploading=uploading, doing=doing, location=location)
        return run(self._typed(api, store, ask, doing=doing, location=location), seconds=seconds)

    async def _typed(self, api: ModuleType, store: Any, ask: _Ask[T], *, doing: str, location: str) -> T:
        """Await ``ask``, and convert obstore's errors to ours."""
        try:
            return await ask(api, store)
        except RegistryError:
            raise
        except (api.exceptions.BaseError, OSError, ValueError) as error:
            raise typed_fault(error, doing=doing, path=location, bucket=self._bucket) from printable_fault(error)

    def has(self, key: str, *, location: str) -> bool:
        """Whether an object has this key."""
        return self._present(key, location=location) is not None

    def writer_of(self, key: str, *, location: str) -> str | None:
        """The ``writer`` of an object that ``put`` or ``upload`` wrote; None if it is unknown or does not exist."""
        return (self._mark_of(key, location=location) or "").partition(_WRITER_END)[0] or None

    def _mark_of(self, key: str, *, location: str) -> str | None:
        async def ask(api: ModuleType, store: Any) -> Any:
            return (await api.get_async(store, key, options={"head": True})).attributes

        try:
            result: Mapping[str, str] = self._ask("read", location, ask)
        except NotStoredError:
            return None
        return result.get(_WRITER)

    def _present(self, key: str, *, location: str) -> ObjectFacts | None:
        try:
            return self.facts(key, location=location)
        except NotStoredError:
            return None

    def _is_there(self, key: str, num_bytes: int, before: ObjectFacts | None, *, location: str) -> ObjectFacts | None:
        """Return the object if an upload has succeeded.

        Sends only one request, because the upload has used up the tries.

        ``before`` is the object that it replaces. If both have the same size, the ETag shows whether it was replaced.
        """
        once = replace(self.limits, tries=1)
        try:
            found = self._ask("read", location, lambda api, store: api.head_async(store, key), limits=once)
        except (NotStoredError, StorageUnavailableError):
            return None
        facts = _facts(found)
        is_new = before is None or facts.entity_tag != before.entity_tag
        return facts if facts.num_bytes == num_bytes and is_new else None

    def _are_equal(self, key: str, other: str, *, location: str) -> bool:
        facts, two = self._present(key, location=location), self._present(other, location=location)
        if facts is None or two is None:
            return False
        return facts.num_bytes == two.num_bytes and all(
            result_of(self.begin_range(facts, start, min(start + PART_BYTES, facts.num_bytes), location=location))
            == result_of(self.begin_range(two, start, min(start + PART_BYTES, facts.num_bytes), location=location))
            for start in range(0, facts.num_bytes, PART_BYTES)
        )

    def _store(self, *, uploading: bool, doing: str, location: str) -> tuple[ModuleType, Any]:
        """Return the library and its client in this process. The client for uploads retries their parts itself."""
        if self._made is not None and self._made[0] == os.getpid():
            _, api, stores = self._made
            return api, stores[uploading]
        api = load_obstore(needed_for=f"reading {self._scheme}://{self._bucket}")
        limits = self.limits
        options = bucket_options(self._scheme, doing=doing, location=location)
        options["client_options"] |= {
            "connect_timeout": timedelta(seconds=min(limits.connect_seconds, limits.retry_seconds)),
            "read_timeout": timedelta(seconds=min(limits.read_seconds, limits.retry_seconds)),
            "timeout": timedelta(seconds=limits.retry_seconds),
        }
        kind = getattr(api.store, {"s3": "S3Store", "gs": "GCSStore", "az": "AzureStore"}[self._scheme])
        try:
            whole, parts = (
                kind(
                    self._bucket,
                    **options,
                    retry_config={"max_retries": retries, "retry_timeout": timedelta(seconds=limits.retry_seconds)},
                )
                for retries in (0, limits.tries - 1)
            )
        except (api.exceptions.BaseError, OSError, ValueError) as error:
            raise bad_settings(error, self._scheme, doing=doing, location=location) from None
        self._made = os.getpid(), api, (whole, parts)
        return api, (whole, parts)[uploading]


def open_bucket(scheme: str, bucket: str) -> BucketClient:
    """Return the client of a bucket; callers with the same environment settings share one.

    Args:
        scheme: ``s3``, ``gs`` or ``az``.
        bucket: name of the bucket or Azure container.

    Raises:
        MissingExtraError: obstore is not installed.
        UsageError: a setting of the limits is invalid.
    """
    load_obstore(needed_for=f"reading {scheme}://{bucket}")
    key = (
        scheme,
        bucket,
        tuple(sorted((name, value) for name, value in os.environ.items() if name.startswith(_SETTINGS))),
    )
    if key not in _BUCKETS:
        while len(_BUCKETS) >= _MOST_BUCKETS:
            _BUCKETS.pop(next(iter(list(_BUCKETS))), None)
    return _BUCKETS.setdefault(key, BucketClient(scheme, bucket))


def _facts(meta: Mapping[str, Any]) -> ObjectFacts:
    return ObjectFacts(
        key=meta["path"],
        num_bytes=meta["size"],
        entity_tag=_tag(meta),
        changed_at=meta.get("last_modified"),
        generation=meta.get("version"),
    )


def _tag(answer: Mapping[str, Any]) -> str | None:
    tag: str | None = answer.get("e_tag")
    # A weak tag does not guarantee equal bytes, and never matches If-Match.
    return None if tag is not None and tag.startswith("W/") else tag


def _contradicts(tag: str | None, content: Any) -> bool:
    """Whether an ETag looks like an MD5 digest, of the bytes or of a single part, and does not match ``content``."""
    match = _DIGEST.fullmatch(tag or "")
    if match is None:
        return False
    digest = hashlib.md5(content, usedforsecurity=False)
    if match[2]:
        digest = hashlib.md5(digest.digest(), usedforsecurity=False)
    return match[1] != digest.hexdigest()


_SETTINGS: Final = ("AWS_", "GOOGLE_", "AZURE_", "AZURITE_", "REGISTRY_", "HOME", "http_proxy", "https_proxy", "HTTP")
_MOST_BUCKETS: Final = 64
_BUCKETS: Final[dict[tuple[object, ...], BucketClient]] = {}
