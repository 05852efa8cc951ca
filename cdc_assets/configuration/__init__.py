"""The YAML that a user writes, as spark_jobs.configuration.Pipeline; errors of one line, with file and field."""
