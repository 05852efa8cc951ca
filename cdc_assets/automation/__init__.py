"""What starts runs: sensor, jobs, and the partitions that they request."""
