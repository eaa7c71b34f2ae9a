package lint_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/lint"
)

// TestPublishedShapes compares the findings for inputs that are shaped like published ones. The values in them are made
// up.
func TestPublishedShapes(t *testing.T) {
	for _, tt := range []struct {
		name, file, text, command string
		beside                    map[string]string
		judged                    bool
		want                      []string
	}{
		{name: "labels with shell variables", command: "oc label node --overwrite -l x \"nvidia.com/mig.config=${MIG_CONFIG}\"\noc label node n --overwrite \"nvidia.com/mig.confg=$1\" nvidia.com/gpu.workload.config=\"$W\"",
			judged: true, want: []string{"error unknown-label nvidia.com/mig.confg @2"}},
		{name: "flags before kubectl's verb", command: `kubectl -n gpu-operator --context lab patch clusterpolicy/cluster-policy --type merge -p '{"spec":{"mig":{"stratgy":"mixed"}}}'`,
			judged: true, want: []string{"error unknown-field spec.mig.stratgy @1"}},
		{name: "the namespace before a label", command: "oc -n gpu-operator label node worker-1 nvidia.com/mig.confg=all-1g.10gb --overwrite",
			judged: true, want: []string{"error unknown-label nvidia.com/mig.confg @1"}},
		{name: "redirections to a log are not placeholders", command: "kubectl label node n nvidia.com/mig.config=all-1g.10gb --overwrite 2>/dev/null >>log", judged: true},
		{name: "a release to fill in", command: "helm upgrade <release-name> nvidia/gpu-operator -n gpu-operator --version v26.7.0 --set drivr.enabled=false",
			judged: true, want: []string{"error placeholder <release-name> @1", "error unknown-key drivr @1"}},
		{name: "a setting to fill in", command: "helm install gpu-operator nvidia/gpu-operator -n gpu-operator \\\n  --version v26.7.0 --set <key>=<value>",
			judged: true, want: []string{"error placeholder <key> @2"}},
		{name: "a placeholder with an apostrophe", command: "helm install gpu-operator nvidia/gpu-operator -n gpu-operator --version v26.7.0 --set driver.version=<yours, don't add the system>",
			judged: true, want: []string{"error placeholder <yours, don't add the system> @1"}},
		{name: "a patch of a resource with a placeholder", command: `kubectl patch nvidiadriver/<name> --type=json -p='[{"op": "replace", "path": "/spec/versoin", "value": "580.173.02"}]'`,
			judged: true, want: []string{"error unknown-field spec.versoin @1", "error placeholder <name> @1"}},
		{name: "two redirections", command: "helm install gpu-operator nvidia/gpu-operator -n gpu-operator --version v26.7.0 <answers 2>errors\nkubectl create ns a <answers 2> errors", judged: true},
		{name: "angle brackets in quotes and here-documents", command: "helm install gpu-operator nvidia/gpu-operator -n gpu-operator --version v26.7.0 -f - <<EOF\noperator:\n  labels:\n    note: <a b>\nEOF\nkubectl annotate node n note='<a>'",
			judged: true},
		{name: "the device plugin's own chart", file: "values.yaml", text: "image: {repository: nvcr.io/nvidia/k8s-device-plugin}\nconfig:\n  default: ayn\n  map:\n    any: |\n      version: v1\n      flags: {migStrategy: none}\n      sharing:\n        timeSlicing:\n          resources:\n          - name: nvidia.com/gpu\n            replicas: 1\n    script: |\n      a: b\n",
			judged: true, want: []string{"error config-map config.default @3", "error sharing-replicas config.map.any: sharing.timeSlicing.resources[0].replicas @12"}},
		{name: "the device plugin's own chart without configs", file: "values.yaml", text: "gfd: {enabled: true}\nmigStrategy: single\nfailOnInitError: true\n"},
		{name: "an umbrella chart with an alias", file: "values.yaml", text: "ingress: {enabled: true}\ngpu:\n  toolkit: {enbaled: true}\n",
			beside: map[string]string{"Chart.yaml": "name: platform\nversion: 1.0.0\ndependencies:\n  - name: gpu-operator\n    alias: gpu\n    version: v26.7.0\n    repository: https://helm.ngc.nvidia.com/nvidia\n"},
			judged: true, want: []string{"error unknown-key toolkit.enbaled @3"}},
		{name: "nested keys in the data of a ConfigMap, and an invalid MIG config", file: "values.yaml", text: "devicePlugin:\n  config:\n    create: true\n    name: a\n    data:\n      data:\n        config.yml:\n          version: v1\n          flags: {migStrategy: none}\nmigManager: {config: {create: true, name: b, data: {mig.yaml: \"version: v1\\nmig-configs: {a: [{devices: all, mig-enabled: false}]}\"}}}\n",
			judged: true, want: []string{"note config-fallback devicePlugin.config.name @4", "error wrong-type devicePlugin.config.data.data @6", "error config-map migManager.config.data.mig\\.yaml @10"}},
		{name: "an archive of the chart names its release", command: "helm install g ./gpu-operator-v25.10.1.tgz -n gpu-operator --set cdi.default=true",
			judged: true, want: []string{"note key-goes cdi.default @1"}},
		{name: "pullPolicy below an image", command: "helm install g nvidia/gpu-operator -n gpu-operator --version v26.7.0 --set validator.image.pullPolicy=Always",
			judged: true, want: []string{"error below-a-value validator.image @1"}},
		{name: "charts of other operators", command: "helm install calico projectcalico/tigera-operator --version v3.27.0 -n tigera-operator\nhelm install s spark/spark-operator\nhelm install n npu/npu-operator -n npu-operator\nkubectl -n tigera-operator get pods"},
		{name: "misspelled chart and namespace", command: "helm install g nvidia/gpu-opertor -n gpu-opertor --version v26.7.0",
			judged: true, want: []string{"error unknown-chart nvidia/gpu-opertor @1", "error namespace -n gpu-opertor @1"}},
		{name: "labels that other components write and read", command: "kubectl label node n nvidia.com/gpu.product=T4 nvidia.com/gpu.count=1 nvidia.com/mig.strategy=single nvidia.com/mig.capable=true nvidia.com/cc.capable=true", judged: true},
		{name: "labels of other domains with the same name", command: "kubectl label node n example.com/mig.config=a amd.com/vgpu.config=b"},
		{name: "an operation on an element of a list", command: `kubectl patch clusterpolicy cluster-policy --type json -p '[{"op": "add", "path": "/spec/driver/env/-", "value": {"name": "A"}}, {"op": "replace", "path": "/spec/mig/strategy", "value": "mixd"}]'`,
			judged: true, want: []string{"error wrong-value spec.mig.strategy @1"}},
		{name: "a patch with a missing brace", command: `kubectl patch clusterpolicy cluster-policy --type merge -p '{"spec": {"mig": {"strategy": "mixed"}}'`,
			want: []string{"error yaml-syntax @1"}},
		{name: "a here-document of another command", command: "cat <<EOF && kubectl apply -f pod.yaml\napiVersion: v1\nkind: Pod\nspec:\n  containers:\n    - resources: {limits: {nvidia.com/gpu: 0.5}}\nEOF\n"},
		{name: "an array set to other flags in each branch", command: "if [ \"$A\" ]; then\n  ARGS=(--set drivr.enabled=false)\nelse\n  ARGS=(--set toolkt.enabled=false)\nfi\nhelm install g nvidia/gpu-operator -n gpu-operator --version v26.7.0 \"${ARGS[@]}\"\n",
			judged: true, want: []string{"error unknown-key drivr @2", "error unknown-key toolkt @4"}},
		{name: "misspelled labels", command: "kubectl label node n nvdia.com/mig.config=all-1g.10gb nvidia.com/device-plugin-config=a --overwrite",
			judged: true, want: []string{"error unknown-label nvdia.com/mig.config @1", "error unknown-label nvidia.com/device-plugin-config @1"}},
		{name: "a chart that may be in a variable", command: "helm template --debug $ARGUMENTS", want: []string{"note not-judged $ARGUMENTS @1"}},
		{name: "helm template --release-name", command: "helm template gpu-operator nvidia/gpu-operator --version v26.7.0 --release-name --output-dir out", judged: true},
		{name: "files that a script writes for other programs", command: "cat >/etc/docker/daemon.json <<EOF\n{\"default-runtime\": \"nvidia\"}\nEOF\ncat >Dockerfile <<EOF\nFROM base\nRUN echo version: 1\nEOF\ncat >x.service <<EOF\n[Unit]\nDescription=x\nEOF\ncat >README.md <<EOF\n# Nothing\nEOF\n"},
		{name: "a config that a script writes for the device plugin", command: "cat >time-slicing <<EOF\nversion: v1\nsharing:\n  timeSlicing:\n    resources:\n      - name: nvidia.com/gpu\n        replicas: 1\nEOF\n",
			judged: true, want: []string{"error sharing-replicas sharing.timeSlicing.resources[0].replicas @7"}},
		{name: "values that the script writes for an older release", command: "cat >values.yaml <<EOF\noperator:\n  defaultRuntime: containerd\ndevicePlugin:\n  config:\n    create: true\n    name: shared\n    default: any\n    data:\n      any: |\n        version: v1\n        sharing:\n          timeSlicing:\n            resources:\n              - name: nvidia.com/gpu\n                replicas: 1\nEOF\nhelm install gpu-operator nvidia/gpu-operator -n gpu-operator --version v26.3.3 -f values.yaml",
			judged: true, want: []string{"warning key-gone operator.defaultRuntime @3", "error sharing-replicas devicePlugin.config.data.any: sharing.timeSlicing.resources[0].replicas @16"}},
		{name: "Kyverno's ClusterPolicy", file: "policy.yaml", text: "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata:\n  name: limits\nspec:\n  validationFailureAction: Audit\n  rules: []\n"},
		{name: "a misspelled API group", file: "policy.yaml", text: "apiVersion: nvdia.com/v1\nkind: NVIDIADriver\nmetadata:\n  name: a\nspec:\n  driverType: gpu\n  image: driver\n",
			judged: true, want: []string{"error api-version apiVersion @1"}},
		{name: "values of a monitoring stack", file: "values.yaml", text: "nameOverride: metrics\ngrafana:\n  enabled: true\nnodeExporter:\n  enabled: true\nalertmanager:\n  enabled: true\nprometheus:\n  prometheusSpec:\n    retention: 1d\n",
			want: []string{"note unknown-kind @1"}},
		{name: "values of NVIDIA's DRA driver", file: "values.yaml", text: "nvidiaDriverRoot: /run/nvidia/driver\ngpuResourcesEnabledOverride: true\nkubeletPlugin:\n  priorityClassName: a\n",
			want: []string{"note unknown-kind @1"}},
		{name: "values with one misspelled group", file: "values.yaml", text: "drivr:\n  enabled: false\n", judged: true, want: []string{"error unknown-key drivr @1"}},
		{name: "a patch for Kustomize", file: "overlay/mig.yaml", text: "apiVersion: nvidia.com/v1\nkind: ClusterPolicy\nmetadata:\n  name: gpu-cluster-policy\nspec:\n  mig:\n    stratgy: mixed\n",
			beside: map[string]string{"overlay/kustomization.yaml": "resources: [../base]\npatches:\n  - path: ./mig.yaml\n"},
			judged: true, want: []string{"error unknown-field spec.mig.stratgy @7"}},
		{name: "a patch for Kustomize without a typo", file: "overlay/mig.yaml", text: "apiVersion: nvidia.com/v1\nkind: ClusterPolicy\nmetadata:\n  name: gpu-cluster-policy\nspec:\n  mig:\n    strategy: mixed\n",
			beside: map[string]string{"overlay/kustomization.yml": "patchesStrategicMerge:\n  - mig.yaml\n"}, judged: true},
		{name: "a resource of Kustomize", file: "overlay/policy.yaml", text: "apiVersion: nvidia.com/v1\nkind: ClusterPolicy\nmetadata:\n  name: a\nspec:\n  operator: {}\n  driver: {}\n  toolkit: {}\n  devicePlugin: {}\n  dcgm: {}\n  dcgmExporter: {}\n  gfd: {}\n  nodeStatusExporter: {}\n",
			beside: map[string]string{"overlay/kustomization.yaml": "resources: [policy.yaml]\n"},
			judged: true, want: []string{"error missing-field spec.daemonsets @6"}},
		{name: "a ConfigMap of another program", file: "scripts.yaml", text: "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: scripts\ndata:\n  run.sh: |\n    [ -z \"$version\" ] && exit\n  app.toml: |\n    version = 2\n    [plugins]\n  notes: the version is 1\n"},
		{name: "a device plugin config that is not YAML", file: "config.yaml", text: "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: shared\ndata:\n  any: |\n    version: v1\n    sharing:\n       timeSlicing: {}\n      resources: []\n",
			judged: true, want: []string{"error yaml-syntax @9"}},
		{name: "a template of Helm", file: "templates/policy.yaml", text: "{{- if .Values.gpu }}\napiVersion: nvidia.com/v1\nkind: ClusterPolicy\nmetadata:\n  name: {{ .Values.name }}\n  labels:\n    {{- include \"x.labels\" . | nindent 4 }}\nspec:\n  {{- toYaml .Values.spec | nindent 2 }}\n  mig:\n    stratgy: {{ .Values.strategy | quote }}\n  driver:\n    version: {{ .Values.version }}\n  devicePlugin:\n    {{ .Values.key }}: true\n{{- end }}\n",
			want: []string{"note not-judged"}},
		{name: "a template that is not YAML", file: "templates/_helpers.tpl.yaml", text: "{{- define \"x\" -}}\n{{ .Release.Name }}: [\n{{- end }}\n", want: []string{"note not-judged"}},
		{name: "an array extended under a condition", command: "ARGS=(--set driver.enabled=false)\nif [ \"$MIG\" = true ]; then ARGS+=(--set mig.stratgy=mixed); fi\nhelm upgrade -i gpu-operator nvidia/gpu-operator -n gpu-operator --version v26.7.0 \"${ARGS[@]}\"",
			judged: true, want: []string{"error unknown-key mig.stratgy @2"}},
		{name: "an array extended after &&", command: "ARGS=()\n[[ $MIG = true ]] && ARGS+=(--set mig.strategy=mixd)\nhelm upgrade -i gpu-operator nvidia/gpu-operator -n gpu-operator --version v26.7.0 \"${ARGS[@]}\"",
			judged: true, want: []string{"error wrong-value mig.strategy @2"}},
		{name: "an array set in both branches of an if", command: "if [ \"$HOST\" = 1 ]; then\n  ARGS=(--set driver.enabled=true --set driver.version=580.95.05)\nelse\n  ARGS=(--set driver.enabled=false)\nfi\nhelm upgrade -i gpu-operator nvidia/gpu-operator -n gpu-operator --version v26.7.0 \"${ARGS[@]}\"",
			judged: true},
		{name: "a variable with two possible values", command: "if [ \"$HOST\" = 1 ]; then V=v26.7.0; else V=v25.3.4; fi\nhelm upgrade -i gpu-operator nvidia/gpu-operator -n gpu-operator --version $V",
			judged: true, want: []string{"note not-judged --version $V @2"}},
		{name: "a shell that a script runs", command: "V=v26.7.0\nbash -ec 'echo a\n  helm install gpu-operator nvidia/gpu-operator -n gpu-operator --version $V --set drivr.enabled=false'",
			judged: true, want: []string{"error unknown-key drivr @3"}},
		{name: "Ansible's helm", file: "play.yaml", text: "- hosts: gpus\n  tasks:\n    - name: operator\n      block:\n        - kubernetes.core.helm:\n            name: gpu-operator\n            chart_ref: nvidia/gpu-operator\n            chart_version: v26.7.0\n            release_values:\n              drivr: {enabled: false}\n            valuesContent: x\n",
			judged: true, want: []string{"error unknown-key drivr @10", "error unknown-key valuesContent @11"}},
		{name: "Ansible's shell and command", file: "tasks.yaml", text: "- name: nodes\n  ansible.builtin.shell: |\n    kubectl label node {{ node }} \\\n      nvidia.com/mig.confg=all-1g.10gb --overwrite\n- command: \"helm upgrade -i gpu-operator nvidia/gpu-operator -n gpu-operator --version {{ v }} --set drivr.enabled=false chdir=/tmp\"\n- command:\n    cmd: helm install g nvidia/gpu-operator -n gpu-operator --version v26.7.0 --set toolkt.enabled=false\n",
			judged: true, want: []string{"error unknown-label nvidia.com/mig.confg @4", "note not-judged --version {{ v }} @5", "error unknown-key drivr @5", "error unknown-key toolkt @7"}},
		{name: "values that Ansible fills in", file: "tasks.yaml", text: "- shell: \"helm install g nvidia/gpu-operator -n gpu-operator --version=v{{ v }} --set driver.repository='{{ r }}' --set-string 'driver.version={{ d }}' --set driver.useOpenKernelModules=true\"\n- kubernetes.core.helm:\n    name: g\n    chart_ref: nvidia/gpu-operator\n    chart_version: \"{{ v }}\"\n    values:\n      driver: {version: \"{{ d }}\", useOpenKernelModules: true}\n",
			judged: true, want: []string{"note not-judged", "note not-judged --version v{{ v }} @1", "warning key-gone driver.useOpenKernelModules @1",
				"note not-judged {{ v }} @5", "warning key-gone driver.useOpenKernelModules @7"}},
		{name: "a manifest in an Ansible task", file: "tasks.yaml", text: "- kubernetes.core.k8s:\n    definition:\n      apiVersion: v1\n      kind: Pod\n      metadata: {name: a}\n      spec:\n        containers:\n          - {name: a, image: b, resources: {limits: {nvidia.com/gpu: 0.5}}}\n",
			judged: true, want: []string{"error gpu-integer container a: limits.nvidia.com/gpu @8"}},
		{name: "patches in a Kustomization", file: "kustomization.yaml", text: "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\npatches:\n  - path: other.yaml\n  - patch: |\n      apiVersion: nvidia.com/v1\n      kind: ClusterPolicy\n      metadata: {name: cluster-policy}\n      spec:\n        mig: {stratgy: mixed}\n  - target: {kind: ClusterPolicy}\n    patch: |-\n      - op: replace\n        path: /spec/driver/versoin\n        value: x\n  - patch: |\n      apiVersion: apps/v1\n      kind: Deployment\n      spec: {template: {spec: {containrs: []}}}\npatchesStrategicMerge:\n  - |\n    apiVersion: helm.toolkit.fluxcd.io/v2\n    kind: HelmRelease\n    metadata: {name: gpu-operator}\n    spec: {values: {toolkt: {}}}\n",
			judged: true, want: []string{"error unknown-field spec.mig.stratgy @10", "error unknown-field spec.driver.versoin @14", "error unknown-key toolkt @25"}},
		{name: "values in a TypeScript program", file: "stack.ts", text: "const values = {\n  drivr: {},\n", want: []string{"note not-judged"}},
		{name: "a chart in a folder", command: "helm install gpu-operator ./next -n gpu-operator --set cdi.default=true", beside: map[string]string{"next/Chart.yaml": "name: gpu-operator\nversion: v25.10.1\n"},
			judged: true, want: []string{"note key-goes cdi.default @1"}},
		{name: "the script's own arguments", command: "helm upgrade -i gpu-operator nvidia/gpu-operator -n gpu-operator --version v26.7.0 \"$@\"",
			judged: true, want: []string{"note not-judged \"$@\" @1"}},
		{name: "GPUCluster without an NVIDIADriver", file: "values.yaml", text: "gpuCluster:\n  deployCR: true\nclusterPolicy:\n  deployCR: false\n",
			judged: true, want: []string{"error excludes gpuCluster.deployCR @2"}},
		{name: "GPUCluster with the host's driver", file: "values.yaml", text: "gpuCluster:\n  deployCR: true\nclusterPolicy:\n  deployCR: false\ndriver:\n  enabled: false\n", judged: true, want: nil},
		{name: "whole amounts of GPUs, as 1.0 and 2000m", file: "pod.yaml", text: "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n    - {name: a, image: b, resources: {limits: {nvidia.com/gpu: 1.0}}}\n    - {name: b, image: b, resources: {limits: {nvidia.com/gpu: 2000m}}}\n",
			judged: true, want: nil},
		{name: "a fractional amount of GPUs", file: "pod.yaml", text: "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n    - {name: a, image: b, resources: {limits: {nvidia.com/gpu: 500m}}}\n",
			judged: true, want: []string{"error gpu-integer container a: limits.nvidia.com/gpu @6"}},
		{name: "values copied into the ClusterPolicy", file: "values.yaml", text: "toolkit: {resources: {limits: {memory: 1GB}}}\ndevicePlugin: {resources: {limits: {cpu: lots}, requests: {cpu: 1, memory: 1Gi}}}\ndaemonsets: {labels: {a: 1, c: x}}\ndcgmExporter:\n  serviceMonitor: {interval: 15, additionalLabels: {a: true}, honorLabels: true}\ndriver: {startupProbe: {failureThreshold: \"120\", periodSeconds: 20}, upgradePolicy: {maxParallelUpgrades: \"2\"}}\noperator: {nodeSelector: {a: b}}\n",
			judged: true, want: []string{"error wrong-value toolkit.resources.limits.memory @1", "error wrong-value devicePlugin.resources.limits.cpu @2", "error wrong-type daemonsets.labels.a @3",
				"error wrong-type dcgmExporter.serviceMonitor.interval @5", "error wrong-type dcgmExporter.serviceMonitor.additionalLabels.a @5", "error wrong-type driver.startupProbe.failureThreshold @6"}},
		{name: "flags copied into the ClusterPolicy", command: "helm install gpu-operator nvidia/gpu-operator -n gpu-operator --create-namespace --version v26.7.0 --set toolkit.resources.limits.memory=1Gi --set daemonsets.labels.a=1 --set driver.startupProbe.periodSeconds=20",
			judged: true, want: []string{"error wrong-type daemonsets.labels.a @1"}},
		{name: "a range of releases", file: "app.yaml", text: "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: a}\nspec:\n  source:\n    chart: gpu-operator\n    repoURL: https://helm.ngc.nvidia.com/nvidia\n    targetRevision: v25.3.*\n    helm:\n      values: |\n        cdi: {enabled: true, default: true}\n",
			judged: true, want: []string{"note not-judged v25.3.* @8", "note key-goes cdi.default @11"}},
		{name: "a range of releases for helm", command: "helm install gpu-operator nvidia/gpu-operator -n gpu-operator --create-namespace --version '~25.3' --set cdi.default=true,cdi.enabled=true",
			judged: true, want: []string{"note not-judged --version ~25.3 @1", "note key-goes cdi.default @1"}},
		{name: "a group whose keys are commented out", file: "values.yaml", text: "cdi:\ndriver:\n#  enabled: false\ndcgmExporter:\n  config:\nnode-feature-discovery:\ntoolkit:\n  env:\n",
			judged: true, want: []string{"error null-group cdi @1", "error null-group driver @2", "note null-group dcgmExporter.config @5"}},
		{name: "a null in a flag", command: "helm install gpu-operator nvidia/gpu-operator -n gpu-operator --create-namespace --version v26.7.0 --set driver.rdma=null --set cdi=null,cdi.enabled=true",
			judged: true, want: []string{"error null-group driver.rdma @1"}},
		{name: "yes and off as booleans", file: "values.yaml", text: "cdi:\n  enabled: yes\n  nriPluginEnabled: off\n", judged: true, want: nil},
		{name: "a curl format is not a template", file: "pod.yaml", text: "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\nspec:\n  containers:\n    - name: a\n      image: b\n      args: [-w, '%{http_code}']\n      resources: {limits: {nvidia.com/gpu: yes}}\n",
			judged: true, want: []string{"error gpu-integer container a: limits.nvidia.com/gpu @10"}},
		{name: "values with a template", file: "values.yaml", text: "driver:\n  version: {{ driver_version }}\n  enabled: \"{{ driver }}\"\ntoolkt:\n  enabled: false\n",
			judged: true, want: []string{"note not-judged", "error unknown-key toolkt @4"}},
		{name: "a Knative Service", file: "service.yaml", text: "apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata:\n  name: a\nspec:\n  template:\n    spec:\n      containerConcurrency: 1\n      timeoutSeconds: 5\n      containers:\n        - image: b\n", judged: true},
		{name: "values of another chart with a runtime class", file: "values.yaml", text: "replicaCount: 1\nmodel: {gpu: 1}\nruntimeClassName: nvidia\nservice: {type: ClusterIP}\n", want: []string{"note unknown-kind @1"}},
		{name: "values of the device plugin with keys of both charts", file: "values.yaml", text: "gfd: {enabled: true}\nnfd: {worker: {tolerations: []}}\n"},
		{name: "a JSON patch in a file", file: "patch.yaml", text: "- op: add\n  path: /spec/a\n  value: b\n", want: []string{"note unknown-kind @1"}},
		{name: "a pipeline config", file: "p.yaml", text: "platforms:\n  kubernetes: {a: b}\n", want: []string{"note unknown-kind @1"}},
		{name: "a step of a driver upgrade", command: "kubectl label node n nvidia.com/gpu-driver-upgrade-state=upgrade-required nvidia.com/gpu-driver-upgrade.skip=true --overwrite", judged: true},
		{name: "values of an unknown earlier release", file: "values.yaml", text: "driver: {enabled: true, useOpenKernelModules: true}\nvalidator: {repository: nvcr.io/nvidia/cloud-native}\n",
			judged: true, want: []string{"warning key-gone driver.useOpenKernelModules @1", "warning old-default validator.repository @2"}},
		{name: "a release in another Flux object", file: "release.yaml", text: "apiVersion: source.toolkit.fluxcd.io/v1\nkind: OCIRepository\nmetadata:\n  name: gpu-operator\nspec:\n  ref:\n    tag: v26.3.3\n---\napiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata:\n  name: gpu\nspec:\n  chartRef:\n    kind: OCIRepository\n    name: gpu-operator\n  values:\n    cdi:\n      default: true\n",
			judged: true, want: []string{"note key-goes cdi.default @19"}},
		{name: "a release in an object that is not in the file", file: "release.yaml", text: "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata:\n  name: gpu\nspec:\n  chartRef:\n    kind: OCIRepository\n    name: gpu-operator\n  values:\n    driver:\n      enabled: false\n",
			judged: true, want: []string{"note not-judged gpu-operator @8"}},
		{name: "commands that are commented out", command: "kubectl get nodes\n# kubectl label node <node> nvidia.com/mig.confg=a\n# helm install s nvidia/gpu-opertor\n"},
		{name: "Rancher Fleet", file: "fleet.yaml", text: "defaultNamespace: gpu-operator\nhelm:\n  chart: gpu-operator\n  version: v26.3.0\n  values: {drivr: {enabled: false}}\ntargetCustomizations:\n- name: a\n  helm: {values: {toolkt: {enabled: false}}}\n",
			judged: true, want: []string{"error unknown-key drivr @5", "error unknown-key toolkt @8"}},
		{name: "a GitHub workflow", file: "deploy.yaml", text: "on: push\njobs:\n  a:\n    steps:\n    - run: |\n        helm upgrade gpu-operator nvidia/gpu-operator -n ${{ env.NS }} --version v26.7.0 --set drivr.enabled=false\n",
			judged: true, want: []string{"error unknown-key drivr @6"}},
		{name: "a Kustomize Component", file: "kustomization.yaml", text: "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nhelmCharts:\n- name: gpu-operator\n  version: v26.3.0\n  valuesInline: {drivr: {enabled: false}}\n",
			judged: true, want: []string{"error unknown-key drivr @6"}},
		{name: "AMD's operator", command: "helm repo add amdgpu https://rocm.github.io/gpu-operator\nhelm install a amdgpu/gpu-operator -n b --set deviceConfig.x=1"},
		{name: "AMD's operator in a HelmRelease", file: "a.yaml", text: "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nspec:\n  chart: {spec: {chart: gpu-operator, version: v1.4.0, sourceRef: {kind: HelmRepository, name: rocm}}}\n  values: {deviceConfig: {}}\n"},
		{name: "a here-document with a command substitution", command: "kubectl apply -f - <<EOF\napiVersion: v1\nkind: Secret\ndata:\n  x: $(echo \"a: {b: c}\" | base64)\nEOF\n", want: []string{"note not-judged @2"}},
		{name: "a here-document that later lines extend", command: "cat > m.yaml <<EOF\nversion: v1\nmig-configs:\nEOF\nfor i in 1 2; do ./line $i >> m.yaml; done\n", judged: true},
		{name: "a here-document in two parts", command: "cat > v.yaml <<EOF\ndriver: {enabled: false}\nEOF\ncat >> v.yaml <<EOF\ndrivr: {enabled: false}\nEOF\nhelm install gpu-operator nvidia/gpu-operator -n gpu-operator --version v26.7.0 -f v.yaml\n",
			judged: true, want: []string{"error unknown-key drivr @5"}},
		{name: "a mapping in a ConfigMap", file: "a.yaml", text: "apiVersion: v1\nkind: ConfigMap\ndata:\n  any:\n    version: v1\n    sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}\n",
			judged: true, want: []string{"error config-map data.any @4"}},
		{name: "a merge key with a list", file: "values.yaml", text: ".x: &x {enabled: true}\ndriver: {<<: [*x]}\ntoolkit: {enabled: true}\n", judged: true},
		{name: "values below the chart's own name", file: "a.yaml", text: "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nspec:\n  chart: {spec: {chart: gpu-operator, version: v26.3.0}}\n  values: {gpu-operator: {driver: {enabled: false}}}\n",
			judged: true, want: []string{"error unknown-key gpu-operator @5"}},
		{name: "a tag that ends in the operating system", command: "helm install gpu-operator nvidia/gpu-operator -n gpu-operator --version v26.7.0 --set driver.version=580.105.08-ubuntu22.04 --set gds.version=2.20.5-rhel9.4 --set gds.enabled=true",
			judged: true, want: []string{"error image driver.version @1", "error image gds.version @1"}},
		{name: "a GPU twice in one entry of a MIG config", file: "m.yaml", judged: true, text: "version: v1\nmig-configs:\n  a:\n  - devices: [0, 0]\n    mig-enabled: true\n    mig-devices: {1g.10gb: 7}\n"},
		{name: "a GPU in two entries of a MIG config", file: "m.yaml", text: "version: v1\nmig-configs:\n  a:\n  - devices: [0, 1]\n    mig-enabled: true\n    mig-devices: {1g.10gb: 7}\n  - devices: [1]\n    mig-enabled: false\n    mig-devices: {}\n",
			judged: true, want: []string{"warning mig-coverage mig-configs.a @7"}},
		{name: "a registry for all charts", file: "v.yaml", text: "global: {imageRegistry: registry.example.com}\ndriver: {enabled: false}\ntoolkit: {enabled: false}\n",
			judged: true, want: []string{"warning dead-setting global.imageRegistry @1"}},
		{name: "an amount with a space", file: "v.yaml", text: "operator:\n  resources: {limits: {memory: 350 Mi}}\ntoolkit: {enabled: false}\n",
			judged: true, want: []string{"error wrong-value operator.resources.limits.memory @2"}},
		{name: "an unknown taint effect", file: "v.yaml", text: "node-feature-discovery:\n  worker:\n    tolerations:\n    - key: a\n      effect: NoSchedul\ntoolkit: {enabled: false}\n",
			judged: true, want: []string{"error wrong-value node-feature-discovery.worker.tolerations @5"}},
		{name: "keys similar to the chart's", file: "a.yaml", text: "pack: {content: x}\nvsp: {enabled: true}\noperator: {image: {tag: v1}}\n", want: []string{"note unknown-kind @1"}},
		{name: "a Makefile", file: "Makefile", text: "install:\n\t@helm upgrade gpu-operator nvidia/gpu-operator\n", want: []string{"note not-judged"}},
		{name: "Kustomize's charts", file: "overlay/kustomization.yaml", text: "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nhelmCharts:\n  - name: gpu-operator\n    version: v26.3.3\n    valuesFile: values.yaml\n    additionalValuesFiles: [more.yaml]\n    valuesInline:\n      drivr:\n        enabled: false\n",
			beside: map[string]string{"overlay/values.yaml": "toolkt:\n  enabled: false\n"},
			judged: true, want: []string{"note not-judged more.yaml @7", "error unknown-key drivr @9", "error unknown-key toolkt @1"}},
		{name: "a Kustomization without charts", file: "kustomization.yaml", text: "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [a.yaml]\n"},
		{name: "a manifest that echo writes", command: "echo \"\napiVersion: helm.cattle.io/v1\nkind: HelmChart\nmetadata:\n  name: gpu-operator\nspec:\n  repo: ${REPO}\n  chart: gpu-operator\n  version: v26.7.0\n  valuesContent: |-\n    drivr:\n      enabled: false\n    toolkit:\n      env:\n        - name: A\n          value: \\\"true\\\"\n\" > ${FILE}",
			judged: true, want: []string{"error unknown-key drivr @11"}},
		{name: "values for helm with redirected output", command: "helm install gpu-operator nvidia/gpu-operator -n gpu-operator --version v26.7.0 -f - <<EOF >log 2>/dev/null\ndrivr:\n  enabled: false\nEOF",
			judged: true, want: []string{"error unknown-key drivr @2"}},
		{name: "a values file with redirected errors", command: "cat <<EOF >values.yaml 2>/dev/null\ndrivr:\n  enabled: false\nEOF\nhelm install gpu-operator nvidia/gpu-operator -n gpu-operator --version v26.7.0 -f values.yaml",
			judged: true, want: []string{"error unknown-key drivr @2"}},
		{name: "an ApplicationSet with templates", file: "set.yaml", text: "apiVersion: argoproj.io/v1alpha1\nkind: ApplicationSet\nmetadata:\n  name: gpu\nspec:\n  template:\n    spec:\n      sources:\n        - chart: gpu-operator\n          targetRevision: '{{ .release }}'\n          helm:\n            valueFiles: ['$values/{{.name}}.yaml']\n            valuesObject:\n              drivr: {enabled: false}\n",
			judged: true, want: []string{"note not-judged {{ .release }} @10", "note not-judged spec.template.spec.sources[0].helm @12", "error unknown-key drivr @14"}},
		{name: "a template with many values", file: "templates/values.yaml", text: "driver:\n  enabled: {{ .a }}\n  version: {{ .b }}\n  repository: {{ .c }}\n  image: {{ .d }}\n",
			judged: true, want: []string{"note not-judged"}},
		{name: "values of an umbrella chart that sets the release", file: "chart/values.yaml", text: "gpu-operator:\n  cdi:\n    default: true\n",
			beside: map[string]string{"chart/Chart.yaml": "apiVersion: v2\nname: gpus\nversion: 1.0.0\ndependencies:\n  - name: gpu-operator\n    version: v25.10.1\n    repository: https://helm.ngc.nvidia.com/nvidia\n"},
			judged: true, want: []string{"note key-goes cdi.default @3"}},
		{name: "the chart's own values", file: "gpu-operator/values.yaml", text: "cdi:\n  default: true\n",
			beside: map[string]string{"gpu-operator/Chart.yaml": "apiVersion: v2\nname: gpu-operator\nversion: v25.10.1\n"},
			judged: true, want: []string{"note key-goes cdi.default @2"}},
		{name: "values next to a chart that depends on a range", file: "chart/values.yaml", text: "gpu-operator:\n  cdi:\n    default: true\n",
			beside: map[string]string{"chart/Chart.yaml": "name: gpus\ndependencies:\n  - name: gpu-operator\n    version: '>=25'\n"},
			judged: true, want: []string{"note not-judged version @4", "warning key-gone cdi.default @3"}},
		{name: "values of another chart, by its Chart.yaml", file: "chart/values.yaml", text: "driver: {name: smb.csi.k8s.io, replicas: 2}\ntoolkit: {a: b}\n",
			beside: map[string]string{"chart/Chart.yaml": "name: csi-driver-smb\nversion: 1.0.0\n"}},
		{name: "a custom chart with the operator's name", file: "chart/values.yaml", text: "driver: {useOurs: true}\ntoolkit: {enabled: true}\n",
			beside: map[string]string{"chart/Chart.yaml": "name: gpu-operator\nversion: 0.1.0\n"}},
		{name: "upstream's chart in development", file: "chart/values.yaml", text: "driver: {useOurs: true}\ntoolkit: {enabled: true}\n",
			beside: map[string]string{"chart/Chart.yaml": "name: gpu-operator\nversion: v1.0.0-devel\n"}, judged: true, want: []string{"note not-judged version @2", "note unknown-key driver.useOurs @1"}},
		{name: "values of another chart, by its Kustomization", file: "app/values.yaml", text: "driver: {useOurs: true}\ntoolkit: {enabled: true}\n",
			beside: map[string]string{"app/kustomization.yaml": "helmCharts:\n  - {name: csi, valuesFile: values.yaml}\n"}},
		{name: "a command with a custom chart", command: "helm upgrade gpu-operator charts/gpu-operator/ -n gpu-operator --set mig.enabled=true", beside: map[string]string{"charts/gpu-operator/Chart.yaml": "name: gpu-operator\nversion: 0.1.0\n"}},
		{name: "a chart in a missing folder", command: "helm upgrade gpu-operator charts/gpu-operator/ -n gpu-operator --set mig.enabled=true", judged: true, want: []string{"warning unknown-key mig.enabled @1"}},
		{name: "braces of another program", command: "mkdir -p --mode={a,b} /a/{b,c}\ncp f{,.bak}\nhelm repo add nvidia https://helm.ngc.nvidia.com/nvidia", judged: true},
		{name: "an associative array", command: "declare -A m\necho \"${m[gpu node]}\"\nhelm list", want: []string{"note not-judged @2"}},
		{name: "an unrelated script with an unterminated quote", command: "echo 'a\n", want: []string{"note not-judged @1"}},
		{name: "a command with an unterminated quote", command: "helm install 'a\n", want: []string{"error shell-syntax @1"}},
		{name: "a here-document with escapes", command: "kubectl apply -f - <<EOF\napiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: {x: \"\\$HOME\", y: \"\\`\", \\\n  z: \"\\\\n\"}}\nspec: {containers: [{name: a, image: b, resources: {limits: {nvidia.com/gpu: 0.5}}}]}\nEOF\n",
			judged: true, want: []string{"error gpu-integer container a: limits.nvidia.com/gpu @6"}},
		{name: "a quoted here-document", command: "kubectl apply -f - <<'EOF'\napiVersion: v1\nkind: Pod\nmetadata: {name: \"\\$HOME\"}\nspec: {}\nEOF\n",
			judged: true, want: []string{"error yaml-syntax @4"}},
		{name: "a script that is sourced", command: "# What\n# kubectl said about 'it\nf() { out=\"$(kubectl get pods)\"; }\n"},
		{name: "a comment with a placeholder", command: "sudo bash setup.sh\n# kubectl describe pods <your_node>\n"},
		{name: "a command after a $ prompt", command: "$ helm install g nvidia/gpu-operator \\\n  --set drivr.enabled=false\n", want: []string{"note not-judged"}},
		{name: "a PowerShell command", command: "helm install g nvidia/gpu-operator `\n  --set drivr.enabled=false\n", want: []string{"note not-judged"}},
		{name: "arguments to fill in", command: "helm template nim nvidia/k8s-nim-operator --version <selected-version> \\\n  <approved-values>", want: []string{"error placeholder <selected-version> @1", "error placeholder <approved-values> @2"}},
		{name: "an array used only if it is set", command: "A=()\nA+=(--set \"mig.strategy=mixd\")\nhelm upgrade -i gpu-operator nvidia/gpu-operator -n gpu-operator --version v26.7.0 ${B[*]:+x} ${A[@]+\"${A[@]}\"}",
			judged: true, want: []string{"error wrong-value mig.strategy @2", "note not-judged ${B[*]:+x} @3"}},
		{name: "Ansible's command has no shell", file: "tasks.yaml", text: "- command: |\n    helm upgrade -i gpu-operator nvidia/gpu-operator\n      -n gpu-operator --version v26.7.0 \\\n      --set driver.imagePullSecrets={a,b} \\ --set 'psa.enabled={a,b}'\n      --set drivr.enabled=false\n",
			judged: true, want: []string{"error wrong-type psa.enabled @4", "error unknown-key drivr @5"}},
		{name: "Ansible's folded shell", file: "tasks.yaml", text: "- shell: >\n    helm upgrade --install g \\\n    {{ chart }} \n    --namespace gpu-operator\n- shell: 'for ip in a b;do \\\n    kubectl label node $ip nvidia.com/mig.confg=all-disabled --overwrite; \\\n    done'\n",
			judged: true, want: []string{"note not-judged", "error unknown-label nvidia.com/mig.confg @5"}},
		{name: "flags of another program, and a backslash at the end", command: "docker run\n  --rm \\\n\n  --x\nsudo -E helm upgrade g nvidia/gpu-operator -n gpu-operator --version v26.7.0\n  --set drivr.enabled=false \\", judged: true,
			want: []string{"error broken-continuation --set @6", "error unknown-key drivr @6"}},
		{name: "a line of a templatefile", file: "pool.yaml", text: "apiVersion: karpenter.sh/v1\nkind: NodePool\nspec:\n  ${snapshot_line}\n  a: b\n", want: []string{"note not-judged"}},
		{name: "a GPUCluster exists, whatever the chart's default", file: "cluster.yaml", text: "apiVersion: nvidia.com/v1alpha1\nkind: GPUCluster\nmetadata: {name: a}\nspec:\n  draDriver:\n    gpus: {kubeletPlugin: {resources: {}}}\n  hostPaths: {rootFS: /}\n",
			judged: true, want: []string{"error unknown-field spec.hostPaths.rootFS @7"}},
		{name: "versions of disabled components in a mirror's list", file: "values.yaml", text: "driver: {repository: r.example.com/nvidia}\ntoolkit: {repository: r.example.com/nvidia}\ngfd: {repository: r.example.com/nvidia}\nkataManager: {repository: r.example.com/nvidia, image: k8s-kata-manager, version: v0.2.3}\n", judged: true},
		{name: "values of the network operator", file: "values.yaml", text: "deployCR: true\nnfd: {enabled: true}\nsriovNetworkOperator: {enabled: true}\n"},
		{name: "an assertion about a pod", file: "assert.yaml", text: "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nstatus: {phase: Running}\n", judged: true},
		{name: "Nodes that a script makes", command: "kubectl apply -f - <<EOF\napiVersion: v1\nkind: Node\nmetadata: {name: fake}\nspec: {taints: [{key: fake, effect: NoSchedule}]}\nstatus: {capacity: {nvidia.com/gpu: 1}, allocatable: {nvidia.com/gpu: 1}}\n---\napiVersion: v1\nkind: Pod\nspec: {containers: [{name: a, image: b, resources: {limits: {nvidia.com/gpu: 1}}}]}\nEOF\n",
			judged: true},
		{name: "Jinja between continued lines", command: "helm install a \\\n{% if b %}\n  --set c=d \\\n{% endif %}\n  --wait\n", want: []string{"note not-judged"}},
		{name: "Terraform's joined lists", file: "main.tf", text: "resource \"helm_release\" \"gpu\" {\n  name = \"gpu-operator\"\n  chart = \"gpu-operator\"\n  version = \"v26.7.0\"\n  values = compact(concat([\n    var.file != null && var.file != \"\" ?\n      file(var.file) : null,\n  ], [yamlencode({ drivr = { enabled = false } })]))\n}\n",
			judged: true, want: []string{"note not-judged helm_release gpu @7", "error unknown-key drivr @8"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := lint.Options{Command: tt.command, Read: func(_, name string) ([]byte, error) {
				if text, ok := tt.beside[name]; ok {
					return []byte(text), nil
				}
				return nil, os.ErrNotExist
			}}
			if tt.file != "" {
				o.Files = []lint.Input{{Name: tt.file, Data: []byte(tt.text)}}
			}
			result := judge(t, o)
			if diff := cmp.Diff(tt.want, brief(result.Report)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got := result.Judged > 0; got != tt.judged {
				t.Errorf("checked something = %t, want %t", got, tt.judged)
			}
		})
	}
}

// Findings name the script or the command that they are about.
func TestScriptsAmongTheFiles(t *testing.T) {
	script := func(name, text string) lint.Input {
		return lint.Input{Name: name, Data: []byte(text), Script: true}
	}
	result := judge(t, lint.Options{Files: []lint.Input{
		script("a.sh", "helm install gpu-operator nvidia/gpu-operator -n gpu-operator --version v26.7.0 --set drivr.enabled=false"),
		script("b.sh", "kubectl apply -f - <<EOF\napiVersion: nvidia.com/v1alpha1\nkind: NVIDIADriver\nmetadata:\n  name: a\nspec:\n  imag: driver\nEOF\n"),
		script("c.sh", "echo nothing"),
	}, Command: "kubectl label node n nvidia.com/mig.confg=all-1g.10gb --overwrite"})
	var got []string
	for _, f := range result.Report.Findings {
		got = append(got, f.File+" "+f.Check.ID)
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"a.sh unknown-key", "b.sh unknown-field", "command unknown-label"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"c.sh"}, result.Unjudged); diff != "" {
		t.Errorf("unjudged (-want +got):\n%s", diff)
	}
	if want := "kubectl label node n nvidia.com/mig.confg=all-1g.10gb --overwrite"; result.Corrected != want {
		t.Errorf("corrected command = %q, want %q", result.Corrected, want)
	}
}

