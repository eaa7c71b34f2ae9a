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

// errDeadline is the error of until after its timeout.
var errDeadline = errors.New("the deadline has passed")

// lookEvery is the pause between two reads of a cluster, at least.
const lookEvery = 5 * time.Second

// A look returns the rows as they stand, and whether the waiting is over.
type look func(ctx context.Context) (rows []report.Row, done bool, err error)

// until repeats a look until it is done or fails, the timeout has passed (errDeadline), or ctx ends. Each
// change of a row that waits or has failed is a line of out. A look that takes long doubles the pause.
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

// unsettled are the rows that waiting can end: they wait or have failed.
func unsettled(rows []report.Row) []report.Row {
	return slices.DeleteFunc(slices.Clone(rows), func(v report.Row) bool {
		return v.State != report.Waiting && v.State != report.Failed
	})
}

// show writes the changes since it was last called, and returns the rows that it shows now.
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

// waited looks until nothing waits or has failed, and says why it ended before.
func (e *env) waited(
	ctx context.Context, deadline time.Duration, again string, look func(context.Context) (report.Report, error),
) (report.Report, error) {
	var last report.Report
	err := until(ctx, e.Err, lookEvery, deadline, func(ctx context.Context) ([]report.Row, bool, error) {
		r, err := look(ctx)
		switch {
		case err != nil && last.Judged && errors.Is(err, cluster.ErrUnreachable) && ctx.Err() == nil:
			// an API server that answered before may answer again
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
	left := "1 row waits or has failed"
	if n := len(unsettled(last.Rows)); n != 1 {
		left = fmt.Sprintf("%d rows wait or have failed", n)
	}
	last.Add(report.Row{
		ID: "wait", State: report.Failed, Subject: "--wait", Reason: why + ", and " + left, Fix: again,
	})
	return last, nil
}
