"""The host feature profile: what this host can do, and why not, and what would help.

One self-contained file for Python >= 3.8 (hence its length): ``python3 - < probe.py`` works on a
bare host. Every
probe runs in a forked child with a deadline, so that a stuck driver or a crashing library is a
feature that failed and not a probe that hangs. Nothing on the host is changed. Reasons hold no
numbers that change by themselves; those are evidence.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import json
import os
import platform
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, TextIO

    Feature = dict[str, Any]

PASSED, FAILED, UNSUPPORTED, UNQUALIFIED = "passed", "failed", "unsupported", "unqualified"
MINIMUM_CRIU = (4, 1)
_CRIU_FOR_SOCKETS = (4, 2)
MINIMUM_KERNEL = (5, 9)
MINIMUM_PYTHON = (3, 10)
CAPABILITIES = {
    "sys_admin": 21,
    "sys_ptrace": 19,
    "net_admin": 12,
    "sys_resource": 24,
    "checkpoint_restore": 40,
}
NAMESPACES = {
    "mount": 0x00020000,
    "uts": 0x04000000,
    "ipc": 0x08000000,
    "pid": 0x20000000,
    "net": 0x40000000,
}
_IO_URING_SETUP, _CLONE3 = 425, 435
_CHECKPOINT_API = tuple(
    "cuCheckpointProcess" + name for name in ("GetState", "Lock", "Checkpoint", "Restore", "Unlock")
)
_CRIU_NEEDS = (
    "root",
    "kernel",
    "python",
    "cap.sys_admin",
    "cap.sys_ptrace",
    "cap.net_admin",
    "namespaces",
    "seccomp",
    "pid-choice",
    "criu",
    "criu.dump",
)
_API = "cuda-checkpoint-api"
# Of each snapshot driver for GPUs: the NVIDIA driver that it needs, what else, and why nobody has
# shown that it works, if so. As in coldsnap.artifact.drivers, which a bare host does not have.
_GPU_DRIVERS: dict[str, tuple[int, tuple[str, ...], str]] = {
    "c580": (580, (_API,), ""),
    "n580": (580, (), ""),
    "n610": (610, (_API,), "no NVIDIA driver >= 610 was at hand when this was built"),
}


class Options:
    def __init__(self, state_dir: str = "/var/lib/coldsnap", criu: str = "") -> None:
        self.state_dir = state_dir
        self.criu = criu
        self.scratch = ""
        """A folder for the time of the probes."""


def passed(**evidence: Any) -> Feature:
    return {"status": PASSED, "reason": "", "remedy": "", "evidence": evidence}


def lacking(status: str, reason: str, remedy: str = "", **evidence: Any) -> Feature:
    return {"status": status, "reason": reason, "remedy": remedy, "evidence": evidence}


# --- the probes -----------------------------------------------------------------------------


def probe_root(options: Options) -> Feature:
    del options
    if os.geteuid() == 0:
        return passed(uid=0)
    return lacking(
        FAILED,
        "not root",
        "connect as root, or set _sudo: true for this host in the inventory",
        uid=os.geteuid(),
    )


def capability(name: str) -> Callable[[Options], Feature]:
    def probe(options: Options) -> Feature:
        del options
        effective = int(_field("/proc/self/status", "CapEff"), 16)
        if effective >> CAPABILITIES[name] & 1:
            return passed()
        return lacking(
            FAILED,
            f"CAP_{name.upper()} is not among the effective capabilities",
            f"in a container: --cap-add {name.upper()}",
            effective=f"{effective:x}",
        )

    return probe


def probe_kernel(options: Options) -> Feature:
    del options
    release = platform.release()
    if _version(release) >= MINIMUM_KERNEL:
        return passed(release=release)
    wanted = ".".join(map(str, MINIMUM_KERNEL))
    return lacking(FAILED, f"kernel {release} is older than {wanted}", "use a newer kernel")


def probe_python(options: Options) -> Feature:
    del options
    version = platform.python_version()
    if sys.version_info[:2] >= MINIMUM_PYTHON:
        return passed(version=version, executable=sys.executable)
    return lacking(
        FAILED,
        f"Python {version} is older than 3.10",
        "install a newer one and name it in the host variable `python`",
    )


def probe_libc(options: Options) -> Feature:
    del options
    name, version = platform.libc_ver()
    if name == "glibc":
        return passed(libc=name, version=version)
    return lacking(UNQUALIFIED, f"libc {name or 'unknown'} was never tried", "use a glibc system")


def probe_cpu(options: Options) -> Feature:
    del options
    model, flags = cpu()
    return passed(model=model, flags=len(flags), cores=os.cpu_count())


def probe_memory(options: Options) -> Feature:
    del options
    return passed(total=_kib("MemTotal"), available=_kib("MemAvailable"))


def probe_state_dir(options: Options) -> Feature:
    folder = _existing(options.state_dir)
    space = os.statvfs(folder)
    evidence = {
        "path": options.state_dir,
        "filesystem": _filesystem(folder),
        "free": space.f_bavail * space.f_frsize,
        "exists": folder == options.state_dir,
    }
    if not os.access(folder, os.W_OK):
        return lacking(FAILED, f"{folder} is not writable", "set state_dir for it", **evidence)
    return passed(**evidence)


def probe_direct_io(options: Options) -> Feature:
    folder = _existing(options.state_dir)
    try:
        descriptor = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_DIRECT, 0o600)
    except OSError as error:
        known = {errno.EINVAL: UNSUPPORTED, errno.EOPNOTSUPP: UNQUALIFIED}
        reason = f"O_DIRECT cannot be tried in {folder}: {error.strerror}"
        return lacking(known.get(error.errno or 0, FAILED), reason, "reads go through the cache")
    os.close(descriptor)
    return passed(filesystem=_filesystem(folder))


def probe_namespaces(options: Options) -> Feature:
    del options
    refused = {
        name: _in_child(functools.partial(_unshare, flag)) for name, flag in NAMESPACES.items()
    }
    missing = {name: reason for name, reason in refused.items() if reason}
    if not missing:
        return passed(kinds=sorted(NAMESPACES))
    reason = missing[min(missing)]
    return lacking(
        FAILED,
        f"no {', '.join(sorted(missing))} namespace can be made: {reason}",
        "run as root with CAP_SYS_ADMIN; in a container add it and lift its seccomp profile",
        refused=missing,
    )


def probe_seccomp(options: Options) -> Feature:
    """Install the filter that keeps io_uring away, and see that it does."""
    del options
    reason = _in_child(_deny_io_uring)
    if not reason:
        return passed()
    return lacking(
        FAILED, f"no seccomp filter: {reason}", "use a kernel with CONFIG_SECCOMP_FILTER"
    )


def probe_pid_choice(options: Options) -> Feature:
    """CRIU gives processes their old numbers: clone3 with set_tid."""
    del options
    reason = _in_child(_choose_pid)
    evidence = {"ns_last_pid_writable": os.access("/proc/sys/kernel/ns_last_pid", os.W_OK)}
    if not reason:
        return passed(method="clone3 set_tid", **evidence)
    return lacking(
        FAILED,
        f"process numbers cannot be chosen: {reason}",
        "run as root; in a container: --security-opt seccomp=unconfined",
        **evidence,
    )


def probe_criu(options: Options) -> Feature:
    path = criu_path(options)
    if not path:
        system = shutil.which("criu") or ""
        where = options.criu or "PATH"
        return lacking(
            UNQUALIFIED,
            f"there is no CRIU yet ({where})",
            "stage the runtime pack, which brings one: core.stage",
            system=system,
        )
    shown = _run([path, "--version"])
    found = re.search(r"Version: (\S+)", shown.stdout)
    version = found.group(1) if found else ""
    evidence = {"path": path, "version": version}
    remedy = "use the runtime pack's CRIU, or set COLDSNAP_CRIU to a newer one"
    if _version(version) < MINIMUM_CRIU:
        said = version or _first_line(shown)
        return lacking(FAILED, f"CRIU {said} is older than 4.1", remedy, **evidence)
    checked = _run([path, "check"])
    if checked.returncode == 0:
        return passed(**evidence)
    reason = f"criu check fails: {_first_error(checked)}"
    if "Bad maps format" in reason:  # it reads lines of /proc/self/maps up to 255 characters
        folder = os.path.dirname(path)
        reason = f"criu check fails: its folder has too long a path ({len(folder)} characters)"
        remedy = "set a shorter state_dir: with 70 characters it fits"
    return lacking(FAILED, reason, remedy, exit_status=checked.returncode, **evidence)


def probe_criu_dump(options: Options) -> Feature:
    """Dump a process that listens on a socket: a CRIU can pass its own check and fail at this."""
    path = criu_path(options)
    if not path:
        return lacking(UNQUALIFIED, "there is no CRIU yet", "stage the runtime pack")
    child = _start_listener()
    folder = options.scratch
    try:
        done = _run([path, "dump", "-t", str(child), "-D", folder, "-o", "dump.log"])
        text = _read(os.path.join(folder, "dump.log")) + done.stderr
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if done.returncode == 0:
        return passed()
    errors = [line for line in text.splitlines() if "Error (" in line and "rlimit" not in line]
    first = re.sub(r"pid:? \d+", "pid", errors[0].strip()) if errors else _first_line(done)
    reason = f"a trial dump fails: {first}"
    remedy = "read CRIU's documentation on that error, or try another CRIU (COLDSNAP_CRIU)"
    if _is_old_for_sockets(options):
        remedy = "use CRIU 4.2 or newer: this kernel refuses what older ones ask of TCP sockets"
    return lacking(FAILED, reason, remedy, errors=errors[:5])


def _is_old_for_sockets(options: Options) -> bool:
    """Kernels since 6.16 answer SO_PASSCRED on local and netlink sockets only."""
    with socket.socket() as probe_socket:
        try:
            probe_socket.getsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED)
        except OSError:
            found = re.search(r"Version: (\S+)", _run([criu_path(options), "--version"]).stdout)
            return found is not None and _version(found.group(1)) < _CRIU_FOR_SOCKETS
    return False


def _start_listener() -> int:
    """A small process with a listening socket, in a session of its own."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: it ends with the probe
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        listener = socket.create_server(("127.0.0.1", 0))
        os.write(writer, b"up")
        keep = listener.fileno()
        os.closerange(3, keep)
        os.closerange(keep + 1, 4096)
        time.sleep(3600)
        os._exit(0)
    os.close(writer)
    os.read(reader, 2)
    os.close(reader)
    return child


