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

# NVIDIA's package has its unit below /lib/systemd/system. On a system with a merged /usr, dpkg removes that path after it has
# unpacked ours, which is the same file.
alias=/usr/lib/systemd/system/nvidia-dcgm-exporter.service
[ -e "$alias" ] || ln -sf dcgm-exporter.service "$alias"

if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  case ${1:-} in
    configure)
      # dpkg names the version that was there. Debian starts what is installed.
      if [ -z "${2:-}" ]; then
        systemctl enable --now dcgm-exporter.service
      else
        systemctl try-restart dcgm-exporter.service
      fi
      ;;
    1) systemctl preset dcgm-exporter.service || true ;; # RPM leaves the start to the administrator
    *) systemctl try-restart dcgm-exporter.service ;;
  esac
fi
