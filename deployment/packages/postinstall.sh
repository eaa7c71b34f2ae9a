#!/bin/sh
# Creates the account and starts the service after the files were installed. dpkg passes "configure", and rpm the number of
# installed versions.
set -e

case ${1:-} in
  abort-*) exit 0 ;; # dpkg
esac

if ! getent passwd dcgm-exporter >/dev/null; then
  if command -v systemd-sysusers >/dev/null; then
    systemd-sysusers /usr/lib/sysusers.d/dcgm-exporter.conf
  else
    useradd --system --user-group --home-dir / --no-create-home --shell /usr/sbin/nologin \
      --comment "Prometheus exporter for NVIDIA GPUs" dcgm-exporter
  fi
fi
chgrp dcgm-exporter /etc/dcgm-exporter/web
chmod 0750 /etc/dcgm-exporter/web

# NVIDIA's package has its unit in /lib/systemd/system. If /lib is a link to /usr/lib, that path is the same file as the
# link of this package. dpkg deletes the file after it has unpacked this package, so create the link again.
alias=/usr/lib/systemd/system/nvidia-dcgm-exporter.service
[ -e "$alias" ] || ln -sf dcgm-exporter.service "$alias"

if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  case ${1:-} in
    configure)
      # dpkg passes the previously installed version, if any. In Debian, an installed service is started.
      if [ -z "${2:-}" ]; then
        systemctl enable --now dcgm-exporter.service
      else
        systemctl try-restart dcgm-exporter.service
      fi
      ;;
    1) systemctl preset dcgm-exporter.service || true ;; # on RPM systems, the administrator starts the service
    *) systemctl try-restart dcgm-exporter.service ;;
  esac
fi
