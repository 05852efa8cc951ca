"""What a table is: the catalogue's facts, its types, and the columns it has in the lake."""
