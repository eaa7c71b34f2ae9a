package snapshot

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// allWatches is DCGM's watch of the GPU as a whole, passed the code of a watch without a finding.
const (
	allWatches = "ALL"
	passed     = "DCGM_FR_OK"
)

// The findings that DCGM also makes where nothing is wrong.
const (
	linkDown      = "DCGM_FR_NVLINK_DOWN"
	imexUnhealthy = "DCGM_FR_IMEX_UNHEALTHY"
)

// bootGrace is how long after the start of the machine its links may be down: they are trained then.
const bootGrace = 5 * time.Minute

// imexReady is the state of an IMEX daemon that works (DCGM_FI_IMEX_DAEMON_STATUS).
const imexReady = 5

// bridged matches the models whose NVLinks need a bridge between two boards. Without that option they lead nowhere.
var bridged = regexp.MustCompile(`(?i)pcie|\bNVL$|\b(A30X?|A40|A100X|Quadro|RTX)\b`)

// A result is a health check with what the page says of it.
type result struct {
	gpu.HealthCheck
	severity, category string
	corrected          string // the reason of the correction; empty for none
	treatment          string // the value of the label; empty if alerts and the verdict use the finding
}

// health returns a series for each finding of a health watch and entity of the kinds, and one for each watch that passes.
// The value is DCGM's result, or 0 if the finding is corrected.
func (l *Facts) health(c *Cycle, kinds gpu.Kinds) []gpu.Series {
	var series []gpu.Series
	checks := c.Batch.Health
	for len(checks) > 0 {
		n := slices.IndexFunc(checks, func(h gpu.HealthCheck) bool { return h.Row != checks[0].Row })
		if n < 0 {
			n = len(checks)
		}
		if kinds.Has(l.topology.Devices[checks[0].Row].Entity.Kind) {
			results := l.healthResults(c, checks[:n])
			if !l.Strict {
				addWorst(results)
			}
			for i := range results {
				r := &results[i]
				series = append(series, gpu.Series{Row: r.Row, Labels: l.healthLabels(r), Value: gpu.Int(r.Result)})
			}
		}
		checks = checks[n:]
	}
	return series
}

// healthResults returns the corrected results of the checks of one entity. A watch has each code once, at its worst.
func (l *Facts) healthResults(c *Cycle, checks []gpu.HealthCheck) []result {
	results := make([]result, 0, len(checks))
	for _, h := range checks {
		finding := catalog.FindingOf(h.Code)
		r := result{
			HealthCheck: h, severity: string(finding.Severity), category: finding.Category,
			corrected: l.correction(c, &h), treatment: l.treatment(&finding, h.Watch),
		}
		if r.corrected != "" {
			r.Result = 0
		}
		r.Code = finding.Code
		if l.Strict && !strings.HasPrefix(r.Code, "DCGM_FR_") {
			r.Code = "DCGM_FR_UNRECOGNIZED"
		}
		same := func(o result) bool { return o.Watch == r.Watch && o.Code == r.Code }
		if i := slices.IndexFunc(results, same); i >= 0 {
			results[i].Result = max(results[i].Result, r.Result)
			continue
		}
		results = append(results, r)
	}
	return results
}

// addWorst gives the watch ALL of an entity the worst result of the others if it passes: in DCGM it fails only if the GPU
// as a whole does. Of equal results, one that alerts use goes first.
func addWorst(results []result) {
	i := slices.IndexFunc(results, func(r result) bool { return r.Watch == allWatches && r.Code == passed })
	if i < 0 {
		return
	}
	worst := &results[i]
	for k := range results {
		r := &results[k]
		better := r.Result == worst.Result && r.Result > 0 && worst.treatment != "" && r.treatment == ""
		if r.Result > worst.Result || better {
			worst = r
		}
	}
	results[i] = *worst
	results[i].Watch = allWatches
}

