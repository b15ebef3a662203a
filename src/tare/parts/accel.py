"""Whether a virtual machine is run by the processor (KVM) or emulated (TCG), and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from tare.host import Host

Accel: TypeAlias = Literal["kvm", "tcg", "uml"]
KVM = "/dev/kvm"
EMULATED = "every instruction is emulated (TCG), so its times say nothing about virtualisation"


@dataclass(frozen=True, slots=True)
class Choice:
    """An accelerator to try, and the sentence that a record should carry about it."""

    accel: Accel
    note: str = ""


def kvm_trouble(host: Host) -> str | None:
    """Why KVM cannot be used here, as the end of a sentence; None if nothing speaks against it."""
    if host.run(["test", "-c", KVM]).code != 0:
        return f"there is no {KVM}"
    if host.run(["sh", "-c", 'exec 3<> "$1"', "open", KVM]).code != 0:
        return f"{KVM} cannot be opened: it needs root or the group kvm"
    modules = _modules(host)
    if "kvm_pvm" in modules and modules.isdisjoint({"kvm_intel", "kvm_amd"}):
        return f"{KVM} is of the kind PVM (kvm_pvm without kvm_intel or kvm_amd), which stock kernels do not boot on"
    return None


def _modules(host: Host) -> set[str]:
    try:
        return {line.split()[0] for line in host.read("/proc/modules").splitlines() if line.strip()}
    except OSError:  # a kernel without modules
        return set()


def choices(host: Host, asked: str) -> list[Choice]:
    """What to boot with, in order: with `auto`, KVM that looks right but does not boot is followed by TCG."""
    if asked == "tcg":
        return [Choice("tcg", f"asked for with `accel: tcg`: {EMULATED}.")]
    trouble = kvm_trouble(host)
    if asked == "kvm":
        return [Choice("kvm")]
    if trouble is None:
        return [Choice("kvm"), Choice("tcg", f"{KVM} is there, but no guest booted with it: {EMULATED}.")]
    return [Choice("tcg", f"{trouble}: {EMULATED}.")]
