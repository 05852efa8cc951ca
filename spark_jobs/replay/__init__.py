"""What was: a range of windows again, a table as of an LSN, tables at one cut."""
