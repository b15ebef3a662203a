"""The devices of a fleet: what holds for all of them, how they scatter, and which is unlike its twins.

gathering       trials in, each with its device and the device's type
centres         where a device lies, and how sure that is
random_effects  the mean over devices, their scatter, the next device
effects         the effect of a level on each device, and over them
spread          variance within devices, between devices, between types
unlike          the many-outlier procedure; standings: each device among its twins; reasons: what it does not share
findings        all of it, as one answer
"""

from tare.analysis.fleet.findings import fleet_of_records, fleet_of_stores
from tare.analysis.fleet.model import Fleet

__all__ = ["Fleet", "fleet_of_records", "fleet_of_stores"]
