package drift

import (
	"fmt"
	"slices"
	"strings"
	"time"

	helm "helm.sh/helm/v3/pkg/release"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/judge"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// Options are the intentions.
type Options struct {
	// Table has the facts of the chart.
	Table *chart.Table
	// Intended are the values of all files and flags in JSON's types, merged; nil where none were given, and then the
	// release is the intention.
	Intended map[string]any
	// From names the files and flags in a sentence, and Flags as helm takes them:
	// "-f values.yaml --set a=b".
	From, Flags string
	// Release limits the judgement to the release of that name; empty for all.
	Release string
}

// Kinds returns the kinds of objects that Judge needs, with managedFields.
func Kinds() []cluster.Kind {
	return []cluster.Kind{
		cluster.Secrets, cluster.ConfigMaps, cluster.ClusterPolicies, cluster.NVIDIADrivers, cluster.GPUClusters,
	}
}

// helmTimeout is helm's default limit of an operation: a longer one was interrupted.
const helmTimeout = 5 * time.Minute

const (
	sourceHelm  = "Helm: release states, pkg/release"
	sourcePatch = "Helm pkg/kube: custom resources are patched from the old manifest to the new one, whatever is in " +
		"the cluster"
	sourceOperator = "gpu-operator controllers/object_controls.go"
)

type judging struct {
	*cluster.State
	Options
	rows []report.Row
	// controllers own the installation.
	controllers []controller
}

// Judge compares the cluster with what was intended. The rows stand in the order in which one step
// makes the next.
func Judge(s *cluster.State, o Options) []report.Row {
	j := &judging{State: s, Options: o}
	releases, broken := histories(s.Secrets)
	if o.Release != "" {
		releases = slices.DeleteFunc(releases, func(h history) bool { return h[0].Name != o.Release })
	}
	j.controllers = controllers(s)
	j.missing()
	for _, err := range broken {
		j.add(report.Seen("answer", "Secret", "%v", err), report.Unknown, "drift-release-unreadable", "Secret",
			err.Error(), "", sourceHelm)
	}
	for _, c := range j.controllers {
		j.rows = append(j.rows, c.row())
	}
	releases = j.installed(releases)
	for _, h := range releases {
		j.release(h)
	}
	if len(releases) == 0 && o.Intended != nil && o.Release == "" {
		j.withoutRelease()
	}
	return j.rows
}

// add appends a row with its evidence, whose time begins a state that is not as intended.
func (j *judging) add(seen report.Evidence, state report.State, id report.ID, subject, reason, next, source string) {
	v := report.Row{ID: id, State: state, Subject: subject, Reason: reason, Fix: next, Source: source, Evidence: seen}
	if state != report.OK && seen.Kind != "list" {
		v.Since = seen.Time
	}
	j.rows = append(j.rows, v)
}

// listed is the evidence of a whole list.
func (j *judging) listed(kind cluster.Kind, format string, args ...any) report.Evidence {
	return report.Seen("list", string(kind), format, args...).At(j.At)
}

// unread reports whether a kind was not read. A list of the operator's namespace alone is whole here.
func (j *judging) unread(k cluster.Kind) bool {
	m := j.Lacks(k)
	return m != nil && m.Why != cluster.Partial
}

// missing are the rows of what could not be read. The two newer kinds of the operator need not be installed.
func (j *judging) missing() {
	optional := []cluster.Kind{cluster.NVIDIADrivers, cluster.GPUClusters}
	for _, v := range judge.Unread(j.State, Kinds()) {
		kind := cluster.Kind(v.Evidence.Object)
		if v.State == report.Unknown && (j.Lacks(kind).Why != cluster.Unread || !slices.Contains(optional, kind)) {
			j.rows = append(j.rows, v)
		}
	}
}

// installed judges that there is one release, and returns those to compare.
func (j *judging) installed(releases []history) []history {
	live := slices.DeleteFunc(releases, func(h history) bool { return h.last().Info.Status == helm.StatusUninstalled })
	seen := j.listed(cluster.Secrets, "%d releases of the chart", len(live))
	switch {
	case len(live) > 1:
		var names []string
		for _, h := range live {
			names = append(names, h[0].Namespace+"/"+h[0].Name)
		}
		last := live[len(live)-1][0]
		j.add(seen, report.Failed, "drift-several-releases", "Helm releases",
			fmt.Sprintf("%d releases of the chart are installed (%s), and they write the same ClusterPolicy, labels and "+
				"DaemonSets: one is enough", len(live), strings.Join(names, ", ")),
			fmt.Sprintf("helm uninstall %s -n %s, if %s is the one to keep", last.Name, last.Namespace, names[0]), sourceHelm)
	case len(live) > 0 || j.unread(cluster.Secrets):
	case j.Release != "":
		j.add(seen, report.Failed, "drift-no-release", j.Release, "no Helm release of the chart is named "+j.Release,
			"helm list -A --all --filter "+j.Release, sourceHelm)
	case slices.ContainsFunc(j.controllers, func(c controller) bool { return c.kind == "Application" }):
		j.add(seen, report.Note, "drift-no-release", "Helm release",
			"Argo CD renders the chart itself and leaves no Helm release, so the values are compared with the ClusterPolicy",
			"", sourceArgo)
	default:
		j.add(seen, report.Warning, "drift-no-release", "Helm release",
			"no Helm release of the chart was found: the operator was installed otherwise (OLM, kubectl apply), or in "+
				"another cluster", "helm list -A --all", sourceHelm)
	}
	return live
}
