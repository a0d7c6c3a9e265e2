#!/usr/bin/env python3
"""Runs a program under the system call filter of a systemd unit, as systemd does. A system call that the
filter does not allow kills the program.

  under_filter.py UNIT PROGRAM ARGUMENT...
"""
import ctypes
import os
import re
import struct
import subprocess
import sys

HEADER = "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, KILL = 0x7FFF0000, 0x80000000
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2


def expand(name):
    """The system calls of a group (@service), or the single call itself."""
    if not name.startswith("@"):
        return {name}
    listing = subprocess.run(["systemd-analyze", "syscall-filter", name], check=True,
                             capture_output=True, text=True).stdout.splitlines()
    members = [line.strip() for line in listing[1:]]
    return set().union(*(expand(m) for m in members if m and not m.startswith("#")))


def allowed_by(unit):
    """The allowed system calls. The first line lists them; later lines add calls, or remove them with ~."""
    calls = expand("@default") | {"execve"}
    for line in open(unit, encoding="utf-8"):
        match = re.match(r"SystemCallFilter=(~?)(.*)", line)
        if not match:
            continue
        named = set().union(*(expand(name) for name in match[2].split()))
        calls = calls - named if match[1] else calls | named
    return calls


def install(calls):
    numbers = {}
    for line in open(HEADER, encoding="utf-8"):
        match = re.match(r"#define __NR_(\w+)\s+(\d+)", line)
        if match:
            numbers[match[1]] = int(match[2])
    program = [struct.pack("HBBI", LOAD, 0, 0, 0)]
    for number in sorted(numbers[call] for call in calls if call in numbers):
        program.append(struct.pack("HBBI", EQUAL, 0, 1, number))
        program.append(struct.pack("HBBI", RETURN, 0, 0, ALLOW))
    program.append(struct.pack("HBBI", RETURN, 0, 0, KILL))
    code = ctypes.create_string_buffer(b"".join(program))

    class Filter(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]

    libc = ctypes.CDLL(None, use_errno=True)
    described = Filter(len(program), ctypes.addressof(code))
    for call in ((PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
                 (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(described), 0, 0)):
        if libc.prctl(*call) != 0:
            sys.exit(f"prctl{call}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    install(allowed_by(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])
