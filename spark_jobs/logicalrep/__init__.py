"""PostgreSQL's logical replication messages: bytes in, frozen messages out. Standard library only, no I/O.

The readable specification of the protocol. The product uses ``Lsn``, the messages and ``read_message``, and reads
damaged changes with it to name their fault; tests and fuzzers compare all of it with the product's columnar code.
"""
