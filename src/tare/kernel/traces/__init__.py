"""What a kernel trace says: raw pages to columns, and columns to figures. Values in, values out; no machine."""
