#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the size budgets: 600 lines a file, 80 a function (120 a kernel), 120 columns a line.

Functions are found by universal-ctags; without it they are not checked, and the check says so. With --figures, prints
how long files and functions are instead, as a table: of each part of core/, and of each other folder.
"""

import collections
import json
import math
import re
import shutil
import subprocess
import sys
import tempfile

from sources import CODE, ROOT, files, report

FILE_LINES = 600
FUNCTION_LINES = 80
KERNEL_LINES = 120
COLUMNS = 120
KERNEL = re.compile(r"__global__")


def line_problems(path, lines):
    if len(lines) > FILE_LINES:
        yield f"{path}:{len(lines)}: file has {len(lines)} lines, at most {FILE_LINES}"
    for number, line in enumerate(lines, 1):
        if len(line) > COLUMNS:
            yield f"{path}:{number}: line has {len(line)} columns, at most {COLUMNS}"


def functions(paths):
    """(path, name, first line, last line) of every function that is defined in the files."""
    command = ["ctags", "--output-format=json", "--fields=+ne", "--kinds-C=f", "--kinds-C++=f", "--kinds-Python=fm",
               "--map-C++=+.cu", "--map-C++=+.cuh", "--map-C++=+.h", "-f", "-", "-L", "-"]
    names = "\n".join(map(str, paths))
    result = subprocess.run(command, input=names, capture_output=True, text=True, check=True)
    for tag in map(json.loads, result.stdout.splitlines()):
        if "end" in tag:
            yield tag["path"], tag["name"], tag["line"], tag["end"]


def function_problems(lines_of):
    for path, name, first, last in functions(lines_of):
        head = "\n".join(lines_of[path][max(first - 3, 0):first])
        most = KERNEL_LINES if KERNEL.search(head) else FUNCTION_LINES
        if last - first + 1 > most:
            yield f"{path}:{first}: function {name} has {last - first + 1} lines, at most {most}"


def problems(paths):
    lines_of = {str(path): path.read_text(encoding="utf-8").splitlines() for path in paths}
    found = [problem for path, lines in lines_of.items() for problem in line_problems(path, lines)]
    if shutil.which("ctags"):
        found += function_problems(lines_of)
    else:
        print("universal-ctags is not installed: function lengths are not checked (./dev setup --all)", file=sys.stderr)
    return sorted(problem.removeprefix(f"{ROOT}/") for problem in found)


def percentile(sorted_numbers, percent):
    """The smallest of the numbers that at least this share of them does not exceed."""
    return sorted_numbers[max(math.ceil(len(sorted_numbers) * percent / 100) - 1, 0)]


def spread(numbers):
    """"p50 / p95 / max"."""
    numbers = sorted(numbers)
    return " / ".join(str(percentile(numbers, percent)) for percent in (50, 95, 100)) if numbers else "-"


def folder_of(path):
    """core/program for a part of the core, else the first folder."""
    parts = path.relative_to(ROOT).parts
    return "/".join(parts[:2]) if parts[0] == "core" and len(parts) > 2 else parts[0]


def figures():
    """Prints the table, in Markdown. The product is all but tests, benchmarks and scripts."""
    if not shutil.which("ctags"):
        sys.exit("check_sizes.py: --figures needs universal-ctags (./dev setup --all)")
    paths = [path for path in files(CODE | {".py"}) if len(path.relative_to(ROOT).parts) > 1]
    lines = {str(path): len(path.read_text(encoding="utf-8").splitlines()) for path in paths}
    lengths = collections.defaultdict(list)
    for path, _, first, last in functions(lines):
        lengths[path].append(last - first + 1)
    groups = collections.defaultdict(list)
    for path in paths:
        folder = folder_of(path)
        groups[folder].append(str(path))
        groups["all" if folder in ("tests", "bench", "scripts") else "product"].append(str(path))
    groups["all"] += groups["product"]
    print("| folder | sources | lines | lines of a file | functions | lines of a function |")
    print("|---|---:|---:|---:|---:|---:|")
    for folder in sorted(groups, key=lambda name: (name in ("product", "all"), name == "all", name)):
        of_files = [lines[path] for path in groups[folder]]
        of_functions = [length for path in groups[folder] for length in lengths[path]]
        print(f"| {folder} | {len(of_files)} | {sum(of_files):,} | {spread(of_files)} | {len(of_functions):,} | "
              f"{spread(of_functions)} |")


def self_test():
    assert spread(range(1, 101)) == "50 / 95 / 100" and spread([7]) == "7 / 7 / 7"
    assert folder_of(ROOT / "core/program/plan.h") == "core/program"
    assert folder_of(ROOT / "core/CMakeLists.txt") == "core"
    long_function = "{head} {{\n" + "  step();\n" * 90 + "}}\n"
    cases = {"good.cpp": ("void f() {\n}\n", 0), "columns.cpp": ("// " + "x" * 118 + "\n", 1),
             "lines.cpp": ("//\n" * 601, 1), "function.cpp": (long_function.format(head="void f()"), 1),
             "kernel.cu": (long_function.format(head="__global__ void f()"), 0)}
    with tempfile.TemporaryDirectory() as folder:
        for name, (text, count) in cases.items():
            file = ROOT.__class__(folder) / name
            file.write_text(text)
            found = problems([file])
            assert len(found) == count or not shutil.which("ctags"), (name, found)


if __name__ == "__main__":
    if "--self-test" in sys.argv:
        self_test()
    elif "--figures" in sys.argv:
        figures()
    else:
        sys.exit(report(problems(files(CODE | {".py", ".cmake", ".sh"})), "sizes"))