def criu_feature(name: str, without: str) -> Callable[[Options], Feature]:
    def probe(options: Options) -> Feature:
        path = criu_path(options)
        if not path:
            return lacking(UNQUALIFIED, "there is no CRIU yet", "stage the runtime pack")
        if _run([path, "check", "--feature", name]).returncode == 0:
            return passed()
        return lacking(UNSUPPORTED, f"this kernel does not offer {name}", without)

    return probe


def probe_docker(options: Options) -> Feature:
    del options
    path = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").partition("unix://")[2]
    if not path or not os.path.exists(path):
        remedy = "start dockerd; units with `runtime: process` do without"
        return lacking(UNSUPPORTED, f"no docker socket at {path or 'DOCKER_HOST'}", remedy)
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(5)
    try:
        connection.connect(path)
        connection.sendall(b"GET /version HTTP/1.0\r\nHost: docker\r\n\r\n")
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
        version = json.loads(answer.partition(b"\r\n\r\n")[2]).get("Version", "")
    except (OSError, ValueError) as error:
        return lacking(
            FAILED, f"docker does not answer on {path}: {error}", "look at dockerd's log"
        )
    finally:
        connection.close()
    return passed(socket=path, version=version)


def probe_nvidia(options: Options) -> Feature:
    del options
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        remedy = "install the NVIDIA driver; in a container: --gpus"
        return lacking(UNSUPPORTED, "no NVIDIA driver (libnvidia-ml.so.1)", remedy)
    code = nvml.nvmlInit_v2()
    if code != 0:
        return lacking(FAILED, f"NVML does not start (code {code})", "look at nvidia-smi")
    version = _nvml_text(nvml.nvmlSystemGetDriverVersion)
    count = ctypes.c_uint()
    nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
    gpus = [_gpu(nvml, index) for index in range(count.value)]
    if not gpus:
        return lacking(FAILED, "the driver shows no GPU", "in a container: --gpus", driver=version)
    return passed(driver=version, gpus=gpus)


