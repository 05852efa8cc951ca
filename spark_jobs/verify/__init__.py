"""Source and lake compared, row by row."""
