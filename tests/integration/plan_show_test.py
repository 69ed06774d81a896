#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the pictures of `tutti plan draw` and the texts of `tutti plan print --pass` with the plans.

Run as: plan_show_test.py PATH_OF_TUTTI FOLDER_OF_ALGO_RECURSIVE [unittest arguments]
"""

import collections
import json
import pathlib
import re
import resource
import sys
import tempfile
import unittest
import xml.etree.ElementTree

from run_tool import run_tool

TIMEOUT_S = 60
ROOT = pathlib.Path(__file__).resolve().parents[2]
PLANS = ROOT / "examples" / "plans"
SEEDS = ROOT / "tests" / "fuzz" / "plans"
RING = PLANS / "ring_rolled.yaml"
SVG = "{http://www.w3.org/2000/svg}"
Message = collections.namedtuple("Message", "sender receiver chunks")


def cpu_s():
    """The CPU time of all processes that this one has waited for, which other programs do not make longer."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def messages_of(document):
    """All messages of one loop, from the file's steps."""
    blocks = {"input": ("reduce_scatter", "scatter", "all_to_all"), "output": ("all_gather", "gather", "all_to_all")}
    size = {name: document["chunks"] * (document["ranks"] if document["collective"] in per_rank else 1)
            for name, per_rank in blocks.items()}
    found = collections.Counter()
    for plan in document["plans"]:
        size["scratch"] = plan.get("scratch", document.get("scratch", 0))
        for step in plan["steps"]:
            if not {"send", "scatter"} & step.keys():
                continue
            reads, first = (step.get("own") or step.get("to")).split()
            stride = step.get("own_stride" if "own" in step else "to_stride", 1)
            lists = [(peer, int(first)) for peer in step.get("send", [])]
            lists += [(peer["rank"], peer["chunk"]) for peer in step.get("scatter", [])]
            for peer, chunk in lists:
                chunks = [(chunk + i * stride) % size[reads] for i in range(step.get("chunks", 1))]
                found[Message(plan["rank"], peer, tuple(chunks))] += 1
    return found


def chunks_from(text):
    """The chunks that "chunks 2-5" or "chunks 6,0,2" names."""
    if "-" in text:
        first, last = text.split("-")
        return tuple(range(int(first), int(last) + 1))
    return tuple(int(chunk) for chunk in text.split(","))


