package drift

import (
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/judge"
)

// Options say what the user intended.
type Options struct {
	// Table has the facts about the chart.
	Table *chart.Table
	// Intended has the merged values of all files and flags, decoded as JSON. If it is nil, the values of the release
	// are used.
	Intended map[string]any
	// From names the files and flags in sentences. Flags are helm's arguments: "-f values.yaml --set a=b".
	From, Flags string
}

// Kinds returns the kinds of objects that Judge needs, with managedFields.
func Kinds() []cluster.Kind { return []cluster.Kind{cluster.Secrets, cluster.ClusterPolicies} }

// helmTimeout is helm's default timeout. An operation that is pending for longer was interrupted.
const helmTimeout = 5 * time.Minute

type judging struct {
	*cluster.State
	Options
	rows []check.Finding
	// controller owns the installation; the zero value means none.
	controller controller
}

// Judge compares the cluster with the intention. The rows are in the order values, release, ClusterPolicy.
func Judge(s *cluster.State, o Options) []check.Finding {
	j := &judging{State: s, Options: o, controller: controllerOf(s)}
	for _, v := range judge.Unread(s, Kinds()) {
		if v.Severity == check.Unknown { // a list of only the operator's namespace suffices
			j.rows = append(j.rows, v)
		}
	}
	releases, broken := histories(s.Secrets)
	for _, err := range broken {
		j.add(check.Seen("answer", "Secret", "%v", err), check.Unknown, unreadableRelease, "Secret", err.Error(), "")
	}
	if j.controller.name != "" {
		j.rows = append(j.rows, j.controller.row())
	}
	if len(releases) == 0 && !j.unread(cluster.Secrets) {
		j.withoutRelease()
	}
	for _, h := range releases {
		j.release(h)
	}
	return j.rows
}

// add adds a row with its evidence. If the row is not OK, the evidence's time is when that state began.
func (j *judging) add(seen check.Evidence, state check.Severity, id *check.Check, subject, reason, next string) {
	v := check.Finding{Check: id, Severity: state, Subject: subject, Reason: reason, Fix: next, Evidence: seen}
	if state != check.OK && seen.Kind != "list" {
		v.Since = seen.Time
	}
	j.rows = append(j.rows, v)
}

// unread reports whether a kind is missing. A list of only the operator's namespace suffices.
func (j *judging) unread(k cluster.Kind) bool {
	m := j.Lacks(k)
	return m != nil && m.Why != cluster.Partial
}

// withoutRelease adds a row for an installation without a Helm release.
func (j *judging) withoutRelease() {
	state, next := check.Warning, "helm list -A --all"
	reason := "no Helm release of the chart found: the operator was installed by other means (OLM, kubectl apply) or in another cluster"
	if j.controller.kind == "Application" {
		state, next = check.Note, "argocd app diff "+j.controller.name
		reason = "Argo CD renders the chart itself, without a Helm release to compare with"
	}
	j.add(check.Seen("list", string(cluster.Secrets), "0 releases of the chart").At(j.At), state, noRelease, "Helm release", reason, next)
}
