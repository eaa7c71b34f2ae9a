package snapshot

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

const (
	allWatches = "ALL" // DCGM's watch of the GPU as a whole
	passed     = "DCGM_FR_OK"

	// Findings that DCGM also reports when nothing is wrong.
	linkDown      = "DCGM_FR_NVLINK_DOWN"
	imexUnhealthy = "DCGM_FR_IMEX_UNHEALTHY"

	bootGrace = 5 * time.Minute // how long links may be down after the machine starts, while they are trained
	imexReady = 5               // state of a working IMEX daemon (DCGM_FI_IMEX_DAEMON_STATUS)
)

// bridged matches models whose NVLinks need an optional bridge between two boards. Without it the links have no peer.
var bridged = regexp.MustCompile(`(?i)pcie|\bNVL$|\b(A30X?|A40|A100X|Quadro|RTX)\b`)

// A result is a health check and how the page shows it.
type result struct {
	gpu.HealthCheck
	severity, category string
	corrected          string // why the finding is corrected; empty if it is not
	treatment          string // value of the treatment label; empty if alerts and the verdict use the finding
}

// health returns a series for each finding of a health watch and entity of the family, and one for each watch that
// passes. The value is DCGM's result, or 0 if the finding is corrected.
func (l *Facts) health(x *fact, c *Cycle) (series []gpu.Series) {
	var results []result // results of the latest entity
	for i := range c.Batch.Health {
		h := &c.Batch.Health[i]
		if !slices.Contains(x.rows, h.Row) {
			continue
		}
		results = l.addResult(results, c, h)
		if i+1 < len(c.Batch.Health) && c.Batch.Health[i+1].Row == h.Row {
			continue
		}
		l.showWorst(results)
		for k := range results {
			r := &results[k]
			labels := gpu.Labels("health_watch", r.Watch, "health_error_code", r.Code,
				"health_error_severity", r.severity, "health_error_category", r.category,
				"corrected", r.corrected, catalog.TreatmentLabel, r.treatment)
			series = append(series, gpu.Series{Row: r.Row, Labels: labels, Value: gpu.Int(r.Result)})
		}
		results = results[:0]
	}
	return series
}

// addResult appends the corrected result of a check to those of its entity. Each code of a watch occurs once, with its
// worst result.
func (l *Facts) addResult(results []result, c *Cycle, h *gpu.HealthCheck) []result {
	finding := catalog.FindingOf(h.Code)
	r := result{
		HealthCheck: *h, severity: string(finding.Severity), category: finding.Category,
		corrected: l.correction(c, h), treatment: l.treatment(&finding, h.Watch),
	}
	if r.corrected != "" {
		r.Result = 0
	}
	r.Code = finding.Code
	if l.AsReported && !strings.HasPrefix(r.Code, "DCGM_FR_") {
		r.Code = "DCGM_FR_UNRECOGNIZED"
	}
	for i := range results {
		if o := &results[i]; o.Watch == r.Watch && o.Code == r.Code {
			o.Result = max(o.Result, r.Result)
			return results
		}
	}
	return append(results, r)
}

// showWorst sets a passing watch ALL to the worst result of the entity's other watches, unless findings are shown as
// reported. In DCGM, ALL fails only if the GPU as a whole does. If results are equal, one that alerts use is preferred.
func (l *Facts) showWorst(results []result) {
	i := slices.IndexFunc(results, func(r result) bool { return r.Watch == allWatches && r.Code == passed })
	if i < 0 || l.AsReported {
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
	case l.AsReported:
		return ""
	case slices.Contains(l.IgnoredHealth, f.Code):
		return catalog.Informational.Label()
	case f.Watch != "" && f.Watch != watch, f.By != "" && !l.planned[f.By]:
		return ""
	default:
		return f.Treatment.Label()
	}
}

// plannedOf returns the planned fields and families that supersede findings.
func plannedOf(plan *gpu.Plan) map[string]bool {
	planned := map[string]bool{}
	for _, f := range catalog.Findings() {
		field, isField := catalog.Lookup(f.By)
		planned[f.By] = slices.ContainsFunc(plan.Derived, func(d gpu.Derived) bool { return d.Name == f.By }) ||
			isField && slices.ContainsFunc(plan.Fields, func(p gpu.Field) bool { return p.ID == field.Entry.ID })
	}
	return planned
}

// correction returns why a finding must be wrong, or "" if it can be right. It also records which GPUs have had a link
// up, and whether the machine has its own IMEX daemon.
func (l *Facts) correction(c *Cycle, h *gpu.HealthCheck) string {
	d := &l.topology.Devices[h.Row]
	switch up := c.Now.Sub(l.Booted); {
	case l.AsReported:
		return ""
	case d.Entity.Kind == gpu.KindNode: // also if the watch passes, because the daemon may be ready then
		if why := l.withoutIMEX(c); h.Code == imexUnhealthy {
			return why
		}
		return ""
	case h.Code == linkDown && up >= 0 && up < bootGrace && l.topology.Host == "":
		return "boot"
	case d.Entity.Kind != gpu.KindGPU || h.Code != linkDown && (h.Watch != "NVLINK" || h.Result > 0):
		return ""
	}
	mig, _ := c.Value(catalog.MIGMode, h.Row).Int64()
	switch {
	case mig == 1 && h.Result > 0: // under MIG, NVML reports links as down
		return "mig"
	case h.Result == 0 && mig == 0:
		l.linked[d.UUID] = true
	case h.NoLink && !l.linked[d.UUID] && bridged.MatchString(d.Model):
		return "no_bridge"
	}
	return ""
}

// withoutIMEX returns why the machine needs no IMEX daemon of its own, or "" if it may need one. DCGM cannot see a
// daemon that runs in a pod. A daemon that DCGM has seen ready belongs to the machine; if it stops, that is a fault.
func (l *Facts) withoutIMEX(c *Cycle) string {
	seen, expected, stopped := false, false, false
	for _, row := range l.gpus {
		if c.Down(row) != nil {
			continue
		}
		clique, ok := c.Value(catalog.FabricCliqueID, row).Int64()
		unknown := !ok && c.Missing(catalog.FabricCliqueID, row) != gpu.Reason(gpu.ErrNotSupported)
		seen, expected = true, expected || clique != 0 || unknown || isOfRack(&l.topology.Devices[row])
		daemon, _ := c.Value(catalog.IMEXDaemonStatus, row).Int64()
		domain := c.Value(catalog.IMEXDomainStatus, row).String()
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
