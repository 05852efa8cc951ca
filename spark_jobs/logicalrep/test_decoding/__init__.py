"""The lines of test_decoding: bytes in, frozen lines out."""
