"""Rules, obstacles, reasons and notes as values: a code to act on, a sentence to print.

Code that decides something compares codes and subjects. A sentence is made where the ruling is, and after that it is
only printed: no part of tare looks into it. Every code is declared below, and docs/reference/codes.md lists them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

Weight: TypeAlias = Literal["obstacle", "failed", "invalid", "suspect", "note"]
WEIGHTS: dict[Weight, str] = {
    "obstacle": "a part cannot work on this device: the study is refused, or goes on without the part",
    "failed": "the trial did not come to its end: it has no figures",
    "invalid": "the trial came to its end under conditions that make its figures useless",
    "suspect": "the figures are used, and marked",
    "note": "worth knowing; no doubt on the figures",
}
LEGACY = "legacy"

CODES: dict[str, str] = {
    # How a trial ended.
    "run.stopped": "the run was stopped during the trial",
    "run.stood-still": "the runner itself stood still for seconds during the trial (SIGSTOP, a frozen group)",
    "run.cut-off": "the run ended while the trial ran; what was recorded until then is kept",
    "line.lost": "the connection to a device that is driven from elsewhere broke",
    "trial.error": "a part of the trial, or tare itself, raised an error",
    "control.not-held": "a control did not take, or did not keep, the value that the study asks for",
    "gpu.lost": "a GPU no longer answers its driver: no further trial can run on this device",
    "workload.not-started": "the workload was never started",
    "workload.timeout": "the workload did not end within its limit",
    "workload.waits": "what the processes of the workload were waiting for at the limit",
    "workload.oom": "the kernel killed the workload because memory ran out",
    "workload.exit": "the workload ended with a code other than 0",
    "workload.hint": "what is likely to be behind the exit code, and what to change",
    "side.never-ran": "a platform with this workload never came to its end: it was tried, and its trials are skipped",
    "tenant.died": "a tenant ended early, and the others were stopped",
    "heat.stopped": "the device was too hot, and the trial was stopped",
    "heat.limit": "which sensor was above its limit",
    # What a trial did.
    "work.incomplete": "fewer or more steps were done than planned",
    "tenants.never-ready": "the workload ended before all tenants were ready",
    "tenants.never-together": "the tenants never worked at the same time",
    "tenants.few-steps": "too few steps lie in the time in which all tenants worked",
    "tenants.alone": "a workload without marked steps was not accompanied for all of its time",
    "turns.partner": "the side that took turns with this one ended before its last turn, and this one with it",
    "turns.incomplete": "a side ended before its last turn: every pair of a study does as many turns",
    "marks.lost": "the mark buffer was full",
    "marks.sum": "the parts of the steps are longer than the steps",
    "script.marking-failed": "a fault in tare ended the marking of the user's script",
    "workdir.refused": "the workload left a link, a pipe, a foreign or too large a file where its result belongs",
    "claim.malformed": "a file that the workload's side left holds what does not belong there: it is not used",
    "claim.not-taken": "the workload reports of itself what only programs of tare's own may: it is not used",
    "claim.software": "what software ran is the workload's own statement, or is not what lies there",
    "claim.outside-run": "the workload reports times that do not lie in its run",
    "claim.program-changed": "a program of tare's own was changed in the work folder",
    "workdir.no-result": "the workload ended well, and its time was not left in the work folder",
    "container.root": "the workload ran as root in its container",
    "files.shared": "what a command wrote on bare metal stayed on the device, and later trials find it",
    "image.no-python": "the image has no Python: the command is timed from outside",
    "script.no-loop": "no training or inference loop was seen until the script was ended; it is timed whole",
    "script.no-python": "the command ran no Python program that tare can mark; it is timed whole",
    "script.no-torch": "the script never imported torch; it is timed whole",
    "script.no-backward": "torch was imported, and neither trained nor used for inference; the script is timed whole",
    "script.grad-only": "gradients came from torch.autograd.grad: no steps were seen; the script is timed whole",
    "script.other-thread": "the training ran in a thread that is not watched; the script is timed whole",
    "script.few-calls": "another framework made fewer than two calls that are steps; the script is timed whole",
    "script.runs-ahead": "a loop of JAX, or of TensorFlow on a GPU, may not wait for its results; it is timed whole",
    "script.by-framework": "steps are calls of JAX, Keras, TensorFlow, ONNX Runtime or scikit-learn",
    "script.by-backward": "no optimiser of torch stepped; steps are counted by backward passes",
    "steps.unsteady": "the second half of the steps took longer or shorter than the first",
    "cache.no-epoch": "the page cache was to be cold before every epoch, and no epoch was seen",
    "cache.unknown": "the kernel did not report how much of the data set was in memory",
    "cache.warm": "part of the data set was in memory when an epoch began",
    "platform.emulated": "the guest's CPU is emulated, not virtualised",
    "load.bottleneck": "whoever made the load for a server was too late or too busy: the figures are not the server's",
    "load.failed": "more than 1 % of the requests to a server failed, timed out or were rejected",
    "load.unanswered": "no request to a server was answered: the trial failed; after a rehearsal its side is skipped",
    "load.not-streamed": "more than 1 % of the answers that should be streamed came whole, or without a token",
    "server.killed": "a server did not stop when it was asked to, and was killed",
    # The device during the trial.
    "memory.swapped": "the device swapped",
    "cpu.steal": "the hypervisor took CPU time away",
    "cpu.foreign": "other processes used CPU time",
    "cpu.quota": "the CPU quota throttled the workload",
    "clock.slept": "the machine slept",
    "clock.woke": "the device slept for less or more than the workload requests",
    "clock.set": "the wall clock was set",
    "clock.below": "a core or the GPU ran below the frequency that a control holds",
    "clock.above": "a core or the GPU ran above the frequency that a control holds",
    "heat.hot-start": "the trial began warmer than the first trial of the study",
    "heat.cold-start": "the trial began colder than the first trial of the study",
    "heat.throttled": "the device throttled itself",
    "heat.alarm": "an alarm of the device was on",
    "gpu.slowed": "the GPU was slowed down by its hardware or driver",
    "gpu.power-limit": "the GPU was held back by its power limit",
    "gpu.clock": "the GPU did not run at the clock that a control holds",
    "gpu.foreign": "processes that tare did not start computed on the GPU",
    # The series.
    "sampler.partial": "samples are missing from the series",
    "sampler.gap": "the series have a gap",
    "sampler.cost": "the sampler itself used too much CPU time",
    "sampler.ended": "the sampler ended before the trial did",
    "sampler.core": "the sampler could not keep to one core",
    "sampler.spool": "readings could not be written",
    "sensor.partial": "samples of one sensor are missing",
    "sensor.gap": "the series of one sensor has a gap",
    "probe.not-started": "a probe could not start, and recorded nothing",
    "probe.not-read": "a probe could not be read at times",
    "probe.not-closed": "a probe could not be closed",
    "probe.slow": "a probe took long to read",
    "probe.hangs": "a probe gives no answer",
    "probe.file-gone": "a file that a probe reads vanished during the trial",
    "probe.file-unreadable": "a file that a probe reads cannot be read here",
    "probe.file-unusable": "a file that a probe reads gave nothing usable at times",
    "probe.limited": "a probe recorded only part of what was requested",
    "probe.ended": "a probe ended before the trial did",
    "probe.overflow": "events were lost: the buffer was full",
    "probe.disturbed": "someone else uses what the probe uses",
    "trace.not-compared": "a tracer ran during the trial, so its times are not compared",
    "trace.undecoded": "what a tracer recorded could not be decoded",
    "readings.damaged": "some readings could not be read back",
    "figures.not-finite": "figures that are no finite number were left out",
    # Energy: why it is not claimed.
    "energy.no-samples": "fewer than two samples of power",
    "energy.few-samples": "too few samples of power",
    "energy.too-short": "the time is too short for the sensor",
    "energy.partial": "power is not known for all of the time, or the energy counter was reset",
    "energy.slept": "the machine slept, and no energy is known for that time",
    "energy.asleep": "the meter's counter does not show what the device drew while it was suspended",
    "energy.sensor-step": "the power sensor changed its level while the work went on as before",
    "energy.disagreement": "the energy counter and the sum of power differ",
    "energy.rails": "the rails draw more than what feeds them",
    "energy.meter": "a sensor behind the meter reads more than the meter",
    "power.constant": "a power sensor was constant while the load changed",
    "power.counter-still": "an energy counter stood still",
    "energy.no-probe": "no power probe was enabled",
    "energy.left-out": "the probes that measure power were left out: this device lacks them",
    "energy.no-reading": "a probe that measures power gave nothing on this device",
    "energy.no-source": "no source of power covers the device",
    "energy.traced": "a tracer ran during the trial, which costs power itself",
    # Why an analysis does not use a trial, or marks it.
    "trial.unusable": "the trial did not end in a usable state",
    "trial.throttled-alone": "the device throttled itself in this trial, and not in others of its block",
    "figure.missing": "the trial does not have the metric",
    "figure.beyond-rates": "the highest rate that meets the goal is not between the rates of the block",
    "figure.rates-missing": "some rates of the block cannot be used, or were run again much later",
    "figure.traced": "a tracer ran during the trial, so the metric is not compared",
    "figure.not-positive": "the metric is not more than zero, which a ratio needs",
    "figure.outlier": "the metric is far from the median of its level; it is used",
    # Comparisons. The subject is the level, where it is about one.
    "compare.baseline-chosen": "nothing was named to compare against, so a level was chosen",
    "compare.no-common-block": "no block holds both sides, so nothing can be paired",
    "compare.without-block": "some trials have no block, so the sides are two samples",
    "compare.several-in-block": "the median stands for several trials of a side in a block",
    "compare.blocks-left-out": "blocks with one side only were left out",
    "compare.each-device-once": "each device counts once, by the median of its trials",
    "compare.too-few": "too few blocks or trials for an interval",
    "compare.no-trial": "a level has no usable trial",
    "compare.below-floor": "the effect does not exceed the A/A noise floor",
    "compare.holm": "several comparisons: their intervals are wider, so that the claims hold together",
    "compare.run-one-after-another": "levels of a table were run one after another: a drift looks like an effect",
    "compare.fixed-order": "the levels came in the same order in every block, so that a drift looks like an effect",
    "compare.block-apart": "trials of a block were run far apart in time, and are not compared with each other",
    "compare.few-ranks": "too few for an interval by ranks alone: it is the wider of their range and Student's t",
    "compare.unlike-sides": "the samples differ in size or spread: the interval is the wider of two",
    "compare.out-of-reach": "at this noise a verdict would take very many trials",
    "compare.rate": "more of the metric is better, by its name or as the user states",
    "compare.direction-guessed": "the name does not settle whether more is better: no gate acts on it",
    "compare.mean-and-median": "mean and median of the steps disagree beyond the margin: not called equivalent",
    "compare.outside-steps": "evaluation, checkpoints or exit differ by more than the margin: not called equivalent",
    "compare.throttled": "the CPU quota stopped one side more than the other: not called equivalent",
    "compare.major-faults": "one side had more major page faults than the other: not called equivalent",
    "compare.epoch-tail": "the sides differ between the steps of an epoch: not called equivalent",
    "compare.failed-trials": "trials of one side failed far more often than of the other: not called equivalent",
    "compare.dropped-trials": "more than a tenth of the trials of a side could not be used: not called equivalent",
    "compare.long-steps": "the five longest steps of a side hold more than half of the margin: not equivalent",
    "compare.carry-over": "without the first steps of each turn the effect is outside its interval: nothing is claimed",
    "compare.rare-and-slow": "a few trials are so slow that the mean over all is beyond the margin: not equivalent",
    "compare.copied-side": "both sides have the same times to their last digit: one may be a copy, not equivalent",
    "compare.coarse-values": "the values of a table are rounded more coarsely than the margin: not called equivalent",
    "compare.mixed-work": "a side of a table mixes several works, and one of them alone has another answer",
    "compare.copied-rows": "every value of a table is there more than once: nothing is claimed",
    "compare.units": "one side has more than 50 times as much as the other: perhaps another unit",
    "compare.outside-time": "what the sides report is not what the time from outside shows: that one is judged instead",
    "compare.timed-runs": "the sides did other numbers of steps in the same time: steps per time from outside",
    "compare.unlike-conditions": "one side was marked for a condition that the other was not",
    "compare.other-rounding": "the sides had other numbers of threads and ended with other losses from the same seed",
    "compare.other-tokens": "the sides generated other tokens from the same seed",
    "compare.per-sample": "the sides differ in the work of a step, so the figure is per sample",
    "compare.unlike-work": "the sides differ in the work of a step, and the figure cannot be made per sample",
    "gate.over": "a level is worse than --fail-over allows, and surely worse",
    "gate.hidden": "a level is not called equivalent for what its metric hides",
    "gate.doubtful": "a level is worse than --fail-over allows, by data that cannot tell (order of runs, copied rows)",
    "gate.not-shown": "a level passes, and its interval reaches beyond the limit, or it has none",
    "gate.no-trial": "a level has no usable trial, so the gate knows nothing of it",
    # Obstacles: what a part needs, and does not find on this device.
    "needs.root": "root, or a permission that this user does not have",
    "needs.program": "a program that is not installed",
    "needs.option": "an option that the command has once, and not inside of a shell's text",
    "needs.module": "a Python module that the interpreter does not have",
    "needs.engine": "a container engine that answers",
    "needs.image": "an image, or an unpacked root file system",
    "needs.kvm": "KVM",
    "needs.guest-kernel": "a kernel for the guest",
    "needs.iommu": "an IOMMU that is switched on, to pass a device to a virtual machine",
    "needs.vfio-driver": "the GPU bound to vfio-pci, to pass it to a virtual machine",
    "needs.vfio-group": "the other devices of the GPU's IOMMU group released by the host",
    "needs.vfio-access": "the files below /dev/vfio, and the right to open them",
    "needs.kernel": "a file, event or feature that this kernel does not have",
    "needs.cgroup": "a cgroup controller that this kernel does not offer",
    "needs.cores": "cores that are not there, not online, or cannot be switched",
    "needs.architecture": "another processor architecture",
    "needs.hardware": "a sensor, clock, fan or disk that this device does not have",
    "needs.gpu": "a GPU that can be used",
    "needs.file": "a file or folder that is not there",
    "needs.data": "a data set: its folder is not there, or holds something else",
    "needs.space": "room on a disk, in memory or in /dev/shm",
    "needs.descriptors": "more open files than the shell permits (`ulimit -n`)",
    "needs.value": "another value: this one cannot be set here",
    "needs.backend": "an inference back end that works here",
    "needs.reboot": "a reboot",
    "needs.outermost": "the device itself: it does not work inside another platform",
    "needs.full-device": "tare itself on the device: a device without it offers less",
    "device.silent": "the device gave no answer in time",
    "device.managed": "another program on this device manages what the control sets",
    "host.not-asked": "the host did not answer",
    "plan.inner-platform": "whether a platform works inside another shows only once that one is open",
    "plan.blocks-for-family": "several comparisons are corrected together, which takes more blocks",
    "plan.few-blocks-for-family": "too few blocks for the corrected intervals of several comparisons by ranks",
    "plan.few-blocks": "too few blocks for a 95 % interval",
    "plan.one-cell": "there is one cell only, and nothing to compare it with",
    "fleet.unreachable": "there is no connection to the device",
    "fleet.refused": "the device, or the line to it, refused the question",
    "fleet.worker": "there is no worker for the device, or it died",
    "fleet.no-tare": "tare does not run on the device",
    "fleet.other-version": "another version of tare is on the device",
    "fleet.not-understood": "the device's answer cannot be understood",
    "fleet.full": "no space is left on the device",
    "fleet.more-devices": "further devices lack the part as well",
    "fleet.settled": "what is left out was settled when the store was begun",
    "fleet.clock": "the device's clock is off",
    "fleet.owned": "another run owns the device",
    "fleet.overdue": "nothing was heard of the device for longer than its trial may take",
    "fleet.trial-died": "a trial died on the device more than once",
    "fleet.same-failure": "trials failed in the same way again and again",
    "fleet.changed": "the kernel or tare on the device is another than before",
    "fleet.no-record": "a trial ended on the device, and no record of it came",
    "part.error": "the part could not find out whether it works here",
    LEGACY: "a sentence of a store that was written before there were codes",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Ruling:
    """One thing that was found: `str()` of it is the sentence, which stands for itself."""

    code: str
    weight: Weight
    subject: str  # what it is about, for machines: "gpu0", "probe perf", "tenant2"; empty: the trial, or the study
    sentence: str

    def __post_init__(self) -> None:
        if self.code not in CODES:
            raise ValueError(f"{self.code!r} is not a code that tare.base.rulings declares")
        if self.weight not in WEIGHTS:
            raise ValueError(f"{self.weight!r} is not a weight: {', '.join(WEIGHTS)}")

    def __str__(self) -> str:
        return self.sentence

    def about(self, subject: str) -> Ruling:
        """The same of `subject`, which the sentence then names first."""
        return replace(self, subject=subject, sentence=f"{subject}: {self.sentence}")

    def as_json(self) -> dict[str, str]:
        return {"code": self.code, "weight": self.weight, "subject": self.subject, "sentence": self.sentence}


def obstacle(code: str, sentence: str) -> Ruling:
    """Why a part cannot work here; whoever asked the part knows its name and adds it (`Ruling.about`)."""
    return Ruling(code, "obstacle", "", sentence)


def probe_note(code: str, probe: str, sentence: str) -> Ruling:
    """What a probe could not watch, or not to the end."""
    return Ruling(code, "note", "", sentence).about(probe)


def read_ruling(data: Any, weight: Weight) -> Ruling:
    """What `as_json` made. A plain sentence, of a store from before there were codes, has the code `legacy`.

    A code of another version, or of a part that is not installed here, is kept as it is.
    """
    if isinstance(data, Ruling):
        return data
    if isinstance(data, str):
        return Ruling(LEGACY, weight, "", data)
    if not isinstance(data, Mapping) or not all(isinstance(data.get(name), str) for name in _FIELDS):
        raise ValueError(f"{data!r} is neither a sentence nor {', '.join(_FIELDS)}")
    if data["weight"] not in WEIGHTS:
        raise ValueError(f"{data['weight']!r} is not a weight")
    found = object.__new__(Ruling)
    for name in _FIELDS:
        object.__setattr__(found, name, data[name])
    return found


def read_rulings(data: Iterable[Any], weight: Weight) -> tuple[Ruling, ...]:
    return tuple(read_ruling(each, weight) for each in data)


_FIELDS = ("code", "weight", "subject", "sentence")
assert set(get_args(Weight)) == set(WEIGHTS)
