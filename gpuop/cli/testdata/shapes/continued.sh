helm install gpu-operator nvidia/gpu-operator -n gpu-operator --version v26.7.0 \
  # the nodes have a driver
  --set driver.enabled=false
helm upgrade gpu-operator nvidia/gpu-operator -n gpu-operator --version v26.7.0
  --set mig.strategy=mixed
helm install gpu-operator nvidia/gpu-operator -n gpu-operator --version v26.7.0 --set driver.imagePullSecrets={a,b} --set toolkit.env[0].name=A --set toolkit.env[0].value=true
