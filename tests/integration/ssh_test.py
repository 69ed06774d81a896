#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`tutti bench --ssh`: ranks that ssh starts. A script stands for ssh: it runs the command of a host in a shell here.

Run as: ssh_test.py PATH_OF_TUTTI
"""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

TUTTI = "tutti"
BENCH = ["bench", "all_reduce", "--min", "1K", "--max", "4K", "--iters", "2", "--repeat", "1", "--csv"]
ROW = "4096,1024,float32,sum"
# Logs its arguments, knows no host 'nowhere', and runs the command as sshd does, without the variables of the caller.
SSH = """#!/bin/bash
while [[ $1 == -* ]]; do
  [[ $1 != -[op] ]] || shift
  shift
done
host=$1
shift
printf '%s %s\\n' "$host" "$*" >>"$(dirname "$0")/log"
[[ $host != nowhere ]] || { echo "ssh: Could not resolve hostname nowhere" >&2; exit 255; }
[[ $host != silent ]] || exec sleep 60
[[ $host != talking ]] || { echo "Welcome to talking"; exec sleep 60; }
unset ${!TUTTI_@}
bash -c "$*" <&0 &
trap 'exec 0<&-; wait $!; exit 255' TERM
wait $!
"""


def environment(**variables):
    launchers = ("TUTTI_", "OMPI_", "PMI", "SLURM_")
    plain = {key: value for key, value in os.environ.items() if not key.startswith(launchers)}
    return plain | {"TUTTI_BOOTSTRAP_INTERFACE": "[=lo]"} | variables


def ranks_of(folder):
    """The processes of ranks that were started from this folder."""
    pids = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if b"--ssh-rank" in words and os.readlink(entry / "cwd") == folder:
                pids.append(int(entry.name))
        except OSError:
            pass  # ended meanwhile
    return pids


class Ssh(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(os.path.realpath(temporary.name))
        self.ssh = self.folder / "ssh"
        self.ssh.write_text(SSH)
        self.ssh.chmod(0o755)
        self.addCleanup(lambda: self.assertEqual(ranks_of(str(self.folder)), []))

    def hosts(self, text):
        (self.folder / "hosts").write_text(text)

    def start(self, *arguments, **variables):
        return subprocess.Popen([TUTTI, *BENCH, "--ssh", "hosts", "--ssh-program", f"{self.ssh} -p 22", *arguments],
                                cwd=self.folder, env=environment(**variables), text=True, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run_job(self, *arguments, **variables):
        process = self.start(*arguments, **variables)
        output, errors = process.communicate(timeout=50)
        return process.returncode, output, errors

    def log(self):
        return (self.folder / "log").read_text().splitlines()

    def test_ranks_run_on_their_hosts(self):
        self.hosts("# a job\none slots=2\n\ntwo  # one rank\n")
        code, output, errors = self.run_job()
        self.assertEqual((code, errors), (0, ""), output)
        self.assertIn(ROW, output)
        self.assertNotIn("tutti-ssh-id", output)
        self.assertEqual(sorted(line.split()[0] for line in self.log()), ["one", "one", "two"])
        for line in self.log():
            self.assertIn("'--ranks' '3'", line)
            self.assertNotRegex(line, r"[0-9a-f]{32}")  # no secret on a command line
            self.assertNotIn("hosts", line)

    def test_fewer_ranks_than_slots(self):
        self.hosts("one slots=2\ntwo slots=8\n")
        code, output, errors = self.run_job("-n", "3")
        self.assertEqual((code, errors), (0, ""), output)
        self.assertEqual(sorted(line.split()[0] for line in self.log()), ["one", "one", "two"])

    def test_variables_reach_the_ranks(self):
        self.hosts("one slots=2\n")
        code, _, errors = self.run_job(TUTTI_ALGORITHM="it's none")
        self.assertEqual(code, 1)
        self.assertIn("it's none", errors)
        self.assertTrue(all("none" not in line for line in self.log()))

    def test_a_host_that_ssh_does_not_reach(self):
        for hosts in ("nowhere\none\n", "one\nnowhere\n"):
            self.hosts(hosts)
            code, _, errors = self.run_job("--set", "timeouts.bootstrap=2s")
            self.assertNotEqual(code, 0)
            self.assertIn("Could not resolve hostname nowhere", errors)
            self.assertIn("ssh to host 'nowhere' failed", errors)
            self.assertIn("BatchMode=yes nowhere true' work", errors)

    def test_a_host_that_talks(self):
        self.hosts("talking\none\n")
        code, _, errors = self.run_job()
        self.assertEqual(code, 1)
        self.assertIn("rank 0 on host 'talking' sends no id: its first line is 'Welcome to talking'", errors)

    def test_an_interrupt_ends_all_ranks(self):
        self.hosts("one slots=3\n")
        process = self.start("--no-check", "--warmup", "1000000")
        deadline = time.monotonic() + 30
        while len(ranks_of(str(self.folder))) < 3 and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(len(ranks_of(str(self.folder))), 3)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
        self.assertEqual(process.returncode, 128 + signal.SIGINT)
        while ranks_of(str(self.folder)) and time.monotonic() < deadline + 20:
            time.sleep(0.05)
        self.assertEqual(ranks_of(str(self.folder)), [])

    def test_bad_files(self):
        for text, expected in (
            ("", "hosts: names no host"),
            ("one slots=0\n", "hosts:1: 'slots=0' is not slots=N, with N of 1 to 4096; write HOST or HOST slots=N"),
            ("\none slots=2x\n", "hosts:2: 'slots=2x' is not slots=N"),
            ("one 2\n", "hosts:1: '2' is not slots=N"),
            ("one slots=1 two\n", "hosts:1: 'two' is one word too many"),
            ("-oProxyCommand=x\n", "hosts:1: '-oProxyCommand=x' is no name of a host"),
        ):
            self.hosts(text)
            code, _, errors = self.run_job()
            self.assertEqual(code, 2, errors)
            self.assertIn(expected, errors)
        (self.folder / "hosts").unlink()
        code, _, errors = self.run_job()
        self.assertEqual(code, 2)
        self.assertIn("hosts: No such file or directory", errors)

    def test_options_that_make_no_sense(self):
        self.hosts("one slots=2\n")
        for arguments, expected in ((["-n", "3"], "is 3, and hosts has 2 slots"), (["--threads"], "--threads"),
                                    (["--hosts", "a,b"], "names real hosts"), (["--rank", "0"], "starts all ranks")):
            code, _, errors = self.run_job(*arguments)
            self.assertEqual(code, 2, errors)
            self.assertIn(expected, errors)

    def test_a_rank_without_ssh(self):
        result = subprocess.run([TUTTI, *BENCH, "--ssh-rank", "1"], env=environment(), stdin=subprocess.DEVNULL,
                                capture_output=True, text=True, timeout=20, check=False)
        self.assertEqual(result.returncode, 1)
        self.assertIn("standard input brings no id; start the ranks with --ssh HOSTFILE", result.stderr)


if __name__ == "__main__":
    TUTTI = os.path.abspath(sys.argv.pop(1))
    unittest.main()
