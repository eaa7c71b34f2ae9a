#!/bin/sh
# Unpacks Debian packages for TARGETARCH and their dependencies into a folder. The script runs in the build stage of the
# image, on any architecture, because no program of the packages is executed.
#
#   packages.sh [--without BASE] FOLDER PACKAGE…
#
# --without skips packages that were unpacked to the folder BASE. REPOSITORY_OF_DCGM is NVIDIA's repository, or one with
# the same layout.
set -eu

base=
[ "$1" != --without ] || { base=$2; shift 2; }
root=$1
shift
arch=${TARGETARCH:-$(dpkg --print-architecture)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() { echo "packages.sh: $*" >&2; exit 1; }

# Configure apt for the target's architecture and without installed packages, so that it downloads every dependency.
mkdir -p "$work/lists/partial" "$work/archives/partial" "$work/etc/preferences.d" "$work/etc/trusted" "$work/etc/parts"
: > "$work/status"
cat > "$work/apt.conf" <<CONF
APT::Architecture "$arch";
APT::Architectures { "$arch"; };
APT::Install-Recommends "false";
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Retries "3";
Dir::State::status "$work/status";
Dir::State::lists "$work/lists";
Dir::Cache "$work";
Dir::Cache::archives "$work/archives";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
Dir::Etc::sourcelist "$work/etc/sources.list";
Dir::Etc::sourceparts "$work/etc/parts";
Dir::Etc::preferences "$work/etc/preferences";
Dir::Etc::preferencesparts "$work/etc/preferences.d";
CONF
export APT_CONFIG="$work/apt.conf"
key=/usr/share/keyrings/debian-archive-keyring.gpg
cat > "$work/etc/sources.list" <<SOURCES
deb [signed-by=$key] $DEBIAN_MIRROR bookworm main
deb [signed-by=$key] $DEBIAN_MIRROR bookworm-updates main
deb [signed-by=$key] $DEBIAN_SECURITY_MIRROR bookworm-security main
SOURCES

if [ -n "${REPOSITORY_OF_DCGM:-}" ]; then
  case $arch in
    amd64) folder=x86_64 ;;
    arm64) folder=sbsa ;;
    *) fail "NVIDIA has no packages for $arch" ;;
  esac
  case $REPOSITORY_OF_DCGM in
    https://*)
      # TLS authenticates the keyring, and the keyring authenticates the packages. A slim Debian has no CA certificates.
      [ -e /etc/ssl/certs/ca-certificates.crt ] ||
        env -u APT_CONFIG sh -c 'apt-get -q update && apt-get -qy install --no-install-recommends ca-certificates' >&2
      /usr/lib/apt/apt-helper download-file "$REPOSITORY_OF_DCGM/$folder/cuda-keyring_1.1-1_all.deb" "$work/keyring.deb" >&2
      dpkg -x "$work/keyring.deb" "$work/keyring"
      trust="signed-by=$(find "$work/keyring" -name '*.gpg' | head -n 1)"
      ;;
    copy:*) trust=trusted=yes ;; # a local folder needs no signature
    *) fail "REPOSITORY_OF_DCGM is $REPOSITORY_OF_DCGM, expected https://… or copy:…" ;;
  esac
  echo "deb [$trust] $REPOSITORY_OF_DCGM/$folder/ /" >> "$work/etc/sources.list"
  if [ -n "${VERSION_OF_DCGM:-}" ]; then
    printf 'Package: datacenter-gpu-manager-*\nPin: version %s\nPin-Priority: 1001\n' "$VERSION_OF_DCGM" > "$work/etc/preferences"
  fi
fi

apt-get -qq update
apt-get -qq --download-only install "$@" >&2
[ -z "${VERSION_OF_DCGM:-}" ] || [ -n "$(find "$work/archives" -name "datacenter-gpu-manager-*_$(echo "$VERSION_OF_DCGM" | sed 's/:/%3a/')_*.deb")" ] ||
  fail "DCGM $VERSION_OF_DCGM is not in $REPOSITORY_OF_DCGM"

# Keep a package's files and its license, but no manuals, translations and packaging files. Its control data goes to
# status.d, where scanners find packages of images without dpkg.
mkdir -p "$root/var/lib/dpkg/status.d"
for deb in "$work"/archives/*.deb; do
  name=$(dpkg-deb -f "$deb" Package)
  [ -z "$base" ] || [ ! -e "$base/var/lib/dpkg/status.d/$name" ] || continue
  dpkg -x "$deb" "$root"
  dpkg-deb -f "$deb" > "$root/var/lib/dpkg/status.d/$name"
done
rm -rf "$root"/usr/share/man "$root"/usr/share/locale "$root"/usr/share/lintian "$root"/usr/share/info "$root"/usr/share/bug \
  "$root"/usr/lib/*/gconv "$root"/usr/lib/*/audit
find "$root/usr/share/doc" \( -type f -o -type l \) ! -name copyright -delete 2>/dev/null || true
find "$root" -depth -type d -empty -delete

if [ -z "$base" ]; then
  # NVIDIA's image has the user 1000 too, for running the exporter without root.
  mkdir -p "$root/etc" "$root/run" "$root/tmp"
  chmod 1777 "$root/tmp"
  printf 'root:x:0:0:root:/:/sbin/nologin\ndcgm-exporter:x:1000:1000:dcgm-exporter:/:/sbin/nologin\n' > "$root/etc/passwd"
  printf 'root:x:0:\ndcgm-exporter:x:1000:\n' > "$root/etc/group"
  # If this file exists, libnvidia-container mounts libraries where Debian's loader finds them, and not in /usr/lib64.
  dpkg-deb -f "$work"/archives/libc6_*.deb Version > "$root/etc/debian_version"
fi
chmod 755 "$root"
