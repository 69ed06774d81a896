#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Formats every C, C++ and CUDA source with clang-format: format.py [--check | --self-test]

--check changes no file and names the files that are not formatted. Templates of CMake (.in) are formatted, too: their
variables (@TYPE@) are identifiers of the same length (_TYPE_) meanwhile.
"""

import concurrent.futures
import os
import re
import subprocess
import sys

from sources import ROOT, files, report

VARIABLE = re.compile(r"@(\w+)@")
SUFFIXES = {".h", ".hpp", ".c", ".cpp", ".cu", ".cuh", ".inc"}
TEMPLATE = re.compile(r"\.(cu|cpp|h)\.in$")


def formatted(text, name):
    """The text as clang-format writes it."""
    variables = set(VARIABLE.findall(text))
    clear = VARIABLE.sub(r"_\1_", text)
    if any(text.count(f"_{variable}_") for variable in variables):
        raise ValueError(f"{name}: has both @NAME@ and _NAME_ of one name, so its variables cannot be told from text")
    result = subprocess.run(["clang-format", f"--assume-filename={name}"], input=clear, capture_output=True, text=True,
                            check=True, cwd=ROOT).stdout
    for variable in variables:
        result = result.replace(f"_{variable}_", f"@{variable}@")
    return result


def differs(path):
    """The formatted text of a file, or None if the file has it already."""
    text = path.read_text(encoding="utf-8")
    result = formatted(text, re.sub(r"\.in$", "", str(path)))
    return None if result == text else result


def sources():
    return files(SUFFIXES) + [path for path in files({".in"}) if TEMPLATE.search(path.name)]


def self_test():
    assert formatted("int  a ;\n", "a.cpp") == "int a;\n"
    assert formatted("const A k_@TYPE@ = {@B@ , 1};\n", "a.cu") == "const A k_@TYPE@ = {@B@, 1};\n"
    names = [path.name for path in sources()]
    assert {"kernels.cu.in", "vector.inc", "nccl.h"} <= set(names), names


def main():
    if "--self-test" in sys.argv:
        return self_test()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = [(path, text) for path, text in zip(sources(), pool.map(differs, sources())) if text is not None]
    if "--check" in sys.argv:
        problems = [f"{path.relative_to(ROOT)}: not formatted; ./dev format does it" for path, _ in results]
        return report(problems, "format")
    for path, text in results:
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
