"""Keeps the cost of the lake constant over the years: retention, compaction, clean-up."""
