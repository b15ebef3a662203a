"""Control groups, v1 and v2: the tree, jobs in a group, limits, and the files with figures."""
