#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`tutti tune` from end to end: the table it writes, and the tuner plugin `table` that follows it.

Run as: tune_test.py PATH_OF_TUTTI [unittest arguments]
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

from run_tool import free_port

TIMEOUT_S = 120
TUTTI = "tutti"
ENTRY = re.compile(r"- \{max_bytes: (\w+), algorithm: (\w+)(?:, variant: ([\w-]+))?, protocol: (\w+), channels: (\d+), "
                   r"measured_us: ([\d.]+)\}")
SMALL = """tutti_table: 1
tutti_version: "VERSION"
gpu: ""
ranks: 2
nodes: 1
collectives:
  all_reduce:
    - {max_bytes: 1000, algorithm: direct, variant: two-shot, protocol: ll, channels: 1, measured_us: 0.25}
    - {max_bytes: unlimited, algorithm: ring, protocol: simple, channels: 2, measured_us: 0.5}
"""


def start(*arguments, cwd=None, **extra):
    clean = {key: value for key, value in os.environ.items() if not key.startswith("TUTTI_")}
    return subprocess.Popen([TUTTI, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=clean | extra, cwd=cwd)


def tutti(*arguments):
    run = start(*arguments)
    try:
        stdout, stderr = run.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        run.kill()
        raise
    return subprocess.CompletedProcess(run.args, run.returncode, stdout, stderr)


def version():
    return tutti("--version").stdout.split()[1]


class TuneTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.table = pathlib.Path(folder.name) / "t.yaml"

    def write(self, old="", new=""):
        text = SMALL.replace("VERSION", version())
        self.assertIn(old, text)
        self.table.write_text(text.replace(old, new) if old else text)

    def run_ok(self, *arguments):
        run = tutti(*arguments)
        self.assertEqual(run.returncode, 0, f"{arguments}: {run.stderr}{run.stdout}")
        return run

    def followed(self):
        return ("--set", "plugins.tuner=[table]", "--set", f"settings.tuner.table.file={self.table}")

    def explain(self, size, *more, ranks=2):
        return self.run_ok("explain", "all_reduce", "-n", ranks, "--size", size, *self.followed(), *more)

    def chosen(self, *arguments, **options):
        """(candidate, predicted µs, channels) of the first line that has a verdict."""
        found = re.search(r"  (\S+) × (\w+) +chosen: ([\d.]+) µs predicted, (\d+) channel",
                          self.explain(*arguments, **options).stdout)
        return f"{found[1]} × {found[2]}", float(found[3]), int(found[4])


class Tune(TuneTest):
    def tune(self, *arguments):
        return self.run_ok("tune", "--device", "host", "--ranks", 2, "--min", 8, "--max", "64K", "--factor", 64,
                           "--collectives", "all_reduce", "--out", self.table, *arguments)

    def test_without_a_protocol_of_the_device_there_is_no_table(self):
        run = tutti("tune", "--device", "host", "--ranks", 2, "--max", 64, "--collectives", "all_reduce", "--out",
                    self.table, "--set", "plugins.protocol=[copy]")
        self.assertEqual(run.returncode, 1, run.stdout)
        self.assertIn("no loaded protocol runs on device 'host'", run.stderr)
        self.assertFalse(self.table.exists())

    def test_a_file_that_cannot_be_written_is_told_before_the_measurements(self):
        run = tutti("tune", "--device", "host", "--ranks", 2, "--out", "/nosuch/table.yaml")
        self.assertEqual(run.returncode, 1)
        self.assertIn("--out: cannot write /nosuch/table.yaml: No such file or directory", run.stderr)
        self.assertNotIn("rank", run.stderr)

    def test_the_table_is_followed(self):
        run = self.tune("--limit", 60)
        self.assertIn("wrote", run.stderr)
        text = self.table.read_text()
        self.assertIn("# Made by: tutti tune --device host --ranks 2", text)
        entries = ENTRY.findall(text)
        self.assertEqual(entries[-1][0], "unlimited", text)
        for end, algorithm, variant, protocol, channels, measured_us in entries:
            name = f"{algorithm}/{variant}" if variant and algorithm != "ring" else algorithm
            size = "16M" if end == "unlimited" else int(end) // 4 * 4
            self.assertEqual(self.chosen(size), (f"{name} × {protocol}", float(measured_us), int(channels)), text)
        bench = self.run_ok("bench", "all_reduce", "-n", 2, "--min", 8, "--max", 8, "--iters", 5, "--repeat", 1,
                            *self.followed())
        algorithm, variant, protocol = entries[0][1:4]
        self.assertIn(f"{algorithm}{'/' if variant else ''}{variant}/{protocol}/", bench.stdout)
        self.assertEqual(bench.stderr, "")

    def test_several_collectives_and_channels(self):
        run = self.run_ok("tune", "--ranks", 3, "--threads", "--min", "64K", "--max", "64K", "--collectives",
                          "all_gather,all_to_all", "--channels", "1,2", "--repeat", 1)
        self.assertRegex(run.stdout, r"all_gather:\n    # \d+ bytes: ")
        self.assertRegex(run.stdout, r"all_to_all:\n    # \d+ bytes: ")
        # The fastest number of channels depends on the machine. The count of candidates does not.
        candidates, channelled = map(int, re.search(
            r"# (\d+) candidates \(algorithm × protocol\), (\d+) with a number of channels", run.stdout).groups())
        self.assertEqual(channelled, 2 * candidates)

    def test_one_number_of_channels(self):
        run = self.run_ok("tune", "--ranks", 3, "--threads", "--min", "64K", "--max", "64K", "--collectives",
                          "all_gather", "--channels", 2, "--repeat", 1)
        self.assertRegex(run.stdout, r"channels: 2, measured_us: \d")
        self.assertNotRegex(run.stdout, "×1|channels: 1")

    def test_a_limit_ends_it_and_is_told(self):
        run = self.tune("--limit", 0.001)
        self.assertIn("stopped after 0.001 s", run.stderr)
        self.assertIn("# INCOMPLETE: stopped after 0.001 s (--limit)", self.table.read_text())
        self.explain(8)  # the incomplete table can be read

    def test_nothing_is_left_behind(self):
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.dict(os.environ, TMPDIR=folder):
            self.tune()
            self.assertEqual(os.listdir(folder), [])

    def test_rules_are_refused(self):
        rules = self.table.with_name("rules.yaml")
        rules.write_text("rules:\n  - match: {nodes: 1}\n    forbid: {protocol: ll}\n")
        run = tutti("tune", "--max", 8, "--collectives", "all_reduce", "--config", rules)
        self.assertEqual(run.returncode, 1)
        self.assertIn("tune with a file without rules", run.stderr)

    def test_options_that_make_no_sense(self):
        for arguments in (["--channels", 65], ["--collectives", "send_recv"], ["--min", "1M", "--max", "1K"]):
            self.assertEqual(tutti("tune", *arguments).returncode, 2, arguments)


class Table(TuneTest):
    def test_by_size(self):
        self.write()
        self.assertEqual(self.chosen(1000), ("direct/two-shot × ll", 0.25, 1))
        self.assertEqual(self.chosen(1004, "--set", "channels=4"), ("ring × simple", 0.5, 2))

    def test_settings_win(self):
        self.write()
        self.assertTrue(self.chosen(8, "--set", "protocol=simple")[0].endswith("× simple"))

    def test_what_it_does_not_cover_goes_by_the_model(self):
        self.write()
        for question in (["all_gather", "--size", 64], ["broadcast", "--size", "1M"]):
            model = self.run_ok("explain", *question)
            table = self.run_ok("explain", *question, *self.followed())
            self.assertEqual(table.stdout, model.stdout)

    def test_a_table_without_entries_is_told(self):
        self.write()
        self.table.write_text(self.table.read_text().split("collectives:")[0] + "collectives: {}\n")
        run = self.explain(8)
        self.assertIn("has no entries, because 'tutti tune' measured nothing", run.stderr)
        self.assertEqual(run.stdout, self.run_ok("explain", "all_reduce", "-n", 2, "--size", 8).stdout)

    def test_more_channels_than_the_job_has(self):
        self.write()
        run = self.explain("1M")
        self.assertIn("uses up to 2 channels, this job has 1 at most; set channels to as many", run.stderr)

    def test_without_a_file_it_is_the_model(self):
        model = self.run_ok("explain", "all_reduce")
        table = self.run_ok("explain", "all_reduce", "--set", "plugins.tuner=[table]")
        self.assertEqual((table.stdout, table.stderr), (model.stdout, ""))

    def test_auto_follows_the_first_shipped_table_that_holds(self):
        prefix = self.table.parent / "prefix"
        tuned = prefix / "share/tutti/tuned"
        plugins = prefix / "lib/tutti/plugins"
        tuned.mkdir(parents=True)
        shutil.copytree(pathlib.Path(TUTTI).parent.parent / "lib/tutti/plugins", plugins)
        question = ("explain", "all_reduce", "-n", 2, "--size", 8, "--set", f"plugins.path=[{plugins}]", "--set",
                    "log.level=info")
        auto = (*question, "--set", "plugins.tuner=[table]")
        model = self.run_ok(*question).stdout
        run = self.run_ok(*auto)
        self.assertEqual(run.stdout, model)
        self.assertIn("no table that is shipped holds here", run.stderr)
        for name, old, new in (("a", "ranks: 2", "ranks: 3"), ("b", "ranks: 2", "ranks: two"), ("c", "", ""),
                               ("d", "measured_us: 0.25", "measured_us: 0.125")):
            self.write(old, new)
            shutil.copy(self.table, tuned / f"{name}.yaml")
        run = self.run_ok(*auto)
        self.assertRegex(run.stdout, r"direct/two-shot × ll +chosen: 0.25 µs")
        self.assertIn(f"a table is left out: {tuned}/b.yaml:4: ranks: 'two' is no number", run.stderr)
        self.assertIn(f"follows {tuned}/c.yaml", run.stderr)
        run = self.run_ok(*auto, "--set", "settings.tuner.table.file=")
        self.assertEqual(run.stdout, model)

    def test_foreign_tables_are_ignored_with_one_warning(self):
        model = self.run_ok("explain", "all_reduce", "-n", 2, "--size", 8).stdout
        for old, new, says in (
                ('gpu: ""', 'gpu: "NVIDIA H200"', "GPU 'NVIDIA H200' there, none here"),
                ("ranks: 2", "ranks: 3", "ranks 3 there, 2 here"), ("nodes: 1", "nodes: 2", "nodes 2 there, 1 here"),
                (f'"{version()}"', '"0.0.9"', f"Tutti 0.0.9 there, {version()} here")):
            self.write(old, new)
            run = self.explain(8)
            self.assertEqual(run.stdout, model)
            self.assertEqual(run.stderr.count("\n"), 1, run.stderr)
            self.assertIn(f"was measured elsewhere and is ignored ({says})", run.stderr)

    def test_ranks_that_would_choose_differently_fail_at_once(self):
        meeting = f"127.0.0.1:{free_port()}:{os.urandom(16).hex()}"
        runs = []
        for rank in range(2):
            host = self.table.parent / f"host{rank}"
            host.mkdir()
            self.write("protocol: ll,", f"protocol: {('ll', 'simple')[rank]},")
            shutil.copy(self.table, host / "t.yaml")
            runs.append(start("bench", "all_reduce", "--ranks", 2, "--rank", rank, "--set", "plugins.tuner=[table]",
                              "--set", "settings.tuner.table.file=t.yaml", cwd=host, TUTTI_ID=meeting))
        for run in runs:
            error = run.communicate(timeout=TIMEOUT_S)[1]
            self.assertEqual(run.returncode, 1, error)
            self.assertIn("tuner 'table' needs the same tables", error)
            self.assertIn("what runs 'all_reduce of blocks of 128 bytes' is direct/two-shot × ll ×1 on rank 0 and "
                          "direct/two-shot × simple ×1 on rank 1", error)

    def test_a_plugin_that_is_not_loaded(self):
        self.write()
        run = self.explain(8, "--set", "plugins.algorithm=[ring]")
        self.assertIn("chooses direct/two-shot with ll, which is not loaded", run.stderr)
        self.assertIn("chosen", run.stdout)

    def test_malformed_tables_name_line_and_key(self):
        for old, new, says in (
                ("channels: 1,", "chanels: 1,", ":8: chanels: unknown in an entry; known are algorithm, channels"),
                ("channels: 1,", "", ":8: channels: missing in an entry; add it"),
                ("channels: 1,", "channels: 65,", ":8: channels: '65' is no number from 1 to 64"),
                ("measured_us: 0.5", "measured_us: fast", ":9: measured_us: 'fast' is no number"),
                ("max_bytes: unlimited", "max_bytes: 10", ":9: max_bytes: must grow from entry to entry"),
                ("protocol: ll", "protocol: [ll]", ":8: protocol: write one word"),
                ("all_reduce:", "all_reduse:", ":7: all_reduse: unknown in collectives"),
                ("tutti_table: 1", "tutti_table: 2", ":1: tutti_table: '2' is no number from 1 to 1"),
                ("ranks: 2", "ranks: 2\nranks: 2", ":5: ranks: stands twice"),
                ("nodes: 1\n", "", ":1: nodes: missing in a table"),
                ("max_bytes: 1000,", "max_bytes: 1000, {", ":9: illegal block entry")):
            self.write(old, new)
            run = tutti("explain", "all_reduce", *self.followed())
            self.assertEqual(run.returncode, 1, new)
            self.assertIn(f"{self.table}{says}", run.stderr)

    def test_a_missing_file_says_where_it_was_looked_for(self):
        run = tutti("explain", "all_reduce", "--set", "plugins.tuner=[table]", "--set",
                    "settings.tuner.table.file=none.yaml")
        self.assertEqual(run.returncode, 1)
        self.assertRegex(run.stderr, r"no file 'none.yaml' \(looked in the working directory, .*share/tutti/tuned")

    def test_figures_of_the_network_between_hosts(self):
        file = self.table.parent / "figures.yaml"
        run = tutti("tune", "--figures", "--ranks", 5, "--hosts", "a,b,c", "--out", file)
        self.assertEqual(run.returncode, 0, run.stderr)
        text = file.read_text()
        self.assertIn("3 pairs of 3 hosts", text)
        figures = r"^  socket: \{latency_us: ([\d.]+), gap_us: ([\d.]+), processor_gbs: ([\d.]+)\}$"
        found = re.search(figures, text, re.M)
        self.assertIsNotNone(found, text)
        latency = float(found[1])
        self.assertGreater(latency, 0.5)
        self.assertGreater(float(found[3]), 0)
        ring = ("explain", "all_reduce", "--ranks", 2, "--hosts", "a,b", "--size", 8, "--set", "plugins.tuner=[model]",
                "--set", "algorithm=ring", "--set", "protocol=simple", "--set", f"hardware.file={file}")
        shown = tutti(*ring).stdout
        self.assertGreaterEqual(float(re.search(r"chosen: ([\d.]+) µs", shown)[1]), 2 * latency - 0.02, shown)

    def test_figures_of_the_memory_between_ranks(self):
        run = tutti("tune", "--figures", "--ranks", 2)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertNotIn("networks:", run.stdout)
        name = "switch_us" if len(os.sched_getaffinity(0)) == 1 else "gbs"
        found = re.search(rf"^memory:\n  default: \{{{name}: ([\d.]+)\}}$", run.stdout, re.M)
        self.assertIsNotNone(found, run.stdout)
        self.assertGreater(float(found[1]), 0)
        file = self.table.parent / "memory.yaml"
        file.write_text(run.stdout)
        shown = tutti("explain", "all_reduce", "--ranks", 2, "--size", 8, "--set", f"hardware.file={file}")
        self.assertEqual(shown.returncode, 0, shown.stderr)

    def test_figures_of_ranks_that_share_a_processor(self):
        processor = str(min(os.sched_getaffinity(0)))
        run = subprocess.run(["taskset", "--cpu-list", processor, TUTTI, "tune", "--figures", "--ranks", "4"],
                             capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("# Measured: turns of ranks that share processors, on 1 hosts", run.stdout)
        found = re.search(r"^memory:\n  default: \{switch_us: ([\d.]+)\}$", run.stdout, re.M)
        self.assertIsNotNone(found, run.stdout)
        self.assertGreater(float(found[1]), 0.05, "a switch of the system takes at least the time of a system call")

    def test_an_empty_table_is_a_failure(self):
        run = tutti("tune", "--repeat", 1, "--collectives", "all_reduce", "--max", 8, "--ranks", 2, "--set",
                    "protocol=ll128", "--out", self.table.parent / "none.yaml")
        self.assertEqual(run.returncode, 1)
        self.assertIn("nothing was measured, so the table is empty", run.stderr)

    def test_figures_need_ranks_and_one_network(self):
        run = tutti("tune", "--figures", "--ranks", 1)
        self.assertEqual(run.returncode, 1)
        self.assertIn("but this job has neither; start more ranks", run.stderr)
        run = tutti("tune", "--figures", "--ranks", 2, "--hosts", "a,b", "--set", "network=[socket, nccl]")
        self.assertEqual(run.returncode, 1)
        self.assertIn("--figures measures one network, and the configuration names 2", run.stderr)
        run = tutti("tune", "--figures", "--ranks", 2, "--hosts", "a,b", "--device", "cuda")
        self.assertNotEqual(run.returncode, 0)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    TUTTI = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
