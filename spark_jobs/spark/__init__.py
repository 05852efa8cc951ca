"""Spark itself: which Java, which jars, which session, and its exceptions as our errors."""
