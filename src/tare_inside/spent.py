"""What this process has used: CPU time, page faults, context switches."""

import resource


def used():
    """What this process has used so far."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    moves = migrations()
    return {
        "cpu_train_s": own.ru_utime + own.ru_stime,
        "minor_faults_training": own.ru_minflt,
        "major_faults_training": own.ru_majflt,
        "voluntary_switches_training": own.ru_nvcsw,
        "involuntary_switches_training": own.ru_nivcsw,
        **({} if moves is None else {"migrations_training": moves}),
    }


def migrations():
    """How often the main thread was moved to another core; None where the kernel does not say (CONFIG_SCHED_DEBUG)."""
    try:
        with open("/proc/self/sched") as file:
            for line in file:
                if line.startswith("se.nr_migrations"):
                    return int(line.rpartition(":")[2])
    except (OSError, ValueError):
        pass
    return None


def workers_cpu_s():
    """CPU time of the loader workers that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime
