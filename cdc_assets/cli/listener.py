"""An HTTP server beside the work of a process: ``/metrics`` for Prometheus, ``/healthz`` for a supervisor."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client.exposition import ThreadingWSGIServer, make_wsgi_app

from cdc_assets.cli.follow_monitor import FollowMonitor
from cdc_assets.cli.json_output import json_value
from spark_jobs.errors import CdcError

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

_ADDRESS = re.compile(r"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)\]|(?P<host>[\w.-]+)):(?P<port>\d{1,5})", re.ASCII)
_EXPECTED = "expected 127.0.0.1:9464, [::1]:9464, or 0.0.0.0:9464 for every interface"


@dataclass(frozen=True)
class ListenAddress:
    """``host`` is a name or an IP address; with ``port`` 0 the system chooses one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> ListenAddress:
        """Raises ValueError, which says what is expected."""
        match = _ADDRESS.fullmatch(text)
        if match is None or int(match["port"]) > 65535:
            raise ValueError(f"{text!r} is not an address: {_EXPECTED}")
        return cls(match["ipv6"] or match["host"], int(match["port"]))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@contextmanager
def listening(address: ListenAddress, monitor: FollowMonitor) -> Iterator[ListenAddress]:
    """Serve while the block lasts; yields the address with the port that was chosen. Raises CdcError if nothing can
    listen there."""
    try:
        server = _Server(address, application(monitor))
    except OSError as error:
        hint = "choose another address with --listen, or stop what listens there"
        raise CdcError(f"cannot listen on {address}: {error.strerror}", hint=hint) from None
    thread = threading.Thread(target=server.serve_forever, name="listen", daemon=True)
    thread.start()
    try:
        yield ListenAddress(address.host, server.server_port)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def application(monitor: FollowMonitor) -> WSGIApplication:
    metrics = make_wsgi_app(monitor.registry)

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] == "/metrics":
            served: Iterable[bytes] = metrics(environ, start_response)
            return served
        if environ["PATH_INFO"] == "/healthz":
            return _health(monitor, start_response)
        start_response("404 Not Found", [("Content-Type", "text/plain; charset=utf-8")])
        return [b"there is /metrics and /healthz\n"]

    return answer


def _health(monitor: FollowMonitor, start_response: StartResponse) -> Iterable[bytes]:
    """The last round, as ``--health-file`` has it; with a ``reason`` if the process is not well."""
    trouble, last = monitor.trouble, json_value(monitor.last_round)
    document = {**({"reason": trouble} if trouble else {}), **(last if isinstance(last, dict) else {})}
    start_response("503 Service Unavailable" if trouble else "200 OK", [("Content-Type", "application/json")])
    return [json.dumps(document).encode(), b"\n"]


class _Server(ThreadingWSGIServer):
    def __init__(self, address: ListenAddress, answer: WSGIApplication) -> None:
        resolved = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        self.address_family = resolved[0][0]  # the base listens on IPv4 only
        super().__init__((address.host, address.port), _Handler)
        self.set_app(answer)

    def handle_error(self, request: object, client_address: object) -> None:
        """Does nothing: a client that disconnects or sends nothing is no failure of this process."""


class _Handler(WSGIRequestHandler):
    timeout = 10  # seconds that a client may stay silent

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's signature
        """Nothing: stderr is for the work."""
