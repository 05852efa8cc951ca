"""Renders binary inet and cidr as text, like ``pg_inet_net_ntop`` (``src/port/inet_net_ntop.c``)."""

from __future__ import annotations

from itertools import groupby

from spark_jobs.logicalrep.cursor import Cursor

_IPV4, _IPV6 = 2, 3  # PGSQL_AF_INET, PGSQL_AF_INET6
_SIZES = {_IPV4: 4, _IPV6: 16}


def network_text(cursor: Cursor) -> str:
    """A cidr always shows its prefix length, an inet only if the prefix is not the whole address."""
    family, bits, is_cidr = cursor.uint8("family"), cursor.uint8("bits"), cursor.flags(1, "is_cidr")
    address = cursor.take(cursor.uint8("size"), "address")
    if _SIZES.get(family) != len(address) or bits > 8 * len(address):
        raise ValueError("inet")
    text = _ipv4(address) if family == _IPV4 else _ipv6(address)
    return f"{text}/{bits}" if is_cidr or bits < 8 * len(address) else text


def _ipv4(address: bytes) -> str:
    return ".".join(map(str, address))


def _ipv6(address: bytes) -> str:
    words = [int.from_bytes(address[at : at + 2], "big") for at in range(0, 16, 2)]
    base, size = _longest_zeros(words)
    # an embedded IPv4 address is written in its own notation
    if base == 0 and (size == 6 or (size == 5 and words[5] == 0xFFFF)):
        head = "".join(f":{word:x}" for word in words[size:6])
        return f":{head}:{_ipv4(address[12:])}"
    groups = [f"{word:x}" for word in words]
    if not size:
        return ":".join(groups)
    return ":".join(groups[:base]) + "::" + ":".join(groups[base + size :])


def _longest_zeros(words: list[int]) -> tuple[int, int]:
    """(index, size) of the first of the longest runs of zero words; a single word is no run."""
    best, at = (-1, 0), 0
    for is_zero, run in groupby(word == 0 for word in words):
        size = len(list(run))
        if is_zero and size >= 2 and size > best[1]:
            best = (at, size)
        at += size
    return best
