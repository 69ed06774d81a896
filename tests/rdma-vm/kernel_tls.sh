#!/usr/bin/env bash
# net-socket with the kernel's TLS, inside the emulated machine: rdma-vm/run tests/rdma-vm/kernel_tls.sh BUILD
# The kernels of many machines have no module tls; the kernel of the emulated machine has it.
set -euo pipefail
build=$1
modprobe tls
timeout 120 "$build/tests/net_socket_tls_test" | tee /tmp/tls_test
grep -q 'sending: kernel TLS is in use' /tmp/tls_test
timeout 120 "$build/tests/net_socket_test" --gtest_filter='Tls/Socket.*/1' # "on"
