"""Use the past: apply a range of windows again, rebuild a table, also in another mode or as of an LSN, read a cut."""