// treatment returns the value of the treatment label of a finding. A finding is superseded only if the plan has what
// supersedes it.
func (l *Facts) treatment(f *catalog.Finding, watch string) string {
	switch {
	case l.Strict:
		return ""
	case slices.Contains(l.IgnoredHealth, f.Code):
		return catalog.Informational.Label()
	case f.Watch != "" && f.Watch != watch:
		return ""
	case f.By != "" && !l.planned[f.By]:
		return ""
	default:
		return f.Treatment.Label()
	}
}

// plannedOf returns which fields and families that supersede findings are on a plan.
func plannedOf(plan *gpu.Plan) map[string]bool {
	planned := map[string]bool{}
	for _, f := range catalog.Findings() {
		field, isField := catalog.Lookup(f.By)
		planned[f.By] = slices.ContainsFunc(plan.Derived, func(d gpu.Derived) bool { return d.Name == f.By }) ||
			isField && slices.ContainsFunc(plan.Fields, func(p gpu.Field) bool { return p.ID == field.Entry.ID })
	}
	return planned
}

// healthLabels returns the labels of a result. A strict page has the first four.
func (l *Facts) healthLabels(r *result) []gpu.Label {
	labels := []gpu.Label{
		{Name: "health_watch", Value: r.Watch}, {Name: "health_error_code", Value: r.Code},
		{Name: "health_error_severity", Value: r.severity}, {Name: "health_error_category", Value: r.category},
	}
	if r.corrected != "" {
		labels = append(labels, gpu.Label{Name: "corrected", Value: r.corrected})
	}
	if r.treatment != "" {
		labels = append(labels, gpu.Label{Name: catalog.TreatmentLabel, Value: r.treatment})
	}
	return labels
}

// correction returns why a finding cannot be right, or "" if it can. It notes the GPUs whose links are up, and that the
// machine has an IMEX daemon of its own.
func (l *Facts) correction(c *Cycle, h *gpu.HealthCheck) string {
	d := &l.topology.Devices[h.Row]
	switch up := c.Now.Sub(l.Booted); {
	case l.Strict:
		return ""
	case d.Entity.Kind == gpu.KindNode && h.Watch == "IMEX":
		if why := l.withoutIMEX(c); h.Code == imexUnhealthy {
			return why
		}
		return ""
	case h.Code == linkDown && up >= 0 && up < bootGrace && l.topology.Host == "":
		return "boot"
	case d.Entity.Kind != gpu.KindGPU || h.Code != linkDown && (h.Watch != "NVLINK" || h.Result > 0):
		return ""
	}
	mig, _ := c.Value(l.fields.mig, h.Row).Int64()
	switch {
	case mig == 1 && h.Result > 0: // NVML says of links under MIG that they are down
		return "mig"
	case h.Result == 0 && mig == 0:
		l.linked[d.UUID] = true
	case h.NoLink && !l.linked[d.UUID] && bridged.MatchString(d.Model):
		return "no_bridge"
	}
	return ""
}

// withoutIMEX returns why the machine needs no IMEX daemon of its own, "" where it may. DCGM sees none that runs in a pod, so
// that one it has seen ready is the machine's, and its end is a fault.
func (l *Facts) withoutIMEX(c *Cycle) string {
	seen, expected, stopped := false, false, false
	for _, row := range l.gpus {
		if c.Down(row) != nil {
			continue
		}
		clique, ok := c.Value(l.fields.clique, row).Int64()
		unknown := !ok && c.Missing(l.fields.clique, row) != gpu.Reason(gpu.ErrNotSupported)
		seen, expected = true, expected || clique != 0 || unknown || isOfRack(&l.topology.Devices[row])
		daemon, _ := c.Value(l.fields.imexDaemon, row).Int64()
		domain := c.Value(l.fields.imexDomain, row).String()
		l.hasIMEX = l.hasIMEX || daemon == imexReady
		stopped = stopped || daemon < 0 && domain != "DOWN" && domain != "DEGRADED"
	}
	switch {
	case seen && !expected:
		return "no_domain"
	case stopped && !l.hasIMEX:
		return "no_daemon"
	default:
		return ""
	}
}