class Shown(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def tutti(self, *arguments, code=0):
        result = run_tool(TUTTI, *arguments, timeout=TIMEOUT_S)
        self.assertEqual(result.returncode, code, f"{arguments}: {result.stderr}{result.stdout}")
        if code != 0:
            self.assertEqual(result.stdout, "")  # a refusal is its reason alone
        return result.stdout if code == 0 else result.stderr

    def export(self, collective, algorithm, *arguments):
        """The plans of an algorithm as a file, and the content of the file."""
        file = self.folder / "plan.json"
        self.tutti("plan", "export", collective, "--algorithm", algorithm, *arguments, "-o", file)
        return file, json.loads(file.read_text())


class Draw(Shown):
    def picture(self, *arguments):
        """The root of an SVG's tree, its rows by y, its messages and the titles of its steps."""
        root = xml.etree.ElementTree.fromstring(self.tutti("plan", "draw", *arguments))
        self.assertEqual(root.tag, SVG + "svg")
        rows = {}
        for text in root.iter(SVG + "text"):  # the rows of a rank's further strands follow that of the rank
            if re.fullmatch(r"rank \d+", text.text):
                rank = int(text.text.split()[1])
            if re.fullmatch(r"(rank|strand) \d+", text.text):
                rows[int(text.get("y")) - 4] = rank
        messages = collections.Counter()
        for path in root.iter(SVG + "path"):
            if path.get("class") == "wait":
                continue
            self.assertEqual(path.get("class"), "message")
            words = re.fullmatch(r"rank (\d+) to rank (\d+), chunks? (\S+)", path.find(SVG + "title").text)
            message = Message(int(words[1]), int(words[2]), chunks_from(words[3]))
            self.check_arrow(path.get("d"), message, rows, int(root.get("width")))
            messages[message] += 1
        steps = [box.find(SVG + "title").text for box in root.iter(SVG + "rect") if box.get("class") == "step"]
        return root, messages, steps

    def check_arrow(self, path, message, rows, width):
        """An arrow goes forward in time, from the row of its sender to that of its receiver."""
        from_x, from_y, to_x, to_y = map(int, re.fullmatch(r"M(\d+) (\d+)L(\d+) (\d+)", path).groups())
        self.assertLess(from_x, to_x)
        self.assertLess(to_x, width)
        self.assertEqual(rows.get(from_y, message.sender), message.sender)
        self.assertEqual(rows.get(to_y, message.receiver), message.receiver)
        self.assertTrue(from_y in rows or to_y in rows)

    def test_arrows_are_the_messages_of_the_plans(self):
        for collective, algorithm, ranks, *arguments in (
                ("all_reduce", "ring", 5), ("all_reduce", "direct/two-shot", 4), ("all_to_all", "direct", 5),
                ("broadcast", "tree", 7, "--root", 3), ("all_gather", f"{RECURSIVE}/bruck", 8),
                ("all_reduce", f"{RECURSIVE}/halving", 7),
                ("all_reduce", f"{RECURSIVE}/hierarchical", 9, "--hosts", 3)):
            with self.subTest(algorithm):
                file, document = self.export(collective, algorithm, "--ranks", ranks, *arguments)
                root, messages, steps = self.picture(file)
                self.assertEqual(messages, messages_of(document))
                self.assertEqual(len(steps), sum(len(plan["steps"]) for plan in document["plans"]))
                self.assertIn(f"{collective} over {document['ranks']} ranks", "".join(root.itertext()))

    def test_messages_of_several_chunks(self):
        _, messages, steps = self.picture("--collective", "all_gather", "--algorithm", f"{RECURSIVE}/bruck",
                                          "--ranks", 8)
        sizes = collections.Counter(len(message.chunks) for message in messages.elements())
        self.assertEqual(sizes, {1: 8, 2: 8, 4: 8})
        self.assertIn("rank 5 step 5: send output[5,6,7,0] -> rank 1", steps)

    def test_steps_of_scratch(self):
        _, _, steps = self.picture("--collective", "all_reduce", "--algorithm", f"{RECURSIVE}/hierarchical",
                                   "--ranks", 8, "--hosts", 2)
        self.assertIn("rank 5 step 2: recvReduceCopy rank 1 + scratch[1] -> output[1], final", steps)

    def test_repeats_are_written_out(self):
        _, messages, _ = self.picture(SEEDS / "exchange.yaml")
        self.assertEqual(messages, collections.Counter(
            Message(rank, (rank + 1 + k) % 4, ((rank + 1 + k) % 4,)) for rank in range(4) for k in range(3)))

    def test_strands(self):
        root, messages, steps = self.picture(PLANS / "chain_strands4.yaml")
        up = [Message(rank, rank - 1, (chunk,)) for rank in (1, 2, 3) for chunk in range(4)]
        down = [Message(rank - 1, rank, (chunk,)) for rank in (1, 2, 3) for chunk in range(4)]
        self.assertEqual(messages, collections.Counter(up + down))
        self.assertEqual(len(steps), 4 * 8)
        names = [text.text for text in root.iter(SVG + "text") if text.text.startswith(("rank", "strand"))]
        self.assertEqual(names, [name for rank in range(4) for name in (f"rank {rank}", "strand 1")])
        waits = [path for path in root.iter(SVG + "path") if path.get("class") == "wait"]
        self.assertEqual(sorted(wait.find(SVG + "title").text for wait in waits),
                         [f"rank {rank} step {4 + k} waits for step {k}" for rank in range(4) for k in range(4)])
        for wait in waits:
            from_x, from_y, to_x, to_y = map(int, re.fullmatch(r"M(\d+) (\d+)L(\d+) (\d+)", wait.get("d")).groups())
            self.assertLess(from_x, to_x)
            self.assertEqual(to_y - from_y, 36, "from strand 0 to the row of strand 1")
        _, part, few = self.picture(PLANS / "chain_strands4.yaml", "--first-rank", 1, "--rows", 1, "--time", 4)
        self.assertTrue(part <= messages)
        self.assertEqual([title.split(":")[0] for title in few], ["rank 1 step 0", "rank 1 step 1"])

    def test_a_step_with_its_halves_apart(self):
        _, messages, steps = self.picture(SEEDS / "halves.yaml")
        self.assertEqual(len([title for title in steps if title.startswith("rank 0 step 0:")]), 2)
        self.assertEqual(sum(messages.values()), 6)

    def test_a_part_of_16384_ranks(self):
        began = cpu_s()
        root, messages, steps = self.picture(RING, "--first-rank", 12345, "--rows", 8, "--time", 12)
        self.assertLess(cpu_s() - began, 1)
        # In unit t, each rank sends what began t ranks before it. What is sent in the last unit arrives too late.
        self.assertEqual(messages, collections.Counter(
            Message(rank, rank + 1, (rank - t,)) for rank in range(12344, 12353) for t in range(11)))
        self.assertEqual(collections.Counter(title.split(" step")[0] for title in steps),
                         {f"rank {rank}": 12 for rank in range(12345, 12353)})
        self.assertIn("ranks 12345 to 12352, the first 12 units of time", "".join(root.itertext()))

    def test_a_part_has_what_the_whole_has(self):
        ring = ["--collective", "all_reduce", "--ranks", 6]
        _, whole, steps = self.picture(*ring)
        _, all_ranks, _ = self.picture(*ring, "--rows", 6, "--time", 100)
        self.assertEqual(all_ranks, whole)
        _, part, few = self.picture(*ring, "--first-rank", 4, "--rows", 9)
        self.assertEqual(part, collections.Counter({message: n for message, n in whole.items()
                                                    if message.sender >= 4 or message.receiver >= 4}))
        self.assertEqual(few, [title for title in steps if title.startswith(("rank 4", "rank 5"))])

    def test_refusals(self):
        self.assertIn("up to 256 ranks, and these are 16384; --first-rank", self.tutti("plan", "draw", RING, code=1))
        self.assertIn("--time and --rows choose some", self.tutti("plan", "draw", RING, "--rows", 2, code=1))
        self.assertIn("there is no rank 16384", self.tutti("plan", "draw", RING, "--first-rank", 16384, code=1))
        wrong = self.folder / "wrong.yaml"
        wrong.write_text((PLANS / "doubling4.yaml").read_text().replace("send: [3]}", "send: [2]}", 1))
        self.assertIn("deadlock", self.tutti("plan", "draw", wrong, code=1))


class Passes(Shown):
    def show(self, name, *arguments):
        """The lines of a plan or program before and after a pass."""
        text = self.tutti("plan", "print", *arguments, "--pass", name)
        before, after = re.fullmatch(r"\S+\n\nbefore:\n(.*)\nafter:\n(.*)", text, re.DOTALL).groups()
        return before.splitlines(), after.splitlines()

    def refuse(self, name, *arguments, says):
        self.assertIn(f"{name}: {says}", self.tutti("plan", "print", *arguments, "--pass", name, code=1))

    def question(self, collective, algorithm, ranks, *arguments):
        return ["--collective", collective, "--algorithm", algorithm, "--ranks", ranks, *arguments]

    def test_unroll(self):
        before, after = self.show("unroll", SEEDS / "rolled.yaml", "--rank", 2)
        self.assertIn("5 steps in 396 bytes, 9 steps with the repeats written out", before[0])
        self.assertIn("    1    recvReduceSend      rank 1 + input[1 - k] -> rank 3", before)
        # The plugin emits the same plan without repeats.
        ring = self.tutti("plan", "print", *self.question("all_reduce", "ring", 5), "--rank", 2)
        self.assertEqual(after, ring.splitlines()[2:-1])

    def test_order_strands(self):
        before, after = self.show("order_strands", PLANS / "two_rings4.yaml", "--rank", 2)
        steps = {strand: lines for strand, lines in zip(("even", "odd"), (before[2:9], before[10:17]))}
        self.assertEqual((before[1].strip(), before[9].strip(), len(before)), ("strand 0:", "strand 1:", 17))
        turns = [line for pair in zip(steps["even"], steps["odd"]) for line in pair]
        self.assertEqual([line[5:] for line in after[1:]], [line[5:] for line in turns])
        self.assertEqual(before[0], after[0])
        # Other passes take the list.
        self.assertEqual(self.show("lower", PLANS / "two_rings4.yaml", "--rank", 2)[0], after)
        self.assertEqual(self.show("direct_store", PLANS / "two_rings4.yaml", "--rank", 2)[0],
                         self.show("lower", PLANS / "two_rings4.yaml", "--rank", 2)[1])
        # A plan without strands stays as it is.
        before, after = self.show("order_strands", SEEDS / "rolled.yaml", "--rank", 2)
        self.assertEqual(before, after)

    def test_lower_strands(self):
        chain = PLANS / "chain_strands4.yaml"
        before, after = self.show("lower_strands", chain, "--rank", 0)
        self.assertEqual(before, self.show("unroll", chain, "--rank", 0)[1])
        self.assertEqual([line for line in after if line.startswith("strand")], ["strand 0", "strand 1"])
        self.assertEqual(after[2], "    0  recv rank 1 message 0; own input 0.0; to output 0.0; final; signal")
        self.assertEqual(after[-1], "    7  after 4 steps of strand 0; own output 0.3; send rank 1 message 3")
        self.refuse("lower_strands", SEEDS / "rolled.yaml", "--rank", 0, says="no plan has strands")
        many = self.folder / "many.yaml"
        steps = "      - steps: [{own: input 0}]\n" * 9
        many.write_text("version: 2\ncollective: all_reduce\nalgorithm: many\nranks: 1\nchunks: 1\n"
                        "plans:\n  - rank: 0\n    strands:\n" + steps)
        self.refuse("lower_strands", many, "--rank", 0,
                    says="the strands run as a list: kernels run up to 8 strands, and the plan of rank 0 has 9")

    def test_order_strands_names_a_deadlock(self):
        wrong = self.folder / "wrong.yaml"
        text = (PLANS / "chain_strands4.yaml").read_text()
        wrong.write_text(text.replace("{recv: [3], own: input 0 + k, send: [1]}",
                                      "{recv: [3], own: input 0 + k, send: [1], after: [1]}").replace(
                                          "send: [3], after: [0]}", "send: [3]}"))
        self.refuse("order_strands", wrong, "--rank", 2,
                    says="deadlock: rank 0 waits at step 0 for a message from rank 1")
        self.assertIn("wrong.yaml:", self.tutti("plan", "verify", wrong, code=1))

    def stable(self, *arguments):
        """The steps that zero_copy marks. It changes nothing else."""
        before, after = self.show("zero_copy", *arguments)
        self.assertEqual(before, [line.removesuffix("   stable") for line in after])
        return [i for i, line in enumerate(after[1:]) if line.endswith("   stable")]

    def test_zero_copy(self):
        ring = self.question("all_reduce", "ring", 3, "--rank", 1)
        self.assertEqual(self.stable(*ring), [0, 1, 2, 3, 4])
        # Step 3 overwrites chunk 1 and step 4 overwrites chunk 0, of which steps 0 and 1 send a value.
        self.assertEqual(self.stable(*ring, "--in-place"), [2, 3, 4])
        # Step 2 overwrites the sum that step 1 has sent.
        doubling = [PLANS / "doubling4.yaml", "--rank", 1]
        self.assertEqual(self.stable(*doubling), [0, 2])
        self.assertEqual(self.stable(*doubling, "--in-place"), [2])
        hierarchical = self.question("all_reduce", f"{RECURSIVE}/hierarchical", 8, "--hosts", 2, "--rank", 5)
        self.assertEqual(self.stable(*hierarchical), [0, 2, 3])

    def test_alias(self):
        gather = self.question("all_gather", "ring", 3, "--rank", 1)
        before, after = self.show("alias", *gather)
        self.assertEqual(before, self.tutti("plan", "print", *gather).splitlines()[2:-1])
        self.assertEqual(after, ["  no chunks share memory"])
        self.assertEqual(self.show("alias", *gather, "--in-place")[1], ["  output 1.0 is input 0.0"])

    def test_number_messages(self):
        ring = self.question("all_reduce", "ring", 3, "--rank", 1)
        before, after = self.show("number_messages", *ring)
        self.assertEqual(after, self.show("lower", *ring)[1])
        self.assertEqual(before, [re.sub(r"\d+ message\(s\)", "0 message(s)", re.sub(r"message \d+", "message 0", line))
                                  for line in after])

    def test_overlap_loops(self):
        """Both shots of an all-reduce are a wave, and loops overlap in three stages."""
        shots = self.question("all_reduce", "direct/two-shot", 2, "--rank", 1)
        before, after = self.show("overlap_loops", *shots)
        self.assertEqual(before, self.show("lower", *shots)[1])
        self.assertEqual(after, [
            "3 stage(s), up to 1 wave(s) from send to receive, 2 message(s) per loop", "    0  stage 0",
            "    1  stage 1; from rank 0 1 wave(s) after it was sent",
            "    2  stage 1, receives in stage 2; from rank 0 1 wave(s) after it was sent"])
        # Strands overlap their loops with loops of each other. Their list has stages.
        self.assertRegex(self.show("overlap_loops", PLANS / "two_rings4.yaml")[1][0], r"^[2-9] stage\(s\)")

    def test_lower(self):
        ring = self.question("all_reduce", "ring", 3, "--rank", 1)
        before, after = self.show("lower", *ring)
        self.assertEqual(before, self.tutti("plan", "print", *ring).splitlines()[2:-1])
        self.assertEqual(after, [
            "5 steps, 3 chunk(s) per block, 4 message(s) per loop on a connection",
            "    0  own input 0.1; send rank 2 message 0",
            "    1  recv rank 0 message 0; own input 0.0; send rank 2 message 1",
            "    2  recv rank 0 message 1; own input 0.2; to output 0.2; send rank 2 message 2; final",
            "    3  recv rank 0 message 2; to output 0.1; send rank 2 message 3",
            "    4  recv rank 0 message 3; to output 0.0"])
        # In place, step 3 writes the chunk that step 0 reads.
        self.assertEqual(self.show("lower", *ring, "--in-place")[1],
                         [line + "; after" if line.startswith("    3") else line for line in after])

    def test_split_messages(self):
        before, after = self.show("split_messages", PLANS / "bruck5.yaml")
        self.assertEqual(sum(re.search(r"\[\d-\d]", line) is not None for line in before), 2, before)
        self.assertEqual(after[4:8], ["    3  send                output[0] -> rank 3",
                                      "    4  send                output[1] -> rank 3",
                                      "    5  recv                rank 2 -> output[2]",
                                      "    6  recv                rank 2 -> output[3]"])
        self.assertEqual(len(after) - len(before), 2)

    def test_fit_slots(self):
        """Rank 0 sends four blocks to rank 4 of 8, of which two fit before the first from rank 4."""
        before, after = self.show("fit_slots", *self.question("all_gather", f"{RECURSIVE}/bruck", 8))
        self.assertEqual(sorted(line.split(maxsplit=1)[1] for line in before[1:]),
                         sorted(line.split(maxsplit=1)[1] for line in after[1:]))
        order = "".join("s" if "send" in line else "r" for line in after[-8:])
        self.assertEqual("".join("s" if "send" in line else "r" for line in before[-8:]), "ssssrrrr")
        self.assertEqual(order, "ssrsrsrr")

    def test_lower_with_scratch(self):
        _, after = self.show("lower", SEEDS / "halving.yaml")
        self.assertEqual(after[0], "8 steps, 2 chunk(s) per block, 2 message(s) per loop on a connection, 1 block(s) "
                                   "of scratch memory")
        self.assertEqual(after[1], "    0  recv rank 1 message 0; own input 0.0; to scratch 0.0")

    def test_lower_gives_its_limits(self):
        scratch = self.folder / "scratch.yaml"
        scratch.write_text((SEEDS / "halving.yaml").read_text().replace("scratch: 2", "scratch: 131072"))
        for says, *arguments in (("needs 16384 ranks; this back end runs up to 1024", RING, "--rank", 12345),
                                 ("needs 65536 blocks of scratch memory; this back end runs up to 65535", scratch)):
            for name in ("lower", "direct_store", "overlap_loops", "fuse_one_hop"):
                self.refuse(name, *arguments, says=says)

    def direct(self, *arguments):
        """The lines in which direct_store marks messages. It changes nothing else."""
        before, after = self.show("direct_store", *arguments)
        self.assertEqual(before, [re.sub(r" stored (to output \d+\.\d+|by the sender)", "", line) for line in after])
        self.assertEqual(before, self.show("lower", *arguments)[1])
        return [line.strip() for line in after if " stored " in line]

    def test_direct_store(self):
        self.assertEqual(self.direct(*self.question("all_reduce", "direct/two-shot", 3, "--rank", 1)), [
            "1  recv rank 0 message 0, rank 2 message 0; own input 0.1; to output 0.1; send rank 2 message 1 stored to "
            "output 0.1, rank 0 message 1 stored to output 0.1; final",
            "2  gather rank 2 message 1 block 0.2 stored by the sender, rank 0 message 1 block 0.0 stored by the "
            "sender"])
        self.assertEqual(self.direct(PLANS / "doubling4.yaml"), [])  # all messages are folded

    def test_fuse_one_hop(self):
        gather = self.question("all_gather", "direct/one-shot", 3, "--rank", 1)
        before, after = self.show("fuse_one_hop", *gather)
        self.assertEqual(before, self.show("lower", *gather)[1])
        self.assertEqual(after, [
            "exchanges", "  own input block 0 -> output block 1", "  input block 0 -> rank 2",
            "  input block 0 -> rank 0", "  rank 2 -> output block 2", "  rank 0 -> output block 0"])
        self.refuse("fuse_one_hop", *self.question("all_reduce", "ring", 3), says="the program is not of one hop")

    def test_as_copies(self):
        exchange = self.question("all_to_all", "direct", 3, "--rank", 1)
        before, after = self.show("as_copies", *exchange)
        self.assertEqual(before, self.tutti("plan", "print", *exchange).splitlines()[2:-1])
        self.assertEqual(after, ["  input block 1 -> output block 1", "  input block 2 -> output block 1 of rank 2",
                                 "  input block 0 -> output block 1 of rank 0"])
        gather = self.question("all_gather", "direct", 3, "--rank", 1)
        own = "  input block 0 -> output block 1"
        self.assertIn(own, self.show("as_copies", *gather)[1])
        self.assertNotIn(own, self.show("as_copies", *gather, "--in-place")[1])
        self.refuse("as_copies", *self.question("all_reduce", "ring", 3), says="the plan of rank 0 is more than copies")


class LargeAndNew(Shown):
    def test_rank_12345_of_16384(self):
        began = cpu_s()
        text = self.tutti("plan", "print", RING, "--rank", 12345)
        verdict = self.tutti("plan", "verify", RING)
        self.assertLess(cpu_s() - began, 1)
        self.assertIn("rank 12345 of 16384, channel 0, 16384 chunk(s) per block, 5 steps in 396 bytes, 32767 steps "
                      "with the repeats written out\n", text)
        self.assertIn("right: all_reduce over 16384 ranks, out of place and in place, with 2 slots, "
                      "proved by rotation", verdict)

    def test_messages_of_several_chunks_and_scratch(self):
        bruck = ["--collective", "all_gather", "--algorithm", f"{RECURSIVE}/bruck", "--ranks", 33]
        self.assertIn(", up to 16 chunks per message\n", self.tutti("plan", "print", *bruck, "--rank", 7))
        hierarchical = ["--collective", "all_reduce", "--algorithm", f"{RECURSIVE}/hierarchical", "--ranks", 32,
                        "--hosts", 4]
        self.assertIn(", 8 scratch chunk(s)\n", self.tutti("plan", "print", *hierarchical, "--rank", 7))
        for question in (bruck, hierarchical):
            for options in ((), ("--in-place",), ("--slots", 1)):
                self.assertIn("proved exactly", self.tutti("plan", "verify", *question, *options))


if __name__ == "__main__":
    TUTTI, RECURSIVE = sys.argv[1], pathlib.Path(sys.argv[2]).resolve() / "tutti-algo-recursive.so"
    del sys.argv[1:3]
    unittest.main()
