"""NCCL and Gloo without shared memory or peer access."""

from __future__ import annotations

from typing import ClassVar

from tare.parts.causes.debug_variables import suspected_variables
from tare.parts.protocols import Cause, RuledOut, Side, Suspicion

_SETTINGS = {
    "NCCL_SHM_DISABLE": ("NCCL goes without shared memory", 0.7),
    "NCCL_P2P_DISABLE": ("NCCL goes without peer access", 0.8),
    "NCCL_P2P_LEVEL": ("NCCL limits peer access", 0.5),
    "NCCL_IB_DISABLE": ("NCCL goes without InfiniBand", 0.7),
    "NCCL_SOCKET_IFNAME": ("NCCL uses another network interface", 0.5),
    "GLOO_SOCKET_IFNAME": ("Gloo uses another network interface", 0.5),
    "NCCL_ALGO": ("NCCL uses another algorithm", 0.4),
    "NCCL_PROTO": ("NCCL uses another protocol", 0.4),
}


class Interconnect(Cause):
    """How processes of one training talk to each other: NCCL without shared memory or peer access uses sockets."""

    title: ClassVar[str] = "the way that ranks talk to each other"
    phases: ClassVar[frozenset[str]] = frozenset({"compute", "gpu"})

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut:
        return suspected_variables(slow, quick, _SETTINGS) or RuledOut("no setting of NCCL or Gloo differs.")