// In a searched folder, gpuop checks only the files that are for the operator.
func TestFilesOfAFolder(t *testing.T) {
	file := func(name, text string) lint.Input { return lint.Input{Name: name, Data: []byte(text), Found: true} }
	result := judge(t, lint.Options{Files: []lint.Input{
		file("Chart.yaml", "apiVersion: v2\nname: a\nversion: 1.0.0\n"),
		file("tasks.yaml", "- name: a\n  debug: {}\n"),
		file("values.yaml", "drivr:\n  enabled: false\n"),
		file("broken.yaml", "nvidia: [\n"),
		file("other.yaml", "a: [\n"),
		file("job.yaml", "kind: Job\nmetadata: {name: @@NAME@@ # gpu\n"),
		file("launch.json", "// gpu\n{\"a\": 1 /* nvidia */}\n"),
		file("near.yaml", "vsp: {enabled: true}\noperator: {image: {tag: v1}, replicas: 2}\nimage: nvidia\n"),
		file("network.yaml", "nfd: {deployNodeFeatureRules: true, enabled: true}\nnvidia: a\n"),
		file("flags.yaml", "flags: {gpu: true, migStrategy: all}\n"),
		file("kyverno.yaml", "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nspec: {nvidia: 1}\n"),
		file("near-group.yaml", "apiVersion: nvidia.co/v1\nkind: ClusterPolicy\nspec: {nvidia: 1}\n"),
		file("umbrella.yaml", "gpu-operator: {deviceConfig: {}, kmm: {enabled: true}}\n"),
		file("own/values.yaml", "driver: {enabled: false}\ntoolkit: {enbaled: false}\n"),
		file("other-vendor.yaml", "version: v1\nsharing: {timeSlicing: {resources: [{name: gpu.example.com/gpu, replicas: 10}]}}\n"),
		file("policy.yaml", "apiVersion: nvidia.com/v1\nkind: ClusterPolicy\nspec: [\n"),
	}})
	if diff := cmp.Diff([]string{"error yaml-syntax @3", "error unknown-key toolkit.enbaled @2"}, brief(result.Report)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(14, len(result.Unjudged)); diff != "" {
		t.Errorf("unjudged (-want +got):\n%s", diff)
	}
}

// A values file that another file of the folder uses is checked once, for the release of that file.
func TestUsedValuesAreCheckedOnce(t *testing.T) {
	const values = "gds: {enabled: false}\nwait: true\ntoolkit: {enabled: true}\n"
	for name, text := range map[string]string{
		"main.tf":    "resource \"helm_release\" \"gpu\" {\n  chart = \"gpu-operator\"\n  version = \"v24.9.2\"\n  values = [file(\"gpu.yaml\")]\n}\n",
		"install.sh": "#!/bin/sh\nhelm install g nvidia/gpu-operator -n gpu-operator --version v24.9.2 -f ./gpu.yaml\n",
	} {
		t.Run(name, func(t *testing.T) {
			result := judge(t, lint.Options{
				Files: []lint.Input{
					{Name: "gpu.yaml", Data: []byte(values), Found: true},
					{Name: name, Data: []byte(text), Found: true, Script: name == "install.sh"},
				},
				Read: func(_, name string) ([]byte, error) {
					if strings.TrimPrefix(name, "./") != "gpu.yaml" {
						return nil, os.ErrNotExist
					}
					return []byte(values), nil
				},
			})
			var reasons []string
			for _, f := range result.Report.Findings {
				reasons = append(reasons, f.Reason)
			}
			want := []string{"no version of the chart has this key; v24.9.2 silently ignores it"}
			if diff := cmp.Diff(want, reasons); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if len(result.Unjudged) > 0 {
				t.Errorf("unjudged inputs = %v, want none", result.Unjudged)
			}
		})
	}
}

// The column of a finding inside a block of text counts from the start of the file's line.
func TestColumnsInsideABlock(t *testing.T) {
	const text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  any: |\n    version: v1\n    sharing:\n      timeSlicing:\n        resources:\n        - name: nvidia.com/gpu\n          replicas: 1\n"
	for name, o := range map[string]lint.Options{
		"in a ConfigMap":     {Files: []lint.Input{{Name: "a.yaml", Data: []byte(text)}}},
		"in a here-document": {Command: "kubectl apply -f - <<'EOF'\n" + text + "EOF\n"},
	} {
		result := judge(t, o)
		if len(result.Report.Findings) != 1 {
			t.Fatalf("%s: findings = %v, want one", name, brief(result.Report))
		}
		if got, want := result.Report.Findings[0].Column, 21; got != want {
			t.Errorf("%s: column = %d, want %d", name, got, want)
		}
	}
}

// --fix leaves variables, placeholders and values that it cannot parse as they are.
func TestFixKeepsWhatIsNotKnown(t *testing.T) {
	for _, command := range []string{
		"helm install gpu-operator nvidia/gpu-operator --namespace=$SPACE --version=${RELEASE} --set=driver.version=$DRIVER",
		`helm install gpu-operator nvidia/gpu-operator -n gpu-operator "--version=$RELEASE" "--set=driver.version=$DRIVER"`,
		`helm install gpu-operator nvidia/gpu-operator -n gpu-operator --version v26.7.0 --set toolkit.env[0].name=A --set toolkit.env[0].value="b,c"`,
		"helm install gpu-operator nvidia/gpu-operator -n gpu-operator --version <release> --set driver.version=<version>",
	} {
		result := judge(t, lint.Options{Command: command})
		if result.Corrected != command {
			t.Errorf("%s was corrected to %s, want no change", command, result.Corrected)
		}
	}
}

// For an unknown key, the fix is a similar key or, without one, the keys of the same group.
func TestAnswersToUnknownKeys(t *testing.T) {
	for key, want := range map[string]string{
		"driver.repoConfig.name":               "did you mean driver.repoConfig.configMapName?",
		"driver.licensingConfig.secret":        "did you mean driver.licensingConfig.secretName?",
		"driver.licensingConfig.Name":          "driver.licensingConfig has the keys ",
		"dcgmExporter.arguments":               "did you mean dcgmExporter.args?",
		"driver.upgradePolicy.drain.timeout":   "did you mean driver.upgradePolicy.drain.timeoutSeconds?",
		"migManager.strategy":                  "did you mean mig.strategy?",
		"node-feature-discovery.tolerations":   "did you mean node-feature-discovery.worker.tolerations?",
		"toolkit.enbaled":                      "did you mean toolkit.enabled?",
		"driver.upgradePolicy.drain.something": "driver.upgradePolicy.drain has the keys deleteEmptyDir, enable, force, podSelector, timeoutSeconds",
	} {
		result := judge(t, lint.Options{Command: "helm install gpu-operator nvidia/gpu-operator -n gpu-operator --version v26.7.0 --set " + key + "=a"})
		if rows := result.Report.Findings; len(rows) != 1 || !strings.HasPrefix(rows[0].Fix, want) {
			t.Errorf("%s: findings = %+v, want one with a fix that begins with %q", key, rows, want)
		}
	}
}
