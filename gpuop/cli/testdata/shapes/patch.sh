kubectl patch clusterpolicies.nvidia.com/cluster-policy --type json -p '[{"op": "replace", "path": "/spec/mig/strategy", "value": "mixd"}]'
kubectl patch clusterpolicy cluster-policy --type merge -p '{"spec": {"devicePlugin": {"config": {"defualt": "any"}}, "driver": {"env": [{"name": "A", "value": true}]}}}'
kubectl patch clusterpolicy cluster-policy --type merge -p '{"spec": {"mig": {"strategy": "mixed"}}}'
