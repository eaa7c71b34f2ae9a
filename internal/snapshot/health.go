package snapshot

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
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

// health returns a series per health watch and entity of the kinds; its value is DCGM's result, or 0 with the reason of the
// correction. DCGM's own watch ALL has only failures of the whole GPU, and passes where others fail.
func (l *Facts) health(c *Cycle, kinds gpu.Kinds) (series []gpu.Series) {
	checks := slices.DeleteFunc(slices.Clone(c.Batch.Health), func(h gpu.HealthCheck) bool {
		return !kinds.Has(l.topology.Devices[h.Row].Entity.Kind)
	})
	corrected := make([]string, len(checks))
	worst := map[int]gpu.HealthCheck{} // by row
	for i := range checks {
		h := &checks[i]
		if l.Strict && !strings.HasPrefix(h.Code, "DCGM_FR_") && h.Code != "" {
			h.Code = "DCGM_FR_UNRECOGNIZED"
		}
		if corrected[i] = l.correction(c, h); corrected[i] != "" {
			h.Result = 0
		}
		if h.Result > worst[h.Row].Result {
			worst[h.Row] = *h
		}
	}
	for i, h := range checks {
		if w := worst[h.Row]; h.Watch == "ALL" && !l.Strict && w.Result > h.Result {
			h.Code, h.Result = w.Code, w.Result
		}
		labels := []gpu.Label{{Name: "health_watch", Value: h.Watch}, {Name: "health_error_code", Value: cmp.Or(h.Code, "DCGM_FR_OK")}}
		if corrected[i] != "" {
			labels = append(labels, gpu.Label{Name: "corrected", Value: corrected[i]})
		}
		series = append(series, gpu.Series{Row: h.Row, Labels: labels, Value: gpu.Int(h.Result)})
	}
	return series
}

// correction returns why a finding cannot be right, "" where it can. It notes the GPUs whose links are up, and that the
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
