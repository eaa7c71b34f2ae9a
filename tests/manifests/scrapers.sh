#!/usr/bin/env bash
# Prints the path of a program with which docs/integrations and deployment/rules are tested: vmagent, vmalert,
# victoria-metrics, prometheus or otelcol. The program in PATH has precedence over the one in .cache/scrapers. For otelcol,
# otelcol-contrib in PATH has precedence.
#
#   scrapers.sh NAME            print the path. If the program is missing, print "NAME unavailable: not-built" to standard
#                               error and exit with 1.
#   scrapers.sh --build NAME…   build the missing programs first. VictoriaMetrics' programs take a minute each, and
#                               prometheus and otelcol five to eight minutes on two cores. The exporter's own module does
#                               not require their modules.
set -euo pipefail
cd "$(dirname "$0")"
programs="vmagent vmalert victoria-metrics prometheus otelcol"
victoriametrics=github.com/VictoriaMetrics/VictoriaMetrics/app@v1.150.0

find_program() {
  local name=$1
  if [ "$name" = otelcol ] && command -v otelcol-contrib; then return; fi
  command -v "$name" && return
  [ -x "$cache/$name" ] && echo "$cache/$name"
}

build_program() {
  local work
  work=$(mktemp -d "$cache/build.XXXXXX")
  case $1 in
    vmagent | vmalert | victoria-metrics) (cd "$work" && GOFLAGS=-mod=mod GOBIN=$work "${GO:-go}" install "${victoriametrics%@*}/$1@${victoriametrics#*@}") ;;
    # The version that tests/e2e runs, without service discovery for clouds and clusters.
    prometheus) (cd ../e2e/node/prometheus && CGO_ENABLED=0 "${GO:-go}" build -trimpath -tags remove_all_sd -ldflags '-s -w' -o "$work/prometheus" github.com/prometheus/prometheus/cmd/prometheus) ;;
    # Without service discovery for clouds, which the tested file does not use.
    otelcol) (cd testdata/otelcol && "${GO:-go}" build -tags remove_all_sd -ldflags '-s -w' -o "$work/otelcol" .) ;;
  esac
  mv "$work/$1" "$cache/$1" # atomic, so that a concurrent run never sees a partial file
  rm -rf "$work"
}

cache=$(realpath -m ../../.cache/scrapers)
build=no
[ "${1:-}" != --build ] || { build=yes; shift; }
[ $# -gt 0 ] || { echo "usage: $0 [--build] $(tr ' ' '|' <<<"$programs")…" >&2; exit 2; }
for name; do
  [[ " $programs " == *" $name "* ]] || { echo "$0: $name: expected one of $programs" >&2; exit 2; }
  find_program "$name" && continue
  [ "$build" = yes ] || { echo "$name unavailable: not-built; make scrapers builds it" >&2; exit 1; }
  mkdir -p "$cache"
  build_program "$name"
  echo "$cache/$name"
done
