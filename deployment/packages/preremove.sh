#!/bin/sh
# Before the files go, and not when another version takes their place: dpkg says "remove", rpm 0.
set -e

case ${1:-} in
  remove | 0)
    if [ -d /run/systemd/system ]; then
      systemctl disable --now dcgm-exporter.service || true
    fi
    ;;
esac
