"""Windows of the slot into the change log; then, and only then, the slot moves on."""
