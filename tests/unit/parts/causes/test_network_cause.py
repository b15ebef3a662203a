"""The missing network as a cause: by how long a run waited, never before one."""

from __future__ import annotations

from tare.parts.causes.container import Network
from tare.parts.protocols import NotLooked, Side, Suspicion

BARE = Side("bare metal", "bare", metrics={"wall_s": 8.0, "cpu_s": 8.0, "run_queue_s": 0.0})


def test_a_container_without_a_network_is_suspect_only_where_it_waited() -> None:
    image = Side("my/app:1", "docker", {"network": "none"})
    assert isinstance(Network().examine(image, BARE), NotLooked)  # `tare check --image`: nothing has run
    waited = Side("docker", "docker", {"network": "none"}, metrics={"wall_s": 12.0, "cpu_s": 8.0, "run_queue_s": 0.0})
    found = Network().examine(waited, BARE)
    assert isinstance(found, Suspicion)
    assert found.evidence == "it did not run for 4.0 s, 0.0 s on the other side."
