#!/usr/bin/env bash
set -euo pipefail
RELEASE=v26.7.0
ARGS=(
  --set driver.enabled=false # the nodes have it
  --set toolkit.enbaled=false
)
install_operator() {
  if ! helm -n gpu-operator status gpu-operator > /dev/null; then
    sudo helm install gpu-operator nvidia/gpu-operator -n gpu-operator --create-namespace --version "$RELEASE" "${ARGS[@]}" $EXTRA
  fi
}
install_operator
