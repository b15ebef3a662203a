"""A service of a compose file and a pod of Kubernetes as `docker run` lines: one for each container, in their order.

What a compose file means is what `docker compose config` says; this file reads its answer, and no compose file.
What an option of `docker run` cannot say is named by its key, and never dropped in silence.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from tare.base.errors import StudyError
from tare.base.host import Host

Wait: TypeAlias = Literal["started", "healthy", "completed"]
_Words: TypeAlias = tuple[str, ...]


@dataclass(frozen=True)
class Member:
    """One container of a specification."""

    name: str
    words: _Words  # docker run OPTIONS IMAGE COMMAND
    keys: Mapping[str, str]  # an option of the line, as it stands there -> its key in the file
    left_out: _Words = ()  # keys that no option says
    wait: Wait = "started"  # what those after it wait for


@dataclass(frozen=True)
class Spec:
    """The container that is asked about, and those that it needs, in the order of their start."""

    main: Member
    beside: tuple[Member, ...] = ()
    is_pod: bool = False  # one network for all its containers
    not_looked: _Words = ()  # what belongs to it and is nowhere in these lines


@dataclass
class _Draft:
    """The options of one line, with their keys."""

    where: str  # `services.app`
    options: list[str] = field(default_factory=list)
    keys: dict[str, str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    def add(self, option: str, value: object, key: str) -> None:
        word = option if value is True else f"{option}={value}"
        self.options.append(word)
        self.keys[word] = f"{self.where}.{key}"

    def leave(self, *keys: str) -> None:
        self.left_out += [f"{self.where}.{key}" for key in keys]

    def entry(self, entry: Sequence[str] | None, command: Sequence[str] | None, key: str) -> _Words:
        """What stands behind the image; an entry point of several words has the others there."""
        if entry is None:
            return tuple(command or ())
        self.add("--entrypoint", entry[0] if entry else "", key)
        return (*entry[1:], *(command or ()))

    def member(self, name: str, image: str, command: _Words, wait: Wait = "started") -> Member:
        line = ("docker", "run", *self.options, image, *command)
        return Member(name, line, self.keys, tuple(self.left_out), wait)


# A key of a service with one value -> the option that says the same.
_VALUES: Mapping[str, str] = {
    **{key: f"--{key.replace('_', '-')}" for key in (
        "cpus", "cpu_shares", "cpu_quota", "cpu_period", "cpu_rt_runtime", "cpu_rt_period", "shm_size", "pids_limit",
        "user", "hostname", "domainname", "ipc", "pid", "uts", "cgroup_parent", "runtime", "platform", "stop_signal",
        "oom_score_adj", "mac_address", "isolation", "restart",
    )},
    "cpuset": "--cpuset-cpus", "mem_limit": "--memory", "memswap_limit": "--memory-swap",
    "mem_reservation": "--memory-reservation", "mem_swappiness": "--memory-swappiness", "working_dir": "--workdir",
    "userns_mode": "--userns", "cgroup": "--cgroupns", "container_name": "--name", "network_mode": "--network",
}  # fmt: skip
_SWITCHES: Mapping[str, str] = {
    "privileged": "--privileged", "read_only": "--read-only", "init": "--init", "tty": "--tty",
    "stdin_open": "--interactive", "oom_kill_disable": "--oom-kill-disable",
}  # fmt: skip
_LISTS: Mapping[str, str] = {
    "cap_add": "--cap-add", "cap_drop": "--cap-drop", "security_opt": "--security-opt", "group_add": "--group-add",
    "dns": "--dns", "dns_opt": "--dns-option", "dns_search": "--dns-search", "tmpfs": "--tmpfs",
    "device_cgroup_rules": "--device-cgroup-rule", "extra_hosts": "--add-host",
}  # fmt: skip
_PAIRS: Mapping[str, str] = {
    "environment": "--env", "labels": "--label", "sysctls": "--sysctl", "annotations": "--annotation",
    "storage_opt": "--storage-opt",
}  # fmt: skip
_LIMITS: Mapping[str, str] = {"cpus": "--cpus", "memory": "--memory", "pids": "--pids-limit"}
_RATES: Mapping[str, str] = {
    f"device_{way}_{unit}": f"--device-{way}-{unit}" for way in ("read", "write") for unit in ("bps", "iops")
}
# What does not change a container that runs once, or has its own place here.
_NO_OPTION = {
    "image", "build", "command", "entrypoint", "depends_on", "networks", "profiles", "attach", "develop", "pull_policy",
    "expose", "scale", "env_file", "deploy", "healthcheck", "logging", "volumes", "ulimits", "ports", "devices", "gpus",
    "blkio_config", "stop_grace_period", "secrets", "configs",
}  # fmt: skip


def configured(host: Host, file: Path) -> dict[str, Any]:
    """The compose file as `docker compose config` says it: merged, extended, with its variables."""
    if host.run(["docker", "compose", "version"]).code != 0:
        raise StudyError(
            "Docker Compose is not installed on this device (`docker compose version`), and only it knows what a "
            f"compose file means. Install its plugin, or write the service of {file} as a line: "
            "`tare why -- docker run ...`."
        )
    # A service that was asked for by name runs, whatever its profile; versions before 2.24 do not know the star.
    called = ["docker", "compose", "--file", str(file)]
    asked = host.run([*called, "--profile", "*", "config", "--format", "json"], limit_s=120)
    if asked.code != 0:
        asked = host.run([*called, "config", "--format", "json"], limit_s=120)
    if asked.code != 0:
        why = [line for line in asked.err.splitlines() if line.strip()]
        raise StudyError(f"{file}: docker compose refuses it: {why[-1] if why else f'code {asked.code}'}")
    config: dict[str, Any] = json.loads(asked.out.replace("$$", "$"))  # it doubles each sign for the next reader
    return config


def compose(config: Mapping[str, Any], service: str, has_volume: Callable[[str], bool]) -> Spec:
    """A service with those that it depends on, those first; `has_volume`: whether the engine has one of this name."""
    services = config.get("services") or {}
    if service not in services:
        raise StudyError(f"the compose file has no service {service!r}. Its services: {', '.join(services)}.")
    waits: dict[str, Wait] = {}

    def depend(name: str) -> None:
        for other, how in (services[name].get("depends_on") or {}).items():
            if other not in services:  # one that is not required, of a profile that is off
                continue
            condition = str(how.get("condition") or "").removeprefix("service_").removesuffix("_successfully")
            depend(other)
            known: Wait = (
                "healthy" if condition == "healthy" else "completed" if condition == "completed" else "started"
            )
            waits[other] = known if waits.get(other, "started") == "started" else waits[other]

    depend(service)
    beside = [_service(config, name, wait, has_volume) for name, wait in waits.items() if name != service]
    return Spec(_service(config, service, "started", has_volume), tuple(beside))


def _service(config: Mapping[str, Any], name: str, wait: Wait, has_volume: Callable[[str], bool]) -> Member:
    given = {key: value for key, value in config["services"][name].items() if value not in (None, [], {})}
    draft = _Draft(f"services.{name}")
    for key, value in given.items():
        if option := _VALUES.get(key):
            draft.add(option, value, key)
        elif (option := _SWITCHES.get(key)) and value:
            draft.add(option, True, key)
        elif option := _LISTS.get(key):
            for each in [value] if isinstance(value, str) else value:
                draft.add(option, each, key)
        elif option := _PAIRS.get(key):
            for word in _pairs(value):
                draft.add(option, word, f"{key}.{word.partition('=')[0]}")
    _add_limits(draft, given)
    _add_health(draft, given.get("healthcheck") or {})
    _add_places(draft, config, given, has_volume)
    known = {*_VALUES, *_SWITCHES, *_LISTS, *_PAIRS, *_NO_OPTION}
    draft.leave(*(key for key in given if key not in known and not key.startswith("x-")))
    image = given.get("image") or f"{config.get('name')}-{name}"
    return draft.member(name, image, draft.entry(given.get("entrypoint"), given.get("command"), "entrypoint"), wait)


def _pairs(value: Mapping[str, Any] | Sequence[str]) -> list[str]:
    """Of a mapping or a list; a variable without a value takes over what the shell has."""
    if isinstance(value, Mapping):
        return [name if each is None else f"{name}={each}" for name, each in value.items()]
    return [str(each) for each in value]


def _add_limits(draft: _Draft, given: Mapping[str, Any]) -> None:
    resources = (given.get("deploy") or {}).get("resources") or {}
    for key, value in (resources.get("limits") or {}).items():
        if option := _LIMITS.get(key):
            draft.add(option, value, f"deploy.resources.limits.{key}")
    for key, value in (resources.get("reservations") or {}).items():
        if key == "memory":
            draft.add("--memory-reservation", value, "deploy.resources.reservations.memory")
    for each in [*((resources.get("reservations") or {}).get("devices") or ()), *_all_gpus(given.get("gpus"))]:
        ids, count = each.get("device_ids"), each.get("count", "all")
        if "gpu" in (each.get("capabilities") or ()) or each.get("driver") == "nvidia":
            wanted = f'"device={",".join(ids)}"' if ids else "all" if count in (-1, "all") else count
            draft.add("--gpus", wanted, "deploy.resources.reservations.devices")
    for name, limit in (given.get("ulimits") or {}).items():
        text = limit if not isinstance(limit, Mapping) else f"{limit.get('soft')}:{limit.get('hard')}"
        draft.add("--ulimit", f"{name}={text}", f"ulimits.{name}")
    for key, rates in (given.get("blkio_config") or {}).items():
        if key == "weight":
            draft.add("--blkio-weight", rates, "blkio_config.weight")
        elif option := _RATES.get(key):
            for each in rates:
                draft.add(option, f"{each['path']}:{each['rate']}", f"blkio_config.{key}")
    logs = given.get("logging") or {}
    if driver := logs.get("driver"):
        draft.add("--log-driver", driver, "logging.driver")
    for name, value in (logs.get("options") or {}).items():
        draft.add("--log-opt", f"{name}={value}", f"logging.options.{name}")


def _all_gpus(gpus: Any) -> list[Mapping[str, Any]]:
    if isinstance(gpus, str):
        return [{"capabilities": ["gpu"], "count": gpus}]
    return [{"capabilities": ["gpu"], **each} for each in gpus or ()]


def _add_health(draft: _Draft, health: Mapping[str, Any]) -> None:
    test = health.get("test") or []
    words = ["CMD-SHELL", test] if isinstance(test, str) else [*test]
    if health.get("disable") or words[:1] == ["NONE"]:
        draft.add("--no-healthcheck", True, "healthcheck")
        return
    if words:
        script = words[1] if words[0] == "CMD-SHELL" else shlex.join(words[1:])
        draft.add("--health-cmd", script, "healthcheck.test")
    for key in ("interval", "timeout", "retries", "start_period", "start_interval"):
        if key in health:
            draft.add(f"--health-{key.replace('_', '-')}", health[key], f"healthcheck.{key}")


def _add_places(
    draft: _Draft, config: Mapping[str, Any], given: Mapping[str, Any], has_volume: Callable[[str], bool]
) -> None:
    """Volumes, devices and ports, and files of secrets."""
    for each in given.get("volumes") or ():
        kind, source, target = each.get("type"), each.get("source"), each["target"]
        key, end = f"volumes.{target}", ":ro" if each.get("read_only") else ""
        if kind == "tmpfs":
            size = (each.get("tmpfs") or {}).get("size")
            draft.add("--tmpfs", f"{target}:size={size}" if size else target, key)
        elif kind == "bind":
            draft.add("--volume", f"{source}:{target}{end}", key)
        elif kind == "volume":
            named = (config.get("volumes") or {}).get(source) or {}
            name = named.get("name") or (source if named.get("external") else f"{config.get('name')}_{source}")
            # A volume that the project has not made yet is not made in its name: the container has one of its own.
            draft.add("--volume", f"{name}:{target}{end}" if source and has_volume(name) else target, key)
        else:
            draft.leave(key)
    for kind in ("secrets", "configs"):
        for each in given.get(kind) or ():
            file = ((config.get(kind) or {}).get(each.get("source")) or {}).get("file")
            usual = f"/run/secrets/{each.get('source')}" if kind == "secrets" else f"/{each.get('source')}"
            target = each.get("target") or usual
            if file:
                inside = target if target.startswith("/") else f"/run/secrets/{target}"
                draft.add("--volume", f"{file}:{inside}:ro", f"{kind}.{each.get('source')}")
            else:
                draft.leave(f"{kind}.{each.get('source')}")
    for each in given.get("devices") or ():
        text = (
            each
            if isinstance(each, str)
            else ":".join(filter(None, map(each.get, ("source", "target", "permissions"))))
        )
        draft.add("--device", text, "devices")
    for each in given.get("ports") or ():
        published = f"{each['published']}:" if each.get("published") else ""
        draft.add("--publish", f"{published}{each['target']}", "ports")


# A pod.

_NODE = (
    "the node, its kubelet and its other pods",
    "the cluster's DNS and network",
    "the control group of its quality of service",
)
_OF_PODS = {  # of its specification: what has its place here, or changes nothing of a container that runs once
    "containers", "initContainers", "volumes", "restartPolicy", "hostNetwork", "hostPID", "hostIPC", "hostname",
    "securityContext", "dnsConfig", "terminationGracePeriodSeconds", "enableServiceLinks", "imagePullSecrets",
    "automountServiceAccountToken", "activeDeadlineSeconds", "subdomain",
}  # fmt: skip
_OF_CONTAINERS = {
    "name", "image", "command", "args", "env", "workingDir", "resources", "volumeMounts", "securityContext", "ports",
    "tty", "stdin", "imagePullPolicy", "restartPolicy", "terminationMessagePath", "terminationMessagePolicy",
}  # fmt: skip
_RIGHTS = {
    "runAsUser", "runAsGroup", "runAsNonRoot", "privileged", "readOnlyRootFilesystem", "capabilities",
    "allowPrivilegeEscalation", "seccompProfile", "supplementalGroups",
}  # fmt: skip
_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30,
          "Ti": 1 << 40}  # fmt: skip
_QUANTITY = re.compile(r"([0-9.]+(?:e[0-9]+)?)(m|[kMGT]i?|Ki)?")
_VARIABLE = re.compile(r"\$(\$)|\$\((\w+)\)")


def quantity(text: object) -> float:
    """As Kubernetes writes them: 500m, 1.5, 512Mi, 1e9."""
    match = _QUANTITY.fullmatch(str(text))
    if match is None:
        raise StudyError(f"{text!r} is no quantity of Kubernetes, such as 500m or 512Mi.")
    number, unit = float(match[1]), match[2] or ""
    return number / 1000 if unit == "m" else number * _UNITS[unit]


def _expanded(text: object, env: Mapping[str, str]) -> str:
    """With the variables that were set before it; `$$` is one sign, and what is not set stays as it is."""
    return _VARIABLE.sub(lambda found: found[1] or env.get(found[2], found[0]), str(text))


def pod(documents: Sequence[Any], container: str | None, folder: str) -> Spec:
    """The container of this name, or the first of the first pod; `folder`: where volumes that its containers share lie
    on this device."""
    for document in documents:
        spec = _pod_spec(document)
        names = [each.get("name") for each in (spec or {}).get("containers") or ()]
        if spec and names and (container is None or container in names):
            return _of_pod(spec, container or names[0], folder)
    known = [each.get("name") for document in documents for each in (_pod_spec(document) or {}).get("containers") or ()]
    missing = f"no container {container!r}" if container else "no pod with containers"
    raise StudyError(f"the file has {missing}. Its containers: {', '.join(map(str, known)) or 'none'}.")


def _pod_spec(document: Any) -> dict[str, Any] | None:
    """Of a pod, or of what makes pods from a template."""
    spec = document.get("spec") if isinstance(document, Mapping) else None
    for key in ("jobTemplate", "template"):
        if isinstance(spec, Mapping) and isinstance(spec.get(key), Mapping):
            spec = spec[key].get("spec")
            if key == "jobTemplate" and isinstance(spec, Mapping):
                spec = (spec.get("template") or {}).get("spec")
    return dict(spec) if isinstance(spec, Mapping) and "containers" in spec else None


def _of_pod(spec: Mapping[str, Any], name: str, folder: str) -> Spec:
    first = [(each, "started" if each.get("restartPolicy") == "Always" else "completed")
             for each in spec.get("initContainers") or ()]  # fmt: skip
    others = [(each, "started") for each in spec["containers"] if each["name"] != name]
    (main,) = (each for each in spec["containers"] if each["name"] == name)
    beside = tuple(_container(spec, each, wait, folder) for each, wait in (*first, *others))  # type: ignore[arg-type]
    unread = tuple(f"spec.{key}" for key in spec if key not in _OF_PODS)
    return Spec(_container(spec, main, "started", folder), beside, True, (*_NODE, *unread))


def _container(spec: Mapping[str, Any], given: Mapping[str, Any], wait: Wait, folder: str) -> Member:
    draft = _Draft(f"containers.{given['name']}")
    for name, option in (("hostNetwork", "--network=host"), ("hostPID", "--pid=host"), ("hostIPC", "--ipc=host")):
        if spec.get(name):
            draft.add(option, True, name)
    for each in (spec.get("dnsConfig") or {}).get("options") or ():
        text = f"{each['name']}:{each['value']}" if each.get("value") else each["name"]
        draft.add("--dns-option", text, f"dnsConfig.options.{each['name']}")
    env: dict[str, str] = {}
    for each in given.get("env") or ():
        if "valueFrom" in each:
            draft.leave(f"env.{each['name']}")
        else:
            env[each["name"]] = _expanded(each.get("value") or "", env)
            draft.add("--env", f"{each['name']}={env[each['name']]}", f"env.{each['name']}")
    if given.get("workingDir"):
        draft.add("--workdir", given["workingDir"], "workingDir")
    resources = given.get("resources") or {}
    for key, option, factor in (("cpu", "--cpus", 1), ("memory", "--memory", 0)):
        if (limit := (resources.get("limits") or {}).get(key)) is not None:
            draft.add(option, f"{quantity(limit):g}" if factor else round(quantity(limit)), f"resources.limits.{key}")
    wanted = (resources.get("requests") or resources.get("limits") or {}).get("cpu")
    if wanted is not None:
        draft.add("--cpu-shares", max(2, round(quantity(wanted) * 1024)), "resources.requests.cpu")
    limits = resources.get("limits") or {}
    if count := round(quantity(limits.get("nvidia.com/gpu", 0))):
        draft.add("--gpus", count, "resources.limits.nvidia.com/gpu")
    draft.leave(*(f"resources.limits.{key}" for key in limits if "gpu" in key and key != "nvidia.com/gpu"))
    _add_rights(draft, spec.get("securityContext") or {}, given.get("securityContext") or {})
    _add_mounts(draft, {each["name"]: each for each in spec.get("volumes") or ()}, given, folder)
    draft.leave(*(key for key in given if key not in _OF_CONTAINERS))
    words = [[_expanded(word, env) for word in given[key]] if given.get(key) else None for key in ("command", "args")]
    return draft.member(given["name"], given["image"], draft.entry(words[0], words[1], "command"), wait)


def _add_rights(draft: _Draft, of_pod: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    user, group = (own.get(key, of_pod.get(key)) for key in ("runAsUser", "runAsGroup"))
    if user is not None:
        draft.add("--user", user if group is None else f"{user}:{group}", "securityContext.runAsUser")
    for each in of_pod.get("supplementalGroups") or ():
        draft.add("--group-add", each, "securityContext.supplementalGroups")
    draft.leave(*(f"securityContext.{key}" for key in {**of_pod, **own} if key not in _RIGHTS))
    for key, option in (("privileged", "--privileged"), ("readOnlyRootFilesystem", "--read-only")):
        if own.get(key):
            draft.add(option, True, f"securityContext.{key}")
    for key in ("add", "drop"):
        for each in (own.get("capabilities") or {}).get(key) or ():
            draft.add(f"--cap-{key}", each, f"securityContext.capabilities.{key}")
    if own.get("allowPrivilegeEscalation") is False:
        draft.add("--security-opt", "no-new-privileges", "securityContext.allowPrivilegeEscalation")
    profile = (own.get("seccompProfile") or of_pod.get("seccompProfile") or {}).get("type", "Unconfined")
    if profile == "Unconfined":  # what a pod has that says nothing
        draft.add("--security-opt", "seccomp=unconfined", "securityContext.seccompProfile")
    elif profile != "RuntimeDefault":
        draft.leave("securityContext.seccompProfile")


def _add_mounts(draft: _Draft, volumes: Mapping[str, Any], given: Mapping[str, Any], folder: str) -> None:
    for each in given.get("volumeMounts") or ():
        volume, target = volumes.get(each["name"]) or {}, each["mountPath"]
        key, end = f"volumeMounts.{each['name']}", ":ro" if each.get("readOnly") else ""
        below = f"/{each['subPath']}" if each.get("subPath") else ""
        if path := (volume.get("hostPath") or {}).get("path"):
            draft.add("--volume", f"{path}{below}:{target}{end}", key)
        elif (volume.get("emptyDir") or {}).get("medium") == "Memory":
            size = volume["emptyDir"].get("sizeLimit")
            draft.add("--tmpfs", f"{target}:size={round(quantity(size))}" if size else target, key)
        elif "emptyDir" in volume:  # its containers share it
            draft.add("--volume", f"{folder}/{each['name']}{below}:{target}{end}", key)
        else:  # of the cluster: a claim, a config map, a secret
            draft.leave(key)


def shared_folders(spec: Spec, folder: str) -> Iterator[str]:
    """Those below the folder that the lines of a pod mount."""
    for member in (spec.main, *spec.beside):
        sources = [word.removeprefix("--volume=").partition(":")[0] for word in member.words if "--volume=" in word]
        yield from (source for source in sources if source.startswith(f"{folder}/"))