def probe_cuda_checkpoint(options: Options) -> Feature:
    del options
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return lacking(UNSUPPORTED, "no CUDA driver library (libcuda.so.1)", "install the driver")
    missing = [name for name in _CHECKPOINT_API if not hasattr(cuda, name)]
    if missing:
        reason = f"libcuda lacks {', '.join(missing)}"
        return lacking(UNSUPPORTED, reason, "use an NVIDIA driver >= 570")
    return passed(api=list(_CHECKPOINT_API))


def probe_huge_pages(options: Options) -> Feature:
    """How the kernel gives transparent huge pages: told, never a lack (docs/benchmarks.md)."""
    del options
    found = re.search(r"\[(\w+)\]", _read("/sys/kernel/mm/transparent_hugepage/enabled"))
    return passed(mode=found.group(1) if found else "unknown")


def probe_io_uring(options: Options) -> Feature:
    del options
    value = _read("/proc/sys/kernel/io_uring_disabled").strip()
    meaning = {"0": "allowed", "1": "privileged processes only", "2": "off"}
    return passed(sysctl=value, host=meaning.get(value, "allowed"), units="kept away by seccomp")


def probe_firewall(options: Options) -> Feature:
    del options
    tools = {name: shutil.which(name, path=_SBIN) or "" for name in ("nft", "iptables")}
    if any(tools.values()):
        return passed(**tools)
    reason = "neither nft nor iptables is installed: CRIU's network lock is skipped"
    return lacking(UNSUPPORTED, reason, "install nftables to dump with open client connections")


