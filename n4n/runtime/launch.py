"""Run by path in front of every child program: becomes who it shall be, ties its life to its parent's, and execs it.

    python -I -S launch.py PARENT_PID SIGNAL IDENTITY FOLDER PROGRAM [ARGUMENT ...]

A program of its own, not Popen(user=…, preexec_fn=…): no Python runs between fork and exec in a parent that may have threads or a gRPC
channel (such children crash before exec), and uvloop does not matter. Exit status 127 and one line on standard error: nothing was run.
IDENTITY is one of `same`, `user:UID:GID`, `passing:UID:GID`, `mapped:UID:GID`; n4n.runtime.process explains them. Linux ties lives
(prctl(2), PR_SET_PDEATHSIG); elsewhere a child outlives a killed parent.
"""

import ctypes
import os
import signal
import struct
import sys
from pathlib import Path

NOT_RUN = 127

PR_SET_PDEATHSIG, PR_SET_KEEPCAPS, PR_GET_SECUREBITS, PR_SET_SECUREBITS, PR_CAP_AMBIENT = 1, 8, 27, 28, 47
PR_CAP_AMBIENT_RAISE = 2
SECBIT_NO_SETUID_FIXUP = 1 << 2  # else access(2), which initdb asks, forgets the capability of a user who is not root
CLONE_NEWUSER = 0x10000000
LINUX_CAPABILITY_VERSION_3 = 0x20080522
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2


def main(arguments: list[str]) -> None:
    """Execs; returns only by exit."""
    parent, death_signal, identity, folder, *command = arguments
    try:
        _forget_signals()
        _become(identity)
        os.chdir(folder)
        _die_with(int(parent), int(death_signal))
    except OSError as error:
        _give_up(error, error.filename)
    try:
        os.execv(command[0], command)  # noqa: S606  # the argument list is ours
    except OSError as error:
        _give_up(error, command[0])


def _give_up(error: OSError, path: str | None) -> None:
    sys.stderr.write(f"{error.strerror}{f': {path}' if path else ''}\n")
    sys.exit(NOT_RUN)


def _forget_signals() -> None:
    """A shell's `n4n up &` starts us with SIGINT ignored, and that would be inherited."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _become(identity: str) -> None:
    kind, _, ids = identity.partition(":")
    if kind == "same":
        return
    uid, gid = map(int, ids.split(":"))
    if kind == "mapped":
        _enter_user_namespace(uid, gid)
        return
    passing = kind == "passing"
    if passing:
        _prctl(PR_SET_SECUREBITS, _prctl(PR_GET_SECUREBITS) | SECBIT_NO_SETUID_FIXUP)
        _prctl(PR_SET_KEEPCAPS, 1)
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)
    if passing:
        _keep_only(_folder_capability())


def _enter_user_namespace(uid: int, gid: int) -> None:
    """As `unshare --user --map-user --map-group`: still us on disk, another number inside (user_namespaces(7))."""
    outer_uid, outer_gid = os.geteuid(), os.getegid()
    _libc(_LIBC.unshare(CLONE_NEWUSER))
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/gid_map").write_text(f"{gid} {outer_gid} 1")
    Path("/proc/self/uid_map").write_text(f"{uid} {outer_uid} 1")


def _folder_capability() -> int:
    """The smaller one that lets a user enter any folder, of those we hold; Docker's default set has only the larger."""
    status = Path("/proc/self/status").read_text()
    held = int(next(line for line in status.splitlines() if line.startswith("CapPrm:")).split()[1], 16)
    return CAP_DAC_READ_SEARCH if held >> CAP_DAC_READ_SEARCH & 1 else CAP_DAC_OVERRIDE


def _keep_only(capability: int) -> None:
    """That capability and no other, also over exec (capabilities(7): ambient)."""
    bit = 1 << capability
    header = struct.pack("=Ii", LINUX_CAPABILITY_VERSION_3, 0)
    _libc(_LIBC.capset(header, struct.pack("=6I", bit, bit, bit, 0, 0, 0)))
    _prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability)


def _die_with(parent: int, death_signal: int) -> None:
    """Last, because a change of user clears it; the second look closes the gap in which the parent may have died."""
    if sys.platform == "linux":
        _prctl(PR_SET_PDEATHSIG, death_signal)
    if os.getppid() != parent:
        sys.exit(NOT_RUN)


def _prctl(option: int, *values: int) -> int:
    padded = [*values, 0, 0, 0, 0][:4]
    return _libc(_LIBC.prctl(option, *map(ctypes.c_ulong, padded)))


def _libc(answer: int) -> int:
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return answer


_LIBC = ctypes.CDLL(None, use_errno=True)

if __name__ == "__main__":
    main(sys.argv[1:])
