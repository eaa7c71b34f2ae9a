#!/usr/bin/env bash
# “Quotes” of a word processor in a comment — and in an echo — are nobody's mistake.
set -euo pipefail
RELEASE=v26.7.0
NS="gpu-operator"
ARGS=(
  --set driver.enabled=false # the nodes have it
  --set toolkit.enbaled=false
)
echo “installing” "$RELEASE"
install_operator() {
  if ! helm -n "$NS" status gpu-operator > /dev/null; then
    time sudo helm3 --kubeconfig "$KUBECONFIG" install gpu-operator nvidia/gpu-operator -n "$NS" --create-namespace --version "$RELEASE" "${ARGS[@]}" $EXTRA
  fi
}
for node in a b; do
  kubectl label node "$node" nvidia.com/mig.cnofig=all-disabled --overwrite
done
install_operator
