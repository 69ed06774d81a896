# SPDX-License-Identifier: Apache-2.0
"""Which libnccl.so.2 this process uses, and whose it is."""

import ctypes
import os
import re
import sys


class _Info(ctypes.Structure):
    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p),
                ("address", ctypes.c_void_p)]


def mapped():
    """The files named like it that are mapped."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return sorted({line.split()[-1] for line in maps if "libnccl" in line and "/" in line})


def _file_of(library):
    """Where an open library's calls are; None where it has none."""
    info = _Info()
    try:
        ctypes.CDLL(None).dladdr(ctypes.cast(library.ncclAllReduce, ctypes.c_void_p), ctypes.byref(info))
    except AttributeError:
        return None
    return info.file.decode() if info.file else None


def in_use():
    """The files to which calls go: calls of programs that are linked to the library, and of programs that open it by
    its name. A preloaded library comes first for both, also if a different library is opened by its path."""
    files = {_file_of(ctypes.CDLL(None))}
    try:
        files.add(_file_of(ctypes.CDLL("libnccl.so.2", mode=os.RTLD_NOW | os.RTLD_NOLOAD)))
    except OSError:
        pass
    return sorted(files - {None})


def owner(file):
    """Tutti's library names itself in its texts."""
    with open(file, "rb") as library:
        return "tutti" if b"TUTTI_CONFIG" in library.read() else "nccl"


def check(expected):
    """The file in use; ends the process where it is not `expected`'s ("tutti", "nccl", or "any")."""
    files = in_use()
    if len(files) != 1:
        sys.exit(f"WRONG    no libnccl.so.2 is in use, or several: {files} (mapped: {mapped()})")
    if expected not in ("any", owner(files[0])):
        sys.exit(f"WRONG    libnccl.so.2 is {owner(files[0])}'s, not {expected}'s: {files[0]} (mapped: {mapped()})")
    return files[0]


def check_log(expected, ranks):
    """The file in use does not show the calls of a program that opens libraries by itself. If Tutti is expected and
    TUTTI_LOG_FILE set, its log (at TUTTI_LOG_LEVEL=info) must name a communicator with each of the ranks."""
    path = os.environ.get("TUTTI_LOG_FILE")
    if expected != "tutti" or path is None:
        return
    if not os.path.exists(path):
        sys.exit(f"WRONG    Tutti was never called: there is no {path}")
    with open(path, encoding="utf-8", errors="replace") as log:
        told = {(int(rank), int(size)) for rank, size in re.findall(r"nccl: rank (\d+) of (\d+) on GPU", log.read())}
    absent = [rank for rank in range(ranks) if (rank, ranks) not in told]
    if absent:
        sys.exit(f"WRONG    ranks {absent} of {ranks} did not communicate through Tutti: {path} does not name them")
