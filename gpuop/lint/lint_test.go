package lint_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/lint"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/material"
)

func judge(t testing.TB, o lint.Options) *lint.Result {
	t.Helper()
	o.Fix = true
	result, err := lint.Lint(o)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// brief formats each finding as "severity check subject @line".
func brief(r check.Report) []string {
	var out []string
	for _, f := range r.Findings {
		line := ""
		if f.Line > 0 {
			line = fmt.Sprintf(" @%d", f.Line)
		}
		subject := ""
		if f.Subject != "" {
			subject = " " + f.Subject
		}
		out = append(out, fmt.Sprintf("%s %s%s%s", f.Severity.String(), f.Check.ID, subject, line))
	}
	return out
}

func installCommand(t testing.TB) string {
	t.Helper()
	data, err := os.ReadFile("testdata/install.sh")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestInstallCommandOfTheArticle lints a faulty install command from a published article, testdata/install.sh. Each row
// names a mistake of the article and the finding for it.
func TestInstallCommandOfTheArticle(t *testing.T) {
	type rows []struct{ row, want string }
	for _, tt := range []struct {
		version string
		rows    rows
	}{
		{"", rows{
			{"(a) namespace gpu-opeator", "error namespace -n gpu-opeator @1"},
			{"(b) backslash and spaces do not continue a line", `error escaped-space \  @1`},
			{"(h) operator.defaultRuntime gone v25.3", "note key-goes operator.defaultRuntime @1"},
			{"(c) usePrecompiled unknown to v1.11.0", "error key-not-yet driver.usePrecompiled @1"},
			{"(e) a branch, not 525.105.17", "error precompiled-version driver.version @1"},
			{"(d) driver.version dead with driver.enabled=false", "warning dead-setting driver.version @1"},
			{"(d) toolkit.* dead with toolkit.enabled=false", "warning dead-setting toolkit.repository, toolkit.image, toolkit.version @1"},
			{"(g) enabled keys added in v22.9.0", "note key-not-yet devicePlugin.enabled, dcgmExporter.enabled, gfd.enabled @1"},
			{"(i) operand versions outside the matrix", "note operand-version dcgmExporter.version @1"},
			{"(f) validator.image.* breaks the image", "error below-a-value validator.image @1"},
		}},
		{"v26.7.0", rows{
			{"(a) namespace gpu-opeator", "error namespace -n gpu-opeator @1"},
			{"(b) backslash and spaces do not continue a line", `error escaped-space \  @1`},
			{"(h) operator.defaultRuntime gone v25.3", "note key-gone operator.defaultRuntime @1"},
			{"(d) driver.* dead with driver.enabled=false", "warning dead-setting driver.usePrecompiled, driver.version @1"},
			{"(e) a branch, not 525.105.17", "error precompiled-version driver.version @1"},
			{"(d) toolkit.* dead with toolkit.enabled=false", "warning dead-setting toolkit.repository, toolkit.image, toolkit.version @1"},
			{"(i) device plugin outside the matrix", "warning operand-version devicePlugin.version @1"},
			{"(i) exporter outside the matrix", "warning operand-version dcgmExporter.version @1"},
			{"(j) gfd.version is of the old image", "warning operand-version gfd.version @1"},
			{"(i) MIG manager outside the matrix", "warning operand-version migManager.version @1"},
			{"the static MIG configs", "warning old-default migManager.config.name @1"},
			{"(i) Node Feature Discovery outside the matrix", "warning operand-version node-feature-discovery.image.tag @1"},
			{"(f) validator.image.* breaks the image", "error below-a-value validator.image @1"},
		}},
	} {
		t.Run("for "+tt.version, func(t *testing.T) {
			got := brief(judge(t, lint.Options{Version: tt.version, Command: installCommand(t)}).Report)
			var want []string
			for _, r := range tt.rows {
				want = append(want, r.want)
				if !slices.Contains(got, r.want) {
					t.Errorf("%s: findings = %q, want %q among them", r.row, got, r.want)
				}
			}
			slices.Sort(want)
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestInstallCommandIsCorrected lints the command of the article after --fix. Only validator.image is still reported,
// because it has several possible corrections.
func TestInstallCommandIsCorrected(t *testing.T) {
	for _, version := range []string{"", "v22.9.2", "v24.3.0", "latest"} {
		corrected := judge(t, lint.Options{Version: version, Command: installCommand(t)}).Corrected
		var left []string
		for _, row := range judge(t, lint.Options{Command: corrected}).Report.Findings {
			if row.Severity >= check.Warning {
				left = append(left, row.Check.ID+" "+row.Subject)
			}
		}
		if diff := cmp.Diff([]string{"below-a-value validator.image"}, left); diff != "" {
			t.Errorf("version %q: findings after --fix (-want +got):\n%s\ncorrected command:\n%s", version, diff, corrected)
		}
		if version == "latest" {
			for _, want := range []string{"--version v26.7.0", "mig.strategy=mixed", "driver.enabled=false", "dcgmExporter.repository=registry.example.com:5000/nvidia/k8s"} {
				if !strings.Contains(corrected, want) {
					t.Errorf("corrected command lacks %s:\n%s", want, corrected)
				}
			}
		}
	}
}

func TestUpstreamsValuesAreClean(t *testing.T) {
	data, err := os.ReadFile(material.Path(t, "data/upstream/gpu-operator-v26.7.0/values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	got := judge(t, lint.Options{Version: "v26.7.0", Files: []lint.Input{{Name: "values.yaml", Data: data}}})
	if diff := cmp.Diff([]string(nil), brief(got.Report)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

type input struct {
	row  string
	text string
	// command means that the text is a shell command, not a file.
	command bool
	version string
	want    []string
}

func (in input) run(t *testing.T) {
	t.Helper()
	o := lint.Options{Version: in.version}
	if in.command {
		o.Command = in.text
	} else {
		o.Files = []lint.Input{{Name: "file", Data: []byte(in.text)}}
	}
	if diff := cmp.Diff(in.want, brief(judge(t, o).Report)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSeedRows(t *testing.T) {
	for _, tt := range []input{
		{row: "GPUDirect RDMA, GDS, GDRCopy", text: "gds: {enabled: true}\ndriver:\n  kernelModuleType: proprietary\n  rdma: {useHostMofed: true}\n",
			want: []string{"error excludes driver.kernelModuleType @3", "warning dead-setting driver.rdma.useHostMofed @4"}},
		{row: "precompiled excludes GDS", text: "driver: {usePrecompiled: true, version: '580'}\ngds:\n  enabled: true\n",
			want: []string{"error excludes gds.enabled @3"}},
		{row: "helm repo add of the old address", command: true, text: "helm repo add nvidia https://nvidia.github.io/gpu-operator\nhelm repo update\n",
			want: []string{"warning stale-repository https://nvidia.github.io/gpu-operator @1"}},
		{row: "namespace and install", command: true, text: "kubectl create namespace gpu-operator\nhelm install --namespace gpu-operator gpu-operator nvidia/gpu-operator\n"},
		{row: "vectorAdd pod, indentation lost", command: true,
			text: "cat << EOF | kubectl create -f -\napiVersion: v1\nkind: Pod\nmetadata:\nname: cuda-vectoradd\nspec:\nrestartPolicy: OnFailure\ncontainers:\n- name: cuda-vectoradd\nimage: \"nvidia/samples:vectoradd-cuda11.2.1\"\nresources:\nlimits:\nnvidia.com/gpu: 1\nEOF\n",
			want: []string{"error no-pod-spec spec @2"}},
		{row: "ClusterPolicy, gpuFeatureDiscovery is gfd", text: "apiVersion: nvidia.com/v1\nkind: ClusterPolicy\nmetadata: {name: cluster-policy}\nspec:\n  operator: {}\n  driver: {enabled: true}\n  toolkit: {}\n  devicePlugin: {configg: {}}\n  mig: {strategy: singel}\n  gpuFeatureDiscovery: {}\n  gfd: {}\n  dcgm: {}\n  dcgmExporter: {}\n  daemonsets: {}\n  nodeStatusExporter: {}\n",
			want: []string{"error unknown-field spec.devicePlugin.configg @8", "error wrong-value spec.mig.strategy @9", "error unknown-field spec.gpuFeatureDiscovery @10"}},
		{row: "removed and dead keys, one row for each reason", text: "driver:\n  enabled: true\n  tolerations: []\ntoolkit:\n  tolerations: []\n  enabled: true\ndcgm:\n  enabled: false\n  resources:\n    requests: {cpu: 10m, memory: 50Mi}\n    limits: {cpu: 10m}\n",
			want: []string{"warning key-gone driver.tolerations, toolkit.tolerations @3", "warning dead-setting dcgm.resources.requests.cpu, dcgm.resources.requests.memory, dcgm.resources.limits.cpu @10"}},
		{row: "ClusterPolicy of an old release", text: "apiVersion: nvidia.com/v1\nkind: ClusterPolicy\nmetadata: {name: cluster-policy}\nspec:\n  operator:\n    validator: {version: v1}\n  driver:\n    rollingUpdate: {maxUnavailable: 1}\n  toolkit: {version: 1.4.3-ubi8}\n  devicePlugin: {version: v0.7.3}\n  gfd:\n    migStrategy: single\n  dcgm: {}\n  dcgmExporter: {}\n  daemonsets: {}\n  nodeStatusExporter: {}\n",
			want: []string{"error unknown-field spec.operator.validator, spec.gfd.migStrategy @6", "warning unknown-field spec.driver.rollingUpdate @8", "warning operand-version spec.toolkit.version, spec.devicePlugin.version @9"}},
		{row: "NVIDIADriver, deploy does not exist", text: "apiVersion: nvidia.com/v1alpha1\nkind: NVIDIADriver\nmetadata: {name: a}\nspec:\n  image: driver\n  driverType: gpu\n  default: true\n  deploy: daemonset\n  nodeSelector: {zone: a}\n",
			want: []string{"error unknown-field spec.deploy @8", "error excludes spec.nodeSelector @9"}},
		{row: "integer-only extended resources", text: "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n    - name: a\n      resources: {limits: {nvidia.com/gpu: 0.5}}\n    - name: b\n      resources: {requests: {nvidia.com/gpu: 1}}\n    - name: c\n      resources: {requests: {nvidia.com/gpu: 1}, limits: {nvidia.com/gpu: 2}}\n    - name: d\n      resources: {limits: {nvidia.com/gpu.shared: 2, nvidia.com/gpus: 1, nvidia.com/mig-1g.5gb: 1, nvidia.com/mig-1g.5g: 1}}\n",
			want: []string{"error gpu-integer container a: limits.nvidia.com/gpu @6", "error gpu-limits container b: requests.nvidia.com/gpu @8", "error gpu-limits container c: requests.nvidia.com/gpu @10",
				"error gpu-resource container d: limits.nvidia.com/gpus @12", "error gpu-resource container d: limits.nvidia.com/mig-1g.5g @12"}},
		{row: "an amount that is missing", text: "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n    - name: a\n      resources:\n        limits:\n          nvidia.com/gpu:\n", want: []string{"error gpu-integer container a: limits.nvidia.com/gpu @8"}},
		{row: "resources of HAMi's device plugin", text: "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n    - name: a\n      resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 3000, nvidia.com/gpucores: 30}}\n"},
		{row: "config file of the device plugin, dead under the operator", text: "version: v1\nflags:\n  migStrategy: \"none\"\n  plugin:\n    deviceListStrategy: \"envvar\"\n",
			want: []string{"note sharing-dead flags.migStrategy @3", "note sharing-dead flags.plugin.deviceListStrategy @5"}},
		{row: "failRequestGreaterThanOne, a misspelled key", text: "version: v1\nsharing:\n  timeSlicing:\n    failRequestGreaterThanOne: true\n    resources:\n    - name: nvidia.com/gpu\n      replicas: 5\n",
			want: []string{"error unknown-key sharing.timeSlicing.failRequestGreaterThanOne @4"}},
		{row: "trailing ... of the examples", text: "version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - name: nvidia.com/gpu\n      replicas: 5\n    ...\n",
			want: []string{"error yaml-ellipsis ... @7"}},
		{row: "here-document, then the plugin's own chart", command: true, text: "cat << EOF > /tmp/dp.yaml\nversion: v1\nflags:\n  migStrategy: none\nsharing:\n  timeSlicing:\n    resources:\n    - name: nvidia.com/gpu\n      replicas: 1\nEOF\nhelm install nvdp nvdp/nvidia-device-plugin --version=0.12.2 --namespace nvidia-device-plugin --create-namespace --set gfd.enabled=true --set-file config.map.config=/tmp/dp.yaml\n",
			want: []string{"note sharing-dead flags.migStrategy @4", "error sharing-replicas sharing.timeSlicing.resources[0].replicas @9"}},
		{row: "a selector given with -l is not a label", command: true,
			text: "kubectl label node --overwrite -l nvidia.com/mig.confg=a nvidia.com/mig.config=all-disabled\n"},
		{row: "a selector is not a label", command: true, text: "kubectl label node --overwrite --selector=nvidia.com/gpu.product=A100-SXM4-80GB nvidia.com/device-plugin.config=a100-80gb-config\n"},
		{row: "keys that v26.7.0 no longer has", version: "v26.7.0", text: "cdi: {enabled: true, default: false}\npsp: {enabled: false}\ndaemonsets: {labels: {a: b}, annotations: {}}\noperator: {labels: {a: b}}\ntoolkit: {enabled: true}\n",
			want: []string{"note key-gone cdi.default @1", "note key-gone psp.enabled @2"}},
		{row: "toolkit.enabled twice", command: true, text: "helm install gpu-operator nvidia/gpu-operator -n gpu-operator --set toolkit.enabled=true,toolkit.enabled=false\n",
			want: []string{"warning set-twice toolkit.enabled @1"}},
		{row: "MIG manager's ConfigMap", text: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: mig, namespace: gpu-opeator}\ndata:\n  mig.yaml: |\n    version: v1\n    mig-configs:\n      all-1g.10gb:\n        - devices: all\n          mig-enabled: true\n          mig-devices: {\"1g.10gb\": 8}\n",
			want: []string{"error config-map data.mig.yaml @5", "error mig-does-not-fit data.mig.yaml: mig-configs.all-1g.10gb[0].mig-devices @11"}},
	} {
		t.Run(tt.row, tt.run)
	}
}

func TestTraps(t *testing.T) {
	const kubevirt, kata = "sandboxWorkloads: {enabled: true}\n", "sandboxWorkloads: {enabled: true, mode: kata}\n"
	for _, tt := range []input{
		{row: "the confidential computing manager runs only in mode kata", text: kubevirt + "ccManager: {enabled: true, defaultMode: 'off'}\n", want: []string{"warning dead-setting ccManager.defaultMode @2"}},
		{row: "the confidential computing manager runs in mode kata", text: kata + "ccManager: {enabled: true, defaultMode: 'off'}\n"},
		{row: "the confidential computing manager runs in releases without modes", version: "v25.10.0", text: kubevirt + "ccManager: {enabled: true, defaultMode: 'off'}\n"},
		{row: "the sandbox device plugin has no effect in mode kata", text: kata + "sandboxDevicePlugin: {resources: {limits: {cpu: 1}}}\n", want: []string{"warning dead-setting sandboxDevicePlugin.resources.limits.cpu @2"}},
		{row: "v26.7.0 ignores the kata manager", text: kubevirt + "kataManager: {enabled: true}\n", want: []string{"warning dead-setting kataManager.enabled @2"}},
		{row: "v26.3.3 uses the kata manager", version: "v26.3.3", text: kubevirt + "kataManager: {enabled: true}\n"},
		{row: "usePrecompiled with the chart's default version", text: "driver: {usePrecompiled: true}\n", want: []string{"error precompiled-version driver.usePrecompiled @1"}},
		{row: "usePrecompiled with the chart's default version, as a flag", command: true, text: "helm install g nvidia/gpu-operator -n gpu-operator --create-namespace --set driver.usePrecompiled=true",
			want: []string{"error precompiled-version driver.usePrecompiled @1"}},
		{row: "a former path of NVIDIA's image", version: "v26.7.0", text: "validator: {repository: nvcr.io/nvidia/cloud-native}\n", want: []string{"error old-default validator.repository @1"}},
		{row: "a mirror with the former path", version: "v26.7.0", text: "validator: {repository: mirror.example.com/nvidia/cloud-native}\n", want: []string{"warning old-default validator.repository @1"}},
		{row: "usePrecompiled without a driver container", text: "driver: {enabled: false, usePrecompiled: true}\n", want: []string{"warning dead-setting driver.usePrecompiled @1"}},
		{row: "misspelled keys are not reported again as dead settings", command: true, text: "helm install gpu-operator nvidia/gpu-operator -n gpu-operator --set drivr.enabled=false --set mig.stratgey=mixed",
			want: []string{"error unknown-key drivr @1", "error unknown-key mig.stratgey @1"}},
		{row: "an unknown operator of a toleration", text: "daemonsets: {tolerations: [{key: a, operator: Exist}]}\n", want: []string{"error wrong-value daemonsets.tolerations[0].operator @1"}},
		{row: "an unknown operator of a toleration, in a flag", command: true, text: "helm install g nvidia/gpu-operator -n gpu-operator --set daemonsets.tolerations[0].operator=Exist", want: []string{"error wrong-value daemonsets.tolerations[0].operator @1"}},
		{row: "nvidia.com resources of other device plugins", text: "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n    - name: a\n      resources: {limits: {nvidia.com/roce: 1, nvidia.com/gpu-10gb: 1}}\n"},
		{row: "NVIDIA_VISIBLE_DEVICES next to a GPU limit", text: "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n    - name: a\n      env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]\n      resources: {limits: {nvidia.com/gpu: 1}}\n",
			want: []string{"warning visible-devices container a: NVIDIA_VISIBLE_DEVICES @6"}},
		{row: "a Node manifest without a status", text: "apiVersion: v1\nkind: Node\nmetadata: {name: n, labels: {nvidia.com/gpu.present: \"true\"}}\n"},
		{row: "a group emptied by wrong indentation", text: "validator:\n  plugin:\n  env: [{name: WITH_WORKLOAD, value: \"false\"}]\n", want: []string{"note null-group validator.plugin @2"}},
		{row: "the DRA driver by its short name", text: "dra: {enabled: true}\ndriver: {enabled: true}\ntoolkit: {enabled: true}\n", want: []string{"error unknown-key dra @1"}},
		{row: "custom tags of precompiled drivers", text: "driver: {usePrecompiled: true, repository: r.example.com/drivers, version: 580.173.02}\n"},
		{row: "image names of a mirror", text: "driver: {repository: ghcr.io, image: a/nvidia-driver}\ntoolkit: {repository: r.example.com, image: container_toolkit.x}\n"},
		{row: "an image with the whole reference", text: "dcgmExporter: {repository: \"\", version: \"\", image: r.example.com/dcgm-exporter@sha256:abc}\n"},
		{row: "a tag in the image's name", text: "dcgmExporter: {repository: r.example.com, image: dcgm-exporter:4.5}\n", want: []string{"error image dcgmExporter.image @1"}},
		{row: "the registry twice", text: "dcgmExporter: {repository: nvcr.io/nvidia/k8s, image: nvcr.io/nvidia/k8s/dcgm-exporter}\n", want: []string{"error image dcgmExporter.image @1"}},
		{row: "a partial ClusterPolicy", text: "apiVersion: nvidia.com/v1\nkind: ClusterPolicy\nmetadata: {name: cluster-policy}\nspec: {driver: {enabled: false}}\n",
			want: []string{"warning missing-field spec.daemonsets, spec.dcgm, spec.dcgmExporter, spec.devicePlugin, spec.gfd, spec.nodeStatusExporter, spec.operator, spec.toolkit @4"}},
		{row: "a command without a namespace", command: true, text: "helm install gpu-operator nvidia/gpu-operator", want: []string{"warning namespace helm install @1"}},
		{row: "chart versions are not values", text: "gpu-operator: {\"22.9\": 22.9.2, \"25.3\": 25.3.4}\n", want: []string{"note unknown-kind @1"}},
		{row: "a wrapper chart with the chart's name", text: "gpu-operator:\n  gpu-operator:\n    drivr: {enabled: false}\n", want: []string{"error unknown-key drivr @3"}},
		{row: "a chart that does not exist", command: true, text: "helm install g nvidia/gpu-oprator -n gpu-operator", want: []string{"error unknown-chart nvidia/gpu-oprator @1"}},
		{row: "typographic quotes", command: true, text: "helm install g nvidia/gpu-operator -n gpu-operator –-set “a=b”",
			want: []string{"error lookalike – @1", "error lookalike “ @1", "error unknown-key a @1"}},
		{row: "settings that exclude each other", text: "clusterPolicy: {deployCR: true}\ngpuCluster: {deployCR: true}\ncdi: {enabled: false, nriPluginEnabled: true}\n",
			want: []string{"error excludes gpuCluster.deployCR @2", "error excludes gpuCluster.deployCR, clusterPolicy.deployCR @2", "error excludes cdi.nriPluginEnabled, cdi.enabled @3"}},
		{row: "config.create needs name and data", text: "devicePlugin: {config: {create: true}}\n",
			want: []string{"error config-map devicePlugin.config.create @1", "warning config-map devicePlugin.config.create @1"}},
		{row: "the default selects no config; the config in the values is checked", text: "devicePlugin:\n  config:\n    create: true\n    name: c\n    default: anny\n    data:\n      any: |\n        version: v1\n        sharing:\n          timeSlicing:\n            resources:\n              - name: gpu\n                replica: 2\n",
			want: []string{"error config-map devicePlugin.config.default @5", "error sharing-replicas devicePlugin.config.data.any: sharing.timeSlicing.resources[0] @12", "error unknown-key devicePlugin.config.data.any: sharing.timeSlicing.resources[0].replica @13"}},
		{row: "a registry and a tag in image, a URL in repository", text: "driver: {image: nvcr.io/nvidia/driver:580, repository: https://nvcr.io/nvidia/}\n",
			want: []string{"error image driver.image @1", "error image driver.repository @1"}},
		{row: "values of the wrong type", text: "driver: true\nmig: {strategy: Mixed}\ntoolkit: {enabled: yess}\ndaemonsets: {tolerations: none}\n",
			want: []string{"error wrong-type driver @1", "error wrong-value mig.strategy @2", "error wrong-value toolkit.enabled @3", "error wrong-type daemonsets.tolerations @4"}},
		{row: "a copy of a default is not a dead setting", text: "dcgm: {enabled: false, version: 4.6.0-1-ubuntu24.04}\nvgpuManager: {image: vgpu-manager}\n"},
		{row: "configs of other managers are not the device plugin's", text: "version: v1\nvgpu-configs: {}\n---\nversion: v1\nsystemd-services: []\n"},
		{row: "values below another tool's key", text: "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: gpu-operator}\nspec:\n  valuesContent: |\n    drivr: {}\n",
			want: []string{"error unknown-key valuesContent @5"}},
		{row: "values of k3s, as a string and as keys", text: "apiVersion: helm.cattle.io/v1\nkind: HelmChart\nmetadata: {name: gpu-operator}\nspec:\n  values: {drivr: {}}\n  valuesContent: |\n    toolkt: {}\n",
			want: []string{"error unknown-key drivr @5", "error unknown-key toolkt @7"}},
		{row: "an unknown kind of document", text: "hello: world\n", want: []string{"note unknown-kind @1"}},
		{row: "invalid YAML", text: "a: [\n", want: []string{"error yaml-syntax @1"}},
	} {
		t.Run(tt.row, tt.run)
	}
}

// References to a config or ConfigMap are compared with the ConfigMaps of the input. NVIDIA's time-slicing
// documentation has such scripts.
func TestConfigsAndWhatNamesThem(t *testing.T) {
	const configMap = "cat <<EOF | kubectl apply -n gpu-operator -f -\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: time-slicing-config}\ndata:\n" +
		"  any: |-\n    version: v1\n    sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}\nEOF\n"
	patch := func(config string) string {
		return configMap + `kubectl patch clusterpolicies.nvidia.com/cluster-policy --type merge -p '{"spec": {"devicePlugin": {"config": ` + config + `}}}'` + "\n"
	}
	install := configMap + "helm install g nvidia/gpu-operator -n gpu-operator --set devicePlugin.config.name=time-slicing-config --set devicePlugin.config.default="
	for _, tt := range []input{
		{row: "a patch with the names of the ConfigMap and its config", command: true, text: patch(`{"name": "time-slicing-config", "default": "any"}`)},
		{row: "a patch with a default that is not in the ConfigMap", command: true, text: patch(`{"name": "time-slicing-config", "default": "all"}`),
			want: []string{"error config-map spec.devicePlugin.config.default @10"}},
		{row: "a patch with a misspelled ConfigMap name", command: true, text: patch(`{"name": "time-slicing-confg", "default": "any"}`),
			want: []string{"error config-map spec.devicePlugin.config.name @10"}},
		{row: "a patch with a ConfigMap that may be in the cluster", command: true, text: patch(`{"name": "of-the-cluster", "default": "all"}`)},
		{row: "flags with the names of the ConfigMap and its config", command: true, text: install + "any\n"},
		{row: "flags with a default that is not in the ConfigMap", command: true, text: install + "anny\n", want: []string{"error config-map devicePlugin.config.default @10"}},
		{row: "a node label with a config that is not in the ConfigMap", command: true, text: configMap + "kubectl label node a --overwrite nvidia.com/device-plugin.config=all\n",
			want: []string{"error config-label nvidia.com/device-plugin.config=all @10"}},
		{row: "a ClusterPolicy with a misspelled ConfigMap name", text: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shares}\ndata:\n  any: |-\n    version: v1\n    sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}\n---\n" +
			"apiVersion: nvidia.com/v1\nkind: ClusterPolicy\nmetadata: {name: cluster-policy}\nspec:\n  operator: {}\n  driver: {}\n  toolkit: {}\n  gfd: {}\n  dcgm: {}\n  dcgmExporter: {}\n" +
			"  daemonsets: {}\n  nodeStatusExporter: {}\n  devicePlugin: {config: {name: share, default: any}}\n", want: []string{"error config-map spec.devicePlugin.config.name @21"}},
	} {
		t.Run(tt.row, tt.run)
	}
	// a ConfigMap in another file may be for another cluster
	file := func(name, text string) lint.Input { return lint.Input{Name: name, Data: []byte(text)} }
	got := judge(t, lint.Options{Files: []lint.Input{file("a.yaml", strings.TrimSuffix(configMap[strings.Index(configMap, "apiVersion"):], "EOF\n")),
		file("b.yaml", "devicePlugin: {config: {name: time-slicing-confg, default: any}}\n")}})
	if got.Judged != 3 || len(got.Report.Findings) > 0 {
		t.Errorf("ConfigMap with a similar name in another file: findings = %v, checked = %d (%v); want none, 3", brief(got.Report), got.Judged, got.Kinds)
	}
}

// Invalid YAML in a here-document of a script file is an error.
func TestHereDocumentOfAScriptFile(t *testing.T) {
	const script = "kubectl create -f - <<X\nkind: ConfigMap\ndata: x\n  any: y\nX\n"
	got := judge(t, lint.Options{Files: []lint.Input{{Name: "install.sh", Data: []byte(script), Script: true}}})
	if diff := cmp.Diff([]string{"error yaml-syntax @4"}, brief(got.Report)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestUnusableOptions(t *testing.T) {
	if _, err := lint.Lint(lint.Options{Version: "v99"}); !errors.Is(err, chart.ErrVersion) {
		t.Errorf("Lint for v99: error = %v, want %v", err, chart.ErrVersion)
	}
}

func TestValuesFilesOfACommand(t *testing.T) {
	result := judge(t, lint.Options{
		Command: "helm upgrade --install gpu-operator nvidia/gpu-operator -n gpu-operator -f my.yaml -f gone.yaml --set toolkit.enabled=$X \\\n  --set mig.strategy=mixd",
		Read: func(_, name string) ([]byte, error) {
			if name == "my.yaml" {
				return []byte("driver:\n  enabled: false\n  version: 580.1.1\n"), nil
			}
			return nil, os.ErrNotExist
		},
	})
	want := []string{"note file-not-read gone.yaml @1", "note not-judged --set toolkit.enabled=$X @1", "error wrong-value mig.strategy @2", "warning dead-setting driver.version @3"}
	if diff := cmp.Diff(want, brief(result.Report)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if want := "--set mig.strategy=mixed"; !strings.Contains(result.Corrected, want) || !strings.Contains(result.Corrected, "toolkit.enabled=$X") {
		t.Errorf("corrected command lacks %s or toolkit.enabled=$X:\n%s", want, result.Corrected)
	}
}

// within checks that a result is consistent: lines are inside the text, and findings have a check and a reason.
func within(t *testing.T, text string, result *lint.Result) {
	t.Helper()
	// YAML has five kinds of line break, and a lone carriage return is one of them
	lines := 1
	for _, end := range []string{"\n", "\r", "\u0085", "\u2028", "\u2029"} {
		lines += strings.Count(text, end)
	}
	for _, f := range result.Report.Findings {
		if f.Line < 0 || f.Line > lines {
			t.Errorf("check %s at line %d, but the input has %d lines", f.Check.ID, f.Line, lines)
		}
		if f.Check.ID == "" || f.Reason == "" {
			t.Errorf("finding lacks an ID or reason: %+v", f)
		}
	}
}

func FuzzFile(f *testing.F) {
	for _, s := range []string{"driver: {enabled: false, version: 1}", "version: v1\nsharing: {mps: {}}", "kind: Pod\nspec: {containers: [{resources: {limits: {nvidia.com/gpu: 0.5}}}]}",
		"a: &a [*a]", "x: &x {y: *x}", "---\n---\nkind: List\nitems: [{kind: Node}]", "Name: x\nLabels: a=b\nCapacity:\n", "mig-configs: {}", "kind: ConfigMap\ndata: {a: 'version: v1'}", "\r0",
		"- helm: {chart_ref: a/gpu-operator, values: [], set_values: [{value: a=b}, {value: =}]}\n- block: [{shell: helm install, command: {argv: [helm, {}]}, k8s: {definition: kind}}]",
		"apiVersion: kustomize.config.k8s.io/v1\nkind: Kustomization\npatches: [{patch: \"- op: a\\n\", target: {kind: ClusterPolicy}}, \"kind: ClusterPolicy\\nspec: {}\"]\npatchesStrategicMerge: {}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		o := lint.Options{Files: []lint.Input{{Name: "f", Data: []byte(text)}}}
		result := judge(t, o)
		within(t, text, result)
		if diff := cmp.Diff(result, judge(t, o)); diff != "" {
			t.Errorf("two runs differ:\n%s", diff)
		}
	})
}

func FuzzCommand(f *testing.F) {
	f.Add("helm install --wait -n gpu-opeator \\  --set a.b={1,2},c=d gpu-operator nvidia/gpu-operator --version v1.11.0")
	f.Add("cat <<EOF | kubectl apply -f -\nkind: Pod\nEOF\nhelm repo add x https://nvidia.github.io/gpu-operator")
	f.Add("kubernetes lable nodes <node> nvidia.com/mig.config=all-1g.10gb")
	f.Add("$ helm upgrade -i g oci://x/gpu-operator-v26.7.0.tgz --set-json 'driver={\"version\":1}' --set validator.image.tag=$(x)")
	f.Add("helm upgrade g nvidia/gpu-operator --set-json =$X --set-literal ==a --set =b --set-json ={}")
	f.Add("A=(a); x && A=(--set b=c -n \"$@\"); bash -ec \"helm install g nvidia/gpu-operator \\\"${A[@]}\\\" \\\\ --set \\$X\"; $x 'helm install' 'sh -c \"'")
	f.Add("helm upgrade g gpu-operator-1.tgz --set-json $X --set-string $Y")
	f.Add("helm install g nvidia/gpu-operator --set toolkit.env[0].name=A --set driver.manager.image.repository='a b/c'")
	f.Fuzz(func(t *testing.T, text string) {
		result := judge(t, lint.Options{Command: text})
		within(t, text, result)
		for before := range 9 { // a correction may reveal more findings, but this must end
			again := judge(t, lint.Options{Command: result.Corrected})
			if again.Corrected == result.Corrected {
				break
			}
			if before == 8 {
				t.Errorf("corrected command of %q changes when it is corrected again:\n%s\n%s", text, result.Corrected, again.Corrected)
			}
			result = again
		}
	})
}

func TestMaskHidesPasswordsAndTokens(t *testing.T) {
	for script, want := range map[string]string{
		"helm install --password hunter2":          "helm install --password ***",
		"--set a.api_key=k1234,b=1":                "--set a.api_key=***,b=1",
		"echo nvapi-0123456789abcdefXYZ":           "echo ***",
		"--docker-password=\"$NGC_KEY\" --set a=b": "--docker-password=\"$NGC_KEY\" --set a=b",
	} {
		if got := check.Mask(script); got != want {
			t.Errorf("%s masked = %s, want %s", script, got, want)
		}
	}
}
