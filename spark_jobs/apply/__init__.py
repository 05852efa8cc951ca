"""Landed windows into Delta tables: what each table has to do, one commit per table, then the cut."""
