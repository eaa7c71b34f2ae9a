package dcgm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// appendFaults appends a fault for each field of each row.
func appendFaults(list []gpu.Fault, rows, fields []int, err error) []gpu.Fault {
	for _, f := range fields {
		for _, row := range rows {
			list = append(list, gpu.Fault{Row: row, Field: f, Err: err})
		}
	}
	return list
}

// unserved adds faults for fields that no row of the topology has.
func (ws *watchSet) unserved() {
	for f := range ws.plan.Fields {
		field := &ws.plan.Fields[f]
		if slices.ContainsFunc(ws.top.Devices, func(d gpu.Device) bool { return scopeOf(d.Entity).has(field) }) {
			continue
		}
		kinds := field.Levels.List()
		var err error
		for _, kind := range kinds {
			err = cmp.Or(err, ws.layout.others.failed[kind])
		}
		switch {
		case err != nil:
			err = fmt.Errorf("the engine cannot list a %v: %w", kinds[0], ws.withVersions(err))
		case !reads(field):
			err = fmt.Errorf("%w: the DCGM source does not read this field", gpu.ErrNotSupported)
		default:
			err = fmt.Errorf("%w: no %v exists or is selected", errNoEntity, kinds[0])
		}
		ws.faults = append(ws.faults, gpu.Fault{Row: gpu.AllRows, Field: f, Err: err})
	}
}

// mostNamed limits the number of fields and of devices in one log line.
const mostNamed = 16

// reportFaults logs new faults. Devices that miss the same fields for the same reason share a line. Otherwise a node
// with many instances would have a line for each instance and field.
func (ws *watchSet) reportFaults() {
	type line struct {
		reason string
		level  slog.Level
		fields string
	}
	type want struct {
		line
		row int
	}
	var fields grouping[want, string]
	for _, fault := range ws.faults[ws.reported:] {
		w := want{line{reason: fault.Err.Error(), level: slog.LevelWarn}, fault.Row}
		// These faults are expected, so they are only logged at level info. A counters file for a fleet names fields
		// that this machine lacks, and the engine does not load modules for missing devices, such as Grace CPUs. Fields
		// that only accounting requested are optional.
		isUnloaded := fault.Row == gpu.AllRows && hasCode(fault.Err, codeModuleNotLoaded)
		if isUnloaded || errors.Is(fault.Err, errNoEntity) || !ws.plan.Requests(fault.Field) {
			w.level = slog.LevelInfo
		}
		fields.add(w, ws.plan.Fields[fault.Field].Name)
	}
	ws.reported = len(ws.faults)
	var devices grouping[line, string]
	for _, w := range fields.keys {
		w.fields = list(fields.values[w])
		device := "" // a fault of all rows has no device
		if w.row != gpu.AllRows {
			device = ws.top.Devices[w.row].Entity.String()
		}
		devices.add(w.line, device)
	}
	for _, l := range devices.keys {
		attrs := []any{"fields", l.fields, "error", l.reason}
		if d := devices.values[l]; d[0] != "" {
			attrs = append(attrs, "devices", list(d))
		}
		ws.log.Log(context.Background(), l.level, "Fields are not watched", attrs...)
	}
}

// list joins words. After mostNamed words it only gives the number of the others.
func list(words []string) string {
	more := len(words) - mostNamed
	if more <= 0 {
		return strings.Join(words, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(words[:mostNamed], ", "), more)
}
