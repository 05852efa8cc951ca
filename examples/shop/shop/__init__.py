"""A shop's tables, followed from PostgreSQL, and what is built from them."""
