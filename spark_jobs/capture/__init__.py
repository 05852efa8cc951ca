"""Capture: read windows from the slot, commit them to the change log, and only then advance the slot."""
