# SPDX-License-Identifier: Apache-2.0
"""Runs of the tool `tutti`, for tests of its commands."""

import os
import re
import socket
import subprocess

SKIPPED = 77  # as CTest's SKIP_RETURN_CODE
# Ranks that share a GPU must not wait for each other's kernels to be loaded, nor share queues of the hardware.
SHARED_GPU = {"CUDA_MODULE_LOADING": "EAGER", "CUDA_DEVICE_MAX_CONNECTIONS": "32"}


def clean_environment():
    """The environment without variables that change settings."""
    return {key: value for key, value in os.environ.items() if not key.startswith("TUTTI_")}


def count_gpus():
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=False)
    except OSError:
        return 0
    return len(re.findall(r"^GPU \d+:", listed.stdout, re.MULTILINE))


def free_port():
    """A TCP port of the loopback that nothing uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_tool(tool, *arguments, timeout, environment=None, cwd=None):
    """Runs `tool` to its end. `environment` replaces the clean one."""
    return subprocess.run([tool, *map(str, arguments)], capture_output=True, text=True, timeout=timeout, cwd=cwd,
                          env=clean_environment() if environment is None else environment, stdin=subprocess.DEVNULL)
