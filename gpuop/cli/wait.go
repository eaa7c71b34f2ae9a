package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// errDeadline is returned by until after its timeout.
var errDeadline = errors.New("the deadline has passed")

// lookEvery is the minimum interval between two reads of the cluster.
const lookEvery = 5 * time.Second

// look reads the cluster once. It returns the rows, and whether waiting is over.
type look func(ctx context.Context) (rows []report.Row, done bool, err error)

// until calls look until it is done or fails, the timeout passes (errDeadline), or ctx ends. It writes a line to out
// for each change of a waiting or failed row. After a slow look, the interval is doubled.
func until(ctx context.Context, out io.Writer, every, timeout time.Duration, look look) error {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	passed := func() error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return fmt.Errorf("%w: %s", errDeadline, timeout)
	}
	shown := map[string]report.Row{}
	for {
		start := time.Now()
		rows, done, err := look(limited)
		switch {
		case err != nil && limited.Err() != nil:
			return passed()
		case err != nil:
			return err
		}
		shown = show(out, shown, unsettled(rows))
		if done {
			return nil
		}
		select {
		case <-limited.Done():
			return passed()
		case <-time.After(max(every, 2*time.Since(start))):
		}
	}
}

// unsettled returns the rows that are waiting or failed.
func unsettled(rows []report.Row) []report.Row {
	return slices.DeleteFunc(slices.Clone(rows), func(v report.Row) bool {
		return v.State != report.Waiting && v.State != report.Failed
	})
}

// show writes what changed since before, and returns the rows for the next call.
func show(out io.Writer, before map[string]report.Row, rows []report.Row) map[string]report.Row {
	now := time.Now().UTC()
	clock := now.Format("15:04:05Z")
	present := make(map[string]report.Row, len(rows))
	name := func(v report.Row) string { return strings.TrimSpace(v.Node + " " + v.Subject) }
	for _, v := range rows {
		key := v.Node + "\x00" + string(v.ID) + "\x00" + v.Subject
		present[key] = v
		if old, known := before[key]; known && old.State == v.State && old.Reason == v.Reason {
			continue
		}
		text := fmt.Sprintf("%-7s %s: %s", v.State, name(v), v.Reason)
		if age := now.Sub(v.Since); !v.Since.IsZero() && age > 0 {
			text += fmt.Sprintf(" (for %s)", age.Round(time.Second))
		}
		if v.Fix != "" {
			text += " → " + v.Fix
		}
		fmt.Fprintln(out, clock, report.OneLine(text))
	}
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if _, still := present[key]; !still {
			fmt.Fprintln(out, clock, report.OneLine(fmt.Sprintf("%-7s %s", report.OK, name(before[key]))))
		}
	}
	return present
}

// waited calls look until no row is waiting or failed. If it ends early, the last row says why.
func (e *env) waited(
	ctx context.Context, deadline time.Duration, again string, look func(context.Context) (report.Report, error),
) (report.Report, error) {
	var last report.Report
	err := until(ctx, e.Err, lookEvery, deadline, func(ctx context.Context) ([]report.Row, bool, error) {
		r, err := look(ctx)
		switch {
		case err != nil && last.Judged && errors.Is(err, cluster.ErrUnreachable) && ctx.Err() == nil:
			// a temporary outage of the API server: keep trying
			return []report.Row{{ID: "server", State: report.Failed, Subject: "the API server", Reason: err.Error()}}, false, nil
		case err != nil:
			return nil, false, err
		}
		last = r
		return r.Rows, len(unsettled(r.Rows)) == 0, nil
	})
	why := ""
	switch {
	case err == nil:
		return last, nil
	case !last.Judged && errors.Is(err, errDeadline):
		return last, fmt.Errorf("%w: nothing was read in %s", cluster.ErrUnreachable, deadline)
	case last.Judged && errors.Is(err, errDeadline):
		why = deadline.String() + " have passed"
	case last.Judged && errors.Is(err, context.Canceled):
		why = "the waiting was interrupted"
	default:
		return last, err
	}
	left := "1 row is waiting or failed"
	if n := len(unsettled(last.Rows)); n != 1 {
		left = fmt.Sprintf("%d rows are waiting or failed", n)
	}
	last.Add(report.Row{
		ID: "wait", State: report.Failed, Subject: "--wait", Reason: why + ", and " + left, Fix: again,
	})
	return last, nil
}
