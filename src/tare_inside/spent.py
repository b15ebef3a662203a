"""What this process has used: CPU time, page faults, context switches."""

import resource


def used():
    """What this process has used so far."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "cpu_train_s": own.ru_utime + own.ru_stime,
        "minor_faults_training": own.ru_minflt,
        "major_faults_training": own.ru_majflt,
        "voluntary_switches_training": own.ru_nvcsw,
        "involuntary_switches_training": own.ru_nivcsw,
    }


def workers_cpu_s():
    """CPU time of the loader workers that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime
