"""S3 refuses requests of a machine whose clock is off; the hint then names the clock, not the credentials."""

from __future__ import annotations

import pytest

from registry.errors import StorageError
from registry.storage.object_library import typed_fault

ANSWER = "Server returned non-2xx status code: 403 Forbidden: <Error><Code>{code}</Code></Error>"
CLOCK = "The clock of this machine is more than 15 minutes off. Compare it with another clock: date -u"
RIGHTS = "The store refuses these credentials. Check them, and their permissions for this bucket."


@pytest.mark.parametrize(("code", "hint"), [("RequestTimeTooSkewed", CLOCK), ("AccessDenied", RIGHTS)])
def test_a_refusal_for_the_clock_names_the_clock(code: str, hint: str) -> None:
    fault = typed_fault(OSError(ANSWER.format(code=code)), doing="write", path="s3://bucket/x", bucket="bucket")
    assert isinstance(fault, StorageError)
    assert str(fault) == "cannot write s3://bucket/x: Permission denied (the server answered 403 Forbidden)"
    assert fault.hint == hint
