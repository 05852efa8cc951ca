"""Rows that another tool has loaded take the place of rows of the source, where they are certain to be equal."""
