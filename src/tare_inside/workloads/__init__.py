"""The built-in workloads: networks, applications, data sets, formats and programs. What is outside needs none of it."""
