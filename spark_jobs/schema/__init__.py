"""The description of a table: the catalogue's facts, its types, and its columns in the lake."""
