helm install gpu-operator nvidia/gpu-operator -n gpu-operator --version v26.7.0 --username '$oauthtoken' --password hunter2hunter2 --set drivr.enabled=false --set driver.enabled=false
kubectl create secret docker-registry key --docker-password=nvapi-0123456789abcdefghij
