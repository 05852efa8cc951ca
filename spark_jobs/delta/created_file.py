"""A file that is created only if there is none of its name, by the storage itself: of two processes the second fails.

Arrow's filesystems do not offer that. The storage clients that ``deltalake`` is built on do.
https://developmentseed.org/obstore/latest/api/put/
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import LocalStore, ObjectStore, from_url

from spark_jobs.delta.files import lake_filesystem, storage_error
from spark_jobs.errors import first_line
from spark_jobs.object_stores import storage_options, store_of
from spark_jobs.storage import Location

if TYPE_CHECKING:
    from obstore.store import ClientConfig


def create_file(folder: Location, name: str, content: bytes) -> bool:
    """False if ``folder`` has a file of that name with other content. Raises LakeError if the storage refuses the
    write."""
    try:
        store = _opened(folder)
        try:
            obstore.put(store, name, content, mode="create")
        except AlreadyExistsError:
            # the file may be ours: the answer was lost, and the client has asked again
            return obstore.get(store, name).bytes().to_bytes() == content
    except (BaseError, OSError) as error:
        said = first_line(error)
        raise storage_error(f"{folder} cannot be written", said) from None
    return True


def _opened(folder: Location) -> ObjectStore:
    store = store_of(folder)
    if store is None:
        return LocalStore(lake_filesystem(folder)[1], mkdir=True)
    options: Any = storage_options(folder) or {}
    client: ClientConfig | None = {"allow_http": True} if options.pop("allow_http", None) else None
    return from_url(store.uri(folder), config=options, client_options=client)
