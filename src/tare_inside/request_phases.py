"""What one request is put through, and where it is marked.

A task has `pre(items)`, which gives the network's tensors and whatever `post` will want to know, `infer(*tensors)`,
and `post(outputs, known)`, which gives the answers. A place brings tensors to the device and waits for it.
"""

import threading

from tare_inside import marks

NETWORK = ("fetch", "copy", "inference", "compute", "step")
BESIDE_GPU = ("host_fetch", "host_copy", "host_inference", "host_compute", "host_step")  # timing: async
APPLICATION = ("fetch", "pre_process", "copy", "inference", "compute", "post_process", "step")
MOST_MARKS = 2 * len(APPLICATION)  # of one request


def network_alone(task, place, write):
    """A network on data in memory: taking them is part of `fetch`, and the step ends with the network's outputs."""
    pre, infer, post = task.pre, task.infer, task.post
    move, wait, tick, now = place.move, place.wait, place.tick, marks.now_ns

    def handle(step, items, since_ns):
        tensors, known = pre(items)
        t1 = now()
        tick()
        tensors = move(tensors)
        wait()
        t2 = now()
        tick()
        outputs = infer(*tensors)
        tick()
        wait()
        t3 = now()
        write(step, since_ns, t1, t1, t2, t2, t3, t2, t3, since_ns, t3)
        return post(outputs, known)

    return handle


def whole_application(task, place, write):
    """From the request's files or lines to the answer as a person would read it; `fetch` is the wait for a thread."""
    pre, infer, post = task.pre, task.infer, task.post
    move, wait, now = place.move, place.wait, marks.now_ns

    def handle(step, items, since_ns):
        t1 = now()
        tensors, known = pre(items)
        t2 = now()
        tensors = move(tensors)
        wait()
        t3 = now()
        outputs = infer(*tensors)
        wait()
        t4 = now()
        answers = post(outputs, known)
        t5 = now()
        write(step, since_ns, t1, t1, t2, t2, t3, t3, t4, t3, t4, t4, t5, since_ns, t5)
        return answers

    return handle


def shared_group(names, room):
    """As `marks.group`, for several threads."""
    write, one_at_a_time = marks.group(names, room), threading.Lock()

    def write_shared(step, *times_ns):
        with one_at_a_time:
            write(step, *times_ns)

    return write_shared
