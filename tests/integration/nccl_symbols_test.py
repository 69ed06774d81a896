#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""libnccl.so.2 exports the symbols of compat/nccl/symbols.txt and nothing else: pnccl* strong, nccl* weak, no versions.

    nccl_symbols_test.py LIBRARY SYMBOLS NM [--may-need LIBRARY...]

With --may-need, it needs only the named shared libraries and the libraries of every C++ program.
"""

import argparse
import re
import subprocess
import sys

STRONG_WITHOUT_TWIN = {"ncclResetDebugInitInternal"}
# Libraries of C and C++; some are empty in newer systems, and not needed.
EVERYBODYS = ["libc.so", "libm.so", "libdl.so", "librt.so", "libpthread.so", "libstdc++.so", "libgcc_s.so",
              "ld-linux-x86-64.so", "ld-linux-aarch64.so"]


def exported(nm, library):
    """Name → kind (T strong, W weak, and any further kind)."""
    lines = subprocess.run([nm, "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    return {fields[-1]: fields[-2] for fields in map(str.split, lines.splitlines())}


def wanted_kind(name):
    return "T" if name.startswith("p") or name in STRONG_WITHOUT_TWIN else "W"


def dynamic(library, tag):
    """The names that its dynamic section has under SONAME or NEEDED."""
    lines = subprocess.run(["readelf", "-dW", library], check=True, capture_output=True, text=True).stdout
    return re.findall(rf"\({tag}\).*\[(.*)\]", lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("symbols")
    parser.add_argument("nm")
    parser.add_argument("--may-need", nargs="*", help="names as of libyaml-cpp.so; versions may follow")
    options = parser.parse_args()
    library = options.library
    with open(options.symbols, encoding="utf-8") as file:
        wanted = {name: wanted_kind(name) for name in file.read().split()}
    found = exported(options.nm, library)
    faults = [f"{name}: missing" for name in wanted.keys() - found.keys()]
    faults += [f"{name}: exported, but not listed" for name in found.keys() - wanted.keys()]
    faults += [f"{name}: {found[name]} instead of {kind}" for name, kind in wanted.items()
               if found.get(name, kind) != kind]
    if dynamic(library, "SONAME") != ["libnccl.so.2"]:
        faults.append(f"the library's name is {dynamic(library, 'SONAME')}")
    needed = dynamic(library, "NEEDED")
    if options.may_need is not None:
        allowed = tuple(f"{name}." for name in [*EVERYBODYS, *options.may_need])
        faults += [f"{name}: needed" for name in needed if not f"{name}.".startswith(allowed)]
    print("\n".join(sorted(faults)) or f"{len(found)} symbols; needs {', '.join(needed)}")
    return 1 if faults or not wanted else 0


if __name__ == "__main__":
    sys.exit(main())
