#!/bin/sh
# After the files went. What the service wrote goes with "dpkg --purge", or with rpm's erase; the account stays, as files of it
# may be left elsewhere.
set -e

if [ -d /run/systemd/system ]; then
  systemctl daemon-reload || true
fi
case ${1:-} in
  purge | 0)
    rm -rf /var/lib/dcgm-exporter
    # Certificates and passwords are the administrator's: the folder goes where it is empty.
    rmdir /etc/dcgm-exporter/web /etc/dcgm-exporter 2>/dev/null || true
    ;;
esac
