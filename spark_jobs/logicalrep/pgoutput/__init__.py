"""The messages of pgoutput: bytes in, frozen messages out."""
