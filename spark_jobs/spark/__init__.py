"""Spark itself: which Java, which jars, which session, and its errors made ours."""
