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

// sharedBy reads the device plugin's configs from the ConfigMap that devicePlugin.config.name names. It returns nil if
// the setting is empty.
func (j *judge) sharedBy() *sharingConfigs {
	name := j.text("devicePlugin.config.name")
	if name == "" {
		return nil
	}
	c := &sharingConfigs{name: name, defaultName: j.text("devicePlugin.config.default")}
	m := j.maps[name]
	if m == nil {
		return c
	}
	// the keys may have different owners, so take the latest write
	if times := owners(m.ManagedFields, "data"); len(times) > 0 {
		c.changed = slices.MaxFunc(times, time.Time.Compare)
	}
	c.configs, c.findings = map[string]*sharing.Config{}, map[string][]check.Finding{}
	for key, text := range m.Data {
		config, findings := sharing.Parse([]byte(text))
		slices.SortStableFunc(findings, func(a, b check.Finding) int { return int(b.Severity) - int(a.Severity) })
		c.configs[key], c.findings[key] = config, findings
	}
	return c
}

// configs checks the device plugin's ConfigMap and every config in it.
func (j *judge) configs() {
	c := j.shares
	if c == nil || j.lacks(cluster.ConfigMaps) {
		return
	}
	if c.configs == nil {
		j.add(check.Finding{
			Check: sharingConfig, Severity: check.Error, Subject: "ConfigMap/" + c.name,
			Reason: fmt.Sprintf("not found, although devicePlugin.config.name refers to it: in namespace %s the pods of the "+
				"device plugin and of GPU Feature Discovery cannot start", j.Namespace),
			Fix:      "kubectl get configmaps -n " + j.Namespace + "  # or gpuop values gen PLATFORM time-slicing=4",
			Evidence: j.listed(cluster.ConfigMaps, "no %s among the %d ConfigMaps in namespace %s", c.name, len(j.maps), j.Namespace),
		})
		return
	}
	for _, key := range slices.Sorted(maps.Keys(c.configs)) {
		strategy := c.configs[key].Strategy()
		v := check.Finding{
			Check: sharingConfig, Subject: "ConfigMap/" + c.name + " " + key,
			Reason:   "valid; strategy: " + strategy,
			Evidence: check.Seen("data", "ConfigMap/"+c.name, "%s: %d bytes", key, len(j.maps[c.name].Data[key])),
		}
		v.Evidence.Time = c.changed
		if strategy == "none" {
			v.Reason = "valid; shares no device"
		}
		if findings := c.findings[key]; len(findings) > 0 && findings[0].Severity > check.Note {
			f := findings[0]
			of := withoutPlace(f)
			v.Severity, v.Fix, v.Reason = of.Severity, of.Fix, of.Subject+": "+of.Reason
			if f.Line > 0 {
				v.Reason = fmt.Sprintf("line %d, %s", f.Line, v.Reason)
				v.Evidence.Text = fmt.Sprintf("%s, line %d", key, f.Line)
			}
		}
		j.add(v)
	}
}

// chosen returns the config that the node uses. name is empty if the node has none. ok is false if the config is
// unknown, or if the plugin does not start with it. problem is the finding of sharing.Choose about the choice, or nil.
func (w *nodeJudge) chosen() (name string, config *sharing.Config, ok bool, problem *check.Finding) {
	c := w.shares
	if c == nil {
		return "", nil, true, nil
	}
	if c.configs == nil {
		return "", nil, false, nil
	}
	name, ok, problem = sharing.Choose(slices.Sorted(maps.Keys(c.configs)), w.kube.Labels[sharing.ConfigLabel], c.defaultName)
	config = c.configs[name]
	if !ok || name != "" && (config == nil || config.Refused) {
		return name, nil, false, problem
	}
	return name, config, true, problem
}

// migFile is the mig-parted file that a node's MIG manager reads.
type migFile struct {
	name, text string
	// config is nil if text cannot be parsed.
	config   *mig.Config
	findings []check.Finding
}

// migFile returns the mig-parted file that the node's MIG manager reads, or nil if its ConfigMap is missing.
// mig.ConfigMaps lists the candidates.
func (w *nodeJudge) migFile() *migFile {
	for _, name := range mig.ConfigMaps(w.kube.Name, w.text("migManager.config.name")) {
		if m := w.maps[name]; m != nil {
			f := &migFile{name: "ConfigMap/" + name, text: m.Data[mig.ConfigKey]}
			f.config, f.findings = mig.ParseConfig([]byte(f.text))
			return f
		}
	}
	return nil
}

// migConfig returns a MIG config by name. It looks in the file of the node's MIG manager. If the file is missing or
// cannot be parsed, it looks in the operator's defaults for the board. source says where the config was looked for. It
// is empty if the defaults do not have the config, or if the board is unknown.
func (w *nodeJudge) migConfig(want string, board *mig.Board) (named mig.NamedConfig, source string, ok bool) {
	if f := w.migFile(); f != nil && f.config != nil {
		named, ok = f.config.Config(want)
		return named, f.name, ok
	}
	if board == nil {
		return mig.NamedConfig{}, "", false
	}
	entry, err := mig.Default(*board, want)
	if err != nil {
		return mig.NamedConfig{}, "", false
	}
	return mig.NamedConfig{Name: want, Entries: []mig.Entry{entry}}, "the defaults of " + board.Name, true
}
