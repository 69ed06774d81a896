#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs of `tutti bench` under launchers: Open MPI's mpirun if it is installed, and processes with the variables that
torchrun, Kubernetes and Slurm set.

Run as: launchers_test.py PATH_OF_TUTTI PATH_OF_LAUNCHED [--pmix], with --pmix if the build has PMIx.
"""

import os
import pathlib
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from run_tool import free_port

TUTTI = "tutti"
LAUNCHED = "launched"
HAS_PMIX = False
TIMEOUT_S = 100
BOOTSTRAP_S = 10  # longer than the difference between the starts of two processes
BENCH = ["bench", "all_reduce", "--min", "1K", "--max", "4K", "--iters", "2", "--repeat", "1", "--csv"]
ROW = "4096,1024,float32,sum"
# Open MPI 4.1 maps its copy of the topology at an address that it finds free (rtc_hwloc), which crashed in few runs.
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "plm", "isolated",
          "--mca", "rtc_hwloc_vmhole", "none"]
LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_", "OMPI_", "PMIX_", "PMI_", "SLURM_", "TUTTI_")


def environment(**variables):
    plain = {key: value for key, value in os.environ.items() if not key.startswith(LAUNCHERS)}
    return plain | {"TUTTI_BOOTSTRAP_INTERFACE": "[=lo]"} | variables


def own_name():
    """A name of this host; its address where no name has one, as in a minimal root without /etc/hosts."""
    try:
        socket.getaddrinfo("localhost", None, socket.AF_INET)
        return "localhost"
    except socket.gaierror:
        return "127.0.0.1"


def run_ranks(count, variables_of, arguments=(), command=None):
    """((output, errors), code) of each rank, which runs the command or a bench."""
    command = command or [TUTTI, *BENCH, *arguments]
    ranks = [subprocess.Popen(command, env=environment(**variables_of(rank)), text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) for rank in range(count)]
    try:
        return [(rank.communicate(timeout=TIMEOUT_S), rank.returncode) for rank in ranks]
    finally:
        for rank in ranks:
            if rank.poll() is None:
                rank.kill()
                rank.wait()


class Launchers(unittest.TestCase):
    def check(self, results):
        """All ranks end with 0; rank 0 alone writes the table."""
        for rank, ((output, errors), code) in enumerate(results):
            self.assertEqual(code, 0, errors)
            self.assertEqual(ROW in output, rank == 0, output)

    def test_variables_of_torchrun_and_kubernetes(self):
        port, secret = free_port() - 1, secrets.token_hex(16)
        results = run_ranks(3, lambda rank: {"RANK": str(rank), "WORLD_SIZE": "3", "LOCAL_RANK": str(rank),
                                             "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                                             "TUTTI_ID_SECRET": secret})
        self.check(results)
        self.assertEqual([errors for (_, errors), _ in results], ["", "", ""])

    def test_tune_by_variables_of_torchrun_and_kubernetes(self):
        port, secret = free_port() - 1, secrets.token_hex(16)
        with tempfile.TemporaryDirectory() as folder:
            table = pathlib.Path(folder) / "table.yaml"
            results = run_ranks(2, lambda rank: {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                                                 "MASTER_PORT": str(port), "TUTTI_ID_SECRET": secret},
                                command=[TUTTI, "tune", "--collectives", "all_reduce", "--max", "4K", "--factor", "64",
                                         "--limit", "5", "--out", str(table)])
            self.assertEqual([code for _, code in results], [0, 0], results)
            self.assertIn("max_bytes", table.read_text())

    def test_processes_with_one_rank_are_named(self):
        port, secret = free_port() - 1, secrets.token_hex(16)
        results = run_ranks(3, lambda rank: {"RANK": str(min(rank, 1)), "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1",
                                             "MASTER_PORT": str(port), "TUTTI_ID_SECRET": secret,
                                             "TUTTI_TIMEOUTS_BOOTSTRAP": "10s"})
        self.assertEqual([code for _, code in results], [1, 1, 1], results)
        self.assertIn("rank 1 joined twice: ", "".join(errors for (_, errors), _ in results))

    def test_processes_with_different_numbers_of_ranks_are_named(self):
        port, secret = free_port() - 1, secrets.token_hex(16)
        results = run_ranks(2, lambda rank: {"RANK": str(rank), "WORLD_SIZE": str(2 + rank), "MASTER_ADDR": "127.0.0.1",
                                             "MASTER_PORT": str(port), "TUTTI_ID_SECRET": secret,
                                             "TUTTI_TIMEOUTS_BOOTSTRAP": "10s"})
        self.assertEqual([code for _, code in results], [1, 1], results)
        self.assertIn("ranks disagree on their number: rank ", "".join(errors for (_, errors), _ in results))

    def test_without_a_secret_each_rank_warns(self):
        port = free_port() - 1
        results = run_ranks(2, lambda rank: {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                                             "MASTER_PORT": str(port)})
        self.check(results)
        for (_, errors), _ in results:
            self.assertIn(f"the meeting place 127.0.0.1:{port + 1} has no secret: every process that reaches its port "
                          "can join the job", errors)

    def test_variables_of_slurm(self):
        job = str(secrets.randbelow(1 << 20))
        results = run_ranks(2, lambda rank: {"SLURM_PROCID": str(rank), "SLURM_STEP_NUM_TASKS": "2",
                                             "SLURM_LOCALID": str(rank), "SLURM_STEP_NODELIST": "127.0.0.[1-2]",
                                             "SLURM_JOB_ID": job, "SLURM_STEP_ID": "0",
                                             "TUTTI_ID_SECRET": "0123456789abcdef" * 2})
        self.check(results)

    def test_wrong_variables(self):
        for variables, text in [
                ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK=2 is no rank of WORLD_SIZE=2; torchrun sets both"),
                ({"RANK": "0", "WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"},
                 "torchrun says rank 0 of 2 (RANK, WORLD_SIZE), and Open MPI's mpirun says rank 1 of 2"),
                ({"PMI_RANK": "0", "PMI_SIZE": "2"}, "MPICH's mpiexec started this process and states no place where "
                                                     "its ranks can meet; set TUTTI_MEETING=HOST_OF_RANK_0:PORT")]:
            with self.subTest(variables):
                (((output, errors), code),) = run_ranks(1, lambda rank: variables)
                self.assertNotEqual(code, 0)
                self.assertEqual(output, "")
                self.assertIn(text, " ".join(errors.split()))

    def test_a_secret_of_a_wrong_form_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "secret"
            file.write_text("short\n")
            file.chmod(0o600)
            for variables, named in (({"TUTTI_ID_SECRET": "confidential"}, "TUTTI_ID_SECRET: "),
                                     ({"TUTTI_ID_SECRET_FILE": str(file)}, f"TUTTI_ID_SECRET_FILE={file}: ")):
                for rank in ("0", "1"):
                    meeting = {"RANK": rank, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
                    (((_, errors), code),) = run_ranks(1, lambda _, both=meeting | variables: both)
                    self.assertEqual(code, 1, errors)
                    self.assertIn(f"{named}the secret of a unique id is 32 hexadecimal digits", errors)
                    self.assertNotIn("confidential", errors)

    def test_another_number_of_ranks_is_refused(self):
        variables = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
        (((_, errors), code),) = run_ranks(1, lambda rank: variables, ["--ranks", "4"])
        self.assertNotEqual(code, 0)
        self.assertIn("4 ranks are asked for, and torchrun started 2 processes, each of which is a rank; leave --ranks "
                      "out", " ".join(errors.split()))

    def test_wrong_meeting_places_are_named_with_their_variables(self):
        for variables, text in (
                ({"TUTTI_MEETING": "127.0.0.1:0"}, "TUTTI_MEETING=127.0.0.1:0: all ranks need the same port"),
                ({"TUTTI_MEETING": "nowhere"}, "TUTTI_MEETING=nowhere: 'nowhere' is no address: it has no port"),
                ({"MASTER_ADDR": "192.0.2.1", "MASTER_PORT": "9", "RANK": "0"},
                 "MASTER_ADDR=192.0.2.1: cannot listen on 192.0.2.1:10: no interface of this host has this address")):
            (((_, errors), code),) = run_ranks(1, lambda _, more=variables: {
                "RANK": "1", "WORLD_SIZE": "2", "TUTTI_ID_SECRET": "6" * 32, **more})
            self.assertEqual(code, 1, errors)
            self.assertIn(text, " ".join(errors.split()))

    def test_two_processes_with_rank_0_are_named(self):
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            port = other.getsockname()[1]
            for variables in ({"TUTTI_MEETING": f"127.0.0.1:{port}"},
                              {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port - 1)}):
                (((_, errors), code),) = run_ranks(1, lambda _, more=variables: {
                    "RANK": "0", "WORLD_SIZE": "2", "TUTTI_ID_SECRET": "6" * 32, **more})
                self.assertEqual(code, 1, errors)
                self.assertIn(f"port {port} is in use by another process; choose another port, or end that process; or "
                              "two processes have rank 0: give each process a rank of its own", errors)

    def test_a_rank_with_a_different_secret_is_counted(self):
        port = free_port() - 1
        results = run_ranks(2, lambda rank: {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                                             "MASTER_PORT": str(port), "TUTTI_ID_SECRET": "0" * 31 + str(rank),
                                             "TUTTI_TIMEOUTS_BOOTSTRAP": f"{BOOTSTRAP_S}s"})
        self.assertEqual([code for _, code in results], [1, 1], results)
        self.assertIn("rank 1 of 2 did not join within ", results[0][0][1])
        self.assertIn("; 1 process was refused because its secret is wrong (from 127.0.0.1): ", results[0][0][1])
        self.assertIn("does not accept the secret of this unique id", results[1][0][1])

    def test_an_unknown_name_is_looked_up_until_the_deadline(self):
        begin = time.monotonic()
        (((_, errors), code),) = run_ranks(1, lambda _: {
            "RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "no-such-host.invalid", "MASTER_PORT": "29500",
            "TUTTI_ID_SECRET": "6" * 32, "TUTTI_TIMEOUTS_BOOTSTRAP": "1s"})
        self.assertEqual(code, 1, errors)
        self.assertIn("MASTER_ADDR=no-such-host.invalid: host 'no-such-host.invalid': ", errors)
        self.assertGreater(time.monotonic() - begin, 0.6)

    def test_a_rank_that_never_comes_is_named(self):
        port = free_port() - 1
        results = run_ranks(2, lambda rank: {"RANK": str(rank), "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1",
                                             "MASTER_PORT": str(port), "TUTTI_ID_SECRET": "0" * 31 + "1",
                                             "TUTTI_TIMEOUTS_BOOTSTRAP": "2s"})
        for (_, errors), code in results:
            self.assertNotEqual(code, 0)
            self.assertRegex(errors, r"\b2\b")

    def check_programs(self, lines, ranks):
        total = ranks * (ranks + 1) // 2
        for rank in range(ranks):
            self.assertIn(f"rank {rank} of {ranks}: sum {total}", lines)
        self.assertEqual(sum(line.startswith("second: failed precondition: a process joins the job")
                             for line in lines), ranks)

    def test_a_program_joins_by_itself(self):
        port = free_port() - 1
        results = run_ranks(3, lambda rank: {"RANK": str(rank), "WORLD_SIZE": "3", "MASTER_ADDR": own_name(),
                                             "MASTER_PORT": str(port), "TUTTI_ID_SECRET": "5" * 32}, command=[LAUNCHED])
        self.assertEqual([errors for (_, errors), _ in results], ["", "", ""])
        self.check_programs([line for (output, _), _ in results for line in output.splitlines()], 3)

    def test_a_program_without_a_launcher_is_alone(self):
        (((output, _), _),) = run_ranks(1, lambda rank: {}, command=[LAUNCHED])
        self.check_programs(output.splitlines(), 1)

    def mpirun(self, ranks, *command, **variables):
        if shutil.which("mpirun") is None:
            self.skipTest("mpirun is not installed")
        if not HAS_PMIX:
            self.skipTest("the build lacks PMIx")
        return subprocess.run([*MPIRUN, "-n", str(ranks), *command], env=environment(**variables),
                              capture_output=True, text=True, timeout=TIMEOUT_S, check=False)

    def test_mpirun(self):
        done = self.mpirun(4, TUTTI, *BENCH)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count(ROW), 1, "one job has one table")
        row = done.stdout[done.stdout.index(ROW):].split(",")
        algorithm_gbs, bus_gbs = float(row[7]), float(row[8])
        self.assertAlmostEqual(bus_gbs, 1.5 * algorithm_gbs, delta=0.01 * bus_gbs + 0.001)  # 2 (n - 1) / n, n = 4
        self.assertNotIn("no secret", done.stderr)

    def test_mpirun_of_a_program(self):
        done = self.mpirun(3, LAUNCHED)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.check_programs(done.stdout.splitlines(), 3)

    def test_mpirun_with_a_rank_that_ends(self):
        script = 'if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then exit 3; fi; exec "$@"'
        done = self.mpirun(2, "sh", "-c", script, "sh", TUTTI, *BENCH, TUTTI_TIMEOUTS_BOOTSTRAP="3s")
        self.assertNotEqual(done.returncode, 0)

    def test_mpirun_with_a_rank_that_is_late(self):
        script = 'if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then sleep 20; fi; exec "$@"'
        done = self.mpirun(2, "sh", "-c", script, "sh", TUTTI, *BENCH, TUTTI_TIMEOUTS_BOOTSTRAP="2s")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("PMIx_Fence of the launcher did not end within 2 s (timeouts.bootstrap); did all ranks start?",
                      done.stderr)


if __name__ == "__main__":
    HAS_PMIX = "--pmix" in sys.argv
    TUTTI, LAUNCHED = map(os.path.abspath, sys.argv[1:3])
    unittest.main(argv=sys.argv[:1], verbosity=2)
