#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs of GPU ranks on two hosts (network namespaces) with two links each: scripts/gpu_placement.py TUTTI

Each host has half of the GPUs of this machine; a single GPU is in both hosts. A topology file gives the GPUs and the
links. The log of a job must give the channels as `tutti search` does, and each link must carry the bytes of its
channels. If a host has more ranks than GPUs, ranks are processes that share a GPU, and CUDA's multi-process service
(MPS) runs their kernels at the same time. With MPS=off in the environment, the GPU runs the processes in turn.
Needs root, `ip`, nvidia-smi and GPUs; exits with 77 without.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "integration"))
import placement_test  # noqa: E402
from hosts import isolate, require_links, skip  # noqa: E402
from placement_test import PCI, PORTS, SPEED, Job  # noqa: E402


def gpus():
    """The PCI addresses of the GPUs of this machine, without the domain, in PCI order."""
    try:
        listed = subprocess.run(["nvidia-smi", "--query-gpu=pci.bus_id", "--format=csv,noheader"], capture_output=True,
                                text=True, timeout=60, check=True).stdout
    except (FileNotFoundError, subprocess.CalledProcessError):
        skip("there is no GPU")
    return sorted(line.strip().lower()[-len("00:00.0"):] for line in listed.splitlines())


def switch(port, addresses):
    """A PCI switch with GPUs and an adapter."""
    lines = [f"      - busid: '0000:{0xa0 + port:x}:00.0'", *PCI.format("0x060400").split(", "), "pci:\n"]
    text = "\n        ".join(lines)
    for address, number in addresses:
        text += placement_test.device(address.removesuffix(".0"), "0x030200",
                                      f"gpu: {{dev: {number}, sm: 90, nvlink: {{target: switch, count: 18}}}}")
    return text + placement_test.device(f"{0xb0 + port:x}:00", "0x020700",
                                        f"nic: {{net: {{name: rail{port}, dev: {port}, guid: 0x{port + 1}, {SPEED}}}}}")


class GpuPlacement(Job):
    ranks_are = "device=cuda"
    device = "cuda"

    def topology(self, name, addresses):
        """Two switches below one CPU, with a port each. GPUs alternate between the switches."""
        numbered = [(address, number) for number, address in enumerate(addresses)]
        file = pathlib.Path(self.folder) / f"{name}.yaml"
        file.write_text("tutti_topology: 1\ncpu:\n  - numaid: 0\n    arch: x86_64\n    vendor: GenuineIntel\n    pci:\n"
                        + "".join(switch(port, numbered[port::PORTS]) for port in range(PORTS)))
        return file

    def setUp(self):
        super().setUp()
        found = gpus()
        half = max(len(found) // len(self.hosts), 1)
        self.gpus = [found[host * half % len(found):][:half] for host in range(len(self.hosts))]
        self.files = [self.topology(host, addresses) for host, addresses in zip(self.hosts, self.gpus)]

    def rank_environment(self, host, _rank):
        """The ranks of a host see its GPUs. `tutti bench` lets ranks take them in turn, as `tutti search` does."""
        numbers = [str(gpus().index(address)) for address in self.gpus[host]]
        return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(numbers)}

    def joined(self, log, algorithm, first_rank):
        """The lines of the last communicator, which has the GPUs. `tutti bench` has one on the host, too."""
        lines = super().joined(log, algorithm, first_rank)
        return lines[max(n for n, line in enumerate(lines) if line.startswith("channel  0:")):]

    def check(self, algorithm, channels, ranks_per_host):
        ranks = ["--ranks", str(ranks_per_host)]
        searched, count = self.searched(self.files[0], algorithm, channels, *ranks)
        self.assertTrue(searched)
        before = self.carried()
        logs = self.bench(self.files, algorithm, channels, ranks_per_host)
        for first in (0, ranks_per_host):
            self.assertEqual(self.joined(logs[first], algorithm, first), searched, logs[first])
        every, _ = self.searched(self.files[0], algorithm, channels, "--channels", *ranks)
        found = [line.split()[-1] for line in every]
        trees = 2 if algorithm == "tree" else 1  # that share a channel of the search
        exits = [found[channel // trees % len(found)] for channel in range(count)]
        print(f"\n{algorithm}, 2 hosts × {ranks_per_host} ranks on {len(self.gpus[0])} GPUs each, channels={channels}:",
              *searched, sep="\n  ")
        for host, (now, earlier) in enumerate(zip(self.carried(), before)):
            sent = [after - at_first for after, at_first in zip(now, earlier)]
            print(f"  host {host} sent " + ", ".join(f"{sent[rail] / 1e6:.2f} MB by rail{rail}"
                                                     for rail in range(PORTS)))
            for rail in range(PORTS):
                self.assertAlmostEqual(sent[rail] / sum(sent), exits.count(f"rail{rail}") / len(exits), delta=0.1)
        self.assertEqual({f"rail{rail}" for rail in range(PORTS)}, set(exits))

    def test_ranks_with_a_gpu_each(self):
        if len(gpus()) < 2 * len(self.hosts):
            self.skipTest("two hosts with two GPUs each need four GPUs")
        for algorithm, channels in (("ring", 2), ("tree", 4)):
            with self.subTest(algorithm=algorithm):
                self.check(algorithm, channels, len(self.gpus[0]))

    def test_ranks_that_share_gpus(self):
        service = ["nvidia-cuda-mps-control"]
        if os.environ.get("MPS") != "off":
            if shutil.which(service[0]) is None:
                self.skipTest(f"there is no {service[0]}; MPS=off does without")
            subprocess.run([*service, "-d"], check=True, timeout=60)
            self.addCleanup(subprocess.run, service, input="quit\n", text=True, timeout=60, check=False)
        for algorithm, channels in (("ring", 2), ("tree", 4)):
            with self.subTest(algorithm=algorithm):
                self.check(algorithm, channels, 8)


if __name__ == "__main__":
    isolate()
    placement_test.TUTTI = str(pathlib.Path(sys.argv.pop(1)).resolve())
    require_links()
    gpus()
    os.environ["CUDA_MODULE_LOADING"] = "EAGER"
    unittest.main(verbosity=2)
