"""PostgreSQL's logical replication messages: bytes in, frozen messages out. Standard library only, no I/O."""
