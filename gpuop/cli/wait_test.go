package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
)

// Waiting prints one line for each changed finding and nothing for the others.
func TestWaitingShowsChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		looks := 0
		begun := time.Now()
		driver := func(state check.Severity, reason string, since time.Time) check.Finding {
			return check.Finding{Check: check.Find("operand"), Node: "gpu-1", Subject: "driver", Severity: state, Reason: reason, Since: since, Fix: "kubectl logs d"}
		}
		err := until(t.Context(), &out, time.Second, time.Hour, func(context.Context) ([]check.Finding, bool, error) {
			looks++
			ok := check.Finding{Check: check.Find("operand"), Subject: "dcgm", Reason: "the pod is ready"}
			plugin := check.Finding{Check: check.Find("operand"), Node: "gpu-1", Subject: "device-plugin", Severity: check.Waiting, Reason: "waits for the driver"}
			switch looks {
			case 1, 2:
				return []check.Finding{ok, driver(check.Waiting, "is being\nbuilt", begun.Add(-time.Minute)), plugin}, false, nil
			case 3:
				return []check.Finding{ok, driver(check.Error, "has crashed", time.Time{}), plugin}, false, nil
			case 4:
				return []check.Finding{ok, plugin}, false, nil
			}
			return nil, true, nil
		})
		if err != nil || looks != 5 || time.Since(begun) != 4*time.Second {
			t.Errorf("until read the cluster %d times in %s, error %v; want 5 times in 4s", looks, time.Since(begun), err)
		}
		want := `00:00:00Z warning gpu-1 driver: is being built (for 1m0s) → kubectl logs d
00:00:00Z warning gpu-1 device-plugin: waits for the driver
00:00:02Z error   gpu-1 driver: has crashed → kubectl logs d
00:00:03Z ok      gpu-1 driver
00:00:04Z ok      gpu-1 device-plugin
`
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestWaitingEnds(t *testing.T) {
	broken := errors.New("connection refused")
	for name, test := range map[string]struct {
		look look
		stop time.Duration // when ctx is canceled
		want error
		took time.Duration
	}{
		"deadline between two reads": {func(context.Context) ([]check.Finding, bool, error) { return nil, false, nil }, 0, errDeadline, time.Minute},
		"deadline during a read": {func(ctx context.Context) ([]check.Finding, bool, error) {
			<-ctx.Done()
			return nil, false, fmt.Errorf("list nodes: %w", ctx.Err())
		}, 0, errDeadline, time.Minute},
		"a read fails": {func(context.Context) ([]check.Finding, bool, error) { return nil, false, broken }, 0, broken, 0},
		"interrupted":  {func(context.Context) ([]check.Finding, bool, error) { return nil, false, nil }, 7 * time.Second, context.Canceled, 7 * time.Second},
		"done at once": {func(context.Context) ([]check.Finding, bool, error) { return nil, true, nil }, 0, nil, 0},
		"slow reads":   {slowly(3, 20*time.Second), 0, errDeadline, time.Minute}, // the pause after a read is twice as long as the read
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if test.stop > 0 {
					time.AfterFunc(test.stop, cancel)
				}
				begun := time.Now()
				err := until(ctx, io.Discard, lookEvery, time.Minute, test.look)
				if !errors.Is(err, test.want) || time.Since(begun) != test.took {
					t.Errorf("until returned %v after %s, want %v after %s", err, time.Since(begun), test.want, test.took)
				}
			})
		})
	}
}

// slowly returns a look function that takes the duration each, and reports done on the nth call.
func slowly(n int, each time.Duration) look {
	looks := 0
	return func(ctx context.Context) ([]check.Finding, bool, error) {
		looks++
		select {
		case <-time.After(each):
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
		return nil, looks == n, nil
	}
}
