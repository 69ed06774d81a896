#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""libnccl.so.2 exports what compat/nccl/symbols.txt lists and nothing else: pnccl* strong, nccl* weak, no versions."""

import subprocess
import sys

STRONG_WITHOUT_TWIN = {"ncclResetDebugInitInternal"}


def exported(nm, library):
    """Name → kind (T strong, W weak, and whatever else there is)."""
    lines = subprocess.run([nm, "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    return {fields[-1]: fields[-2] for fields in map(str.split, lines.splitlines())}


def wanted_kind(name):
    return "T" if name.startswith("p") or name in STRONG_WITHOUT_TWIN else "W"


def soname(library):
    lines = subprocess.run(["readelf", "-d", library], check=True, capture_output=True, text=True).stdout
    return [line.split("[")[1].rstrip("]") for line in lines.splitlines() if "(SONAME)" in line]


def main(library, list_file, nm):
    with open(list_file, encoding="utf-8") as file:
        wanted = {name: wanted_kind(name) for name in file.read().split()}
    found = exported(nm, library)
    faults = [f"{name}: missing" for name in wanted.keys() - found.keys()]
    faults += [f"{name}: exported, but not listed" for name in found.keys() - wanted.keys()]
    faults += [f"{name}: {found[name]} instead of {kind}" for name, kind in wanted.items()
               if found.get(name, kind) != kind]
    if soname(library) != ["libnccl.so.2"]:
        faults.append(f"the library's name is {soname(library)}")
    print("\n".join(sorted(faults)) or f"{len(found)} symbols")
    return 1 if faults or not wanted else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
