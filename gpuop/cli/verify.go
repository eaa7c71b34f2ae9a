package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/judge"
)

func newVerifyCommand(e *env) *cobra.Command {
	var wait bool
	var timeout time.Duration
	var node string
	cmd := &cobra.Command{Use: "verify", Args: exactly(0, "no arguments"),
		Short: "Check the operator, its operands and each GPU node"}
	c := e.connect(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case c.from != "" && wait:
			return errors.New("--wait cannot be combined with --from: it needs a live cluster")
		case timeout <= 0:
			return fmt.Errorf("--wait-timeout %s must be greater than 0", timeout)
		}
		look := func(ctx context.Context) (check.Report, error) {
			s, err := e.state(ctx, c, judge.VerifyKinds()...)
			if err != nil {
				return check.Report{}, err
			}
			findings, err := ofNode(s, judge.Verify(s, judge.Options{Table: e.table}), node)
			return clusterReport(s, findings), err
		}
		if wait {
			once := look
			look = func(ctx context.Context) (check.Report, error) { return e.wait(ctx, timeout, once) }
		}
		r, err := look(cmd.Context())
		if err != nil {
			return err
		}
		r.Start = true
		return e.answer(answer{Report: r})
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until everything is ready, and print changes")
	cmd.Flags().DurationVar(&timeout, "wait-timeout", 15*time.Minute,
		"timeout for --wait; when it expires, the exit code is 1")
	cmd.Flags().StringVar(&node, "node", "", "show only the findings of this `node`")
	return cmd
}

// ofNode keeps the findings about the named node, and those about kinds that could not be read. If none is left
// although the nodes were read, it returns an error that says whether the node exists. Without a name, it keeps all
// findings.
func ofNode(s *cluster.State, findings []check.Finding, name string) ([]check.Finding, error) {
	if name == "" {
		return findings, nil
	}
	findings = slices.DeleteFunc(findings, func(f check.Finding) bool {
		return f.Node != name && !slices.Contains(strings.Split(f.Nodes, ", "), name) &&
			(f.Node != "" || f.Check != judge.NotRead)
	})
	switch {
	case len(findings) > 0 || s.Lacks(cluster.Nodes) != nil:
		return findings, nil
	case slices.ContainsFunc(s.Nodes, func(n corev1.Node) bool { return n.Name == name }):
		return nil, fmt.Errorf("the node %s has no GPU", name)
	}
	return nil, fmt.Errorf("no node %q among %d nodes%s", name, len(s.Nodes), judge.Nearest(s, name))
}

// lookEvery is the minimum pause between two reads of the cluster.
const lookEvery = 5 * time.Second

// wait calls look until no finding is waiting or an error, and returns the last report. It writes each change to
// standard error. The pause after a call is lookEvery, or twice the duration of the call if that is longer. If the
// timeout expires or ctx is canceled after the first report, a finding says so.
func (e *env) wait(
	ctx context.Context, timeout time.Duration, look func(context.Context) (check.Report, error),
) (check.Report, error) {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var last check.Report
	var left []check.Finding
	shown := map[string]check.Finding{}
	for limited.Err() == nil {
		start := time.Now()
		r, err := look(limited)
		switch {
		case err == nil:
			last, left = r, unsettled(r.Findings)
		case limited.Err() != nil: // nothing has changed
		case last.Judged && errors.Is(err, cluster.ErrUnreachable): // the API server may be back soon
			left = append(unsettled(last.Findings), check.Finding{Check: noServer, Severity: check.Error,
				Subject: "the API server", Reason: err.Error()})
		default:
			return last, err
		}
		if shown = show(e.Err, shown, left); err == nil && len(left) == 0 {
			return last, nil
		}
		select {
		case <-limited.Done():
		case <-time.After(max(lookEvery, 2*time.Since(start))):
		}
	}
	if !last.Judged {
		return last, cmp.Or(ctx.Err(), fmt.Errorf("%w: no answer within %s", cluster.ErrUnreachable, timeout))
	}
	why := "timed out after " + timeout.String()
	if ctx.Err() != nil {
		why = "interrupted"
	}
	last.Add(check.Finding{Check: waitEnded, Severity: check.Error, Subject: "--wait",
		Reason: fmt.Sprintf("%s; %s not resolved", why, check.Count(len(unsettled(last.Findings)), "finding"))})
	return last, nil
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
	line := func(severity check.Severity, f check.Finding, text string) {
		name := strings.TrimSpace(f.Node + " " + f.Subject)
		fmt.Fprintln(out, now.Format("15:04:05Z"), check.OneLine(fmt.Sprintf("%-7s %s%s", severity, name, text)))
	}
	present := make(map[string]check.Finding, len(findings))
	for _, f := range findings {
		key := f.Node + "\x00" + f.Check.ID + "\x00" + f.Subject
		present[key] = f
		if old := before[key]; old.Severity == f.Severity && old.Reason == f.Reason {
			continue
		}
		text := ": " + f.Reason
		if age := now.Sub(f.Since); !f.Since.IsZero() && age > 0 {
			text += fmt.Sprintf(" (for %s)", age.Round(time.Second))
		}
		if f.Fix != "" {
			text += " → " + f.Fix
		}
		line(f.Severity, f, text)
	}
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if _, still := present[key]; !still {
			line(check.OK, before[key], "")
		}
	}
	return present
}
