"""Delta tables in the lake: their state, their commits, the statements that write them."""
