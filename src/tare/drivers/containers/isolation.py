"""What a container is made of, layer by layer: each can be switched on or off by itself, to see what it costs.

The mount namespace with an overlay as the root is what makes it a container at all; everything else is a layer here.

System-call filters: the one that Docker puts on a container without capabilities, and a user's own.

Docker's default is a list of calls that may be made; every other gets EPERM. Some are allowed with certain arguments
only, and some only to those who hold a capability, which a container of ours does not.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from tare.base.errors import StudyError
from tare.base.host import Host
from tare.parts.protocols import Json

Layer: TypeAlias = Literal[
    "pid", "ipc", "uts", "network",
    "cpu", "cpuset", "memory", "pids",
    "masked_paths", "capabilities", "no_new_privileges", "seccomp",
    "user",
]  # fmt: skip
LAYERS: tuple[Layer, ...] = get_args(Layer)
USUAL: tuple[Layer, ...] = tuple(layer for layer in LAYERS if layer != "user")
"""Those of a container as Docker makes it."""

NAMESPACES: tuple[Layer, ...] = ("pid", "ipc", "uts", "network", "user")
NEEDED_BY_USER = frozenset({"pid", "ipc", "network"})
"""What is mounted inside a user namespace (/proc, /sys, /dev/mqueue) must belong to it."""

_CAPABILITY_SETS = ("bounding", "effective", "inheritable", "permitted", "ambient")
_IDS = 65536

# What a container must not see or change of the kernel; the same lists as Docker's.
_MASKED = [
    "/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
    "/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats", "/sys/firmware",
]  # fmt: skip
_READ_ONLY = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]

# In the order of their numbers, as linux/capability.h has them.
_CAPABILITIES = (  # noqa: SIM905  (a table of forty lines is no easier to read)
    "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE "
    "NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN "
    "SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE "
    "MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE"
).split()


def linux(layers: Collection[str]) -> dict[str, Json]:
    """The `linux` part of a bundle's config.json, as far as layers decide it."""
    kinds = [kind for kind in NAMESPACES if kind in layers]
    made: dict[str, Json] = {"namespaces": [{"type": kind} for kind in (*kinds, "mount")]}
    if "masked_paths" in layers:
        made |= {"maskedPaths": _MASKED, "readonlyPaths": _READ_ONLY}
    if "user" in layers:
        # Each id stands for itself: the files of the root keep their owners, and only the namespace is added.
        mapping = [{"containerID": 0, "hostID": 0, "size": _IDS}]
        made |= {"uidMappings": mapping, "gidMappings": mapping}
    return made


def process(layers: Collection[str], held: Collection[str], needed: Collection[str] = ()) -> dict[str, Json]:
    """What layers decide about each process inside; `held` are the capabilities that the runner itself has.

    `needed` are those that remain when they are dropped.
    """
    kept = sorted(needed) if "capabilities" in layers else sorted(held)
    return {
        "capabilities": dict.fromkeys(_CAPABILITY_SETS, kept),
        "noNewPrivileges": "no_new_privileges" in layers,
    }


def held_capabilities(host: Host) -> list[str]:
    """The capabilities that a process of ours can pass on."""
    status = dict(line.split(":", 1) for line in host.read("/proc/self/status").splitlines() if ":" in line)
    bits = int(status.get("CapBnd", "0").strip() or "0", 16)
    return [f"CAP_{name}" for number, name in enumerate(_CAPABILITIES) if bits >> number & 1]


_ALLOW, _ERRNO = "SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO"
_EPERM, _ENOSYS = 1, 38
_MOST_RULES = 1_000_000

_ARCHITECTURES = {  # `uname -m` -> what libseccomp calls it, the older ones that the kernel runs too, and Docker's name
    "x86_64": (["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"], "amd64"),
    "aarch64": (["SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM"], "arm64"),
}

# Namespace flags of clone(2): whoever may not make namespaces may call it without them.
_NAMESPACE_FLAGS = 0x7E020000
_PERSONALITIES = (0x0, 0x0008, 0x20000, 0x20008, 0xFFFFFFFF)
_VSOCK = 40

