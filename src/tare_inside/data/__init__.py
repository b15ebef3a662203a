"""One data set a file: its format on disk, how to make one like it, and how to read it item by item.

Each has TITLE, ITEMS (how many the real one has), folder_name(), make(), obstacle() and Dataset.
"""
