"""The change log: its rows and window markers, how it is written, read back and kept small."""
