package progress_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/progress"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/verdict"
)

func driver(state verdict.State, now string, since time.Time) progress.Step {
	return progress.Step{Key: "d", State: state, What: "gpu-1 driver", Now: now, Since: since, Ends: "kubectl logs d"}
}

// In a pipe each change is one line, and what does not change is none.
func TestPipeShowsChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		looks := 0
		begun := time.Now()
		err := progress.Until(t.Context(), progress.Options{Out: &out, Every: time.Second, Timeout: time.Hour}, func(context.Context) ([]progress.Step, bool, error) {
			looks++
			plugin := progress.Step{Key: "p", State: verdict.Waiting, What: "gpu-1 device-plugin", Now: "waits for the driver"}
			switch looks {
			case 1, 2:
				return []progress.Step{driver(verdict.Waiting, "is being\nbuilt", begun.Add(-time.Minute)), plugin}, false, nil
			case 3:
				return []progress.Step{driver(verdict.Failed, "has crashed", time.Time{}), plugin}, false, nil
			case 4:
				return []progress.Step{plugin}, false, nil
			}
			return nil, true, nil
		})
		if err != nil || looks != 5 || time.Since(begun) != 4*time.Second {
			t.Errorf("%d looks in %s, %v", looks, time.Since(begun), err)
		}
		want := `00:00:00Z waiting gpu-1 driver: is being built (for 1m0s) → kubectl logs d
00:00:00Z waiting gpu-1 device-plugin: waits for the driver
00:00:02Z failed  gpu-1 driver: has crashed → kubectl logs d
00:00:03Z ok      gpu-1 driver
00:00:04Z ok      gpu-1 device-plugin
`
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// screen is what a terminal shows after it was written to: it knows the sequences that a Display
// uses, and fails on every other.
func screen(t *testing.T, written string) []string {
	t.Helper()
	var lines []string
	at := 0
	for written != "" {
		up := 0
		if n, _ := fmt.Sscanf(written, "\x1b[%dA", &up); n == 1 {
			if at -= up; at < 0 {
				t.Fatalf("%d lines up from line %d", up, at+up)
			}
			written = strings.TrimPrefix(written, fmt.Sprintf("\x1b[%dA", up))
			rest, ok := strings.CutPrefix(written, "\r\x1b[J")
			if !ok {
				t.Fatalf("not cleared: %q", written)
			}
			lines, written = lines[:at], rest
			continue
		}
		line, rest, ok := strings.Cut(written, "\n")
		if !ok || strings.Contains(line, "\x1b") {
			t.Fatalf("unexpected %q", written)
		}
		lines, at, written = append(lines[:at], line), at+1, rest
	}
	return lines
}

