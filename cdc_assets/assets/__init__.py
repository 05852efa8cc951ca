"""The Dagster assets of a pipeline, one file per kind, with their checks and metadata."""
