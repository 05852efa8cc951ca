"""Changes of one table → one row per key, on the driver or on executors. Pure functions from Arrow to Arrow."""