ALLOWED = """
accept accept4 access adjtimex alarm bind brk capget capset chdir chmod chown chown32 clock_adjtime clock_adjtime64
clock_getres clock_getres_time64 clock_gettime clock_gettime64 clock_nanosleep clock_nanosleep_time64 close close_range
connect copy_file_range creat dup dup2 dup3 epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2
epoll_wait epoll_wait_old eventfd eventfd2 execve execveat exit exit_group faccessat faccessat2 fadvise64 fadvise64_64
fallocate fanotify_mark fchdir fchmod fchmodat fchmodat2 fchown fchown32 fchownat fcntl fcntl64 fdatasync fgetxattr
flistxattr flock fork fremovexattr fsetxattr fstat fstat64 fstatat64 fstatfs fstatfs64 fsync ftruncate ftruncate64
futex futex_requeue futex_time64 futex_wait futex_waitv futex_wake futimesat get_robust_list get_thread_area getcpu
getcwd getdents getdents64 getegid getegid32 geteuid geteuid32 getgid getgid32 getgroups getgroups32 getitimer
getpeername getpgid getpgrp getpid getppid getpriority getrandom getresgid getresgid32 getresuid getresuid32 getrlimit
getrusage getsid getsockname getsockopt gettid gettimeofday getuid getuid32 getxattr inotify_add_watch inotify_init
inotify_init1 inotify_rm_watch io_cancel io_destroy io_getevents io_pgetevents io_pgetevents_time64 io_setup io_submit
ioctl ioprio_get ioprio_set ipc kill landlock_add_rule landlock_create_ruleset landlock_restrict_self lchown lchown32
lgetxattr link linkat listen listxattr llistxattr _llseek lremovexattr lseek lsetxattr lstat lstat64 madvise
map_shadow_stack membarrier memfd_create memfd_secret mincore mkdir mkdirat mknod mknodat mlock mlock2 mlockall mmap
mmap2 mprotect mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedreceive_time64 mq_timedsend mq_timedsend_time64
mq_unlink mremap msgctl msgget msgrcv msgsnd msync munlock munlockall munmap name_to_handle_at nanosleep newfstatat
_newselect open openat openat2 pause pidfd_open pidfd_send_signal pipe pipe2 pkey_alloc pkey_free pkey_mprotect poll
ppoll ppoll_time64 prctl pread64 preadv preadv2 prlimit64 process_mrelease process_vm_readv process_vm_writev pselect6
pselect6_time64 ptrace pwrite64 pwritev pwritev2 read readahead readlink readlinkat readv recv recvfrom recvmmsg
recvmmsg_time64 recvmsg remap_file_pages removexattr rename renameat renameat2 restart_syscall rmdir rseq rt_sigaction
rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_sigtimedwait_time64
rt_tgsigqueueinfo
sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr sched_getparam sched_getscheduler
sched_rr_get_interval sched_rr_get_interval_time64 sched_setaffinity sched_setattr sched_setparam sched_setscheduler
sched_yield seccomp select semctl semget semop semtimedop semtimedop_time64 send sendfile sendfile64 sendmmsg sendmsg
sendto setfsgid setfsgid32 setfsuid setfsuid32 setgid setgid32 setgroups setgroups32 setitimer setpgid setpriority
setregid setregid32 setresgid setresgid32 setresuid setresuid32 setreuid setreuid32 setrlimit set_robust_list setsid
setsockopt set_thread_area set_tid_address setuid setuid32 setxattr shmat shmctl shmdt shmget shutdown sigaltstack
signalfd signalfd4 sigprocmask sigreturn socketcall socketpair splice stat stat64 statfs statfs64 statx symlink
symlinkat sync sync_file_range syncfs sysinfo tee tgkill time timer_create timer_delete timer_getoverrun timer_gettime
timer_gettime64 timer_settime timer_settime64 timerfd_create timerfd_gettime timerfd_gettime64 timerfd_settime
timerfd_settime64 times tkill truncate truncate64 ugetrlimit umask uname unlink unlinkat utime utimensat
utimensat_time64 utimes vfork vmsplice wait4 waitid waitpid write writev
""".split()  # noqa: SIM905

