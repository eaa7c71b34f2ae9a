#!/bin/sh
# Runs after the files were removed. The account is kept, because it may own other files.
set -e

if [ -d /run/systemd/system ]; then
  systemctl daemon-reload || true
fi
case ${1:-} in
  purge | 0)
    # Keep certificates and passwords of the administrator: delete the folders only if they are empty.
    rmdir /etc/dcgm-exporter/web /etc/dcgm-exporter 2>/dev/null || true
    ;;
esac
