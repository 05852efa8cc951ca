"""Apply landed windows to Delta tables: plan each table's work, make one commit per table, write the cut."""
