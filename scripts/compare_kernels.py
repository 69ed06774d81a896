#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the machine code of the GPU kernels of two source trees: scripts/compare_kernels.py BEFORE [AFTER]

Compiles the kernels of all protocols in both trees and compares them kernel by kernel: machine instructions, registers,
stack and shared memory. Kernels that only AFTER has are listed, too. Exit status 1: a kernel of BEFORE is missing or
has other instructions. Needs nvcc, cuobjdump, nvdisasm and c++filt, and no GPU.
"""
import argparse
import collections
import concurrent.futures
import pathlib
import re
import subprocess
import sys
import tempfile

ELEMENTS = {"int8": "int8_t", "uint8": "uint8_t", "int32": "int32_t", "uint32": "uint32_t", "int64": "int64_t",
            "uint64": "uint64_t", "float16": "tutti::device::float16", "float32": "float", "float64": "double",
            "bfloat16": "tutti::device::bfloat16", "float8_e4m3": "tutti::device::float8_e4m3",
            "float8_e5m2": "tutti::device::float8_e5m2"}
COPIES = ("uint8", "uint32", "uint64")
Kernel = collections.namedtuple("Kernel", "code usage")


def sources(tree, types, folder):
    """Writes the sources of all kernels. Returns pairs of a source and its plugin's folder."""
    written = []
    for plugin in sorted((tree / "plugins").glob("proto-*")):
        for file in sorted(plugin.glob("*.cu")):
            written.append((file, plugin))
        for template in sorted(plugin.glob("*.cu.in")):
            for name in types:
                source = folder / f"{plugin.name}-{template.name[:-len('.cu.in')]}-{name}.cu"
                source.write_text(template.read_text().replace("@TYPE@", name).replace("@ELEMENT@", ELEMENTS[name])
                                  .replace("@COPIES@", "1" if name in COPIES else "0"))
                written.append((source, plugin))
    return written


def compile_one(tree, source, plugin, folder, arch):
    cubin = folder / f"{plugin.name}-{source.stem}.cubin"
    subprocess.run(["nvcc", f"-arch=sm_{arch}", "-std=c++20", "--expt-relaxed-constexpr", f"-I{tree}/core/include",
                    f"-I{plugin}", "-cubin", "-o", cubin, source], check=True)
    return cubin


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def kernels_of(cubin):
    """By demangled name."""
    code = collections.defaultdict(list)
    name = None
    for line in output("cuobjdump", "-sass", cubin).splitlines():
        if found := re.search(r"Function : (\S+)", line):
            name = found[1]
        elif name is not None:
            code[name] += re.findall(r"/\* (0x[0-9a-f]{16}) \*/", line)
    usage = dict(re.findall(r"Function (\S+):\s*(.*)", output("cuobjdump", "-res-usage", cubin)))
    names = list(code)
    plain = subprocess.run(["c++filt"], input="\n".join(names), check=True, capture_output=True, text=True).stdout
    return {text.replace("void tutti::device::", "").split("(tutti_cuda_launch")[0]:
            Kernel(code[mangled], re.findall(r"(REG|STACK|SHARED):(\d+)", usage.get(mangled, "")))
            for mangled, text in zip(names, plain.splitlines())}


def all_kernels(tree, types, arch):
    with tempfile.TemporaryDirectory() as name, concurrent.futures.ThreadPoolExecutor(2) as pool:
        folder = pathlib.Path(name)
        jobs = [pool.submit(compile_one, tree, source, plugin, folder, arch)
                for source, plugin in sources(tree, types, folder)]
        found = {}
        for job in jobs:
            protocol = job.result().name.split("-")[1]
            found |= {(protocol, kernel): data for kernel, data in kernels_of(job.result()).items()}
        return found


def family(key):
    """The kernel without its types and operation."""
    return key[0], key[1].split("<")[0]


def ranges(kernels, wanted):
    """The range of a property over kernels, as text."""
    values = [int(value) for kernel in kernels for name, value in kernel.usage if name == wanted]
    return "" if not values else str(min(values)) if min(values) == max(values) else f"{min(values)} to {max(values)}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=pathlib.Path)
    parser.add_argument("after", type=pathlib.Path, nargs="?", default=pathlib.Path("."))
    parser.add_argument("--types", nargs="+", default=list(ELEMENTS), choices=list(ELEMENTS))
    parser.add_argument("--arch", default="90")
    given = parser.parse_args()
    before, after = (all_kernels(tree.resolve(), given.types, given.arch) for tree in (given.before, given.after))
    print("| protocol | kernel | kernels | same instructions | registers | stack | shared memory |")
    print("|---|---|---:|---:|---|---|---|")
    broken = 0
    for name in sorted({family(key) for key in before | after}):
        keys = [key for key in after if family(key) == name]
        old = [key for key in before if family(key) == name]
        same = sum(key in after and before[key].code == after[key].code for key in old)
        broken += len(old) - same
        now = [after[key] for key in keys]
        print(f"| {name[0]} | `{name[1]}` | {len(keys)} | {f'{same} of {len(old)}' if old else 'new'} | "
              f"{ranges(now, 'REG')} | {ranges(now, 'STACK')} | {ranges(now, 'SHARED')} |")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
