#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks over the includes that dependencies point one way, and that the installed headers stand alone.

  - A part of core/ includes only itself and the parts below it (LAYERS); parts of one layer do not know each other.
  - Back ends are interchangeable: only the setup of communicators, the factory and the back ends include the headers of
    a back end (core/backend/host, core/backend/cuda).
  - Installed headers (core/include) include installed headers only; the plugin contract includes nothing but itself and
    the C library, the device headers nothing but themselves, the contract and the C++ library.
  - A folder <kind>-<name> of plugins/ is a plugin; other folders there are libraries, which plugins share. Both include
    installed headers, their own folder, these libraries and foreign libraries. core/ and tools/ include neither;
    compat/ includes libraries of plugins alone. Only core/plugin includes Boost.
  - Examples, and the tests that stand for users of Tutti (USERS), include installed headers and their own folder. A
    test of a part includes any header of core/ and tools/, because unit tests test private functions. It includes
    private headers of one plugin at most.
  - Each contract header compiles alone as C11 and as C++20; every other installed header alone as C++20,
    by GCC and by Clang (tutti/device/cuda is for nvcc, and left to the build).
"""

import concurrent.futures
import os
import re
import shutil
import subprocess
import sys

from sources import CODE, ROOT, files, report

LAYERS = [{"base"}, {"log"}, {"config"}, {"plugin"}, {"topology", "bootstrap", "memory"}, {"launcher", "program"},
          {"device", "progress"}, {"transport"}, {"tuner"}, {"backend"}, {"communicator"}, {"tools", "compat"}]
LEVEL = {part: level for level, parts in enumerate(LAYERS) for part in parts}

# Names of folders of plugins. LIBRARIES: folders of libraries that plugins share.
A_PLUGIN = re.compile(r"(algo|proto|net|tuner)-[a-z0-9_]+$")
LIBRARIES = {path.name for path in (ROOT / "plugins").iterdir() if path.is_dir() and not A_PLUGIN.match(path.name)}

# Programs and plugins as users write them. The kit that pretends to have GPUs is the tool itself.
USERS = re.compile(r"(examples|tests/(abi|clients|conformance|device_network|zoo))/(?!.*pretended_gpu)")

# A header of NCCL, with which programs of tests/clients are built.
FOREIGN = {"nccl.h"}

# Headers that know a device, and the files that may include them.
OF_A_DEVICE = re.compile(r"backend/(host/|cuda/|factory\.h)")
KNOWS_DEVICES = re.compile(r"core/(communicator/setup/|backend/(host/|cuda/|factory\.))")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
STANDARD = re.compile(r"[a-z_0-9]+$|(assert|errno|float|inttypes|limits|stdalign|stdarg|stdatomic|stdbool|stddef|stdint"
                      r"|stdio|stdlib|string)\.h$")
CUDA = re.compile(r"(cuda|sm_|vector_types|cooperative_groups|x86intrin|immintrin|arm_neon).*")


def owner(path):
    """The part that a file belongs to: ("core", "program"), ("installed", "plugin"), ("plugins", "algo-ring")."""
    folders = path.split("/")
    if folders[:3] == ["core", "include", "tutti"]:
        return "installed", folders[3] if len(folders) > 4 else ""
    return folders[0], folders[1] if len(folders) > 2 else ""


def included_part(name):
    """The part of an include, or None if it names none. "tutti/<part>.h" is that part's public face."""
    first, _, rest = name.partition("/")
    if first == "tutti":
        return rest[:-2] if rest.endswith(".h") and rest[:-2] in LEVEL else None
    return first if rest and first in LEVEL else None


def core_fault(part, name, quoted):
    target = included_part(name)
    if name.startswith("boost/") and part != "plugin":
        return "Boost is for core/plugin only"
    if not quoted or target is None or target == part or part not in LEVEL:
        return None
    if LEVEL[target] == LEVEL[part]:
        return f"{part} and {target} are of one layer and may not know each other"
    return f"{part} lies below {target}" if LEVEL[target] > LEVEL[part] else None


def installed_fault(folder, name, quoted):
    if quoted:
        allowed = {"plugin": ("tutti/plugin/",), "device": ("tutti/device/", "tutti/plugin/")}.get(folder, ("tutti/",))
        return None if name.startswith(allowed) else f"a header here may include only {' and '.join(allowed)}"
    if name.startswith("boost/"):
        return "Boost is for core/plugin only"
    if folder == "device" and CUDA.match(name) or folder not in ("plugin", "device"):
        return None
    return None if STANDARD.match(name) else f"tutti/{folder} may include only the standard library"


def plugin_fault(path, name, quoted):
    if not quoted:
        return "plugins do not include Boost" if name.startswith("boost/") else None
    folder = "/".join(path.split("/")[:2])
    beside = any((ROOT / place / name).exists() for place in (os.path.dirname(path), folder))
    if name.startswith("tutti/") or beside or name.split("/")[0] in LIBRARIES:
        return None
    return 'a plugin includes "tutti/...", its own folder and libraries of plugins only'


def user_fault(path, name, quoted):
    own = "/".join(path.split("/")[:2])
    beside = any((ROOT / place / name).exists() for place in (os.path.dirname(path), own, os.path.dirname(own)))
    if not quoted or beside or name.startswith("tutti/") or name in FOREIGN:
        return None
    return "a user of Tutti has installed headers only"


def fault(path, name, quoted):
    """The fault of one include of one file (path relative to the root), or None."""
    area, part = owner(path)
    if ".." in name.split("/"):
        return "no relative paths upwards"
    if quoted and area in ("core", "tools", "compat"):
        first = name.split("/")[0]
        if A_PLUGIN.match(first) or (first in LIBRARIES and area != "compat"):
            return "plugins are loaded, not included"
    if area == "core":
        if OF_A_DEVICE.match(name) and not KNOWS_DEVICES.match(path):
            return "only setup, the factory and back ends know a device; use backend/backend.h"
        return core_fault(part, name, quoted)
    if area == "installed":
        return installed_fault(part, name, quoted)
    if area == "plugins":
        return plugin_fault(path, name, quoted)
    return user_fault(path, name, quoted) if USERS.match(path) else None


