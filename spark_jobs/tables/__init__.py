"""Which tables are followed, why one cannot go on, and how far each is."""
