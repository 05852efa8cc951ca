"""``mask:`` of a table: the columns of which the lake holds hashes in place of values, and the hash.

HMAC-SHA256 of the text that PostgreSQL prints for the value, in UTF-8, in lower-case hexadecimal: what pgcrypto's
``encode(hmac(value, salt, 'sha256'), 'hex')`` gives. Standard library only: executors hash what they read.
https://www.rfc-editor.org/rfc/rfc2104
"""

from __future__ import annotations

import hmac
from collections.abc import Collection
from dataclasses import dataclass, field

SALT_VARIABLE = "POSTGRES_CDC_MASK_SALT"
HASH_BYTES = 64

_CHECKED = b"postgres-cdc: which salt is this?"
_WORD_DIGITS = 8


@dataclass(frozen=True)
class TableMask:
    """``columns``: their names as the catalogue has them now. ``salt``: the key of the hashes, a secret."""

    columns: tuple[str, ...]
    salt: bytes = field(repr=False)

    def hashed(self, text: bytes) -> bytes:
        """HASH_BYTES of hexadecimal digits in place of ``text``."""
        return hmac.digest(self.salt, text, "sha256").hex().encode()

    @property
    def salt_word(self) -> str:
        """Tells this salt from another one; who has it has no more than who has one masked value."""
        return self.hashed(_CHECKED)[:_WORD_DIGITS].decode()

    def word(self, attnums: Collection[int]) -> str:
        """Tells the masks of one table from others: which salt, and the numbers of the columns. Empty: none is masked.

        By number, so that a column that is renamed stays the masked one.
        """
        return "+".join([self.salt_word, *map(str, sorted(attnums))]) if attnums else ""


def why_masked_otherwise(held: str, wanted: str) -> str:
    """What lies between two words of a table's masks, as the reason for its new snapshot; empty where they are equal.

    ``wanted`` may be a salt's word alone: then the columns are not compared.
    """
    (salt_held, _, columns_held), (salt_wanted, _, columns_wanted) = held.partition("+"), wanted.partition("+")
    if salt_held and salt_wanted and salt_held != salt_wanted:
        return "the salt of its masked columns was changed"
    if salt_held != salt_wanted or (columns_wanted and columns_held != columns_wanted):
        return "its masked columns were changed"
    return ""
