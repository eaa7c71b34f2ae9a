package judge

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/sharing"
)

// sharingConfigs holds the device plugin's ConfigMap and the configs in it.
type sharingConfigs struct {
	// name is the name of the ConfigMap; defaultName is the config of nodes without a label.
	name, defaultName string
	// configs maps the keys of the ConfigMap to their configs. It is nil if the ConfigMap is missing or unreadable.
	// findings are the problems in each config.
	configs  map[string]*sharing.Config
	findings map[string][]check.Finding
	// changed is the time of the last write to the data; zero if unknown.
	changed time.Time
}

// readSharing reads the device plugin's configs from the ConfigMap that devicePlugin.config.name names. It returns nil
// if the setting is empty.
func readSharing(v *view) *sharingConfigs {
	c := &sharingConfigs{name: v.text("devicePlugin.config.name"), defaultName: v.text("devicePlugin.config.default")}
	if c.name == "" {
		return nil
	}
	m := v.maps[c.name]
	if m == nil {
		return c
	}
	// the keys may have different owners, so take the latest write
	if times := owners(m.ManagedFields, "data"); len(times) > 0 {
		c.changed = slices.MaxFunc(times, time.Time.Compare)
	}
	c.configs, c.findings = map[string]*sharing.Config{}, map[string][]check.Finding{}
	for key, text := range m.Data {
		c.configs[key], c.findings[key] = sharing.Parse([]byte(text))
	}
	return c
}

// sharingFiles checks the device plugin's ConfigMap and every config in it.
func sharingFiles(v *view) []check.Finding {
	c := v.shares
	if c == nil || v.lacks(cluster.ConfigMaps) {
		return nil
	}
	object := "ConfigMap/" + c.name
	if c.configs == nil {
		f := check.Finding{Check: sharingConfig, Subject: object, Evidence: v.listed(cluster.ConfigMaps,
			"no %s among the %d ConfigMaps in namespace %s", c.name, len(v.maps), v.Namespace)}
		say(&f, check.Error, "kubectl get configmaps -n "+v.Namespace+"  # or gpuop values gen PLATFORM time-slicing=4",
			"not found, although devicePlugin.config.name refers to it: in namespace %s the pods of the device plugin "+
				"and of GPU Feature Discovery cannot start", v.Namespace)
		return []check.Finding{f}
	}
	var findings []check.Finding
	for _, key := range slices.Sorted(maps.Keys(c.configs)) {
		f := check.Finding{Check: sharingConfig, Subject: object + " " + key,
			Reason:   "valid; strategy: " + c.configs[key].Strategy(),
			Evidence: check.Seen("data", object, "%s", key).At(c.changed)}
		for _, found := range c.findings[key] {
			if found.Severity <= max(f.Severity, check.Note) {
				continue
			}
			say(&f, found.Severity, found.Fix, "%s: %s", found.Subject, found.Reason)
			f.Evidence.Text = key
			if found.Line > 0 {
				f.Reason = fmt.Sprintf("line %d, %s", found.Line, f.Reason)
				f.Evidence.Text = fmt.Sprintf("%s, line %d", key, found.Line)
			}
		}
		findings = append(findings, f)
	}
	return findings
}

// chosen returns the config that the node uses. name is empty if the node has none. ok is false if the config is
// unknown, or if the plugin does not start with it. problem is the finding of sharing.Choose about the choice, or nil.
func (n *nodeReport) chosen() (name string, config *sharing.Config, ok bool, problem *check.Finding) {
	c := n.shares
	if c == nil || c.configs == nil {
		return "", nil, c == nil, nil
	}
	name, ok, problem = sharing.Choose(slices.Sorted(maps.Keys(c.configs)), n.kube.Labels[sharing.ConfigLabel],
		c.defaultName)
	config = c.configs[name]
	if !ok || name != "" && (config == nil || config.Refused) {
		return name, nil, false, problem
	}
	return name, config, true, problem
}

// migFile is the mig-parted file that a node's MIG manager reads.
type migFile struct {
	name, text string
	config     mig.Config // nil if text cannot be parsed
	findings   []check.Finding
}

// migFile returns the mig-parted file that the node's MIG manager reads, or nil if its ConfigMap is missing.
// mig.ConfigMaps lists the candidates.
func (n *nodeReport) migFile() *migFile {
	for _, name := range mig.ConfigMaps(n.kube.Name, n.text("migManager.config.name")) {
		if m := n.maps[name]; m != nil {
			file := &migFile{name: "ConfigMap/" + name, text: m.Data[mig.ConfigKey]}
			file.config, file.findings = mig.ParseConfig([]byte(file.text))
			return file
		}
	}
	return nil
}

// migConfig returns a MIG config by name. It looks in the file of the node's MIG manager. If the file is missing or
// cannot be parsed, it looks in the operator's defaults for the board. source says where the config was looked for. It
// is empty if the defaults do not have the config, or if the board is unknown.
func (n *nodeReport) migConfig(want string, board *mig.Board) (named mig.NamedConfig, source string, ok bool) {
	if file := n.migFile(); file != nil && file.config != nil {
		named, ok = file.config.Config(want)
		return named, file.name, ok
	}
	if board != nil {
		if entry, err := mig.Default(*board, want); err == nil {
			return mig.NamedConfig{Name: want, Entries: []mig.Entry{entry}}, "the defaults of " + board.Name, true
		}
	}
	return mig.NamedConfig{}, "", false
}
