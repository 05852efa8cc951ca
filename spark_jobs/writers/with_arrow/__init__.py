"""How this process writes the lake's tables, with Arrow and ``deltalake``: it has no MERGE, so it writes files anew."""
