package drift

import (
	"slices"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/judge"
)

// Options describe the installation that the user intended.
type Options struct {
	// Table describes the releases of the chart.
	Table *chart.Table
	// Intended is the merged values of all files and flags, decoded as JSON. If it is nil, values are not compared.
	Intended map[string]any
	// From names the files and flags for messages. Flags repeats them as arguments of helm: "-f values.yaml --set a=b".
	From, Flags string
	// Hidden are the secrets of the input. Compare adds the secrets of the releases and of the ClusterPolicies.
	Hidden *check.Secrets
}

// Kinds returns the kinds of objects that Compare needs. They must have managedFields.
func Kinds() []cluster.Kind { return []cluster.Kind{cluster.Secrets, cluster.ClusterPolicies} }

// helmTimeout is helm's default timeout. An operation that is pending for longer was probably interrupted.
const helmTimeout = 5 * time.Minute

type comparison struct {
	*cluster.State
	Options
	findings []check.Finding
	// controller manages the installation. The zero value means that no controller was found.
	controller controller
}

// Compare compares the cluster with what the user intended. The findings about a release are in the order status,
// values, ClusterPolicy.
func Compare(s *cluster.State, o Options) []check.Finding {
	if o.Hidden == nil {
		o.Hidden = &check.Secrets{}
	}
	c := &comparison{State: s, Options: o, controller: controllerOf(s)}
	c.findings = judge.Unread(s, slices.DeleteFunc(Kinds(), func(k cluster.Kind) bool { return !c.unread(k) }))
	releases, broken := histories(s.Secrets)
	// mask the secrets in the compared values
	o.Hidden.LearnTree(o.Intended)
	for _, h := range releases {
		o.Hidden.LearnTree(h.base.Config)
		o.Hidden.LearnTree(h.base.Chart.Values)
		for _, p := range h.base.policies {
			o.Hidden.LearnTree(p.Object)
		}
	}
	for _, p := range s.ClusterPolicies {
		o.Hidden.LearnTree(p.Object)
	}
	for _, err := range broken {
		c.add(check.Seen("answer", "Secret", "%v", err), check.Unknown, unreadableRelease, "Secret", err.Error(), "")
	}
	if kind, name := c.controller.kind, c.controller.name; name != "" {
		c.add(check.Seen("metadata", "ClusterPolicy", "names %s %s", kind, name), check.Note, otherOwner,
			kind+"/"+name, "it manages the installation and may undo changes made with helm or kubectl",
			c.controller.change())
	}
	if len(releases) == 0 && !c.unread(cluster.Secrets) {
		c.withoutRelease()
	}
	for _, h := range releases {
		c.status(h)
		if c.Intended != nil {
			c.values(h.base)
		}
		c.policy(h.base)
	}
	return c.findings
}

// add adds a finding with its evidence. Since is the time of the evidence. It is unset for OK findings and for evidence
// that is a list.
func (c *comparison) add(seen check.Evidence, state check.Severity, id *check.Check, subject, reason, next string) {
	v := check.Finding{Check: id, Severity: state, Subject: subject, Reason: reason, Fix: next, Evidence: seen}
	if state != check.OK && seen.Kind != "list" {
		v.Since = seen.Time
	}
	c.findings = append(c.findings, v)
}

// unread reports whether a kind could not be read. A partial list counts as read: it has the operator's namespace.
func (c *comparison) unread(k cluster.Kind) bool {
	m := c.Lacks(k)
	return m != nil && m.Why != cluster.Partial
}

// withoutRelease reports an installation without a Helm release.
func (c *comparison) withoutRelease() {
	state, next := check.Warning, "helm list -A --all"
	reason := "no Helm release of the chart found: " +
		"the operator was installed without Helm, or the release is in another namespace or cluster"
	if c.controller.kind == "Application" {
		state, next = check.Note, "argocd app diff "+c.controller.name
		reason = "Argo CD renders the chart itself, without a Helm release to compare with"
	}
	seen := check.Seen("list", string(cluster.Secrets), "0 releases of the chart").At(c.At)
	c.add(seen, state, noRelease, "Helm release", reason, next)
}
