#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The setting `affinity` decides on which processors Tutti's threads run.

Jobs run with a mask of their own. The test reads the masks of their threads. It exits with 77 if this machine reports
no NUMA nodes, or if it may use one processor of the node alone.

Run as: affinity_test.py PATH_OF_TUTTI [cuda]
With `cuda`, the ranks compute on GPUs, and polling threads are checked, too.
"""

import os
import pathlib
import subprocess
import sys
import time
import unittest

TUTTI = "tutti"
DEADLINE_S = 30
RANKS = 2
DEVICE = "host"


def usable(processors):
    """The processors of a set on which the kernel lets this process run: a control group may exclude some."""
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, processors)
        return os.sched_getaffinity(0)
    except OSError:
        return set()
    finally:
        os.sched_setaffinity(0, before)


def numa_nodes():
    """The usable processors of each NUMA node that has some."""
    nodes = []
    for node in sorted(pathlib.Path("/sys/devices/system/node").glob("node[0-9]*")):
        processors = set()
        for span in filter(None, (node / "cpulist").read_text().strip().split(",")):
            first, _, last = span.partition("-")
            processors |= set(range(int(first), int(last or first) + 1))
        nodes.append(usable(processors) if processors else set())
    return [node for node in nodes if node]


def masks(pid):
    """{name: the masks of the threads with this name}"""
    found = {}
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*"):
        try:
            found.setdefault((task / "comm").read_text().strip(), []).append(os.sched_getaffinity(int(task.name)))
        except (FileNotFoundError, ProcessLookupError):
            continue  # the thread has ended
    return found


class Affinity(unittest.TestCase):
    nodes = numa_nodes()
    names = ["tutti-network", "tutti-watchdog"]

    def expect(self, affinity, mask, of_threads):
        """A job of two ranks in one process, which has this mask: Tutti's threads get masks that `of_threads` takes.
        All other threads have the mask of the process in the end."""
        command = ["taskset", "--cpu-list", ",".join(map(str, sorted(mask))), TUTTI, "bench", "all_reduce", "--threads",
                   "--ranks", str(RANKS), "--hosts", "a,b", "--set", f"affinity={affinity}", "--set", "network=socket",
                   "--max", "8", "--repeat", "1000000", "--no-check", "--device", DEVICE]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as job:
            deadline = time.monotonic() + DEADLINE_S
            try:
                while True:
                    self.assertIsNone(job.poll(), job.stderr.read() if job.poll() is not None else "")
                    found = masks(job.pid)
                    own = found.pop("tutti", [])
                    if all(len(found.get(name, [])) >= RANKS for name in self.names) and self.has_back(own, mask):
                        break
                    self.assertLess(time.monotonic(), deadline, f"{self.names}: {found}, ranks: {own}")
                    time.sleep(0.02)
            finally:
                job.kill()
        for name in self.names:
            for of_thread in found[name]:
                self.assertTrue(of_threads(of_thread), f"affinity {affinity}, mask {mask}, {name}: {of_thread}")

    @staticmethod
    def has_back(own, mask):
        return len(own) > RANKS and (DEVICE == "cuda" or all(thread == mask for thread in own))

    def test_auto_obeys_the_mask_of_the_process(self):
        mask = {min(self.nodes[0])}
        self.expect("auto", mask, lambda of_thread: of_thread == mask)

    def test_off_leaves_the_mask_of_the_process(self):
        mask = {min(self.nodes[0])}
        self.expect("off", mask, lambda of_thread: of_thread == mask)

    def test_ignore_mask_takes_all_processors_of_the_numa_node(self):
        self.expect("ignore_mask", {min(self.nodes[0])}, lambda of_thread: of_thread in
                    (self.nodes if DEVICE == "cuda" else self.nodes[:1]))

    def test_auto_stays_on_one_numa_node_and_off_does_not(self):
        if len(self.nodes) < 2:
            self.skipTest("this machine has one NUMA node")
        mask = self.nodes[0] | self.nodes[1]
        self.expect("auto", mask, lambda of_thread: of_thread in self.nodes)
        self.expect("off", mask, lambda of_thread: of_thread == mask)


if __name__ == "__main__":
    TUTTI = sys.argv.pop(1)
    if sys.argv[1:] == ["cuda"]:
        DEVICE = sys.argv.pop()
        Affinity.names.append("tutti-polling")
    if not Affinity.nodes or len(Affinity.nodes[0]) < 2:
        print("skipped: needs two processors of a NUMA node")
        sys.exit(77)
    unittest.main()
