"""How the lake's tables are written: who does it and how, the statements and data files, and the one commit."""
