"""The missing network as a cause: by how long a run waited, never before one; and the output, of a line."""

from __future__ import annotations

from tare.parts.causes.container import Network, Output
from tare.parts.protocols import NotLooked, RuledOut, Side, Suspicion

BARE = Side("bare metal", "bare", metrics={"wall_s": 8.0, "cpu_s": 8.0, "run_queue_s": 0.0})


def test_a_container_without_a_network_is_suspect_only_where_it_waited() -> None:
    image = Side("my/app:1", "docker", {"network": "none"})
    assert isinstance(Network().examine(image, BARE), NotLooked)  # `tare doctor --image`: nothing has run
    waited = Side("docker", "docker", {"network": "none"}, metrics={"wall_s": 12.0, "cpu_s": 8.0, "run_queue_s": 0.0})
    found = Network().examine(waited, BARE)
    assert isinstance(found, Suspicion)
    assert found.evidence == "it did not run for 4.0 s, 0.0 s on the other side."


def test_a_line_of_ones_own_has_its_network_or_is_given_it_by_an_option() -> None:
    waited = {"wall_s": 12.0, "cpu_s": 8.0, "run_queue_s": 0.0}
    found = Network().examine(Side("yours", "own", {"allow_network": False}, metrics=waited), BARE)

    assert isinstance(found, Suspicion) and found.without is None
    assert found.cure.startswith("--set platform.allow_network=true")
    assert isinstance(Network().examine(Side("yours", "own", {"allow_network": True}, metrics=waited), BARE), RuledOut)


def test_the_output_of_a_line_of_ones_own_goes_through_an_engine_that_does_not_count_it() -> None:
    assert isinstance(Output().examine(Side("yours", "own", metrics={"wall_s": 12.0}), BARE), NotLooked)