_OF_ARCHITECTURE = {
    "amd64": ["arch_prctl", "modify_ldt"],
    "arm64": ["arm_fadvise64_64", "arm_sync_file_range", "sync_file_range2", "breakpoint", "cacheflush", "set_tls"],
}


def docker_default(machine: str) -> dict[str, Json]:
    """The filter of Docker's default profile for a container that holds no capability."""
    architectures, name = _architecture(machine)
    rules: list[Json] = [_rule([*ALLOWED, *_OF_ARCHITECTURE[name]])]
    rules += [_rule(["personality"], args=[_arg(0, value)]) for value in _PERSONALITIES]
    rules.append(_rule(["clone"], args=[_arg(0, _NAMESPACE_FLAGS, "SCMP_CMP_MASKED_EQ", two=0)]))
    rules.append(_rule(["socket"], args=[_arg(0, _VSOCK, "SCMP_CMP_NE")]))
    # A program that is told ENOSYS falls back to clone(2), whose flags can be looked at.
    rules.append({"names": ["clone3"], "action": _ERRNO, "errnoRet": _ENOSYS})
    return {
        "defaultAction": _ERRNO,
        "defaultErrnoRet": _EPERM,
        "architectures": architectures,
        "syscalls": rules,
    }


def from_file(path: Path, machine: str, held: Collection[str] = ()) -> dict[str, Json]:
    """A profile as Docker reads it, for this machine and these capabilities, in the form that OCI wants."""
    try:
        profile = json.loads(path.read_text())
        rules = [rule for rule in profile["syscalls"] if _applies(rule, machine, held)]
        action = str(profile["defaultAction"])
    except OSError as error:
        raise StudyError(f"{path}: the seccomp profile cannot be read: {error.strerror or error}.") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StudyError(f"{path}: this is no seccomp profile as Docker writes it ({error!r}).") from None
    if len(rules) > _MOST_RULES:
        raise StudyError(f"{path}: {len(rules):,} rules are more than a filter can hold.")
    architectures, _ = _architecture(machine)
    made: dict[str, Json] = {"defaultAction": action, "architectures": architectures}
    if isinstance(profile.get("defaultErrnoRet"), int):
        made["defaultErrnoRet"] = profile["defaultErrnoRet"]
    return {**made, "syscalls": [_as_oci(rule) for rule in rules]}


def _applies(rule: Mapping[str, Any], machine: str, held: Collection[str]) -> bool:
    """Whether the rule's conditions (an architecture, a capability) hold here."""
    _, name = _architecture(machine)
    includes, excludes = rule.get("includes") or {}, rule.get("excludes") or {}
    wanted_here = not includes.get("arches") or name in includes["arches"]
    wanted_by = all(cap in held for cap in includes.get("caps") or ())
    refused = name in (excludes.get("arches") or ()) or any(cap in held for cap in excludes.get("caps") or ())
    return wanted_here and wanted_by and not refused


def _as_oci(rule: Mapping[str, Any]) -> dict[str, Json]:
    names = rule["names"] if "names" in rule else [rule["name"]]
    made: dict[str, Json] = {"names": list(names), "action": rule["action"]}
    made |= {"args": list(rule["args"])} if rule.get("args") else {}
    return made | ({"errnoRet": rule["errnoRet"]} if isinstance(rule.get("errnoRet"), int) else {})


def _architecture(machine: str) -> tuple[list[str], str]:
    if machine not in _ARCHITECTURES:
        raise StudyError(f"no system-call filter for {machine!r} here; leave the layer `seccomp` out.")
    return _ARCHITECTURES[machine]


def _rule(names: Iterable[str], args: list[Json] | None = None) -> dict[str, Json]:
    return {"names": sorted(names), "action": _ALLOW} | ({"args": args} if args else {})


def _arg(index: int, value: int, op: str = "SCMP_CMP_EQ", two: int | None = None) -> dict[str, Json]:
    return {"index": index, "value": value, "op": op} | ({} if two is None else {"valueTwo": two})
