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

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
)

// errDeadline is returned by until after its timeout.
var errDeadline = errors.New("timed out")

// lookEvery is the minimum pause between two reads of the cluster.
const lookEvery = 5 * time.Second

// look reads the cluster once. done means that there is nothing to wait for.
type look func(ctx context.Context) (findings []check.Finding, done bool, err error)

// until calls look until look is done or fails, the timeout expires (errDeadline), or ctx ends. It writes a line to out
// for each finding of severity waiting or error that is new, changed or gone. The pause after a call is every, or twice
// the duration of the call if that is longer.
func until(ctx context.Context, out io.Writer, every, timeout time.Duration, look look) error {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	passed := func() error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return fmt.Errorf("%w: %s", errDeadline, timeout)
	}
	shown := map[string]check.Finding{}
	for {
		start := time.Now()
		findings, done, err := look(limited)
		switch {
		case err != nil && limited.Err() != nil:
			return passed()
		case err != nil:
			return err
		}
		shown = show(out, shown, unsettled(findings))
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

// unsettled returns the findings that are waiting or errors.
func unsettled(findings []check.Finding) []check.Finding {
	return slices.DeleteFunc(slices.Clone(findings), func(f check.Finding) bool {
		return f.Severity != check.Waiting && f.Severity != check.Error
	})
}

// show writes a line for each finding that is new, changed or gone. before is the result of the previous call.
func show(out io.Writer, before map[string]check.Finding, findings []check.Finding) map[string]check.Finding {
	now := time.Now().UTC()
	clock := now.Format("15:04:05Z")
	present := make(map[string]check.Finding, len(findings))
	name := func(f check.Finding) string { return strings.TrimSpace(f.Node + " " + f.Subject) }
	for _, f := range findings {
		key := f.Node + "\x00" + f.Check.ID + "\x00" + f.Subject
		present[key] = f
		if old, known := before[key]; known && old.Severity == f.Severity && old.Reason == f.Reason {
			continue
		}
		text := fmt.Sprintf("%-7s %s: %s", f.Severity, name(f), f.Reason)
		if age := now.Sub(f.Since); !f.Since.IsZero() && age > 0 {
			text += fmt.Sprintf(" (for %s)", age.Round(time.Second))
		}
		if f.Fix != "" {
			text += " → " + f.Fix
		}
		fmt.Fprintln(out, clock, check.OneLine(text))
	}
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if _, still := present[key]; !still {
			fmt.Fprintln(out, clock, check.OneLine(fmt.Sprintf("%-7s %s", check.OK, name(before[key]))))
		}
	}
	return present
}

// waited calls look until no finding is waiting or an error, and returns the last report. If the timeout expires or ctx
// is canceled after the first report, it adds a finding that says so.
func (e *env) waited(
	ctx context.Context, deadline time.Duration, again string, look func(context.Context) (check.Report, error),
) (check.Report, error) {
	var last check.Report
	err := until(ctx, e.Err, lookEvery, deadline, func(ctx context.Context) ([]check.Finding, bool, error) {
		r, err := look(ctx)
		switch {
		case err != nil && last.Judged && errors.Is(err, cluster.ErrUnreachable) && ctx.Err() == nil:
			// the API server may be back soon, so keep trying
			return []check.Finding{{Check: noServer, Severity: check.Error, Subject: "the API server",
				Reason: err.Error()}}, false, nil
		case err != nil:
			return nil, false, err
		}
		last = r
		return r.Findings, len(unsettled(r.Findings)) == 0, nil
	})
	why := ""
	switch {
	case err == nil:
		return last, nil
	case !last.Judged && errors.Is(err, errDeadline):
		return last, fmt.Errorf("%w: no answer within %s", cluster.ErrUnreachable, deadline)
	case last.Judged && errors.Is(err, errDeadline):
		why = "timed out after " + deadline.String()
	case last.Judged && errors.Is(err, context.Canceled):
		why = "interrupted"
	default:
		return last, err
	}
	left := "1 finding is not resolved"
	if n := len(unsettled(last.Findings)); n != 1 {
		left = fmt.Sprintf("%d findings are not resolved", n)
	}
	last.Add(check.Finding{
		Check: waitEnded, Severity: check.Error, Subject: "--wait", Reason: why + "; " + left, Fix: again,
	})
	return last, nil
}
