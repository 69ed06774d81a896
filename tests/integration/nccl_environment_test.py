#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Variables named NCCL_* take effect where Tutti has the same, are named in the log where it has not, and lose against
Tutti's own. Asking for an id reads them all, and needs no GPU."""

import os
import subprocess
import sys
import tempfile


def run(program, **variables):
    """The log of a process that asks for an id."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("NCCL_", "TUTTI_"))}
    done = subprocess.run([program, "unique_id"], env={**environment, **variables}, capture_output=True, text=True,
                          check=False, timeout=50)
    return done.returncode, done.stderr


def check(what, condition, details):
    if not condition:
        sys.exit(f"{what}: {details}")


def main(program):
    code, log = run(program)
    check("quiet by default", code == 0 and log == "", (code, log))

    code, log = run(program, NCCL_DEBUG="INFO", NCCL_IB_HCA="mlx5", NCCL_NVLS_ENABLE="0", NCCL_PROTO="LL128")
    check("without effect", code == 0 and "NCCL_IB_HCA, NCCL_NVLS_ENABLE" in log and "NCCL_PROTO" not in log, log)
    check("named once", log.count("NCCL_IB_HCA") == 1, log)

    code, log = run(program, NCCL_ALGO="NVLS")
    check("nothing like it", code == 0 and "NCCL_ALGO=NVLS" in log, log)

    code, log = run(program, NCCL_DEBUG="INFO", NCCL_IB_HCA="mlx5", TUTTI_LOG_LEVEL="warn")
    check("Tutti's own variable wins", code == 0 and log == "", log)

    code, log = run(program, NCCL_SOCKET_IFNAME="=no-such-interface")
    check("interfaces", code != 0 and "no-such-interface" in log, log)

    with tempfile.TemporaryDirectory() as folder:
        code, log = run(program, NCCL_DEBUG="INFO", NCCL_IB_HCA="mlx5", NCCL_DEBUG_FILE=f"{folder}/log.%p")
        files = os.listdir(folder)
        check("file of the log", code == 0 and log == "" and len(files) == 1, (log, files))


if __name__ == "__main__":
    main(sys.argv[1])
