//go:build e2e

package operator

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

// gather writes a folder like the operator's must-gather script, and returns its path. The file names and kubectl
// commands are those of hack/must-gather.sh in v26.7.0. The folder has no logs, because no container runs.
func (s *server) gather(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	kubectl := func(args ...string) string {
		cmd := exec.Command(filepath.Join(os.Getenv("E2E_PROGRAMS"), "kubectl"),
			append([]string{"--kubeconfig", s.kubeconfigOf(administrator)}, args...)...)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("kubectl %s: %v", strings.Join(args, " "), err)
		}
		return string(out)
	}
	write := func(name, content string) { folder.Write(t, filepath.Join(dir, name), content) }
	if policy := strings.TrimSpace(kubectl("get", "clusterpolicies.nvidia.com", "-oname")); policy != "" {
		write("cluster_policy.yaml", kubectl("get", "-oyaml", policy))
	} else {
		write("cluster_policy.missing", "")
	}
	if kubectl("get", "nvidiadrivers.nvidia.com", "-A", "-oname") != "" {
		write("nvidiadrivers.yaml", kubectl("get", "nvidiadrivers.nvidia.com", "-A", "-oyaml"))
	}
	labels := ""
	for node := range strings.FieldsSeq(kubectl("get", "nodes", "-lfeature.node.kubernetes.io/pci-10de.present",
		"-oname")) {
		labels += strings.TrimPrefix(node, "node/") + "\n"
		// write each label on its own line and replace colons with equals signs, as the script does with sed and tr
		list := strings.Trim(kubectl("get", node, "-ojsonpath={.metadata.labels}"), "{}")
		for _, label := range regexp.MustCompile(`,"`).Split(list, -1) {
			labels += "- " + strings.ReplaceAll(strings.ReplaceAll(label, `"`, ""), ":", "=") + "\n"
		}
		labels += "\n"
	}
	write("gpu_nodes.labels", labels)
	operator := strings.TrimSpace(kubectl("get", "pods", "-lapp=gpu-operator", "-oname", "-A"))
	for name, args := range map[string][]string{
		"gpu_nodes.status":        {"get", "nodes", "-l", "nvidia.com/gpu.present=true", "-o", "wide"},
		"gpu_nodes.descr":         {"describe", "nodes", "-l", "nvidia.com/gpu.present=true"},
		"gpu_operator_pod.status": {"get", operator, "-owide", "-n", namespace},
		"gpu_operator_pod.yaml":   {"get", operator, "-oyaml", "-n", namespace},
		"gpu_operand_pods.status": {"get", "pods", "-owide", "-n", namespace},
		"gpu_operand_pods.yaml":   {"get", "pods", "-oyaml", "-n", namespace},
		"gpu_operand_ds.status":   {"get", "ds", "-n", namespace},
		"gpu_operand_ds.yaml":     {"get", "ds", "-oyaml", "-n", namespace},
	} {
		write(name, kubectl(args...))
	}
	return dir
}
