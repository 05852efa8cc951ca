"""The binary representation that PostgreSQL's send functions give (option ``binary``) → the lake value its text gives.

Three layers, each proved against the one before: ``value_text`` renders one value as PostgreSQL's text, family by
family, readable; ``column_text`` does the same for a whole column, vectorised where a type is common; ``cast`` goes
straight to the lake's type where that is possible. A ``WireType`` says what a type looks like.
"""

from __future__ import annotations
