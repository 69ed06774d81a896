# SPDX-License-Identifier: Apache-2.0
"""Scripts that make the errors and warnings which the documentation quotes without a command."""

import re
import secrets

from run_tool import free_port


def meeting():
    return f"127.0.0.1:{free_port()}:{secrets.token_hex(16)}"


def without_actors(text):
    """The process that ended, or the rank that waits or warns first: each run may give a different answer."""
    text = re.sub(r"\(\S+ pid \d+\)", "(HOST pid N)", text)
    text = re.sub(r"rank \d+ waits for rank \d+", "rank N waits for rank N", text)
    text = re.sub(r"warn \d+/", "warn N/", text)
    text = re.sub(r"(is in|has done) call \d+", r"\1 call N", text)
    text = re.sub(r"left before call \d+", "left before call N", text)
    return text


def rank(number, ranks, options):
    return f"TUTTI_ID=MEETING tutti bench all_reduce --ranks {ranks} --rank {number} {options}"


def job(*options):
    """A script of all ranks of a job, with the options of each."""
    ranks = [f"{rank(number, len(options), of_rank)} &" for number, of_rank in enumerate(options)]
    return "\n".join([*ranks, "wait"])


SMALL = "--min 256 --max 256"
LEAVES = "--min 256 --iters 2"
SOON = "--min 16 --max 16 --set timeouts.operation=3s"
LONG = "--min 1M --max 1M --iters 1000000"
KILLS_RANK_2 = f"""
exec 3< <({rank(0, 3, LONG)} 2>&1)
{rank(1, 3, LONG)} &
{rank(2, 3, LONG)} &
read -r head <&3  # rank 0 prints the head of its table when all ranks have joined
kill -KILL $!
cat <&3
wait"""
TABLE_OF_8_RANKS = """
sed 's/^ranks: 4/ranks: 8/; s/^gpu: .*/gpu: ""/' configs/tuned/h200x4.yaml > h200x8.yaml
tutti explain all_reduce --ranks 4 --set settings.tuner.table.file=h200x8.yaml"""

# By the beginning of the quote; MEETING stands for a place where the ranks of a job meet.
SCRIPTS = {
    "ranks disagree: config key 'hardware": job(SMALL, f"{SMALL} --set hardware.file=figures.yaml"),
    "ranks disagree": job(SMALL, f"{SMALL} --set shm.slots=16", SMALL),
    "mismatch between ranks": job(SMALL, "--min 192 --max 192"),
    "timeout": job(f"{SOON} --iters 8", f"{SOON} --iters 8", f"{SOON} --iters 4"),
    "remote error: ...: rank 2 left": job(f"{LEAVES} --max 1K", f"{LEAVES} --max 1K", f"{LEAVES} --max 256"),
    "remote error": KILLS_RANK_2,
    "cannot size shared memory":
        "(ulimit -f 100; tutti bench all_reduce --ranks 2 --max 8)",
    "warn 0/4 tuner.table": TABLE_OF_8_RANKS,
    "warn 0/3 no progress": job(*[f"{SOON} --set timeouts.warn=1s --iters {calls}" for calls in (8, 8, 4)]),
    "TUTTI-P04": "tutti bench all_reduce --ranks 2 --hosts a,b --max 64 --set plugins.path=[$PWD/vendor]",
}
