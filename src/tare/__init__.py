"""tare weighs deep-learning workloads: what a container, a disk or a power mode costs, how sure that is, and why.

The folder list is the flow: study -> plan -> trial -> records -> analysis -> report.
"""

__version__ = "0.1.0"
