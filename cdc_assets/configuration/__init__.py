"""Turns the user's YAML into spark_jobs.configuration.Pipeline; errors are one line, with file and field."""
