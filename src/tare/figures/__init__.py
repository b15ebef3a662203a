"""From marks and readings to the figures of a record: trials seal them, `tare store verify` derives them again."""
