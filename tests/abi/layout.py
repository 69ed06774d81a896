#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The layout of the structs and the constants that networks and tuners share with the host.

    python3 layout.py INCLUDE               prints the layout of the headers in the folder INCLUDE
    python3 layout.py INCLUDE SNAPSHOT      compares it with a snapshot; code 1 if a plugin of the snapshot would break

A snapshot is the output of the first form. The sizes come from the C compiler (CC, else cc).
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

HEADERS = ("abi", "types", "network", "topology", "tuner")
# Structs that other structs or arrays contain: they never grow.
FIXED = {"tutti_str", "tutti_net_handle", "tutti_plugin_note"}
# Structs of algorithms and protocols, whose ABI is 0.x.
OTHER = {"tutti_system_node", "tutti_system_link", "tutti_system_path", "tutti_system", "tutti_graph"}
# Constants of algorithms and protocols.
OTHER_CONSTANTS = re.compile(r"TUTTI_((ALGORITHM|PROTOCOL)_ABI|NODE|WIRE|PATH|CPU|PATTERN|GRAPH|NO)_")
# Constants that may rise: versions and counts.
RISING = re.compile(r"TUTTI_\w+_(ABI_MINOR|COUNT)$")
KIND_OF = {"tutti_candidate": "TUNER", "tutti_call": "TUNER", "tutti_tuner_ops": "TUNER", "tutti_topology": "TUNER",
           "tutti_net_properties": "NETWORK", "tutti_network_ops": "NETWORK"}


def code_of(include, header):
    text = (pathlib.Path(include) / "tutti" / "plugin" / f"{header}.h").read_text()
    return re.sub(r"//[^\n]*", "", re.sub(r"/\*.*?\*/", "", text, flags=re.S))


def without_names(declaration):
    """A declaration without the names of the arguments: "int32_t (*arm)(void*)"."""
    head, bracket, arguments = declaration.rpartition("(")
    if not bracket or not arguments.endswith(")"):
        return declaration
    types = [re.sub(r"(?<=[\w*])\s+\w+$|(?<=\*)\w+$", "", one.strip()) for one in arguments[:-1].split(",")]
    return f"{head}({', '.join(types)})"


def structs_of(code):
    """Yields the name of each struct, and its fields as (name, declaration)."""
    for name, body in re.findall(r"typedef struct (\w+) \{(.*?)\} \1;", code, flags=re.S):
        fields = []
        for declaration in filter(None, (re.sub(r"\s+", " ", one).strip() for one in body.split(";"))):
            found = re.search(r"\(\*(\w+)\)\(", declaration) or re.search(r"(\w+)(\[[^\]]*\])?$", declaration)
            fields.append((found.group(1), without_names(declaration)))
        yield name, fields


def constants_of(code):
    found = re.findall(r"^#define (TUTTI_\w+) (\S.*?)\s*$", code, flags=re.M)
    return [(name, value) for name, value in found if not OTHER_CONSTANTS.match(name)]


def measure(include):
    """The layout: a list of lines."""
    lines, prints = [], []
    for header in HEADERS:
        code = code_of(include, header)
        lines += [f"constant {name} {value}" for name, value in constants_of(code)]
        for name, fields in structs_of(code):
            if name in OTHER:
                continue
            prints.append(f'printf("struct {name} %zu\\n", sizeof({name}));')
            for field, declaration in fields:
                prints.append(f'printf("  %zu %zu {field}: {declaration}\\n", offsetof({name}, {field}), '
                              f"sizeof((({name}*)0)->{field}));")
    includes = "".join(f'#include "tutti/plugin/{header}.h"\n' for header in HEADERS)
    program = f"#include <stddef.h>\n#include <stdio.h>\n{includes}int main(void) {{\n" + "\n".join(prints) + "\n}\n"
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "layout.c"
        source.write_text(program)
        subprocess.run([os.environ.get("CC", "cc"), "-std=c11", f"-I{include}", source, "-o", f"{folder}/layout"],
                       check=True)
        printed = subprocess.run([f"{folder}/layout"], check=True, capture_output=True, text=True).stdout
    return lines + printed.splitlines()


def parse(lines):
    """Constants by name, and structs by name as (size, fields by name)."""
    constants, structs = {}, {}
    for line in filter(str.strip, lines):
        if line.startswith("constant "):
            _, name, value = line.split(" ", 2)
            constants[name] = value
        elif line.startswith("struct "):
            _, name, size = line.split()
            structs[name] = (int(size), {})
        else:
            place, declaration = line.strip().split(": ", 1)
            offset, size, field = place.split()
            structs[name][1][field] = (int(offset), int(size), declaration)
    return constants, structs


def number(text):
    return int(text.rstrip("u"), 0)


def fault_of_constant(name, before, now):
    if now is None:
        return f"{name} is gone"
    if RISING.match(name) and number(now) >= number(before):
        return None
    return None if now == before else f"{name} is {now} instead of {before}"


def fault_of_field(name, before, now):
    if now is None:
        return f"field '{name}' is gone"
    for what, old, new in zip(("lies at byte", "has the size", "is declared as"), before, now):
        if old != new:
            return f"field '{name}' {what} {new} instead of {old}"
    return None


def faults_of_struct(name, before, now, has_newer_minor):
    size, fields = before
    for field, place in fields.items():
        fault = fault_of_field(field, place, now[1].get(field))
        if fault:
            return [fault]  # later fields only follow
    added = {field: place for field, place in now[1].items() if field not in fields}
    if not added and now[0] != size:
        return [f"its size is {now[0]} instead of {size}"]
    faults = [f"field '{field}' is new, and lies before the end of the old struct ({size} bytes)"
              for field, place in added.items() if place[0] < size]
    if added and (name in FIXED or next(iter(fields)) != "struct_size"):
        faults.append(f"field '{next(iter(added))}' is new, but the struct may not grow")
    elif added and not has_newer_minor:
        faults.append(f"field '{next(iter(added))}' is new, so the minor version of the ABI must rise")
    return faults


def compare(snapshot, current):
    """The sentences that say why a plugin of the snapshot would break on the current headers."""
    (old_constants, old_structs), (constants, structs) = parse(snapshot), parse(current)
    faults = [f"constant {fault}" for name, value in old_constants.items()
              if (fault := fault_of_constant(name, value, constants.get(name)))]
    risen = {kind: constants.get(f"TUTTI_{kind}_ABI_MINOR") != old_constants[f"TUTTI_{kind}_ABI_MINOR"]
             for kind in ("NETWORK", "TUNER")}
    for name, before in old_structs.items():
        if name not in structs:
            faults.append(f"struct {name} is gone")
            continue
        kinds = [KIND_OF[name]] if name in KIND_OF else ["NETWORK", "TUNER"]
        faults += [f"struct {name}: {fault}"
                   for fault in faults_of_struct(name, before, structs[name], all(risen[kind] for kind in kinds))]
    return faults


def main():
    current = measure(sys.argv[1])
    if len(sys.argv) < 3:
        print("\n".join(current))
        return 0
    faults = compare(pathlib.Path(sys.argv[2]).read_text().splitlines(), current)
    for fault in faults:
        print(f"{sys.argv[1]}: {fault}; see docs/plugin-guide.md, Versions", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
