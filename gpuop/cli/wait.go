package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/progress"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/verdict"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/verify"
)

// judging is what a command does with a cluster.
type judging struct {
	// command is the command that waits again.
	command string
	kinds   []cluster.Kind
	judge   func(*cluster.State) []verdict.Verdict
}

// judged reads and judges once, or until nothing waits or the deadline has passed.
func (e *env) judged(ctx context.Context, c *connection, source cluster.Source, w waiting, j judging) (*verdict.Tree, *cluster.State, error) {
	var state *cluster.State
	tree := &verdict.Tree{}
	look := func(ctx context.Context) error {
		s, err := c.read(ctx, source, j.kinds...)
		if err != nil {
			return err
		}
		state = s
		*tree = verdict.Tree{Title: s.Title, At: s.At, Verdicts: j.judge(s)}
		return nil
	}
	if !w.wait {
		err := look(ctx)
		return tree, state, err
	}
	err := progress.Until(ctx, w.options(e), func(ctx context.Context) ([]progress.Step, bool, error) {
		err := look(ctx)
		switch {
		case err != nil && state != nil && errors.Is(err, cluster.ErrUnreachable) && ctx.Err() == nil:
			// an API server that answered before may answer again
			step := progress.Step{Key: "server", State: verdict.Failed, What: "the API server", Now: err.Error(), Ends: "the server answers"}
			return []progress.Step{step}, false, nil
		case err != nil:
			return nil, false, err
		}
		return progress.Steps(tree.Verdicts), verify.Settled(tree.Verdicts), nil
	})
	if state == nil {
		if errors.Is(err, progress.ErrDeadline) {
			err = fmt.Errorf("%w: nothing was read in %s", cluster.ErrUnreachable, w.deadline)
		}
		return nil, nil, err
	}
	row := verdict.Verdict{ID: "wait", State: verdict.Failed, Subject: "--wait", Next: j.command, Source: "gpuop"}
	left := "1 row waits or has failed"
	if n := len(progress.Steps(tree.Verdicts)); n != 1 {
		left = fmt.Sprintf("%d rows wait or have failed", n)
	}
	switch {
	case errors.Is(err, progress.ErrDeadline):
		row.Reason = fmt.Sprintf("%s have passed, and %s", w.deadline, left)
		tree.Add(row)
	case errors.Is(err, context.Canceled):
		row.Reason = "the waiting was interrupted, and " + left
		tree.Add(row)
	case err != nil:
		return nil, nil, err
	}
	return tree, state, nil
}
