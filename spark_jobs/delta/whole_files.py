"""Files that are created, read and deleted as a whole. Of an object store one request does it, and deletes many.

Arrow's filesystems ask for a file's size before they read it, and can neither create a file only if there is none of
its name nor delete many at once. The storage clients that ``deltalake`` is built on can.
https://developmentseed.org/obstore/latest/api/put/
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import obstore
import pyarrow as pa
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError, NotModifiedError
from obstore.store import LocalStore

from spark_jobs.delta.files import lake_errors, storage_error
from spark_jobs.errors import first_line
from spark_jobs.object_stores import object_client
from spark_jobs.retries import again_when_unanswered
from spark_jobs.storage import Location

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Client

# a request without an answer, after 30 s or when the connection is lost. The client asks again only if it was not sent
_UNANSWERED = re.compile(r"Error performing PUT \S+ in [\d.]+s - HTTP error: error sending request")


def create_file(folder: Location, name: str, content: bytes) -> bool:
    """False if ``folder`` has a file of that name with other content: of two processes the second fails. Raises
    LakeError if the storage refuses the write."""
    client, at = object_client(folder) if folder.local is None else (LocalStore(folder.local, mkdir=True), "")
    try:
        return _created(client, at + name, content)
    except (BaseError, OSError) as error:
        raise storage_error(f"{folder} cannot be written", first_line(error)) from None


def _is_unanswered(error: BaseException) -> bool:
    return isinstance(error, BaseError) and _UNANSWERED.search(str(error)) is not None


@again_when_unanswered(_is_unanswered)
def _created(client: Client, name: str, content: bytes) -> bool:
    try:
        obstore.put(client, name, content, mode="create")
    except AlreadyExistsError:
        # the file may be ours: the answer was lost, and somebody has asked again
        return obstore.get(client, name).bytes().to_bytes() == content
    return True


def content_of(folder: Location, name: str) -> pa.Buffer:
    """Raises OSError."""
    content, _ = read_file(folder, name)
    assert content is not None
    return content


def read_file(folder: Location, name: str, *, unless: str | None = None) -> tuple[pa.Buffer | None, str | None]:
    """The file's content, and the ETag by which an object store names that. No content if it is ``unless``. Raises
    OSError."""
    if folder.local is not None:
        return pa.py_buffer(Path(folder.local, name).read_bytes()), None
    client, at = object_client(folder)
    try:
        result = obstore.get(client, at + name, options={"if_none_match": unless} if unless else None)
        return pa.py_buffer(result.bytes()), result.meta["e_tag"]
    except NotModifiedError:
        return None, unless
    except NotFoundError as error:
        raise FileNotFoundError(f"{folder}/{name} does not exist") from error
    except BaseError as error:
        raise OSError(first_line(error)) from error


def delete_files(folder: Location, names: Sequence[str]) -> None:
    """Delete these files below the folder, in this order; one that is gone already is no error. Raises LakeError."""
    what = f"{folder} cannot be removed"
    if folder.local is not None:
        with lake_errors(what):
            for name in names:
                Path(folder.local, name).unlink(missing_ok=True)
        return
    client, at = object_client(folder)
    try:
        try:
            obstore.delete(client, [at + name for name in names])
        except (NotFoundError, FileNotFoundError):  # not of S3
            for name in names:
                with suppress(NotFoundError, FileNotFoundError):
                    obstore.delete(client, at + name)
    except (BaseError, OSError) as error:
        raise storage_error(what, first_line(error)) from None
