"""Turns binary values, which PostgreSQL sends with the option ``binary``, into the lake values of their text.

Three layers, each tested against the one before. ``value_text`` is the readable reference: it renders one value as
PostgreSQL's text. ``column_text`` does the same for a whole column, vectorised for common types. ``cast`` goes straight
to the lake's type where that is possible. A ``WireType`` describes a type's binary form.
"""

from __future__ import annotations
