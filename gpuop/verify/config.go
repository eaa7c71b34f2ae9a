package verify

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/finding"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/sharing"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/verdict"
)

// sharingConfigs are the device plugin's configs of the cluster.
type sharingConfigs struct {
	// name is the ConfigMap's, deflt the config of nodes without a label.
	name, deflt string
	// configs are by their key in the ConfigMap; nil where it could not be read or is not there.
	configs map[string]*sharing.Config
	// changed is when the data was last written; zero where that is not known.
	changed time.Time
}

// configs reads the ConfigMap of the device plugin that the ClusterPolicy names, and is a row for it
// and for each config in it.
func (j *judge) configs() {
	name := j.text("devicePlugin", "config", "name")
	if name == "" {
		return
	}
	j.sharing = &sharingConfigs{name: name, deflt: j.text("devicePlugin", "config", "default")}
	if j.lacks(cluster.ConfigMaps) {
		return
	}
	m := j.maps[name]
	if m == nil {
		j.add(verdict.Verdict{
			ID: "sharing-config", State: verdict.Failed, Subject: "ConfigMap/" + name,
			Reason: fmt.Sprintf("devicePlugin.config.name names it, and namespace %s does not hold it: the pods of the device plugin and of GPU Feature Discovery cannot start", j.Namespace),
			Next:   "gpuop share gen any=time-slicing:4 --configmap " + name + " -n " + j.Namespace, Source: sourceSharing,
		})
		return
	}
	j.sharing.configs = map[string]*sharing.Config{}
	j.sharing.changed = dataWritten(m)
	for _, key := range slices.Sorted(maps.Keys(m.Data)) {
		config, findings := sharing.Parse([]byte(m.Data[key]))
		j.sharing.configs[key] = config
		findings = append(findings, config.Dead(sharing.Operator)...)
		v := verdict.Verdict{
			ID: "sharing-config", Subject: "ConfigMap/" + name + " " + key,
			Reason: "the device plugin accepts it; it shares by " + config.Strategy(), Source: sourceSharing,
		}
		if config.Strategy() == "none" {
			v.Reason = "the device plugin accepts it; it shares nothing"
		}
		slices.SortStableFunc(findings, func(a, b finding.Finding) int { return int(b.Severity) - int(a.Severity) })
		if len(findings) > 0 && findings[0].Severity > finding.Info {
			f := findings[0]
			v.State, v.Source, v.Next = verdict.Warning, f.Source, f.Fix
			if f.Severity == finding.Error {
				v.State = verdict.Failed
			}
			v.Reason = f.Subject + ": " + f.Reason
			if f.Line > 0 {
				v.Reason = fmt.Sprintf("line %d, %s", f.Line, v.Reason)
			}
		}
		j.add(v)
	}
}

// dataWritten is when the content of a ConfigMap was last written; zero where that is not known.
// Different clients may own its keys: the latest of their times counts.
func dataWritten(m *corev1.ConfigMap) time.Time {
	times := owners(m.ManagedFields, "data")
	if len(times) == 0 {
		return time.Time{}
	}
	return slices.MaxFunc(times, time.Time.Compare)
}

// chosen returns the config that a node gets; ok is false where it is not known or the plugin does
// not start, and then problem says why.
func (c *sharingConfigs) chosen(label string) (name string, config *sharing.Config, ok bool, problem *finding.Finding) {
	if c == nil {
		return "", nil, true, nil
	}
	if c.configs == nil {
		return "", nil, false, nil
	}
	name, ok, findings := sharing.Choose(sharing.Operator, slices.Sorted(maps.Keys(c.configs)), label, c.deflt)
	if len(findings) > 0 {
		problem = &findings[0]
	}
	if !ok {
		return name, nil, false, problem
	}
	config = c.configs[name]
	if name != "" && (config == nil || config.Refused) {
		return name, nil, false, nil
	}
	return name, config, true, problem
}

// migConfig finds what a node's MIG config means: in the node's own ConfigMap, which the MIG manager
// generates since v26.3, in the one that the ClusterPolicy names, in the operator's static one, or
// for a known board as the defaults have it. The source is the ConfigMap's name.
func (j *judge) migConfig(node, want string, board *mig.Board) (named mig.Named, source string, ok bool) {
	custom := j.text("migManager", "config", "name")
	for _, name := range mig.ConfigMaps(node, custom) {
		m := j.maps[name]
		if m == nil {
			continue
		}
		config, _ := mig.ParseConfig([]byte(m.Data[mig.ConfigKey]))
		if config == nil {
			continue
		}
		if named, ok := config.Config(want); ok {
			return named, "ConfigMap/" + name, true
		}
		if name == custom {
			return mig.Named{}, "ConfigMap/" + name, false
		}
	}
	if board == nil {
		return mig.Named{}, "", false
	}
	entry, err := mig.Default(*board, want)
	if err != nil {
		return mig.Named{}, "", false
	}
	return mig.Named{Name: want, Entries: []mig.Entry{entry}}, "the defaults of " + board.Name, true
}
