"""What parts stand on, by subject: engines, machines, control groups, power, sensors, tracing, images."""