def probe_clock(options: Options) -> Feature:
    del options
    boottime = time.clock_gettime(time.CLOCK_BOOTTIME)
    if time.time() > _SOME_PAST:
        return passed(unix=round(time.time(), 3), boottime=round(boottime, 3))
    return lacking(FAILED, "the wall clock is years behind", "set it (NTP); TLS needs it")


PROBES: dict[str, Callable[[Options], Feature]] = {
    "root": probe_root,
    **{f"cap.{name}": capability(name) for name in CAPABILITIES},
    "kernel": probe_kernel,
    "python": probe_python,
    "libc": probe_libc,
    "cpu": probe_cpu,
    "memory": probe_memory,
    "state-dir": probe_state_dir,
    "direct-io": probe_direct_io,
    "namespaces": probe_namespaces,
    "seccomp": probe_seccomp,
    "pid-choice": probe_pid_choice,
    "criu": probe_criu,
    "criu.dump": probe_criu_dump,
    "criu.lazy_pages": criu_feature("lazy_pages", "pages are restored at once instead"),
    "criu.mem_dirty_track": criu_feature("mem_dirty_track", "no incremental dumps"),
    "docker": probe_docker,
    "nvidia": probe_nvidia,
    "cuda-checkpoint-api": probe_cuda_checkpoint,
    "huge-pages": probe_huge_pages,
    "io-uring": probe_io_uring,
    "firewall": probe_firewall,
    "clock": probe_clock,
}
_AT_ONCE = (
    "root",
    *(f"cap.{name}" for name in CAPABILITIES),
    "kernel",
    "python",
    "libc",
    "cpu",
    "memory",
    "huge-pages",
    "io-uring",
    "clock",
)
"""They read a few lines from the kernel and cannot hang; the others are tried in children."""
_DEADLINES = {"criu": 30.0, "criu.dump": 30.0, "nvidia": 30.0, "cuda-checkpoint-api": 30.0}
_DEADLINE = 10.0
_SOME_PAST = 1_700_000_000
_WANTED_PID = 77


