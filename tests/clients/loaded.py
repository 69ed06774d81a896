# SPDX-License-Identifier: Apache-2.0
"""Which libnccl.so.2 this process uses, and whose it is."""

import ctypes
import os
import sys


class _Info(ctypes.Structure):
    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p),
                ("address", ctypes.c_void_p)]


def mapped():
    """The files named like it that are mapped."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return sorted({line.split()[-1] for line in maps if "libnccl" in line and "/" in line})


def in_use():
    """The file that calls go to. One that was preloaded wins over any that is opened later: its names come first."""
    everything = ctypes.CDLL(None)
    try:
        function = everything.ncclAllReduce
    except AttributeError:
        files = mapped()
        return files[0] if len(files) == 1 else None
    info = _Info()
    everything.dladdr(ctypes.cast(function, ctypes.c_void_p), ctypes.byref(info))
    return info.file.decode() if info.file else None


def owner(file):
    """Tutti's library names itself in its texts."""
    with open(file, "rb") as library:
        return "tutti" if b"TUTTI_CONFIG" in library.read() else "nccl"


def check(expected):
    """The file in use; ends the process where it is not `expected`'s ("tutti", "nccl", or "any")."""
    file = in_use()
    if file is None:
        sys.exit(f"no libnccl.so.2 is in use, or one of several: {mapped()}")
    if expected not in ("any", owner(file)):
        sys.exit(f"libnccl.so.2 is {owner(file)}'s, not {expected}'s: {file} (mapped: {mapped()})")
    return file


def check_log(expected):
    """For programs that open the library by themselves: where Tutti is expected and TUTTI_LOG_FILE set, its log (at
    TUTTI_LOG_LEVEL=info) must tell of communicators on GPUs."""
    path = os.environ.get("TUTTI_LOG_FILE")
    if expected != "tutti" or path is None:
        return
    with open(path, encoding="utf-8") as log:
        if "GPU 0: " not in log.read():
            sys.exit(f"nothing was communicated through Tutti: {path} tells of no communicator")
