#!/usr/bin/env bash
# Prints the path of a program that reads a file of docs/integrations or deployment/rules, or what such a file writes: vmagent,
# vmalert, victoria-metrics, prometheus or otelcol. It is the one in PATH (of the collector otelcol-contrib), else the one in
# .cache/scrapers.
#   scrapers.sh NAME            prints it, or "NAME unavailable: not-built" to standard error and ends with 1
#   scrapers.sh --build NAME…   builds those that are missing, from their modules: those of VictoriaMetrics in a minute each,
#                               prometheus and otelcol in five to eight on two cores. None of them gets into the exporter's
#                               own module.
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
    # The version that tests/e2e runs, without what discovers targets in clouds and clusters.
    prometheus) (cd ../e2e/node/prometheus && CGO_ENABLED=0 "${GO:-go}" build -trimpath -tags remove_all_sd -ldflags '-s -w' -o "$work/prometheus" github.com/prometheus/prometheus/cmd/prometheus) ;;
    # Without what discovers targets in clouds, which the file does not use.
    otelcol) (cd testdata/otelcol && "${GO:-go}" build -tags remove_all_sd -ldflags '-s -w' -o "$work/otelcol" .) ;;
  esac
  mv "$work/$1" "$cache/$1" # in one step: another run sees all or nothing
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