# --- the profile ----------------------------------------------------------------------------


def profile(options: Options, known: Mapping[str, Feature] | None = None) -> dict[str, Any]:
    """All features, probed at the same time; see the module's text for their form.

    `known` ones are taken as they are.
    """
    started = time.time()
    kept = known or {}
    options.scratch = tempfile.mkdtemp(prefix="coldsnap-probe-")
    try:
        missing = [name for name in PROBES if name not in kept]
        children = {name: _start(name, options) for name in missing if name not in _AT_ONCE}
        probed = {name: _tried(name, options) for name in missing if name in _AT_ONCE}
        probed.update({name: _collect(name, *child) for name, child in children.items()})
    finally:
        shutil.rmtree(options.scratch, ignore_errors=True)
    features = {name: dict(kept[name]) if name in kept else probed[name] for name in PROBES}
    features["driver.criu"] = _driver(features, _CRIU_NEEDS)
    features["criu-process-tree"] = features["driver.criu"]  # its name in artifacts
    features["criu-process-template"] = features["driver.criu"]
    features["cuda-fresh-state"] = _gpu_driver(features, 580, ())
    features["cuda-initialized-state"] = _gpu_driver(features, 580, (_API,))
    features["cuda-classic-ipc"] = _gpu_driver(features, 610, (_API,))
    for name, (major, needs, unshown) in _GPU_DRIVERS.items():
        feature = _gpu_driver(features, major, (*_CRIU_NEEDS, *needs))
        if name == "n580" and feature["status"] != PASSED:
            feature["reason"] += " (a unit without devices needs criu-process-template only)"
        if feature["status"] == PASSED and unshown:
            remedy = "name it in the plan to try it; driver: auto takes another one"
            feature = lacking(UNQUALIFIED, unshown, remedy, able=True)
        features[f"driver.{name}"] = feature
    return {
        "format": 1,
        "kind": "coldsnap-host-feature-profile",
        "identity": identity(features),
        "features": [{"id": name, "seconds": 0.0, **feature} for name, feature in features.items()],
        "started_unix": round(started, 3),
        "completed_unix": round(time.time(), 3),
    }


