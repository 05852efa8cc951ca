"""Delta without a JVM: the storage's files, and appending in flat memory."""