def private_plugins(text):
    """The plugins whose private headers a file includes."""
    names = (match[2].split("/")[0] for match in map(INCLUDE.match, text.splitlines()) if match and match[1] == '"')
    return sorted({name for name in names if A_PLUGIN.match(name)})


def include_problems():
    for file in files(CODE, "tests"):
        plugins = private_plugins(file.read_text(encoding="utf-8"))
        if len(plugins) > 1:
            path = file.relative_to(ROOT).as_posix()
            yield f"{path}: includes headers of {' and '.join(plugins)}: a test has one subject"
    for file in files(CODE, "core", "plugins", "tools", "compat", "examples", "tests"):
        path = file.relative_to(ROOT).as_posix()
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            match = INCLUDE.match(line)
            wrong = match and fault(path, match[2], match[1] == '"')
            if wrong:
                yield f"{path}:{number}: includes {match[2]}: {wrong}"


def compile_alone(header, compiler):
    """Compiles a file that holds nothing but the include; returns the problem or None."""
    result = subprocess.run(compiler + ["-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Werror",
                                        "-I", str(ROOT / "core/include"), "-"],
                            input=f'#include "{header}"\n', capture_output=True, text=True)
    return None if result.returncode == 0 else f"{header} does not compile alone:\n{result.stderr}"


def compile_problems():
    compilers = ["g++", "clang++"]
    if shutil.which("clang++") is None:
        print("layers: clang++ is not installed: installed headers are compiled by g++ alone")
        compilers.pop()
    jobs = []
    for file in files({".h"}, "core/include"):
        header = file.relative_to(ROOT / "core/include").as_posix()
        if header.startswith("tutti/device/cuda/"):
            continue  # for nvcc only
        jobs += [(header, [compiler, "-std=c++20", "-x", "c++"]) for compiler in compilers]
        if header.startswith("tutti/plugin/"):
            jobs.append((header, ["gcc", "-std=c11", "-x", "c"]))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return [problem for problem in pool.map(lambda job: compile_alone(*job), jobs) if problem]


def self_test():
    good = [("core/program/plan.cpp", "topology/graph.h", True), ("core/program/plan.cpp", "plan.h", True),
            ("core/program/plan.cpp", "tutti/status.h", True),
            ("core/communicator/setup/setup.cpp", "backend/factory.h", True),
            ("core/communicator/state.h", "backend/backend.h", True),
            ("core/backend/cuda/backend.h", "backend/host/fabric.h", True),
            ("core/plugin/loader.cpp", "boost/dll.hpp", False),
            ("core/include/tutti/plugin/abi.h", "stdint.h", False),
            ("core/include/tutti/sdk/net.h", "string", False),
            ("core/include/tutti/plugin/abi.h", "tutti/plugin/types.h", True),
            ("tools/main.cpp", "program/plan.h", True),
            ("plugins/algo-ring/ring.cpp", "tutti/sdk/algorithm.h", True),
            ("plugins/tuner-table/plugin.cpp", "alpha_beta/model.h", True),
            ("compat/nccl_net/entries.h", "nccl_plugins/network_tables.h", True),
            ("tests/unit/encode_test.cpp", "program/encode.h", True),
            ("tests/conformance/net.cpp", "tutti/sdk/network.h", True),
            ("examples/hello/hello.cpp", "tutti/communicator.h", True)]
    bad = [("core/base/status.cpp", "log/log.h", True), ("core/topology/graph.cpp", "memory/pool.h", True),
           ("core/program/plan.cpp", "tutti/communicator.h", True),
           ("core/communicator/state.h", "backend/host/fabric.h", True),
           ("core/communicator/dry.cpp", "backend/cuda/gpu.h", True),
           ("core/communicator/group.cpp", "backend/factory.h", True),
           ("core/backend/enqueuing.cpp", "backend/cuda/gpu.h", True),
           ("core/program/plan.cpp", "../base/text.h", True),
           ("core/program/plan.cpp", "boost/dll.hpp", False),
           ("core/include/tutti/plugin/abi.h", "tutti/status.h", True),
           ("core/include/tutti/plugin/abi.h", "yaml-cpp/yaml.h", False),
           ("core/include/tutti/a.h", "program/x.h", True),
           ("plugins/algo-ring/ring.cpp", "program/plan.h", True),
           ("plugins/algo-ring/ring.cpp", "boost/dll.hpp", False),
           ("plugins/tuner-table/plugin.cpp", "tuner-model/plugin.h", True),
           ("compat/nccl_net/entries.h", "net-nccl/adapter.h", True),
           ("core/tuner/selector.cpp", "alpha_beta/model.h", True),
           ("tests/conformance/net.cpp", "program/plan.h", True),
           ("examples/hello/hello.cpp", "base/text.h", True)]
    assert not any(fault(*case) for case in good), [case for case in good if fault(*case)]
    assert all(fault(*case) for case in bad), [case for case in bad if not fault(*case)]
    two = '#include "net-ib/a.h"\n#include "program/plan.h"\n#include "net-ucx/b.h"\n'
    assert private_plugins(two) == ["net-ib", "net-ucx"]
    assert compile_alone("tutti/no_such_header.h", ["g++", "-x", "c++"])


if __name__ == "__main__":
    if "--self-test" in sys.argv:
        self_test()
    else:
        sys.exit(report(list(include_problems()) + compile_problems(), "layers"))
