MODE=mixd
microk8s helm3 upgrade --install gpu-operator nvidia/gpu-operator -n gpu-operator --version v26.7.0 -f - <<EOF
mig:
  strategy: $MODE
driver:
  version: "$DRIVER"
  enabled: yes
EOF
cat <<'EOF' | helm template gpu-operator nvidia/gpu-operator -n gpu-operator --version v26.7.0 -f -
nfd:
  enabled: "false"
EOF
