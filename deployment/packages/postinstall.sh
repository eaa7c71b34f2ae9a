#!/bin/sh
# After the files are there: the account, the folder of certificates, the service. Called by dpkg with "configure", by rpm
# with the number of versions that are installed.
set -e

case ${1:-} in
  abort-*) exit 0 ;; # of dpkg
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
