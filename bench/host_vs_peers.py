#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares Tutti's collectives on host memory with the collectives of Open MPI and Gloo on this machine.

Each round runs every library once, in an order that rotates from round to round, so that disturbances of the machine
affect all libraries equally. A figure is the median over the rounds. Sizes count as in nccl-tests: the whole receive
buffer of all_gather, the whole send buffer of reduce_scatter, the buffer of every other collective.
"""

import os
import pathlib
import shlex
import signal
import subprocess
import tempfile

import peers

COLLECTIVES = ["all_reduce", "all_gather", "reduce_scatter", "reduce", "broadcast"]
BANDS = [(0, 64 << 10, 200), ((64 << 10) + 1, 1 << 62, 10)]  # smallest bytes, largest bytes, iterations of a batch
RUN_TIMEOUT_S = 300


def command_of(args, library, collective, ranks):
    program = [str(peers.program(args, library))]
    if library in ("tutti", peers.EARLIER):
        return program + ["bench", collective, "--ranks", str(ranks)] + args.tutti_args
    if library == "openmpi":
        launcher = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", str(ranks)]
        return launcher + program + [collective]
    return program + [collective, "--ranks", str(ranks)]


def run_group(command):
    """Runs a command in a process group of its own and leaves none of it behind."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          start_new_session=True) as process:
        try:
            output, errors = process.communicate(timeout=RUN_TIMEOUT_S)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode != 0:
        raise RuntimeError(f"{shlex.join(command)} exited with {process.returncode}:\n{errors[-2000:]}")
    return output


def measure_all(args, folder):
    file = pathlib.Path(folder) / "tutti.json"

    def measure(library, collective, ranks, sizes, iterations):
        command = command_of(args, library, collective, ranks) + peers.range_arguments(args, sizes, iterations)
        if library in ("tutti", peers.EARLIER):
            run_group(command + ["--json", str(file)])
            return peers.times_of_tutti(file)
        return peers.times_of_peer(run_group(command))

    return peers.measure_rounds(args, peers.libraries(args), BANDS, measure)


def markdown(args):
    with tempfile.TemporaryDirectory() as folder:
        samples = measure_all(args, folder)
    lines = [f"Microseconds of one collective (float32 sum, out of place), median of {args.rounds} interleaved rounds.",
             "The last column is the best peer's time over Tutti's: above 1, Tutti is faster.", ""]
    for collective, ranks in ((c, n) for c in args.collectives for n in args.ranks):
        lines += [f"### {collective}, {ranks} ranks", "", *peers.table(args, samples, collective, ranks)]
    return "\n".join(lines)


def main():
    args = peers.parser_of(__doc__, COLLECTIVES, rounds=5).parse_args()
    peers.report(args, lambda: markdown(args))


if __name__ == "__main__":
    main()
