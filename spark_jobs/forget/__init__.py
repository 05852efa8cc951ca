"""The right to erasure: traces of single rows are removed from the lake, and looked for in its files."""
