"""From what can be seen of someone's training loop (fetches, backward passes, optimiser steps) to marks per step.

A step ends with an optimiser step. It begins where the one before it ended, or, in a new pass over the data, with the
first fetch. In it, `compute` is from the arrival of a batch to the end of the optimiser step (with several batches a
step: to the next fetch), `forward` from the batch to the backward pass. A batch that no backward pass follows was not
trained on (it was for evaluation) and is left out. Two different optimisers may step in one step; the same one twice
makes two steps. A pass over the data that had steps is an `epoch`.
"""

from tare_inside import marks

USUAL = ("fetch", "forward", "backward", "optimiser", "compute", "step")


class Pass(object):
    """One iteration over a DataLoader."""

    __slots__ = ("begin_ns", "steps", "closed", "started")

    def __init__(self, begin_ns):
        self.begin_ns = begin_ns
        self.steps = 0
        self.closed = False
        self.started = False


class Steps(object):
    """Turns events into marks. Marks are written when a step is known to be over: at the next fetch, or at the end."""

    def __init__(self, room):
        self._write_usual = marks.group(USUAL, room)
        self._step = self._epoch = 0
        self._pass = None  # that gave the last batch
        self._trained = None  # the last one with a step in it
        self._trained_until_ns = 0
        self._follows_ns = None  # end of the last step, while the next one follows directly
        self._since_ns = None  # end of the last event: where a forward pass would begin
        self._forget()

    def _forget(self):
        """Begin anew: nothing is known of a step that is going on."""
        self._fetches, self._forwards, self._backwards, self._optimisers, self._stepped = [], [], [], [], []

    def iterated(self, begin_ns):
        """A pass over a DataLoader begins."""
        self.finish()
        self._follows_ns = None
        return Pass(begin_ns)

    def fetched(self, current, begin_ns, end_ns):
        """A batch of this pass was waited for."""
        untrained = len(self._backwards) < len(self._fetches)
        if untrained and (self._pass is current or not current.started):
            self._forget()
            self._follows_ns = None
        if not current.started:
            current.started = True
            begin_ns, self._follows_ns = current.begin_ns, None
        self._pass = current
        self._fetches.append((begin_ns, end_ns))
        self._since_ns = end_ns

    def exhausted(self, current, now_ns):
        """The pass is over."""
        self.finish()
        self._follows_ns = None
        if self._pass is current:
            self._forget()
        self._close(current, now_ns)

    def went_backward(self, begin_ns, end_ns):
        """A backward pass was done."""
        if self._since_ns is not None:
            self._forwards.append((self._since_ns, begin_ns))
        self._backwards.append((begin_ns, end_ns))
        self._since_ns = end_ns

    def optimised(self, which, begin_ns, end_ns):
        """An optimiser stepped."""
        if self._optimisers and self._optimisers[-1][0] >= begin_ns:
            return  # a wrapper around an optimiser that has reported already
        if which in self._stepped:
            self.finish()
        self._stepped.append(which)
        self._optimisers.append((begin_ns, end_ns))
        self._since_ns = end_ns

    def close(self):
        """The program ends."""
        self.finish()
        if self._trained is not None:
            self._close(self._trained, self._trained_until_ns)

    def finish(self):
        """If an optimiser has stepped, the step is over: mark it. Called before a fetch is timed."""
        if not self._optimisers:
            return
        end_ns = self._optimisers[-1][1]
        later = ([], []) if self._since_ns == end_ns else self._cut(end_ns)
        begin_ns = self._begin_ns()
        if begin_ns is not None:
            self._mark(begin_ns, end_ns)
            self._step += 1
            self._credit(end_ns)
        self._follows_ns = end_ns
        self._forget()
        self._forwards, self._backwards = later

    def _begin_ns(self):
        if self._follows_ns is not None:
            return self._follows_ns
        if self._fetches:
            return self._fetches[0][0]
        seen = self._forwards or self._backwards
        return seen[0][0] if seen else None

    def _cut(self, end_ns):
        """Take out what came after the last optimiser step; it belongs to the next step."""
        later = []
        for events in (self._forwards, self._backwards):
            later.append([event for event in events if event[0] >= end_ns])
            events[:] = [event for event in events if event[0] < end_ns]
        return later

    def _mark(self, begin_ns, end_ns):
        fetches, forwards, backwards, optimisers = self._fetches, self._forwards, self._backwards, self._optimisers
        if len(fetches) == len(forwards) == len(backwards) == len(optimisers) == 1:
            came_ns = fetches[0][1]
            times_ns = fetches[0] + forwards[0] + backwards[0] + optimisers[0] + (came_ns, end_ns, begin_ns, end_ns)
            self._write_usual(self._step, *times_ns)
            return
        starts_ns = [came_ns for _, came_ns in fetches] or [begin_ns]
        ends_ns = [went_ns for went_ns, _ in fetches[1:]] + [end_ns]
        computes, steps = list(zip(starts_ns, ends_ns)), [(begin_ns, end_ns)]
        for name, events in zip(USUAL, (fetches, forwards, backwards, optimisers, computes, steps)):
            for event in events:
                marks.interval(name, self._step, *event)

    def _credit(self, end_ns):
        """Count the step for the pass that it belongs to; a pass that was left early ends with its last step."""
        current = self._pass
        if current is None:
            return
        if self._trained is not None and self._trained is not current:
            self._close(self._trained, self._trained_until_ns)
        current.steps += 1
        self._trained, self._trained_until_ns = current, end_ns

    def _close(self, current, end_ns):
        if current.steps and not current.closed:
            marks.interval("epoch", self._epoch, current.begin_ns, end_ns)
            self._epoch += 1
        current.closed = True
