"""What was seen. A record is plain data: it opens on a machine that has none of the parts that made it."""
