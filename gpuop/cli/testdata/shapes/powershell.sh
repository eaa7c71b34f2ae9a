helm install gpu-operator nvidia/gpu-operator `
  --namespace gpu-operator --version v26.7.0 `
  --set opertor.runtimeClass=nvidia
