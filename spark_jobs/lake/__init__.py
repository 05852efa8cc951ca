"""What is in a lake: how far each table is and what it grew from, cuts, and whose files there are."""
