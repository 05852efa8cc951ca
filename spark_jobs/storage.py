"""Where a lake's files lie, and what this process remembers of them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any, ClassVar, Generic, TypeVar

Memory = TypeVar("Memory")
Value = TypeVar("Value")


@dataclass(frozen=True)
class StoreSettings:
    """How an object store is reached; None: as its clients find it by themselves. ``endpoint``: a URL. ``path_style``:
    the bucket is part of the path of requests, not of the host name. Never credentials."""

    endpoint: str | None = None
    region: str | None = None
    path_style: bool | None = None

    @property
    def is_unencrypted(self) -> bool:
        return self.endpoint is not None and self.endpoint.startswith("http://")


class Storage:
    """The storage of one lake. What is remembered of its files only saves requests: whoever uses it asks the storage
    whether it still holds, as other processes write the same files."""

    def __init__(self, settings: StoreSettings = StoreSettings()) -> None:
        self.settings = settings
        self._memories: dict[type[Any], Any] = {}
        self._lock = Lock()

    def memory(self, kind: type[Memory]) -> Memory:
        """The one memory of this kind; an empty one if it is asked for the first time."""
        with self._lock:
            if kind not in self._memories:
                self._memories[kind] = kind()
            return self._memories[kind]  # type: ignore[no-any-return]

    def __reduce__(self) -> tuple[type[Storage], tuple[StoreSettings]]:
        return type(self), (self.settings,)  # another process remembers nothing


class Location(str):
    """A folder or file of a lake. For Spark, SQL and messages it is the path or URI that it is as a text; whoever opens
    it without Spark needs its ``storage``, too."""

    __slots__ = ("storage",)
    storage: Storage

    def __new__(cls, path: str, storage: Storage) -> Location:
        location = super().__new__(cls, path)
        location.storage = storage
        return location

    @classmethod
    def of(cls, path: str) -> Location:
        """``path`` itself if it is one, else with a storage of its own, as for a path that belongs to no lake."""
        return path if isinstance(path, Location) else cls(path, Storage())

    @property
    def local(self) -> str | None:
        """Its path on a disk, percent signs included; None in an object store."""
        if "://" in self and not self.startswith("file://"):
            return None
        return self.removeprefix("file:").removeprefix("//")

    def __truediv__(self, name: str) -> Location:
        return Location(f"{self}/{name}", self.storage)

    def __reduce__(self) -> tuple[type[Location], tuple[str, Storage]]:
        return type(self), (str(self), self.storage)


class Recent(Generic[Value]):
    """A memory of the values last used, by name: at most ``most`` of them."""

    most: ClassVar[int] = 64

    def __init__(self) -> None:
        self._values: OrderedDict[str, Value] = OrderedDict()
        self._lock = Lock()

    def take(self, name: str) -> Value | None:
        """The value, which is then no longer remembered: nobody else gets it before it is kept again."""
        with self._lock:
            return self._values.pop(name, None)

    def keep(self, name: str, value: Value) -> None:
        with self._lock:
            self._values.pop(name, None)
            self._values[name] = value
            while self._values and self.is_too_much(self._values):
                self._values.popitem(last=False)

    def value(self, name: str, make: Callable[[], Value]) -> Value:
        """The value remembered, or else the one that ``make`` returns."""
        with self._lock:
            if (known := self._values.get(name)) is not None:
                self._values.move_to_end(name)
                return known
        value = make()
        self.keep(name, value)
        return value

    def is_too_much(self, values: OrderedDict[str, Value]) -> bool:
        return len(values) > self.most

    def __contains__(self, name: str) -> bool:
        return name in self._values
