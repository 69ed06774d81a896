#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs of GPU ranks on two pretended hosts whose ports are near some GPUs: scripts/gpu_pxn.py BUILD_FOLDER

Messages by a port near a second GPU pass through memory of the second GPU (PXN). A topology file gives the places of
the ports. The networks of tests/device_network move the memory: one takes dmabufs, one takes addresses. Each run
compares all results with a reference. The network counts the messages by the GPU whose memory they left. Ranks are
threads, and share the two GPUs. Needs nvidia-smi and two GPUs; exits with 77 without. TIMEOUT: seconds of a run (100).
"""

import collections
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

BUILD = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else "build/cuda").resolve()
DEVICE = "vendor: 0x10de, device: 0x2335, link_speed: 32.0 GT/s PCIe, link_width: 16"


def gpus():
    """The PCI addresses of the GPUs of this machine, in PCI order: "0000:18:00.0"."""
    try:
        listed = subprocess.run(["nvidia-smi", "--query-gpu=pci.bus_id", "--format=csv,noheader"], capture_output=True,
                                text=True, timeout=60, check=True).stdout
    except (FileNotFoundError, subprocess.CalledProcessError):
        return []
    return sorted(line.strip().lower()[-len("0000:00:00.0"):] for line in listed.splitlines())


def gpu(address, number):
    return (f"          - {{busid: '{address}', class: 0x030200, {DEVICE}, gpu: {{dev: {number}, sm: 90, gdr: 1, "
            "nvlink: {target: switch, count: 18}}}\n")


def port(number):
    return (f"          - {{busid: '0000:b{number}:00.0', class: 0x020700, link_speed: 32.0 GT/s PCIe, link_width: 16, "
            f"nic: {{net: {{name: device{number}, dev: {number}, speed: 400000, gdr: 1, guid: 0x{number + 1}}}}}}}\n")


def topology(first, second, ports):
    """Two GPUs below a switch each. Port 0 is below the switch of the second GPU, port 1 below that of the first."""
    head = ("      - busid: '0000:{:x}:00.0'\n        class: 0x060400\n        link_speed: 32.0 GT/s PCIe\n"
            "        link_width: 16\n        pci:\n").format
    return ("tutti_topology: 1\ncpu:\n  - numaid: 0\n    arch: x86_64\n    vendor: GenuineIntel\n    pci:\n"
            + head(0xa0) + gpu(first, 0) + (port(1) if ports == 2 else "") + head(0xa1) + gpu(second, 1) + port(0))


class Pxn(unittest.TestCase):
    def setUp(self):
        self.gpus = gpus()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def bench(self, network, collective, *settings, ranks=4, ports=1, max_size="16M", ok=True):
        """Returns the log of a run, and messages by port and the GPU whose memory they left."""
        file = self.folder / f"{ports}.yaml"
        file.write_text(topology(*self.gpus[:2], ports))
        settings = ("protocol=simple", f"plugins.network=[{network}]", f"topology.file={file}", "log.level=debug",
                    *settings)
        command = [BUILD / "bin/tutti", "bench", collective, "-n", str(ranks), "--hosts", "a,b", "--threads",
                   "--device", "cuda", "--min", "8", "--max", max_size, "--factor", "8", "--iters", "10",
                   *[word for setting in settings for word in ("--set", setting)]]
        environment = {**os.environ, "DEVICE_NETWORK_DEVICES": str(ports), "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
                       "TUTTI_PLUGIN_PATH": str(BUILD / "tests/networks"), "TUTTI_TIMEOUTS_OPERATION": "20s"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False,
                              timeout=float(os.environ.get("TIMEOUT", "100")))
        log = done.stdout + done.stderr
        self.assertEqual(done.returncode == 0, ok, log[-1500:])
        moved = collections.Counter()
        for port_number, gpu_number, count in re.findall(r"device(\d), memory of GPU (\d+): (\d+) messages", log):
            moved[int(port_number), int(gpu_number)] += int(count)
        counts = [f"by port {at[0]} from memory of GPU {at[1]}: {count}" for at, count in sorted(moved.items())]
        print(f"{network}, {collective}, {' '.join(settings[4:]) or 'net.pxn=auto'}: messages {', '.join(counts)}")
        rows = [line for line in done.stdout.splitlines() if re.match(r" +\d", line)]
        print(*[row[:100] for row in rows[-2:]], sep="\n", flush=True)
        return log, moved

    def check_pass(self, log, moved):
        """All messages leave by memory of the second GPU. The two ranks on the first GPU report it."""
        lines = re.findall(r"messages by port device0 may pass through memory of GPU (\S+)", log)
        self.assertEqual(lines, 2 * [self.gpus[1]], log[-1500:])
        self.assertEqual(set(moved), {(0, 1)})

    def test_dmabufs_of_the_second_gpu(self):
        for collective in ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send_recv"):
            with self.subTest(collective=collective):
                self.check_pass(*self.bench("device_flushed", collective))
        for collective in ("all_reduce", "all_gather", "reduce_scatter", "broadcast"):
            with self.subTest(collective=collective, algorithm="ring"):
                self.check_pass(*self.bench("device_flushed", collective, "algorithm=ring"))

    def test_addresses_of_the_second_gpu(self):
        self.check_pass(*self.bench("device", "all_reduce", "net.pxn=on"))

    def check_both(self, log, moved):
        """All messages leave by memory of the GPU near their port, from scattered slots."""
        self.assertEqual(set(moved), {(0, 1), (1, 0)})
        self.assertIn("lie in memory of several GPUs", log)

    def test_ports_near_each_gpu(self):
        """The slots of a connection lie in memory of both GPUs, each CTA's near its port."""
        for collective in ("all_reduce", "all_gather", "broadcast"):
            with self.subTest(collective=collective):
                self.check_both(*self.bench("device_flushed", collective, "algorithm=ring", ports=2))
        for collective, algorithm in (("all_reduce", "hier"), ("all_to_all", "direct"), ("send_recv", "auto")):
            with self.subTest(collective=collective, algorithm=algorithm):
                _, moved = self.bench("device_flushed", collective, f"algorithm={algorithm}", ports=2)
                self.assertLessEqual(set(moved), {(0, 1), (1, 0)})

    def test_strands(self):
        """With strands, kernels find slots by tables in memory of the GPU."""
        for collective in ("all_reduce", "broadcast"):
            self.check_both(*self.bench("device_flushed", collective, "algorithm=tree", ports=2))

    def test_many_ranks(self):
        """The launches of more ranks than parameters have room for have tables, too."""
        log, moved = self.bench("device_flushed", "all_reduce", "algorithm=ring", ranks=20, max_size="1M")
        self.assertEqual(log.count("may pass through memory of GPU"), 10, log[-1500:])
        self.assertEqual(set(moved), {(0, 1)})
        self.check_both(*self.bench("device_flushed", "all_reduce", "algorithm=ring", ranks=20, ports=2,
                                    max_size="1M"))

    def test_without(self):
        log, _ = self.bench("device_flushed", "all_reduce", "algorithm=ring", "net.pxn=off")
        self.assertNotIn("PXN", log)
        self.assertNotIn("through memory", log)
        log, moved = self.bench("device", "all_reduce", "algorithm=ring")
        self.assertIn("no message passes through a second GPU: network 'device' takes addresses of GPU memory", log)
        self.assertIn((0, 0), moved)

    def test_no_second_gpu_in_sight(self):
        with unittest.mock.patch.dict(os.environ, CUDA_VISIBLE_DEVICES="0"):
            unseen = f"GPU {self.gpus[1]} is not visible to this process"
            log, moved = self.bench("device_flushed", "all_reduce", ranks=2)
            self.assertIn(f"no message passes through GPU {self.gpus[1]}: {unseen}", log)
            self.assertEqual(set(moved), {(0, 0)})
            log, _ = self.bench("device_flushed", "all_reduce", "net.pxn=on", ranks=2, ok=False)
            self.assertIn(f"net.pxn is on, but {unseen}", log)

    def test_no_context(self):
        """The process gets no context on the second GPU."""
        done = subprocess.run([BUILD / "tests/lent_memory_test"], capture_output=True, text=True, check=False,
                              timeout=100)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("[  PASSED  ] 4 tests", done.stdout)


if __name__ == "__main__":
    if len(gpus()) < 2:
        print("skipped: needs two GPUs")
        sys.exit(77)
    os.environ["CUDA_MODULE_LOADING"] = "EAGER"
    os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "32"
    unittest.main(verbosity=2)
