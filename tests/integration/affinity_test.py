#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The setting `affinity` decides on which processors Tutti's threads run.

Jobs run with the mask of one processor. The test reads the masks of their threads. It exits with 77 if this machine
lets it use one processor alone.

Run as: affinity_test.py PATH_OF_TUTTI
"""

import os
import pathlib
import subprocess
import sys
import time
import unittest

TUTTI = "tutti"
DEADLINE_S = 30
NETWORK_THREAD = "tutti-network"


def cpus_of_node(cpu):
    """The processors of the NUMA node that has `cpu`; of the machine, if the kernel reports no nodes."""
    nodes = list(pathlib.Path(f"/sys/devices/system/cpu/cpu{cpu}").glob("node[0-9]*"))
    text = (nodes[0] / "cpulist" if nodes else pathlib.Path("/sys/devices/system/cpu/online")).read_text().strip()
    found = set()
    for span in text.split(","):
        first, _, last = span.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def masks(pid, name):
    """The processors that each thread of this name may use."""
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*"):
        try:
            if (task / "comm").read_text().strip() == name:
                found.append(os.sched_getaffinity(int(task.name)))
        except (FileNotFoundError, ProcessLookupError):
            continue  # the thread has ended
    return found


class Affinity(unittest.TestCase):
    cpu = min(os.sched_getaffinity(0))

    def masks_of_job(self, affinity):
        """The masks of the main thread and of the network's threads of a job with two ranks in one process."""
        command = ["taskset", "--cpu-list", str(self.cpu), TUTTI, "bench", "all_reduce", "--threads", "--ranks", "2",
                   "--hosts", "a,b", "--set", f"affinity={affinity}", "--set", "network=socket", "--max", "8",
                   "--repeat", "1000000", "--no-check"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as job:
            deadline = time.monotonic() + DEADLINE_S
            try:
                while len(found := masks(job.pid, NETWORK_THREAD)) < 2:
                    self.assertIsNone(job.poll(), job.stderr.read() if job.poll() is not None else "")
                    self.assertLess(time.monotonic(), deadline, f"the job starts no threads named {NETWORK_THREAD}")
                    time.sleep(0.02)
                return os.sched_getaffinity(job.pid), found
            finally:
                job.kill()

    def test_auto_obeys_the_mask_of_the_process(self):
        main, network = self.masks_of_job("auto")
        self.assertEqual(main, {self.cpu})
        self.assertEqual(network, [{self.cpu}] * 2)

    def test_off_leaves_the_mask_of_the_process(self):
        main, network = self.masks_of_job("off")
        self.assertEqual(main, {self.cpu})
        self.assertEqual(network, [{self.cpu}] * 2)

    def test_ignore_mask_takes_all_processors_of_the_numa_node(self):
        main, network = self.masks_of_job("ignore_mask")
        self.assertEqual(main, {self.cpu}, "the thread that makes the communicator has its mask back")
        self.assertEqual(network, [cpus_of_node(self.cpu)] * 2)


if __name__ == "__main__":
    TUTTI = sys.argv.pop(1)
    if len(os.sched_getaffinity(0)) < 2 or len(cpus_of_node(Affinity.cpu)) < 2:
        print("skipped: needs two processors of a NUMA node")
        sys.exit(77)
    unittest.main()
