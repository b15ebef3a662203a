"""The rehearsal: each side runs once before the blocks, so that one that cannot run is skipped, and times are known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer

from tare.base.sides import side_of
from tare.base.text import count_text, duration_text, time_text
from tare.fleet.failures import failure_text, first_reason, refuse_lost
from tare.fleet.schedule import Forecast, Schedule, record_s
from tare.plan.matrix import Trial
from tare.plan.rehearsals import UNSEEN_FACTOR, Length, followed_limit_s, length_of, rehearsals, with_limit
from tare.records.model import FAILED, Record
from tare.records.store import Store
from tare.studies.model import Study

LONG_REHEARSAL_S = 60.0
RUNS_TO_ITS_END = (
    "Each trial runs the script to its end. To end each one early, press Ctrl-C twice and start again with "
    "`--trial-limit 200steps` or `3min` (in a study: `steps: 200` or `minutes: 3` of the workload)."
)


class Rehearsal:
    """Runs the sides of which the store knows nothing; the schedule and the forecast learn from what they did."""

    def __init__(
        self, study: Study, schedule: Schedule, forecast: Forecast, store: Store, say: Callable[[str], None],
        side_name: Callable[[Trial], str], run_one: Callable[[Trial], Record],
    ) -> None:  # fmt: skip
        self._study, self._schedule, self._forecast, self._store = study, schedule, forecast, store
        self._say, self._side_name, self._run_one = say, side_name, run_one
        self._lengths: dict[str, Length] = {}
        self._reasons: set[str] = set()  # why sides were skipped

    def run(self, is_stopped: Callable[[], bool]) -> None:
        """Rehearse; the limit of the trials follows from it unless the study names one."""
        left = self._schedule.left()
        known = {record.trial: record for record in self._store.rehearsals()}
        ran = {side_of(record.settings) for record in self._store.records() if record.state not in FAILED}
        planned = [trial for trial in rehearsals(self._study, left) if trial.id in known or trial.side not in ran]
        if not self._study.rehearses:
            planned = planned[:1]  # of a built-in program: only how long its steps are
        kept = {name for name, record in known.items() if record.state in (*self._schedule.finished, "invalid")}
        if new := [trial for trial in planned if trial.id not in kept]:
            self._say(f"rehearsal: {count_text(len(new), 'side')}, each run once; these runs are not data.")
        for rehearsal in planned:
            is_new = rehearsal.id not in kept
            record = self._rehearse(rehearsal) if is_new else known[rehearsal.id]
            if record.state in FAILED:
                self._skip(rehearsal, record, is_new)
            else:
                self._note_length(rehearsal, record, is_new)
            if is_stopped():
                return
        for side, length in self._lengths.items():
            self._forecast.took(side, length.trial_s)
        if not self._study.sets_limit and {trial.side for trial in left} <= {*self._lengths, *self._schedule.skipped}:
            limit_s = followed_limit_s([length.run_s for length in self._lengths.values()])
            self._schedule.planned = with_limit(self._schedule.planned, limit_s)

    def _rehearse(self, rehearsal: Trial) -> Record:
        """The first has the limit of a stranger; on the next platform it is known how long the same work takes."""
        assert rehearsal.rehearses is not None
        work = rehearsal.rehearses.workload
        same = [length.run_s for length in self._lengths.values() if length.workload == work]
        limit_s = None if self._study.sets_limit else followed_limit_s(same, UNSEEN_FACTOR)
        with self._hinting_if_long(rehearsal):
            record = self._run_one(with_limit([rehearsal], limit_s)[0])
        refuse_lost(record)
        return record

    @contextmanager
    def _hinting_if_long(self, rehearsal: Trial) -> Iterator[None]:
        """Whoever rehearses a script of an hour hears after a minute how each run of it is ended early."""
        if self._lengths or not rehearsal.cell.workload.rehearsed or _ends_early(rehearsal):
            yield
            return
        long = f"  {self._side_name(rehearsal)}: still running after {duration_text(LONG_REHEARSAL_S)}. "
        timer = Timer(LONG_REHEARSAL_S, self._say, (long + RUNS_TO_ITS_END,))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _note_length(self, rehearsal: Trial, record: Record, is_new: bool) -> None:
        trial_s, run_s = record_s(record), record.phases.get("run", 0.0)
        if (length := length_of(rehearsal, trial_s, run_s, dict(record.metrics))) is not None:
            self._lengths[rehearsal.side] = length
        if not is_new:
            return
        steps, step_s, high_s = (record.metrics.get(name) for name in ("steps", "step_s", "step_p90_s"))
        marked = f", {count_text(round(steps), record.unit)}" if steps else ""
        marked += f" of {time_text(step_s)}" if steps and step_s else ""
        marked += f" (9 of 10 within {high_s / step_s - 1:+.0%})" if step_s and high_s else ""
        self._say(f"  {self._side_name(rehearsal)}: {time_text(trial_s)}{marked}")
        if rehearsal.cell.workload.rehearsed and _ends_early(rehearsal) and not steps:
            self._say("  no steps were found in it, so that it cannot be ended at one: it runs to its end.")

    def _skip(self, rehearsal: Trial, record: Record, is_new: bool) -> None:
        name = self._schedule.skipped[rehearsal.side] = self._side_name(rehearsal)
        reason = first_reason(record)
        if not is_new:
            self._say(f"{name} did not run in its rehearsal, and is skipped ({reason}); `tare run` with "
                      "`--retry-failed` tries it again.")  # fmt: skip
        elif reason in self._reasons:
            self._say(f"{name} cannot run for the same reason: its trials are skipped.")
        else:
            self._reasons.add(reason)
            self._say(failure_text(name, record, self._store))
            self._say(f"{name} cannot run: its trials are skipped.")


def _ends_early(rehearsal: Trial) -> bool:
    """Whether its workload says where it ends, as each does in a short form."""
    workload = rehearsal.cell.workload
    return workload.about_units() is not None or workload.bound_s() is not None
