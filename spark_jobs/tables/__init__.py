"""Which tables are followed, why one is stopped, and how far each is."""
