#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The start of communicators with many ranks on several hosts: bench/start_up_hosts.py [--program PROGRAM...]

The hosts are network namespaces of this machine, whose links end at one switch. The ranks of a host are threads of one
process. The table shows times, memory, descriptors, and the bytes that the first host sends until all communicators
exist. The hub is there. With two programs, for example of two builds, the rows alternate. Needs root.
"""

import argparse
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import hosts as namespaces  # noqa: E402


def nothing(*_, **__):
    """The kernel removes the hosts with the program."""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", nargs="+", default=[str(ROOT / "build/release/bin/start_up")])
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--gbit", type=float, default=10, help="Gbit/s of each link")
    parser.add_argument("--ranks", nargs="+", default=["64", "256", "1024"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=600, help="seconds for a run")
    args = parser.parse_args()
    namespaces.isolate()
    namespaces.require_links()
    names = [f"host{number}" for number in range(args.hosts)]
    namespaces.make_cluster(nothing, args.hosts, names=names, gbit=args.gbit)
    environment = {name: value for name, value in os.environ.items() if name != namespaces.ISOLATED}
    titles = None
    for ranks in args.ranks:
        for _ in range(args.rounds):
            for program in args.program:
                command = [program, "--netns", *names, "--interface", "=rail0", "--processes", str(args.hosts),
                           "--ranks", ranks]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=args.timeout, check=True,
                                      env=environment)
                title, rule, row = done.stdout.strip().split("\n")
                if titles is None:
                    titles = f"| program {title}\n|---{rule}"
                    print(titles)
                print(f"| {program} {row}", flush=True)


if __name__ == "__main__":
    main()
