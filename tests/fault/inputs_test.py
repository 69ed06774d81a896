#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs whose hosts do not fit together: each rank must say why, within timeouts.bootstrap. Clocks need not fit.

inputs_test.py TOOL SHIFTED_CLOCK MOCK
SHIFTED_CLOCK: a library that shifts the wall clock of a process. MOCK: the network plugin `mock`.

Each rank is a `tutti bench --rank R` process of its own. Hosts are pretended.
"""
import os
import pathlib
import re
import secrets
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "integration"))
from run_tool import clean_environment, free_port  # noqa: E402

BOOTSTRAP_S = 5  # timeouts.bootstrap
START_S = 10  # start and end of the processes on a busy machine
LIMIT_S = 60
MACHINES = pathlib.Path(__file__).resolve().parents[2] / "configs" / "topologies"
DAY_S = 86400
# Runs a command where the resolver asks a name server that never answers. Arguments: a resolv.conf, and the command.
SILENT_RESOLVER = """import socket, subprocess, sys
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
subprocess.run(["mount", "--bind", sys.argv[1], "/etc/resolv.conf"], check=True)
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))
status = subprocess.run(sys.argv[2:]).returncode
server.setblocking(False)
print("questions", len(server.recv(512)) > 0)
sys.exit(status)
"""
OWN_NAMESPACES = ["unshare", "--map-root-user", "--mount", "--net"]
LAUNCHERS = re.compile("RANK$|WORLD_SIZE$|LOCAL_RANK$|MASTER_|OMPI_|PMIX|SLURM_")


class Rank:
    """One rank of a job: its settings, its environment, and the command that runs it."""

    def __init__(self, *settings, environment=None, runner=()):
        self.settings, self.environment, self.runner = settings, environment or {}, list(runner)


def run_job(ranks, size=None):
    """(exit status, standard output, standard error) of each rank, and the time of all."""
    common = clean_environment() | {"TUTTI_ID": f"127.0.0.1:{free_port()}:{secrets.token_hex(16)}"}
    begin = time.monotonic()
    started = []
    for number, rank in enumerate(ranks):
        settings = [f"host=h{number}", f"timeouts.bootstrap={BOOTSTRAP_S}s", *rank.settings]
        command = rank.runner + [TUTTI, "bench", "all_reduce", "--rank", str(number),
                                 "--ranks", str(size or len(ranks)), "--min", "64K", "--max", "64K", "--iters", "20"]
        started.append(subprocess.Popen(command + [part for one in settings for part in ("--set", one)], text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                                        env=common | rank.environment))
    try:
        texts = [one.communicate(timeout=LIMIT_S) for one in started]
    finally:
        for one in started:
            one.kill()
            one.wait()
    return [(one.returncode, *text) for one, text in zip(started, texts)], time.monotonic() - begin


class DifferentHosts(unittest.TestCase):
    def expect_failure(self, ranks, *texts, size=None):
        """Each rank fails in time with all texts, in one line."""
        results, took = run_job(ranks, size)
        for number, (code, _, error) in enumerate(results):
            self.assertEqual(code, 1, (number, error))
            for text in texts:
                self.assertIn(text, error, number)
            self.assertEqual(error.count("\n"), 1, error)
        self.assertLess(took, BOOTSTRAP_S + START_S)

    def test_plugins_of_one_host_only(self):
        self.expect_failure([Rank("plugins.algorithm=[ring, tree]"), Rank("plugins.algorithm=[ring, tree, direct]")],
                            "ranks disagree", "plugin algo.direct is missing on rank 0 and ", " on rank 1")

    def test_a_plugin_file_of_one_host_only(self):
        """The same settings, but the folder of one host lacks the file."""
        with tempfile.TemporaryDirectory() as empty:
            folders = (str(pathlib.Path(MOCK).parent), empty)
            self.expect_failure([Rank("plugins.network=[mock]", f"plugins.path=[{folder}]") for folder in folders],
                                "rank 1: ", "network plugin 'mock' not found: no tutti-net-mock.so in", empty)

    def test_a_nic_of_one_host_only(self):
        self.expect_failure([Rank(), Rank("settings.net.socket.interface=[=nic7]")],
                            "rank 1: ", "network plugin 'socket'", "no network interface that is up matches '=nic7'",
                            "set: settings.net.socket.interface (",
                            "there are: lo (127.0.0.1)")

    def test_a_bootstrap_interface_of_one_host_only(self):
        """The process of rank 1 cannot start a standby hub. The job ends, so no line says that it goes on."""
        results, took = run_job([Rank(), Rank("bootstrap.interface=[=nic7]")])
        self.assertEqual([code for code, _, _ in results], [1, 1], results)
        self.assertIn("no network interface that is up matches '=nic7'", results[1][2])
        self.assertNotIn("standby", results[0][2] + results[1][2])
        self.assertLess(took, BOOTSTRAP_S + START_S)

    def test_the_topology_file_of_a_different_machine(self):
        """The job runs, and says which file does not fit."""
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write((MACHINES / "hgx-h200.yaml").read_text().replace("0000:", "fffe:"))  # no machine has this domain
            file.flush()
            results, took = run_job([Rank(f"topology.file={file.name}"), Rank()])
        self.assertEqual([code for code, _, _ in results], [0, 0], results)
        self.assertIn(f"{file.name}: none of its 8 GPUs is in this machine", results[0][2])
        self.assertIn("of a different machine?", results[0][2])
        self.assertEqual(results[1][2], "")
        self.assertLess(took, BOOTSTRAP_S + START_S)

    def test_a_topology_file_with_ports_of_a_different_machine(self):
        """The job runs, and says which ports there are (lo, or a device of the machine)."""
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write("tutti_topology: 1\ncpu:\n  - numaid: 0\n    arch: x86_64\n    vendor: GenuineIntel\n"
                       "    nic: {net: {name: nic7, dev: 0, speed: 10000}}\n")
            file.flush()
            results, took = run_job([Rank(f"topology.file={file.name}"), Rank()])
        self.assertEqual([code for code, _, _ in results], [0, 0], results)
        self.assertRegex(results[0][2], rf"{file.name}: its network ports are nic7, but network 'socket' has \S+ in "
                                        r"this machine; is it the file of a different machine or network\?")
        self.assertEqual(results[1][2], "")
        self.assertLess(took, BOOTSTRAP_S + START_S)

    def test_a_topology_file_that_is_not_there(self):
        self.expect_failure([Rank("topology.file=/no/such/file.yaml"), Rank()], "rank 0: ", "/no/such/file.yaml")

    def test_half_of_the_ranks_never_come(self):
        begin = time.monotonic()
        self.expect_failure([Rank(), Rank(), Rank(), Rank()], "ranks 4-7 of 8 did not join within ", size=8)
        self.assertGreater(time.monotonic() - begin, BOOTSTRAP_S - 1)

    def test_a_silent_resolver(self):
        if subprocess.run(OWN_NAMESPACES + ["true"], capture_output=True).returncode != 0:
            self.skipTest("no namespaces here")
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as servers:
            servers.write("nameserver 127.0.0.1\noptions timeout:30\n")
            servers.flush()
            for rank in ("0", "1"):
                begin = time.monotonic()
                run = self.launch([*OWN_NAMESPACES, sys.executable, "-c", SILENT_RESOLVER, servers.name],
                                  RANK=rank, WORLD_SIZE="2", MASTER_ADDR="head.cluster", MASTER_PORT="29500",
                                  TUTTI_ID_SECRET="6" * 32, TUTTI_TIMEOUTS_BOOTSTRAP=f"{BOOTSTRAP_S}s")
                self.assertEqual(run.returncode, 1, run.stderr)
                self.assertEqual(run.stdout, "questions True\n")
                self.assertIn("MASTER_ADDR=head.cluster: host 'head.cluster': the resolver of this host gave no answer "
                              "in time; check the servers in /etc/resolv.conf", run.stderr)
                self.assertGreater(time.monotonic() - begin, BOOTSTRAP_S - 1)

    def launch(self, runner=(), **variables):
        environment = {key: value for key, value in clean_environment().items() if not LAUNCHERS.match(key)}
        begin = time.monotonic()
        run = subprocess.run([*runner, TUTTI, "bench", "all_reduce", "--min", "1K", "--max", "1K"], text=True,
                             timeout=LIMIT_S, capture_output=True, env=environment | variables)
        self.assertLess(time.monotonic() - begin, BOOTSTRAP_S + START_S)
        return run

    def run_launched(self, **variables):
        run = self.launch(**variables)
        self.assertEqual(run.returncode, 2, run.stderr)
        return run.stderr

    def test_launcher_variables_that_contradict_each_other(self):
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        self.assertIn("RANK=3 is no rank of WORLD_SIZE=2; torchrun sets both",
                      self.run_launched(RANK="3", WORLD_SIZE="2", **meeting))
        self.assertIn("torchrun says rank 0 of 4 (RANK, WORLD_SIZE), and Open MPI's mpirun says rank 1 of 4",
                      self.run_launched(RANK="0", WORLD_SIZE="4", OMPI_COMM_WORLD_RANK="1", OMPI_COMM_WORLD_SIZE="4",
                                        **meeting))


class DifferentClocks(unittest.TestCase):
    """Nothing compares the clocks of two hosts, so that they may differ by days."""
    SHIFT = {"SHIFTED_CLOCK_S": str(DAY_S)}

    def setUp(self):
        self.shifted = self.SHIFT | {"LD_PRELOAD": SHIFTED_CLOCK}
        read = subprocess.run(["date", "+%s"], env=os.environ | self.shifted, stdout=subprocess.PIPE, text=True,
                              check=True)
        self.assertAlmostEqual(int(read.stdout) - time.time(), DAY_S, delta=60)  # the shift has an effect
        # The other clocks count from the start of a host. A time namespace shifts them.
        self.later_start = ["unshare", "--time", "--monotonic", str(DAY_S), "--boottime", str(DAY_S), "--"]
        try:
            probe = subprocess.run(self.later_start + ["cat", "/proc/uptime"], capture_output=True, text=True)
            shifts = probe.returncode == 0 and float(probe.stdout.split()[0]) > DAY_S
        except FileNotFoundError:
            shifts = False
        if not shifts:
            print("no time namespaces here: only the wall clock is shifted")
            self.later_start = []

    def test_a_job_runs(self):
        for tls in ("off", "on"):
            for shifted in (0, 1):  # rank 0 has the hub
                with self.subTest(tls=tls, shifted=shifted):
                    setting = f"settings.net.socket.tls={tls}"
                    ranks = [Rank(setting), Rank(setting)]
                    ranks[shifted] = Rank(setting, environment=self.shifted, runner=self.later_start)
                    results, took = run_job(ranks)
                    self.assertEqual([code for code, _, _ in results], [0, 0], results)
                    self.assertEqual([error for _, _, error in results], ["", ""])
                    self.assertRegex(results[0][1], r"wrong 0\b")
                    self.assertLess(took, BOOTSTRAP_S + START_S)

    def test_deadlines_hold(self):
        for shifted in (0, 1):
            with self.subTest(shifted=shifted):
                ranks = [Rank(), Rank()]
                ranks[shifted] = Rank(environment=self.shifted, runner=self.later_start)
                results, took = run_job(ranks, size=3)
                for code, _, error in results:
                    self.assertEqual(code, 1)
                    self.assertIn("rank 2 of 3 did not join within ", error)
                self.assertGreater(took, BOOTSTRAP_S - 1)
                self.assertLess(took, BOOTSTRAP_S + START_S)


if __name__ == "__main__":
    TUTTI, SHIFTED_CLOCK, MOCK = (os.path.abspath(path) for path in sys.argv[1:4])
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
