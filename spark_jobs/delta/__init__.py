"""Delta without a JVM: the storage's files, the newest commits, and appends whose memory is bounded."""