def identity(features: dict[str, Feature]) -> dict[str, Any]:
    model, flags = cpu()
    nvidia = features["nvidia"]["evidence"]
    return {
        # Images of machines often come without the former.
        "machine_id": _read("/etc/machine-id").strip()
        or _read("/sys/class/dmi/id/product_uuid").strip().lower(),
        "boot_id": _read("/proc/sys/kernel/random/boot_id").strip(),
        "hostname": socket.gethostname(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "cpu": {"model": model, "flags": flags, "cores": os.cpu_count() or 0},
        "python": platform.python_version(),
        "libc": " ".join(platform.libc_ver()),
        "nvidia_driver": nvidia.get("driver", ""),
        "gpus": nvidia.get("gpus", []),
    }


def cpu() -> tuple[str, list[str]]:
    """(model, sorted feature flags) of the first processor."""
    model = _field("/proc/cpuinfo", "model name") or _field("/proc/cpuinfo", "CPU part")
    flags = _field("/proc/cpuinfo", "flags") or _field("/proc/cpuinfo", "Features")
    return model, sorted(set(flags.split()))


def criu_path(options: Options) -> str:
    """The CRIU to look at; empty if it is not there."""
    if options.criu:
        return options.criu if os.access(options.criu, os.X_OK) else ""
    return os.environ.get("COLDSNAP_CRIU") or shutil.which("criu", path=_SBIN) or ""


def _driver(features: dict[str, Feature], needs: tuple[str, ...]) -> Feature:
    missing = [name for name in needs if features[name]["status"] != PASSED]
    if not missing:
        return passed(needs=list(needs))
    # What certainly fails weighs more than what is not known yet.
    certain = [name for name in missing if features[name]["status"] != UNQUALIFIED]
    first = (certain or missing)[0]
    feature = features[first]
    status = feature["status"] if certain else UNQUALIFIED
    return lacking(status, f"{first}: {feature['reason']}", feature["remedy"], missing=missing)


def _gpu_driver(features: dict[str, Feature], major: int, needs: tuple[str, ...]) -> Feature:
    """What a host with an NVIDIA driver >= `major` can do, given `needs`."""
    version = str(features["nvidia"]["evidence"].get("driver", ""))
    if features["nvidia"]["status"] != PASSED:
        return lacking(UNSUPPORTED, features["nvidia"]["reason"], features["nvidia"]["remedy"])
    if _version(version) < (major,):
        reason = f"NVIDIA driver {version} is older than {major}"
        return lacking(UNSUPPORTED, reason, f"install an NVIDIA driver >= {major}")
    return _driver(features, (*needs, "nvidia"))


# --- children with a deadline ---------------------------------------------------------------


def _tried(name: str, options: Options) -> Feature:
    begin = time.monotonic()
    try:
        feature = PROBES[name](options)
    except Exception as error:  # noqa: BLE001  (a probe that fails is a feature that fails)
        feature = lacking(FAILED, f"the probe failed: {type(error).__name__}: {error}")
    feature["seconds"] = round(time.monotonic() - begin, 4)
    return feature


def _start(name: str, options: Options) -> tuple[int, int, float]:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        os.close(reader)
        with os.fdopen(writer, "w") as file:
            json.dump(_tried(name, options), file)
        os._exit(0)
    os.close(writer)
    return child, reader, time.monotonic()


def _collect(name: str, child: int, reader: int, begin: float) -> Feature:
    limit = _DEADLINES.get(name, _DEADLINE)
    data = b""
    while True:
        left = begin + limit - time.monotonic()
        if left <= 0 or not select.select([reader], [], [], left)[0]:
            break
        block = os.read(reader, 65536)
        if not block:
            break
        data += block
    os.close(reader)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    seconds = time.monotonic() - begin
    status = os.waitpid(child, 0)[1]
    try:
        feature: Feature = json.loads(data)
    except ValueError:
        late = f"no answer within {limit:.0f} s"
        reason = late if seconds >= limit else f"the probe died (status {status})"
        feature = lacking(FAILED, reason, "look at the host's kernel log")
        feature["seconds"] = round(seconds, 4)
    return feature


def _in_child(work: Callable[[], str]) -> str:
    """Why `work` failed, empty if it did not; what it does to its process is gone afterwards."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            reason = work()
        except BaseException as error:  # noqa: BLE001  (the child must end here)
            reason = f"{type(error).__name__}: {error}"
        os.write(writer, reason.encode()[:4096])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        answer = file.read().decode()
    status = os.waitpid(child, 0)[1]
    return answer or (f"killed by signal {status & 127}" if status & 127 else "")


def _unshare(flag: int) -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    return "" if libc.unshare(flag) == 0 else os.strerror(ctypes.get_errno())


class _Filter(ctypes.Structure):
    _fields_ = [
        ("code", ctypes.c_uint16),
        ("jt", ctypes.c_uint8),
        ("jf", ctypes.c_uint8),
        ("k", ctypes.c_uint32),
    ]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_uint16), ("filter", ctypes.POINTER(_Filter))]


def _deny_io_uring() -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    steps = (_Filter * 4)(
        _Filter(0x20, 0, 0, 0),  # load the system call's number
        _Filter(0x15, 0, 1, _IO_URING_SETUP),  # is it io_uring_setup?
        _Filter(0x06, 0, 0, 0x00050000 | errno.ENOSYS),  # then: no such system call
        _Filter(0x06, 0, 0, 0x7FFF0000),  # else: allow
    )
    program = _Program(4, steps)
    if libc.prctl(38, 1, 0, 0, 0) != 0:  # PR_SET_NO_NEW_PRIVS
        return os.strerror(ctypes.get_errno())
    if libc.prctl(22, 2, ctypes.byref(program), 0, 0) != 0:  # PR_SET_SECCOMP, filter
        return os.strerror(ctypes.get_errno())
    libc.syscall(_IO_URING_SETUP, 1, 0)
    got = ctypes.get_errno()
    return "" if got == errno.ENOSYS else f"a filtered call gave {os.strerror(got)}"


def _choose_pid() -> str:
    """In a PID namespace of our own, ask for a child with a certain number."""
    if reason := _unshare(NAMESPACES["pid"]):
        return reason
    return _in_child(_clone_with_pid)


def _clone_with_pid() -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    wanted = (ctypes.c_int32 * 1)(_WANTED_PID)
    fields = [0] * 11
    fields[4] = signal.SIGCHLD
    fields[8], fields[9] = ctypes.addressof(wanted), 1  # set_tid, set_tid_size
    arguments = (ctypes.c_uint64 * 11)(*fields)
    child = libc.syscall(_CLONE3, ctypes.byref(arguments), ctypes.sizeof(arguments))
    if child == 0:
        os._exit(0)
    if child < 0:
        return os.strerror(ctypes.get_errno())
    os.waitpid(child, 0)
    return "" if child == _WANTED_PID else f"asked for {_WANTED_PID}, got {child}"


# --- small readers --------------------------------------------------------------------------

_SBIN = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin"


def _run(argv: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        errors="replace",
        check=False,
        cwd="/",
    )


def _first_error(done: subprocess.CompletedProcess[str]) -> str:
    lines = (done.stdout + "\n" + done.stderr).splitlines()
    errors = [line.strip() for line in lines if "Error (" in line]
    return errors[0] if errors else _first_line(done)


def _first_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    return lines[0] if lines else f"exit status {done.returncode}"


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _field(path: str, name: str) -> str:
    """The value of the first ``name : value`` line."""
    found = re.search(rf"^{re.escape(name)}\s*:\s*(.*)$", _read(path), re.MULTILINE)
    return found.group(1).strip() if found else ""


def _kib(name: str) -> int:
    return int(_field("/proc/meminfo", name).split()[0]) * 1024


def _version(text: str) -> tuple[int, ...]:
    found = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in found.group().split(".")) if found else ()


def _existing(path: str) -> str:
    while not os.path.isdir(path):
        path = os.path.dirname(path) or "/"
    return path


def _filesystem(path: str) -> str:
    """The type of the file system at `path`."""
    best, kind = "", ""
    for line in _read("/proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        point = left.split()[4].replace("\\040", " ")
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, right.split()[0]
    return kind


def _nvml_text(function: Any, *arguments: Any) -> str:
    buffer = ctypes.create_string_buffer(96)
    return buffer.value.decode() if function(*arguments, buffer, 96) == 0 else ""


class _NvmlMemory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


def _gpu(nvml: Any, index: int) -> dict[str, Any]:
    handle, memory = ctypes.c_void_p(), _NvmlMemory()
    major, minor = ctypes.c_int(), ctypes.c_int()
    nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle))
    nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
    nvml.nvmlDeviceGetCudaComputeCapability(handle, ctypes.byref(major), ctypes.byref(minor))
    return {
        "index": index,
        "name": _nvml_text(nvml.nvmlDeviceGetName, handle),
        "uuid": _nvml_text(nvml.nvmlDeviceGetUUID, handle),
        "memory_total": memory.total,
        "memory_free": memory.free,
        "compute_capability": f"{major.value}.{minor.value}",
    }


# --- alone on a host --------------------------------------------------------------------------


def main(argv: list[str], stdin: TextIO) -> int:
    """Alone on a host: options by ``--state-dir``, ``--criu`` or as JSON on stdin."""
    values: dict[str, str] = {}
    text = "" if stdin.isatty() else stdin.read(1 << 16)
    with contextlib.suppress(ValueError):
        values = json.loads(text) if text.strip() else {}
    for name, value in zip(argv[::2], argv[1::2]):  # noqa: B905  (Python 3.8 has no strict)
        values[name.lstrip("-").replace("-", "_")] = value
    options = Options(values.get("state_dir") or "/var/lib/coldsnap", values.get("criu") or "")
    print(json.dumps({"event": "result", "ok": True, "result": profile(options)}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], sys.stdin))
