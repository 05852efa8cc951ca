"""Compares source and lake, row by row."""
