#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Uses the mock NCCL tuner plugins through tuner-nccl.

Usage: nccl_tuner_test.py TUTTI PLUGIN MOCKS [unittest arguments]

PLUGIN: the file of tuner-nccl. MOCKS: the folder of the mocks. Each prefers tree and LL up to 16 KiB of an all-reduce,
and ring and Simple above.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

TUTTI, PLUGIN, MOCKS = sys.argv[1:4]
VERSIONS = range(2, 7)


def mock(name):
    return os.path.join(MOCKS, f"libnccl-tuner-{name}.so")


def run(*words, **variables):
    done = subprocess.run([TUTTI, *words], capture_output=True, text=True, timeout=60, check=False,
                          env={**os.environ, **variables})
    return done.returncode, done.stdout + done.stderr


def using(tuner):
    return ["--set", f"plugins.path=[{os.path.dirname(PLUGIN)}]", "--set", f"plugins.tuner=[{tuner}]"]


class NcclTuner(unittest.TestCase):
    def chosen(self, collective, size, tuner):
        """The candidate that runs, and the tuner's line of the log."""
        code, output = run("explain", collective, "-n", "4", "--size", size, *using(tuner), TUTTI_LOG_LEVEL="info")
        self.assertEqual(code, 0, output)
        candidate = re.search(r"^  (\S+) × (\S+) +chosen: .*?(\d+) channel", output, re.M)
        self.assertTrue(candidate, output)
        return candidate.groups(), output

    def test_each_version_decides(self):
        for version in VERSIONS:
            for size, algorithm, protocol in (("16K", "tree", "ll"), ("1M", "ring", "simple")):
                with self.subTest(version=version, size=size):
                    candidate, output = self.chosen("all_reduce", size, f"nccl:{mock(f'mock{version}')}")
                    self.assertEqual((candidate[0].split("/")[0], *candidate[1:]), (algorithm, protocol, "1"), output)
                    self.assertRegex(output, rf"follows NCCL tuner plugin 'mock' \(\S+libnccl-tuner-mock{version}\.so, "
                                             rf"ncclTunerPlugin_v{version}\)")

    def test_a_job_runs_so(self):
        code, output = run("bench", "all_reduce", "-n", "4", "--min", "16K", "--max", "1M", "--factor", "64", "--iters",
                           "5", "-v", *using(f"nccl:{mock('mock6')}"))
        self.assertEqual(code, 0, output)
        ran = re.findall(r"^ +(\d+) .* (tree|ring)\S*/(\w+)/", output, re.M)
        self.assertEqual(ran, [("16384", "tree", "ll"), ("1048576", "ring", "simple")], output)
        self.assertIn("wrong 0", output)

    def test_calls_without_an_opinion_are_the_models(self):
        for collective in ("broadcast", "all_to_all"):
            with self.subTest(collective):
                candidate, _ = self.chosen(collective, "64K", f"nccl:{mock('mock5')}")
                self.assertEqual(candidate, self.chosen(collective, "64K", "model")[0])

    def test_names(self):
        code, output = run("explain", "all_reduce", *using("nccl:mock4"), LD_LIBRARY_PATH=MOCKS)
        self.assertEqual(code, 0, output)
        file = f"settings.tuner.nccl.file={mock('mock4')}"
        code, output = run("explain", "all_reduce", *using("nccl"), "--set", file)
        self.assertEqual(code, 0, output)

    def test_wrong_files(self):
        for tuner, text in (
                ("nccl", r"settings\.tuner\.nccl\.file is empty; set it to the path"),
                ("nccl:/nowhere/x.so", r"the NCCL tuner plugin /nowhere/x\.so does not load: .*No such file"),
                ("nccl:absent", r"libnccl-tuner-absent\.so does not load: .*NAME for a file libnccl-tuner-NAME\.so"),
                (f"nccl:{mock('old')}", r"looked for ncclTunerPlugin_v6, .*it has ncclTunerPlugin_v1, which is too "
                                        r"old"),
                (f"nccl:{mock('broken')}", r"'mock' \(.*, ncclTunerPlugin_v5\): init fails with ncclInternalError: the "
                                           r"map of 1 racks is missing"),
                ("model:x", r"the tuner 'model' loads no file: .* write 'model' instead of 'model:x'")):
            with self.subTest(tuner):
                code, output = run("explain", "all_reduce", *using(tuner))
                self.assertNotEqual(code, 0, output)
                self.assertRegex(output, text)

    def test_a_failing_call(self):
        tuner = f"nccl:{mock('partial')}"
        failure = r"getCollInfo fails with ncclInternalError: no measurement of reduce-scatter on 4 ranks"
        self.chosen("all_reduce", "16K", tuner)
        _, output = run("explain", "reduce_scatter", "-n", "4", *using(tuner))
        self.assertRegex(output, failure)
        code, output = run("bench", "reduce_scatter", "-n", "4", "--max", "8", *using(tuner))
        self.assertNotEqual(code, 0, output)
        self.assertRegex(output, failure)

    def test_trust(self):
        with tempfile.TemporaryDirectory() as folder:
            file = shutil.copy(mock("mock6"), folder)
            os.chmod(file, 0o777)
            code, output = run("explain", "all_reduce", *using(f"nccl:{file}"))
            self.assertEqual(code != 0, os.geteuid() == 0, output)
            self.assertRegex(output, rf"TUTTI-P09 the file of the tuner 'nccl', {file} may be written by other users")

    def test_the_kit(self):
        """A plugin that prefers a candidate sets its time to 0, which breaks rule TUN-9."""
        for version in (2, 6):
            with self.subTest(version=version):
                _, output = run("plugin", "test", PLUGIN, "--set", f"settings.tuner.nccl.file={mock(f'mock{version}')}")
                results = re.findall(r"^(TUN-\d+) .*: (\w+)$", output, re.M)
                self.assertGreater(len(results), 8, output)
                self.assertEqual({rule for rule, result in results if result != "passed"}, {"TUN-9"}, output)


if __name__ == "__main__":
    del sys.argv[1:4]
    unittest.main()
