helm install gpu-operator nvidia/gpu-operator -n gpu-operator --version v26.7.0 \
  --set daemonsets.tolerations[0].key=gpu --set daemonsets.tolerations[0].operator=Exists \
  --set daemonsets.tolerations[1].key=team --set daemonsets.tolerations[1].operator=Equals --set daemonsets.tolerations[1].effect=NoScheduling