// On a terminal the lines are drawn again in place, never wrap, never fill more than their height,
// and are gone at the end.
func TestTerminalDrawsAgain(t *testing.T) {
	var out bytes.Buffer
	d := progress.NewDisplay(progress.Options{Out: &out, Terminal: true, Width: 40, Lines: 4, Timeout: 15 * time.Minute})
	begun := time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)
	d.Show(begun, begun, []progress.Step{driver(verdict.Waiting, "is being built, which takes some minutes", begun)})
	if diff := cmp.Diff([]string{"waiting for 1, 0s of 15m0s", "  waiting gpu-1 driver: is being built,…"}, screen(t, out.String())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var many []progress.Step
	for i := range 5000 {
		many = append(many, progress.Step{Key: fmt.Sprint(i), State: verdict.Waiting, What: fmt.Sprintf("gpu-%d", i), Now: "waits"})
	}
	d.Show(begun.Add(90*time.Second), begun, many)
	if diff := cmp.Diff([]string{"waiting for 5000, 1m30s of 15m0s", "  waiting gpu-0: waits", "  waiting gpu-1: waits", "  and 4998 more"}, screen(t, out.String())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	d.Show(begun.Add(2*time.Minute), begun, many[:3])
	if diff := cmp.Diff([]string{"waiting for 3, 2m0s of 15m0s", "  waiting gpu-0: waits", "  waiting gpu-1: waits", "  waiting gpu-2: waits"}, screen(t, out.String())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	d.Close()
	if left := screen(t, out.String()); len(left) != 0 {
		t.Errorf("%q is left on the terminal", left)
	}
}

func TestUntilEnds(t *testing.T) {
	broken := errors.New("connection refused")
	for name, test := range map[string]struct {
		look progress.Look
		stop time.Duration // when the context is canceled
		want error
		took time.Duration
	}{
		"deadline between two looks": {func(context.Context) ([]progress.Step, bool, error) { return nil, false, nil }, 0, progress.ErrDeadline, time.Minute},
		"deadline within a look": {func(ctx context.Context) ([]progress.Step, bool, error) {
			<-ctx.Done()
			return nil, false, fmt.Errorf("list nodes: %w", ctx.Err())
		}, 0, progress.ErrDeadline, time.Minute},
		"a look fails":    {func(context.Context) ([]progress.Step, bool, error) { return nil, false, broken }, 0, broken, 0},
		"interrupted":     {func(context.Context) ([]progress.Step, bool, error) { return nil, false, nil }, 7 * time.Second, context.Canceled, 7 * time.Second},
		"done at once":    {func(context.Context) ([]progress.Step, bool, error) { return nil, true, nil }, 0, nil, 0},
		"slow, then done": {slowly(3, 20*time.Second), 0, progress.ErrDeadline, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if test.stop > 0 {
					time.AfterFunc(test.stop, cancel)
				}
				begun := time.Now()
				err := progress.Until(ctx, progress.Options{Timeout: time.Minute}, test.look)
				if !errors.Is(err, test.want) || time.Since(begun) != test.took {
					t.Errorf("%v after %s, want %v after %s", err, time.Since(begun), test.want, test.took)
				}
			})
		})
	}
}

// slowly is done at look n, each of which takes so long: pauses of twice the time let the deadline
// come first.
func slowly(n int, each time.Duration) progress.Look {
	looks := 0
	return func(ctx context.Context) ([]progress.Step, bool, error) {
		looks++
		select {
		case <-time.After(each):
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
		return nil, looks == n, nil
	}
}

func TestStepsAreWhatWaitingCanEnd(t *testing.T) {
	var rows []verdict.Verdict
	for s := verdict.OK; s <= verdict.Failed; s++ {
		rows = append(rows, verdict.Verdict{ID: "operand", State: s, Node: "gpu-1", Subject: s.String(), Reason: "r", Next: "n"})
	}
	steps := progress.Steps(rows)
	if len(steps) != 2 || steps[0].What != "gpu-1 waiting" || steps[1].What != "gpu-1 failed" || steps[0].Key == steps[1].Key {
		t.Errorf("%+v", steps)
	}
}

// On a terminal the clock goes on between two looks; in a pipe nothing is written then.
func TestTerminalShowsTheTimeBetweenLooks(t *testing.T) {
	for _, terminal := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			err := progress.Until(t.Context(), progress.Options{Out: &out, Terminal: terminal, Every: 10 * time.Second, Timeout: 3500 * time.Millisecond}, func(context.Context) ([]progress.Step, bool, error) {
				return []progress.Step{driver(verdict.Waiting, "is being built", time.Time{})}, false, nil
			})
			if !errors.Is(err, progress.ErrDeadline) {
				t.Error(err)
			}
			if drawn := strings.Contains(out.String(), "waiting for 1, 3s of 3.5s"); drawn != terminal || !terminal && strings.Count(out.String(), "\n") != 1 {
				t.Errorf("terminal %t: %q", terminal, out.String())
			}
			if left := out.String(); terminal && len(screen(t, left)) != 0 {
				t.Errorf("left on the terminal: %q", screen(t, left))
			}
		})
	}
}
