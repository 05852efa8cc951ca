"""``mask:`` of a table: the columns whose values the lake replaces by hashes, and the hash.

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
        """Identifies this salt; it reveals no more than one masked value does."""
        return self.hashed(_CHECKED)[:_WORD_DIGITS].decode()

    def word(self, attnums: Collection[int]) -> str:
        """Identifies the masks of one table: which salt, and the numbers of the columns. Empty: none is masked.

        The numbers make sure that a renamed column stays the masked one.
        """
        return "+".join([self.salt_word, *map(str, sorted(attnums))]) if attnums else ""


def why_masked_otherwise(old_word: str, new_word: str) -> str:
    """How two words of a table's masks differ, as the reason for its new snapshot; empty if they do not.

    ``new_word`` may be the word of a salt alone; then the columns are not compared.
    """
    (salt_held, _, columns_held), (salt_wanted, _, columns_wanted) = old_word.partition("+"), new_word.partition("+")
    if salt_held and salt_wanted and salt_held != salt_wanted:
        return "the salt of its masked columns was changed"
    if salt_held != salt_wanted or (columns_wanted and columns_held != columns_wanted):
        return "its masked columns were changed"
    return ""
