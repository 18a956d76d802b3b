"""Runs a command as on Linux 4.18: newer system calls fail with ENOSYS.

Usage: python3 old_kernel.py PROGRAM ARGUMENT…
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys

# The first system call that 4.18 added. Both of that version (io_pgetevents and rseq) may be missing in it, depending
# on its configuration.
FIRST_MISSING = {"x86_64": 333, "aarch64": 292}[platform.machine()]
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
SECCOMP_RET_ERRNO, SECCOMP_RET_ALLOW = 0x00050000, 0x7FFF0000
LOAD_NUMBER, JUMP_IF_AT_LEAST, RETURN = 0x20, 0x35, 0x06  # instructions of classic BPF


def main() -> None:
    instructions = [
        (LOAD_NUMBER, 0, 0, 0),
        (JUMP_IF_AT_LEAST, 0, 1, FIRST_MISSING),
        (RETURN, 0, 0, SECCOMP_RET_ERRNO | errno.ENOSYS),
        (RETURN, 0, 0, SECCOMP_RET_ALLOW),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *i) for i in instructions))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(instructions), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    for argv in ((PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0)):
        if libc.prctl(*argv) != 0:
            sys.exit(f"prctl{argv[:2]}: {os.strerror(ctypes.get_errno())}")
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
