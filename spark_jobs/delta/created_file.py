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
from spark_jobs.object_stores import store_of
from spark_jobs.storage import Location

if TYPE_CHECKING:
    from obstore.store import ClientConfig


def create_file(folder: Location, name: str, content: bytes) -> bool:
    """False if ``folder`` has such a file. Raises LakeError if the storage refuses the write."""
    try:
        obstore.put(_opened(folder), name, content, mode="create")
    except AlreadyExistsError:
        return False
    except (BaseError, OSError) as error:
        said = first_line(error)
        raise storage_error(f"{folder} cannot be written", said) from None
    return True


def _opened(folder: Location) -> ObjectStore:
    store = store_of(folder)
    if store is None:
        return LocalStore(lake_filesystem(folder)[1], mkdir=True)
    settings = folder.storage.settings
    options: Any = store.options(settings)
    client: ClientConfig | None = {"allow_http": True} if settings.is_unencrypted else None
    return from_url(store.uri(folder), config=options, client_options=client)
