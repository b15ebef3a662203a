"""What built-in workloads share."""
