package judge

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/sharing"
)

// sharingFiles checks the device plugin's ConfigMap and every config in it.
func sharingFiles(v *view) []check.Finding {
	if v.shareName == "" || v.lacks(cluster.ConfigMaps) {
		return nil
	}
	object := "ConfigMap/" + v.shareName
	if v.shares == nil {
		f := check.Finding{Check: sharingConfig, Subject: object, Evidence: v.listed(cluster.ConfigMaps,
			"no %s among the %d ConfigMaps in namespace %s", v.shareName, len(v.maps), v.Namespace)}
		say(&f, check.Error, "kubectl get configmaps -n "+v.Namespace+"  # or gpuop values gen PLATFORM time-slicing=4",
			"not found, although devicePlugin.config.name refers to it: in namespace %s the pods of the device plugin "+
				"and of GPU Feature Discovery cannot start", v.Namespace)
		return []check.Finding{f}
	}
	var findings []check.Finding
	for _, key := range slices.Sorted(maps.Keys(v.shares)) {
		f := check.Finding{Check: sharingConfig, Subject: object + " " + key,
			Reason: "valid; strategy: " + v.shares[key].Strategy(), Evidence: check.Seen("data", object, "%s", key)}
		_, all := sharing.Parse([]byte(v.maps[v.shareName].Data[key]))
		for _, found := range all {
			if found.Severity > max(f.Severity, check.Note) {
				say(&f, found.Severity, found.Fix, "%s: %s", found.Subject, found.Reason)
				if found.Line > 0 {
					f.Reason = fmt.Sprintf("line %d, %s", found.Line, f.Reason)
				}
			}
		}
		findings = append(findings, f)
	}
	return findings
}

// chosen returns the config that the node uses. name is empty if the node has none. ok is false if the config is
// unknown, or if the plugin does not start with it. problem is the finding of sharing.Choose about the choice, or nil.
func (n *nodeReport) chosen() (name string, config *sharing.Config, ok bool, problem *check.Finding) {
	if n.shares == nil {
		return "", nil, n.shareName == "", nil
	}
	name, ok, problem = sharing.Choose(slices.Sorted(maps.Keys(n.shares)), n.kube.Labels[sharing.ConfigLabel],
		n.text("devicePlugin.config.default"))
	config = n.shares[name]
	if !ok || name != "" && (config == nil || config.Refused) {
		return name, nil, false, problem
	}
	return name, config, true, problem
}

// migFile returns the ConfigMap with the mig-parted file that the node's MIG manager reads, or nil if it is missing.
// mig.ConfigMaps lists the candidates.
func (n *nodeReport) migFile() *corev1.ConfigMap {
	for _, name := range mig.ConfigMaps(n.kube.Name, n.text("migManager.config.name")) {
		if m := n.maps[name]; m != nil {
			return m
		}
	}
	return nil
}

// migConfig returns a MIG config by name. It looks in the file of the node's MIG manager. If the file is missing or
// cannot be parsed, it looks in the operator's defaults for the board. source says where the config was looked for. It
// is empty if the defaults do not have the config, or if the board is unknown.
func (n *nodeReport) migConfig(want string, board *mig.Board) (named mig.NamedConfig, source string, ok bool) {
	if file := n.migFile(); file != nil {
		if config, _ := mig.ParseConfig([]byte(file.Data[mig.ConfigKey])); config != nil {
			named, ok = config.Config(want)
			return named, "ConfigMap/" + file.Name, ok
		}
	}
	if board != nil {
		if entry, err := mig.Default(*board, want); err == nil {
			return mig.NamedConfig{Name: want, Entries: []mig.Entry{entry}}, "the defaults of " + board.Name, true
		}
	}
	return mig.NamedConfig{}, "", false
}
