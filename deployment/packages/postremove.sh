#!/bin/sh
# After the files went. The account stays, as files of it may be left elsewhere.
set -e

if [ -d /run/systemd/system ]; then
  systemctl daemon-reload || true
fi
case ${1:-} in
  purge | 0)
    # Certificates and passwords are the administrator's: the folder goes where it is empty.
    rmdir /etc/dcgm-exporter/web /etc/dcgm-exporter 2>/dev/null || true
    ;;
esac
