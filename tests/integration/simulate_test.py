#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`tutti simulate` from end to end, beside `tutti explain` and beside jobs.

Run as: simulate_test.py PATH_OF_TUTTI SOURCE_DIR [unittest arguments]
"""

import json
import os
import pathlib
import re
import sys
import tempfile
import unittest

from run_tool import run_tool

TIMEOUT_S = 120
TUTTI = "tutti"
MACHINES = pathlib.Path("configs/topologies")
LOOPBACK = ["--set", "settings.net.socket.interface=[=lo]"]
SIZES = ["--min", "64", "--max", "1M", "--factor", "16"]


def tutti(*arguments):
    return run_tool(TUTTI, *arguments, timeout=TIMEOUT_S)


class Simulate(unittest.TestCase):
    def run_ok(self, *arguments):
        run = tutti(*arguments)
        self.assertEqual(run.returncode, 0, run.stderr)
        return run.stdout

    def predictions(self, *arguments):
        return json.loads(self.run_ok("simulate", *arguments, "--json", "-"))

    def this_machine(self, folder):
        """A file of this machine, whose port is the loopback."""
        file = pathlib.Path(folder) / "machine.yaml"
        file.write_text(self.run_ok("topo", "show", "--export", "yaml", *LOOPBACK))
        return file

    def test_each_machine_and_collective(self):
        for file in sorted(MACHINES.glob("*.yaml")):
            for collective in ("all_reduce", "all_to_all", "send_recv"):
                out = self.run_ok("simulate", collective, "--topology", file, "--max", "1M", "--factor", "64")
                rows = re.findall(r"^ +\d+ (?:B|KiB|MiB) +\S+ × \S+ +\d+  - +[\d.]+ (?:µs|ms) +[\d.]+$", out, re.M)
                self.assertGreaterEqual(len(rows), 3, out)

    def test_a_job_predicts_the_same(self):
        with tempfile.TemporaryDirectory() as folder:
            file = self.this_machine(folder)
            for collective, hosts in (("all_reduce", 1), ("all_reduce", 2), ("all_to_all", 2), ("broadcast", 2)):
                for settings in ([], ["--set", "algorithm=direct"]):
                    with self.subTest(collective=collective, hosts=hosts, settings=settings):
                        options = [*SIZES, *LOOPBACK, *settings]
                        dry = self.predictions(collective, "--topology", file, "--nodes", hosts, "--ranks", 4 // hosts,
                                               *options)
                        job_file = pathlib.Path(folder) / "job.json"
                        self.run_ok("bench", collective, "--threads", "--ranks", 4,
                                    "--set", f"topology.file={file}", "--hosts", "a,b"[:2 * hosts - 1],
                                    "--iters", 1, "--repeat", 1, "--json", job_file, *options)
                        job = json.loads(job_file.read_text())
                        self.assertEqual(dry["ranks"], job["ranks"])
                        chosen = [row["candidates"][0] for row in dry["results"]]
                        self.assertEqual([c["predicted_us"] for c in chosen],
                                         [row["predicted_us"] for row in job["results"]])
                        for candidate, row in zip(chosen, job["results"]):
                            self.assertTrue(row["ran"].startswith(candidate["name"].replace(" × ", "/") + "/"), row)

    def test_all_candidates_are_those_of_explain(self):
        machine = ["--topology", MACHINES / "hgx-h200.yaml", "--nodes", 2]
        explained = self.run_ok("explain", "all_reduce", *machine, "--size", "1M")
        out = self.run_ok("simulate", "all_reduce", *machine, "--min", "1M", "--max", "1M", "--all")
        candidates = re.findall(r"^  (\S+ × \S+) ", explained, re.M)
        self.assertEqual(re.findall(r" {12}(\S+ × \S+) ", out), candidates[1:])
        self.assertIn(f"1 MiB  {candidates[0]} ", out)
        for reason in re.findall(r"excluded: .*", explained):
            self.assertIn(reason, out)

    def test_figures_and_settings_count(self):
        with tempfile.TemporaryDirectory() as folder:
            figures = pathlib.Path(folder) / "figures.yaml"
            figures.write_text("tutti_hardware: 1\ngpus: {sm90: {latency_us: 500}}\n")
            machine = ["all_reduce", "--topology", MACHINES / "hgx-h200.yaml", "--max", "8"]
            plain = self.predictions(*machine)["results"][0]["candidates"][0]
            slow = self.predictions(*machine, "--set", f"hardware.file={figures}")["results"][0]["candidates"][0]
            self.assertLess(plain["predicted_us"], 10)
            self.assertGreater(slow["predicted_us"], 500)
            ring = self.predictions(*machine, "--set", "algorithm=ring")["results"][0]["candidates"]
            self.assertEqual(ring[0]["algorithm"], "ring")
            trees = [each["excluded"] for each in ring if each["algorithm"].startswith("tree")]
            self.assertTrue(any("algorithm is set to 'ring'" in reason for reason in trees), trees)

    def test_host_ranks_on_a_machine_without_gpus(self):
        with tempfile.TemporaryDirectory() as folder:
            file = self.this_machine(folder)
            if "gpu:" in file.read_text():
                self.skipTest("this machine has GPUs")
            dry = self.predictions("all_reduce", "--topology", file, "--nodes", 2, "--ranks", 3, "--max", "8")
            self.assertEqual((dry["ranks"], dry["nodes"], dry["network"]), (6, 2, "socket"))
            run = tutti("simulate", "all_reduce", "--topology", file)
            self.assertEqual(run.returncode, 1)
            self.assertIn("ask for ranks on the host with --ranks", run.stderr)

    def test_many_host_ranks(self):
        with tempfile.TemporaryDirectory() as folder:
            file = self.this_machine(folder)
            for collective in ("all_reduce", "all_gather", "all_to_all"):
                dry = self.predictions(collective, "--topology", file, "--nodes", 2048, "--ranks", 8,
                                       "--set", "device=host", "--min", "8", "--max", "8")
                self.assertEqual((dry["ranks"], dry["nodes"]), (16384, 2048))
                self.assertGreater(dry["results"][0]["candidates"][0]["predicted_us"], 0)

    def test_ranks_that_share_gpus(self):
        dry = self.predictions("all_reduce", "--topology", MACHINES / "hgx-h200.yaml", "--ranks", 16, "--max", "8")
        self.assertEqual((dry["ranks"], dry["nodes"]), (16, 1))

    def test_rules_choose_the_network_of_gpus(self):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as job:
            job.write("network: [socket, ib]\nrules: [{match: {max_size: 1KiB}, choose: {network: ib}}]\n")
            job.flush()
            for size, network in (("1K", "ib"), ("2K", "socket")):
                out = self.run_ok("explain", "all_reduce", "--topology", MACHINES / "hgx-h200.yaml", "--nodes", 2,
                                  "--size", size, "--config", job.name)
                self.assertRegex(out, rf"chosen: .* network '{network}'")

    def test_what_a_job_refuses(self):
        machine = ["--topology", MACHINES / "hgx-h200.yaml"]
        for arguments, code, text in [
            ([*machine, "--nodes", 129], 1, "a communicator on GPUs takes up to 1024 ranks, not 1032"),
            ([*machine, "--ranks", 9, "--set", "topology.host_ranks=gpu"], 1,
             "9 ranks do not fit: configs/topologies/hgx-h200.yaml has 8 GPUs"),
            ([*machine, "--nodes", 2, "--set", "transport=shm"], 1, "but the ranks are on 2 hosts"),
            ([*machine, "--nodes", 2, "--set", "plugins.network=[]"], 1, "plugins.network is empty"),
            ([*machine, "--nodes", 2, "--set", "device=cuda", "--set", "net.inside_rack=socket"], 1,
             "net.racks names no rack"),
            ([*machine, "--set", "hardware.file=/no/figures"], 1, "hardware.file (command line)"),
            ([*machine, "--set", "algorithm=rign"], 1, "did you mean 'ring'"),
            ([*machine, "--min", "2K", "--max", "1K"], 1, "--max is less than --min"),
            (["--topology", "/no/such/file"], 1, "cannot read the topology file /no/such/file: No such file"),
            ([*machine, "--factor", "1"], 2, "--factor"),
            ([*machine, "--all", "--json", "-"], 2, "--json"),
            ([], 2, "--topology"),
        ]:
            run = tutti("simulate", "all_reduce", *arguments)
            self.assertEqual(run.returncode, code, run.stdout + run.stderr)
            self.assertIn(text, run.stderr)
        run = tutti("simulate", "all_reduse", *machine)
        self.assertEqual(run.returncode, 2)

    def test_json_goes_to_a_file(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "out.json"
            out = self.run_ok("simulate", "all_gather", "--topology", MACHINES / "hgx-h200.yaml", "--json", file)
            self.assertEqual(out, "")
            self.assertEqual(json.loads(file.read_text())["collective"], "all_gather")


if __name__ == "__main__":
    TUTTI = str(pathlib.Path(sys.argv.pop(1)).resolve())
    os.chdir(sys.argv.pop(1))
    unittest.main(verbosity=2)
