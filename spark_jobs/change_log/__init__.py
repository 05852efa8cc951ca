"""The change log: what a window holds, how plugin output becomes its rows, how it is written and read back."""
