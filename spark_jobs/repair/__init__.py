"""What follows when a table cannot be applied to as it is: partitions read again, another mode, a new snapshot."""
