#!/usr/bin/env bash
# Runs `tutti bench --ssh` over a real sshd, on this machine.
# scripts/ssh_check.sh [BUILD]     default: build/release
#
# Needs root and the packages openssh-server and openssh-client. If sshd is missing, the script installs it where CI is
# true, and exits with 77 elsewhere: the package starts an sshd for the whole network on machines with systemd.
# The sshd of the script listens on the loopback, on a free port, and takes one key that is made here. Its files lie in
# a temporary folder, except for /run/sshd, which sshd needs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=$(realpath "${1:-build/release}")
readonly build sshd=/usr/sbin/sshd deadline_s=10

die() {
  echo "ssh_check: $*" >&2
  exit 1
}
if [[ ! -x $sshd && ${CI:-} == true ]]; then
  packages=(openssh-server openssh-client)
  apt-get install -qq -y --no-install-recommends "${packages[@]}" >/dev/null ||
    { apt-get update -qq && apt-get install -qq -y --no-install-recommends "${packages[@]}" >/dev/null; } ||
    echo "ssh_check: apt-get install failed"
fi
[[ -x $sshd ]] || { echo "ssh_check: skipped: $sshd is missing; install openssh-server"; exit 77; }
for tool in ssh ssh-keygen; do
  command -v "$tool" >/dev/null || die "$tool is missing; install openssh-client"
done
((EUID == 0)) || die "needs root for sshd"

folder=$(mktemp -d)
server=
finish() {
  if [[ -n $server ]]; then
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
  fi
  rm -rf "$folder"
}
trap finish EXIT
for key in host user other; do ssh-keygen -q -t ed25519 -N '' -f "$folder/$key"; done
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
cat >"$folder/sshd_config" <<END
Port $port
ListenAddress 127.0.0.1
HostKey $folder/host
AuthorizedKeysFile $folder/user.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
END
mkdir -p /run/sshd
"$sshd" -D -f "$folder/sshd_config" -E "$folder/log" &
server=$!
for ((waited = 0; ; ++waited)); do
  grep -q "Server listening" "$folder/log" 2>/dev/null && break
  kill -0 "$server" 2>/dev/null || die "sshd ended: $(tail -n 3 "$folder/log")"
  ((waited < deadline_s * 10)) || die "sshd does not listen after $deadline_s s"
  sleep 0.1
done

printf '127.0.0.1 slots=2\nlocalhost slots=2\n' >"$folder/hosts"
by_key() { # by_key KEY ARGUMENT...: tutti bench over ssh with this key
  local key=$1
  shift
  timeout 120 "$build/bin/tutti" bench all_reduce --ssh "$folder/hosts" --ssh-program "ssh -p $port -i $folder/$key \
    -o BatchMode=yes -o IdentitiesOnly=yes -o StrictHostKeyChecking=accept-new -o LogLevel=ERROR \
    -o UserKnownHostsFile=$folder/known" --min 8 --max 64K --factor 16 "$@" 2>&1 | tee "$folder/output"
}
printf '\nssh_check: tutti bench all_reduce --ssh hosts\n'
by_key user || { tail -n 5 "$folder/log" >&2 && die "the job failed; the lines above are of sshd"; }
grep -q "all_reduce, 4 ranks as processes" "$folder/output" || die "the job has no table of 4 ranks"
grep -q "wrong 0" "$folder/output" || die "the job has wrong results"
printf '\nssh_check: the same with a key that sshd refuses\n'
! by_key other || die "the job did not fail"
grep -q "127.0.0.1" "$folder/output" || die "the error does not name the host"
echo "ssh_check: the jobs ended as expected"
