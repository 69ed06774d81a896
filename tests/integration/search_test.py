#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`tutti search` from end to end, and communicators that are given a topology file.

Run as: search_test.py PATH_OF_TUTTI SOURCE_DIR [unittest arguments]
"""

import pathlib
import re
import sys
import tempfile
import unittest

from run_tool import run_tool

TIMEOUT_S = 120
TUTTI = "tutti"
MACHINES = pathlib.Path("configs/topologies")


def tutti(*arguments):
    return run_tool(TUTTI, *arguments, timeout=TIMEOUT_S)


class Search(unittest.TestCase):
    def search(self, *arguments):
        run = tutti("search", "--topology", *arguments)
        self.assertEqual(run.returncode, 0, run.stderr)
        return run.stdout

    def test_every_machine(self):
        for file in sorted(MACHINES.glob("*.yaml")):
            out = self.search(file)
            self.assertRegex(out, r"ring: ring: \d+ channels? × [\d.]+ GB/s", file)
            self.assertNotIn("fallback", out, file)
            for load in re.findall(r"(\d+) %", out):
                self.assertLessEqual(int(load), 100, file)

    def test_a_large_cluster_in_seconds_and_little_memory(self):
        out = self.search(MACHINES / "hgx-h200.yaml", "--nodes", 2048)
        self.assertIn("2048 machines × 8 ranks = 16384 ranks", out)
        for milliseconds in re.findall(r"channels: ([\d.]+) ms", out):
            self.assertLess(float(milliseconds), 10_000)
        self.assertLess(int(re.search(r"peak memory of this process: (\d+) MiB", out)[1]), 4096)

    def test_limits_that_the_job_meets(self):
        out = self.search(MACHINES / "hgx-h200.yaml", "--nodes", 256)
        limits = out[out.index("limits that a job of these ranks meets:"):]
        for text in ("a communicator on GPUs takes up to 1024 ranks, not 2048",
                     "direct/one-shot does not run all_reduce on GPUs: needs 2047 connections; this back end runs",
                     "hier/exchange does not run all_reduce on GPUs: needs 262 connections"):
            self.assertIn(text, limits)
        self.assertNotIn("tree/direct does not", limits)
        self.assertNotIn("limits that a job", self.search(MACHINES / "hgx-h200.yaml"))

    def test_no_path_through_a_second_gpu(self):
        machine = (MACHINES / "hgx-h200.yaml", "--nodes", 2)
        self.assertIn("PXN to the network", self.search(*machine))
        for settings in (["net.pxn=off"], ["net.direct=off"], ["network=socket", "net.failover=true"]):
            out = self.search(*machine, *[word for setting in settings for word in ("--set", setting)])
            self.assertNotIn("PXN", out)

    def test_plan_files_verify(self):
        with tempfile.TemporaryDirectory() as folder:
            for algorithm in ("ring", "tree/pipelined", "tree/direct"):
                plan = f"{folder}/plan.yaml"
                out = self.search(MACHINES / "dgx-a100.yaml", "--nodes", 3, "--plan", plan, "--set",
                                  f"algorithm={algorithm}")
                self.assertIn("24 ranks", out)
                verdict = tutti("plan", "verify", plan)
                self.assertEqual(verdict.returncode, 0, verdict.stderr)

    def test_one_rank_of_a_large_ring(self):
        with tempfile.TemporaryDirectory() as folder:
            large = (MACHINES / "hgx-h200.yaml", "--nodes", 256, "--set", "algorithm=ring")
            run = tutti("search", "--topology", *large, "--plan", f"{folder}/p.json")
            self.assertEqual(run.returncode, 1)
            self.assertIn("--rank", run.stderr)
            out = self.search(*large, "--rank", 7)
            self.assertIn("all_reduce of 64 MiB: ring", out)
            self.assertIn("rank 7", out)
            self.assertEqual(len(re.findall("^ *[0-9]+  ", out, re.M)), 4095)

    def test_other_collectives(self):
        machine = MACHINES / "dgx-a100.yaml"
        out = self.search(machine, "--collective", "all_gather")
        self.assertIn("all_gather, predicted (float32)", out)
        self.assertIn("p2p × ", self.search(machine, "--collective", "send_recv", "--set", "channels=2"))
        self.assertIn("direct: 2 channels, ranks in any order", self.search(machine, "--set", "channels=2"))
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write("rules: [{match: {collective: all_reduce}, forbid: {algorithm: ring}}]\n")
            file.flush()
            self.assertIn("reduce_scatter, predicted (float32)", self.search(machine, "--config", file.name, "--set",
                                                                                "plugins.algorithm=[ring]"))

    def test_options_that_belong_together(self):
        machine = MACHINES / "dgx-a100.yaml"
        for arguments, text in [
            (["--plan-size", "1M"], "--plan-size requires --plan or --rank"),
            (["--channel", "1"], "--channel requires --plan or --rank"),
        ]:
            run = tutti("search", "--topology", machine, *arguments)
            self.assertEqual(run.returncode, 2)
            self.assertIn(text, run.stderr)
        for option, value in [("--gpu", "0000:10:1c.0"), ("--net-mbps", "10000"), ("--sm", "90")]:
            run = tutti("search", "--topology", machine, option, value)
            self.assertEqual(run.returncode, 1)
            self.assertIn(f"{option} is for files that give places only", run.stderr)
            self.assertIn("dgx-a100.yaml describes its GPUs and ports", run.stderr)
        with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
            file.write('<system version="1"><cpu numaid="0"><nic><net name="eth0" dev="0"/></nic></cpu></system>')
            file.flush()
            run = tutti("simulate", "all_reduce", "--topology", file.name, "--ranks", "2", "--net-mbps", "10000")
            self.assertEqual(run.returncode, 1)
            self.assertIn("gives no GPU; write 'speed' of its ports into the file instead", run.stderr)

    def test_what_cannot_be(self):
        for arguments, text in [
            (["/no/such/file"], "cannot read the topology file /no/such/file: No such file"),
            ([MACHINES / "workstation-2gpu.yaml", "--nodes", 2], "has no network port"),
            ([MACHINES / "hgx-h200.yaml", "--nodes", 1 << 20], "more than 1048576 ranks"),
        ]:
            run = tutti("search", "--topology", *arguments)
            self.assertEqual(run.returncode, 1)
            self.assertIn(text, run.stderr)

    def test_a_file_of_places(self):
        with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
            file.write('<system version="1"><cpu numaid="0"><pci busid="0000:00:16.0"/><pci busid="0000:00:17.0"/>'
                       "</cpu></system>")
            file.flush()
            run = tutti("search", "--topology", file.name)
            self.assertEqual(run.returncode, 1)
            self.assertIn("gives places only", run.stderr)
            run = tutti("search", "--topology", file.name, "--gpu", "0000:00:16.0,0000:00:17.0")
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertIn("2 GPUs (sm 80)", run.stderr)
            self.assertIn("channel  0: 0 1", run.stdout)


class Explain(unittest.TestCase):
    """`tutti explain --topology`: the verdicts of communicators on GPUs, without a GPU."""

    GPU = "{{busid: '0000:{:02x}:00.0', class: 0x030200, link_speed: 16.0 GT/s PCIe, link_width: 16, " \
          "gpu: {{dev: {}, sm: 90}}}}"

    def machine(self, folder, gpus):
        """A machine with GPUs behind one switch."""
        file = pathlib.Path(folder) / "machine.yaml"
        places = "".join(f"          - {self.GPU.format(0x11 + gpu, gpu)}\n" for gpu in range(gpus))
        file.write_text("tutti_topology: 1\ncpu:\n  - numaid: 0\n    arch: x86_64\n    vendor: GenuineIntel\n"
                        "    pci:\n      - busid: '0000:10:00.0'\n        class: 0x060400\n"
                        "        link_speed: 16.0 GT/s PCIe\n        link_width: 16\n        pci:\n" + places)
        return file

    def explain(self, *arguments):
        run = tutti("explain", "all_reduce", "--topology", *arguments)
        self.assertEqual(run.returncode, 0, run.stderr)
        return run.stdout

    def test_candidates_that_kernels_do_not_run_are_excluded(self):
        with tempfile.TemporaryDirectory() as folder:
            out = self.explain(self.machine(folder, 60))
            self.assertRegex(out, r"tree/pipelined × simple +(chosen|slower)")
            self.assertRegex(out, r"direct/two-shot × copy +excluded: needs 60 ranks; this protocol runs up to 16")
            self.assertRegex(out, r"direct/two-shot × ll +(chosen|slower)")
            self.assertIn("chosen", out)
            self.assertNotIn("limits", out)
            self.assertNotIn("this back end runs", self.explain(self.machine(folder, 16)))

    def test_more_ranks_than_a_communicator_takes(self):
        self.assertIn("limits: a communicator on GPUs takes up to 1024 ranks, not 1032",
                      self.explain(MACHINES / "hgx-h200.yaml", "--nodes", 129))

    def test_connections_that_kernels_do_not_have(self):
        out = self.explain(MACHINES / "hgx-h200.yaml", "--nodes", 9)
        self.assertRegex(out, r"direct/two-shot × simple +excluded: steps have up to 71 peers, protocol takes 64")
        self.assertRegex(out, r"hier/\w+ × \w+ +chosen")
        self.assertNotIn("limits", out)

    def test_host_ranks_have_the_candidates_of_their_job(self):
        """The same candidates, reasons and channels. Predicted times may differ: the job asks its network."""
        file = MACHINES / "pcie-4gpu.yaml"
        for settings in ([], ["channels=2"], ["protocol=ll"]):
            options = ["--size", "64M"]
            for setting in ["topology.host_ranks=gpu", *settings]:
                options += ["--set", setting]
            for collective in ("all_reduce", "all_to_all"):
                with self.subTest(collective=collective, settings=settings):
                    dry = tutti("explain", collective, "--topology", file, "--nodes", 2, *options)
                    job = tutti("explain", collective, "--ranks", 8, "--hosts", "a,b", *options, "--set",
                                f"topology.file={file}")
                    self.assertEqual((dry.returncode, job.returncode), (0, 0), dry.stderr + job.stderr)
                    self.assertEqual(self.verdicts(dry.stdout), self.verdicts(job.stdout))

    def test_rules_that_leave_nothing(self):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write("rules: [choose: {protocol: ll128}]")
            file.flush()
            run = tutti("explain", "all_reduce", "--ranks", 2, "--config", file.name)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(run.stdout.splitlines()[1], "  nothing can run this call:")

    def test_gpus_have_the_channels_of_their_job(self):
        """Two for each of eight ports over a network, one thread block each; 64 inside a machine."""
        for nodes, channels in ((1, 64), (2, 16)):
            out = self.explain(MACHINES / "hgx-h200.yaml", "--nodes", nodes, "--size", "1G")
            self.assertEqual(max(map(int, re.findall(r"(\d+) channel\(s\)", out))), channels)

    @staticmethod
    def verdicts(text):
        """By candidate: the reason against it, or its channels and its network."""
        lines = text.splitlines()[1:]
        found = [re.fullmatch(r" *(\S+ × \S+) +(?:(excluded: .*)|.*, (\d+ channel\(s\), network '.*'))",
                              line) for line in lines]
        return {match[1]: match[2] or match[3] for match in found}

    def test_ranks_are_those_of_each_machine(self):
        machine = ("--topology", MACHINES / "hgx-h200.yaml", "--nodes", 2)
        for ranks, options in ((16, machine), (8, (*machine, "--ranks", 4))):
            run = tutti("explain", "all_reduce", *options)
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertIn(f"{ranks} ranks", run.stdout)
        run = tutti("explain", "all_reduce", *machine, "--hosts", "a,b")
        self.assertEqual(run.returncode, 2)


class TopologyFile(unittest.TestCase):
    BENCH = ("bench", "all_reduce", "--ranks", 2, "--min", "4K", "--max", "4K", "--iters", 2, "--repeat", 1)

    def test_a_communicator_takes_it(self):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write("tutti_topology: 1\ncpu:\n  - {numaid: 0, arch: x86_64}\n")
            file.flush()
            run = tutti(*self.BENCH, "--set", f"topology.file={file.name}")
            self.assertEqual(run.returncode, 0, run.stderr)

    def test_a_file_of_a_different_machine_is_told(self):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            text = (MACHINES / "hgx-h200.yaml").read_text()
            file.write(text.replace("0000:", "fffe:"))  # no machine has this PCI domain
            file.flush()
            run = tutti(*self.BENCH, "--set", f"topology.file={file.name}")
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertEqual(run.stderr.count(f"{file.name}: none of its 8 GPUs is in this machine"), 1, run.stderr)
            stand_ins = tutti(*self.BENCH, "--set", f"topology.file={file.name}", "--set", "topology.host_ranks=gpu")
            self.assertNotIn("none of its", stand_ins.stderr)

    def test_errors_of_a_file_are_told_once(self):
        """By a job and by a dry run, which use the file all the same."""
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write((MACHINES / "dgx-a100.yaml").read_text().replace("link_width: 16", "link_width: 7"))
            file.flush()
            stands_in = ("--set", f"topology.file={file.name}", "--set", "topology.host_ranks=gpu")
            for run in (tutti(*self.BENCH, *stands_in), tutti("search", "--topology", file.name)):
                self.assertEqual(run.returncode, 0, run.stderr)
                self.assertEqual(run.stderr.count("no PCI link has 7 lanes; write 1, 2, 4"), 3, run.stderr)
                self.assertRegex(run.stderr, rf"warn .*'tutti topo check {file.name}' has \d+ further findings")

    def test_a_wrong_one_fails_every_rank_with_its_place(self):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write("tutti_topology: 1\ncpu:\n  - {numaid: zero}\n")
            file.flush()
            run = tutti(*self.BENCH, "--set", f"topology.file={file.name}")
            self.assertEqual(run.returncode, 1)
            self.assertRegex(run.stderr, rf"^tutti: ranks 0,1: [^\n]*{file.name}:3: <cpu>: numaid[^\n]*\n$")


if __name__ == "__main__":
    TUTTI = str(pathlib.Path(sys.argv.pop(1)).resolve())
    MACHINES = pathlib.Path(sys.argv.pop(1)) / "configs/topologies"
    unittest.main(verbosity=2)
