"""The kernel's tracing: tracefs and perf."""
