"""What each client of an object store says when it fails: one line, with a hint of its own."""

from __future__ import annotations

import pytest

from spark_jobs.delta.files import BUSY, storage_error
from spark_jobs.errors import LakeError, StorageBusyError

# as they were said on a real server: by object_store, Arrow and obstore
SAID_WHEN_BUSY = (
    (
        "Generic S3 error: Error performing PUT http://127.0.0.1:1/b/k in 4.6s, after 10 retries, max_retries 10,"
        " retry_timeout 180s - Server returned non-2xx status code: 500 Internal Server Error:"
        " <Error><Code>InternalError</Code></Error>"
    ),
    (
        "Generic S3 error: Error performing GET http://127.0.0.1:1/b/k in 3s, after 10 retries, max_retries 10 - Server"
        " returned error response: 503 Service Unavailable: <Code>SlowDown</Code>"
    ),
    "When uploading object with key 'k' in bucket 'b': AWS Error UNKNOWN (HTTP status 503) during PutObject operation:",
    "When uploading part for key 'x0' in bucket 'b': AWS Error SLOW_DOWN during UploadPart operation: Please reduce",
    (
        "When uploading part for key 'x0' in bucket 'b': AWS Error UNKNOWN (HTTP status 503) during PutObject:"
        " Unable to parse ExceptionName: SlowDown Message: (HTTP response code 503)"
    ),
    "AWS Error NETWORK_CONNECTION during UploadPart operation: curlCode: 28, Timeout was reached",
)
OTHERS = {
    "AWS Error ACCESS_DENIED during HeadObject operation: No response body.": "check the credentials",
    "The operation lacked the necessary privileges to complete for path k: 403 Forbidden": "check the credentials",
    "Generic S3 error: Error performing HEAD http://nowhere:9 - HTTP error: error sending request: dns error": (
        "check the address"
    ),
    "AWS Error NETWORK_CONNECTION during PutObject operation: curlCode: 7, Couldn't connect to server": (
        "check the address"
    ),
    "AWS Error NO_SUCH_BUCKET during ListObjectsV2 operation: The specified bucket does not exist": "create the bucket",
    "[Errno 2] No such file or directory: '/lake/orders/part-1.parquet'": "a file that the table names is gone",
    "[Errno 2] Path does not exist 'bucket/orders/part-1.parquet'": "a file that the table names is gone",
    "Object at location orders/part-1.parquet not found: Error performing GET": "a file that the table names is gone",
    "[Errno 28] Error writing bytes to file. Detail: [errno 28] No space left on device": "lake.path is full",
}


@pytest.mark.parametrize("said", SAID_WHEN_BUSY)
def test_a_busy_storage_is_asked_again(said: str) -> None:
    error = storage_error("t cannot be written", said)
    assert isinstance(error, StorageBusyError)
    assert (error.what, error.hint) == (f"t cannot be written: the storage is busy: {said}", BUSY)


@pytest.mark.parametrize(("said", "hint"), OTHERS.items())
def test_others_are_told_at_once(said: str, hint: str) -> None:
    error = storage_error("t cannot be written", said)
    assert type(error) is LakeError
    assert error.hint.startswith(hint)


def test_what_is_not_known_or_gone_has_the_hint_of_who_asks() -> None:
    for said in ("who knows", "[Errno 2] Path does not exist 'bucket/change_log/part-1.parquet'"):
        assert storage_error("t", said, "look there").hint == "look there"
