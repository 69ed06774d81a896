#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plan files that communicators run: chosen by settings and rules, refused, compared between ranks, explained.

Run as: plan_files_test.py PATH_OF_TUTTI [unittest arguments]
"""

import json
import pathlib
import re
import secrets
import subprocess
import sys
import tempfile
import unittest

from run_tool import clean_environment, free_port, run_tool

TIMEOUT_S = 60
TUTTI = "tutti"
SMALL = ["--min", "64", "--max", "4K", "--factor", "8", "--iters", "3", "--repeat", "1"]


class PlanFiles(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def tutti(self, *arguments):
        return run_tool(TUTTI, *arguments, timeout=TIMEOUT_S, cwd=self.folder)

    def run_ok(self, *arguments):
        result = self.tutti(*arguments)
        self.assertEqual(result.returncode, 0, f"{arguments}: {result.stderr}{result.stdout}")
        return result.stdout

    def run_bad(self, *arguments):
        result = self.tutti(*arguments)
        self.assertEqual(result.returncode, 1, f"{arguments}: {result.stderr}{result.stdout}")
        return result.stderr

    def export(self, name, collective="all_reduce", algorithm="ring", ranks=4, **replace):
        """Writes a plan file, with each text in `replace` (written with spaces for underscores) put in its place."""
        self.run_ok("plan", "export", collective, "--algorithm", algorithm, "--ranks", ranks, "-o", name)
        text = (self.folder / name).read_text()
        for old, new in replace.items():
            old = old.replace("_", " ")
            self.assertIn(old, text)
            text = text.replace(old, new, 1)
        (self.folder / name).write_text(text)
        return name

    def ran(self, collective, ranks, *settings, extra=()):
        """The algorithm that ran each size."""
        document = json.loads(self.run_ok("bench", collective, "--ranks", ranks, "--json", *SMALL, *extra,
                                          *[word for setting in settings for word in ("--set", setting)]))
        self.assertEqual(document["wrong"], 0)
        return [result["ran"].split(" ")[0] for result in document["results"]]

    def test_the_setting_chooses(self):
        self.export("ring4.yaml")
        for protocol in ("simple", "ll"):
            ran = self.ran("all_reduce", 4, "algorithm=ring4.yaml", f"protocol={protocol}", extra=("--threads",))
            self.assertTrue(all(way.startswith(f"ring4.yaml/{protocol}/") for way in ran), ran)

    def test_rolled_plans_run(self):
        plans = pathlib.Path(__file__).resolve().parents[1] / "fuzz" / "plans"
        for name, collective, ranks in (("rolled.yaml", "all_reduce", 5), ("exchange.yaml", "all_to_all", 4)):
            with self.subTest(name):
                self.assertIn("proved exactly", self.run_ok("plan", "verify", plans / name))
                ran = self.ran(collective, ranks, f"algorithm={plans / name}", extra=("--threads",))
                self.assertTrue(all(name in way for way in ran), ran)

    def test_plans_with_strands_run(self):
        tests = pathlib.Path(__file__).resolve().parents[1]
        examples = tests.parent / "examples" / "plans"
        for file, collective, ranks in ((examples / "two_rings4.yaml", "all_reduce", 4),
                                        (examples / "chain_strands4.yaml", "all_reduce", 4),
                                        (tests / "fuzz" / "plans" / "strands.yaml", "all_reduce", 3)):
            with self.subTest(file.name):
                self.assertIn("proved exactly", self.run_ok("plan", "verify", file, "--all"))
                for protocol in ("simple", "ll"):
                    ran = self.ran(collective, ranks, f"algorithm={file}", f"protocol={protocol}",
                                   extra=("--threads",))
                    self.assertTrue(all(f"{file.name}/{protocol}/" in way for way in ran), ran)

    def test_a_file_with_a_race_is_refused(self):
        file = pathlib.Path(__file__).resolve().parents[2] / "examples" / "plans" / "chain_strands4.yaml"
        (self.folder / "race.yaml").write_text(file.read_text().replace(", after: [0]", "", 1))
        said = self.run_bad("bench", "all_reduce", "--ranks", 4, "--threads", *SMALL, "--set", "algorithm=race.yaml")
        self.assertIn("race.yaml:21: rank 0 step 4: reads output chunk 0, which step 0 of strand 0 writes; no wait "
                      "puts the two steps in order", said)

    def test_every_collective_with_any_root(self):
        for collective in ("broadcast", "reduce", "gather", "scatter", "all_to_all", "reduce_scatter", "all_gather"):
            with self.subTest(collective):
                self.export("file.json", collective, "direct")
                for root in (0, 3) if collective in ("broadcast", "reduce", "gather", "scatter") else (0,):
                    ran = self.ran(collective, 4, "algorithm=file.json", extra=("--root", root, "--threads"))
                    self.assertTrue(all(way.startswith("file.json/") for way in ran), ran)

    def test_a_folder_and_the_tuner(self):
        (self.folder / "plans").mkdir()
        self.export("plans/ring.yaml")
        self.export("plans/direct.yaml", algorithm="direct/two-shot")
        self.export("plans/gather.yml", "all_gather")
        (self.folder / "plans/notes.txt").write_text("no plan")
        text = self.run_ok("explain", "all_reduce", "--ranks", 4, "--set", "algorithm=plans/")
        self.assertRegex(text, r"(?m)^  plans/(ring|direct)\.yaml × \w+ +chosen: ")
        self.assertRegex(text, r"(?m)^  plans/gather\.yml × \w+ +excluded: algorithm does not offer all_reduce$")
        self.assertRegex(text, r"(?m)^  ring × \w+ +excluded: algorithm is set to 'plans/' \(command line\)$")

    def test_a_rule_chooses(self):
        self.export("ring4.yaml")
        (self.folder / "job.yaml").write_text("rules:\n  - match: {collective: all_reduce, max_size: 512}\n"
                                              "    choose: {algorithm: ring4.yaml}\n")
        ran = self.ran("all_reduce", 4, extra=("--config", "job.yaml", "--threads"))
        self.assertTrue(ran[0].startswith("ring4.yaml/") and ran[1].startswith("ring4.yaml/"), ran)
        text = self.run_ok("explain", "all_reduce", "-n", 4, "--size", 512, "--config", "job.yaml")
        self.assertRegex(text, r"(?m)^  ring × \w+ +excluded: not chosen by the rule at job\.yaml:2:5$")

    def test_purposes_exclude_and_say_so(self):
        self.export("ring4.yaml", **{"version:_1": "version: 2\nmin_size: 256\nmax_size: 1KiB\ndata_types: [float32]"})
        ran = self.ran("all_reduce", 4, "algorithm=ring4.yaml", extra=("--threads",))
        self.assertEqual([way.startswith("ring4.yaml/") for way in ran], [False, True, False], ran)
        for ranks, arguments, reason in (
                (4, ("--size", 64), r"the plan file is for blocks from 256 bytes, not 64"),
                (4, ("--size", "4K"), r"the plan file is for blocks up to 1024 bytes, not 4096"),
                (4, ("--size", 512, "--type", "int8"), r"the plan file is for float32, not int8"),
                (3, ("--size", 512), r"the plan file is for 4 ranks, and there are 3")):
            with self.subTest(reason):
                text = self.run_ok("explain", "all_reduce", "-n", ranks, *arguments, "--set", "algorithm=ring4.yaml")
                self.assertRegex(text, rf"(?m)^  ring4\.yaml × simple +excluded: {reason}$")
                self.assertRegex(text, r"chosen: ", "the other algorithms compete for this call")

    def test_a_file_for_other_ranks_takes_no_part(self):
        self.export("ring4.yaml")
        result = self.tutti("bench", "all_reduce", "--ranks", 3, *SMALL, "--set", "algorithm=ring4.yaml")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertNotIn("ring4.yaml/", result.stdout)
        self.assertRegex(result.stderr, r"ring4\.yaml is for 4 ranks and takes no part in this communicator of 3")

    def test_a_file_that_is_not_there(self):
        for name, says in (("absent.yaml", "No such file or directory; check the path"),
                           (".", "Is a directory; choose another file")):
            self.assertIn(f"cannot read the plan file {name}: {says}", self.run_bad("plan", "verify", name))
        self.assertIn("/dev/zero: is larger than 256 MiB", self.run_bad("plan", "verify", "/dev/zero"))

    def test_a_wrong_file_is_refused_with_its_line(self):
        name = self.export("wrong.yaml", ranks=3, **{"own:_input_2,_send:_[1]": "send: [1], chunk: 2"})
        line = next(number for number, line in enumerate((self.folder / name).read_text().splitlines(), 1)
                    if "to: output 2" in line)
        verified = self.run_bad("plan", "verify", name)
        sentence = rf"wrong\.yaml:{line}: rank 0 output chunk 2: lacks rank 0, whose input chunk 2 no step reads"
        self.assertRegex(verified, rf"{sentence}$")
        refused = self.run_bad("bench", "all_reduce", "--ranks", 3, *SMALL, "--set", f"algorithm={name}")
        self.assertRegex(refused, rf"^tutti: ranks 0-2: [^\n]*{sentence}\n$")

    def test_a_file_that_is_wrong_in_place(self):
        """Each rank reads its input after it has written the output."""
        steps = ("      - {{own: input 0, send: [{peer}]}}\n"
                 "      - {{recv: [{peer}], own: input 0, final: true, to: output 0}}\n"
                 "      - {{own: input 0, send: [{peer}]}}\n      - {{recv: [{peer}]}}\n")
        plans = "".join(f"  - rank: {rank}\n    steps:\n" + steps.format(peer=1 - rank) for rank in (0, 1))
        (self.folder / "late.yaml").write_text("version: 1\ncollective: all_reduce\nalgorithm: late\nranks: 2\n"
                                               f"chunks: 1\nplans:\n{plans}")
        self.run_ok("plan", "verify", "late.yaml", "--out-of-place")
        sentence = ("late.yaml:17: rank 1 step 2: reads input chunk 0 after step 1 has overwritten it (in place it is "
                    "output chunk 0); this holds for calls in place, which a plan that runs must allow")
        self.assertIn(sentence, self.run_bad("plan", "verify", "late.yaml"))
        refused = self.run_bad("explain", "all_reduce", "--set", "algorithm=late.yaml")
        self.assertIn(sentence, refused)

    def test_a_file_that_cannot_be_read(self):
        (self.folder / "bad.yaml").write_text("version: 3\n")
        self.assertIn("bad.yaml:1:", self.run_bad("explain", "all_reduce", "--set", "algorithm=bad.yaml"))
        for name in ("absent.yaml", "absent/"):
            error = self.run_bad("explain", "all_reduce", "--set", f"algorithm={name}")
            self.assertRegex(error, rf"algorithm: there is no (folder|plan file) '{name}'")
        (self.folder / "empty").mkdir()
        self.assertIn("holds no plan file", self.run_bad("explain", "all_reduce", "--set", "algorithm=empty/"))

    def test_ranks_with_different_files(self):
        """Both ranks use the same name, in different working directories."""
        for rank in (0, 1):
            (self.folder / f"rank{rank}").mkdir()
        self.export("rank0/mine.yaml", ranks=2)
        self.export("rank1/mine.yaml", ranks=2, algorithm="direct")
        ident = f"127.0.0.1:{free_port()}:{secrets.token_hex(16)}"
        ranks = [subprocess.Popen([TUTTI, "bench", "all_reduce", "--ranks", "2", "--rank", str(rank), *SMALL, "--set",
                                   "algorithm=mine.yaml"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  env=clean_environment() | {"TUTTI_ID": ident}, cwd=self.folder / f"rank{rank}")
                 for rank in (0, 1)]
        for process in ranks:
            errors = process.communicate(timeout=TIMEOUT_S)[1]
            self.assertEqual(process.returncode, 1, errors)
            self.assertRegex(errors, r"ranks disagree: plan file 'mine\.yaml' is [0-9a-f]{32} on rank 0 and "
                                     r"[0-9a-f]{32} on rank 1")

    def test_comments_make_no_difference(self):
        for rank in (0, 1):
            (self.folder / f"rank{rank}").mkdir()
            self.export(f"rank{rank}/mine.yaml", ranks=2)
        other = self.folder / "rank1/mine.yaml"
        other.write_text("# a comment\n" + other.read_text())
        ident = f"127.0.0.1:{free_port()}:{secrets.token_hex(16)}"
        ranks = [subprocess.Popen([TUTTI, "bench", "all_reduce", "--ranks", "2", "--rank", str(rank), *SMALL, "--set",
                                   "algorithm=mine.yaml"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  env=clean_environment() | {"TUTTI_ID": ident}, cwd=self.folder / f"rank{rank}")
                 for rank in (0, 1)]
        outputs = [process.communicate(timeout=TIMEOUT_S) for process in ranks]
        self.assertEqual([process.returncode for process in ranks], [0, 0], outputs)
        self.assertTrue(re.search(r"mine\.yaml/", outputs[0][0]), outputs[0][0])


if __name__ == "__main__":
    TUTTI = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
