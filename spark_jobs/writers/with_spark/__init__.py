"""How Spark writes the lake's tables: its statements, and the frames that they read."""
