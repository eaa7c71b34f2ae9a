#!/bin/sh
# Runs before the files are removed. It stops the service if the package is removed (dpkg passes "remove", and rpm 0), but
# not on an upgrade.
set -e

case ${1:-} in
  remove | 0)
    if [ -d /run/systemd/system ]; then
      systemctl disable --now dcgm-exporter.service || true
    fi
    ;;
esac
