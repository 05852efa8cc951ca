"""Rows that must leave no trace."""
