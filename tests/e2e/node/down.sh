#!/usr/bin/env bash
# Stops the test node that uses the state folder $1. Removes its link, its control
# groups and the folder.
set -uo pipefail
state=$(realpath "$1")
. "$(dirname "$0")/settings.sh"

# ended FILE: the process that the file names, if it is still of this node.
ended() {
  local pid
  pid=$(cat "$1" 2>/dev/null) || return 0
  grep -qaF "$state" "/proc/$pid/cmdline" 2>/dev/null || return 0
  kill -KILL "$pid"
  for _ in {1..100}; do
    kill -0 "$pid" 2>/dev/null || return 0
    sleep 0.1
  done
}
[ -e "$state/unshare.pid" ] || { rm -rf --one-file-system "$state"; exit 0; } # it never started
ended "$state/init.pid"
ended "$state/unshare.pid"
ip link del "$LINK" 2>/dev/null
for _ in {1..50}; do
  groups=$(find /sys/fs/cgroup -depth -type d -path "*/$CGROUP*" 2>/dev/null)
  [ -n "$groups" ] || break
  xargs -r rmdir <<<"$groups" 2>/dev/null
  sleep 0.1
done
rm -rf --one-file-system "$state"
left=$(ls -d "$state" /sys/class/net/"$LINK" /sys/fs/cgroup/*/"$CGROUP" 2>/dev/null)
[ -z "$left" ] || { echo "the test node left $left" >&2; exit 1; }
