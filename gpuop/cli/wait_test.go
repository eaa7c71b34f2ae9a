package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
)

// Waiting prints one line for each changed finding and nothing for the others. While the API server does not answer,
// the findings stay.
func TestWaitingShowsChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		begun := time.Now()
		operand := func(node, subject string, state check.Severity, reason string) check.Finding {
			return check.Finding{Check: check.Find("operand"), Node: node, Subject: subject, Severity: state, Reason: reason}
		}
		ok := operand("", "dcgm", check.OK, "the pod is ready")
		plugin := operand("gpu-1", "device-plugin", check.Waiting, "waits for the driver")
		built := operand("gpu-1", "driver", check.Waiting, "is being\nbuilt")
		built.Since, built.Fix = begun.Add(-time.Minute), "kubectl logs d"
		reads := [][]check.Finding{{ok, built, plugin}, {ok, built, plugin}, {ok, operand("gpu-1", "driver", check.Error, "has crashed"), plugin}, nil, {ok, plugin}, {}}
		n := 0
		e := &env{Streams: Streams{Err: &out}}
		r, err := e.wait(t.Context(), time.Hour, func(context.Context) (check.Report, error) {
			if n++; reads[n-1] == nil {
				return check.Report{}, cluster.ErrUnreachable
			}
			return check.Report{Judged: true, Findings: reads[n-1]}, nil
		})
		if err != nil || n != 6 || time.Since(begun) != 25*time.Second || len(r.Findings) != 0 {
			t.Errorf("wait read the cluster %d times in %s, error %v, findings %v; want 6 times in 25s and no findings", n, time.Since(begun), err, r.Findings)
		}
		want := `00:00:00Z warning gpu-1 driver: is being built (for 1m0s) → kubectl logs d
00:00:00Z warning gpu-1 device-plugin: waits for the driver
00:00:10Z error   gpu-1 driver: has crashed
00:00:15Z error   the API server: cannot reach the cluster
00:00:20Z ok      the API server
00:00:20Z ok      gpu-1 driver
00:00:25Z ok      gpu-1 device-plugin
`
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestWaitingEnds(t *testing.T) {
	broken := errors.New("connection refused")
	waiting := check.Report{Judged: true, Findings: []check.Finding{{Check: noServer, Severity: check.Waiting}}}
	after := func(d time.Duration, r check.Report, err error) func(context.Context) (check.Report, error) {
		return func(ctx context.Context) (check.Report, error) {
			select {
			case <-time.After(d):
				return r, err
			case <-ctx.Done():
				return check.Report{}, fmt.Errorf("list nodes: %w", ctx.Err())
			}
		}
	}
	for name, test := range map[string]struct {
		look func(context.Context) (check.Report, error)
		stop time.Duration // when ctx is canceled
		want error
		says string // in the finding that wait adds
		took time.Duration
	}{
		"deadline between two reads":     {after(0, waiting, nil), 0, nil, "timed out after 1m0s; 1 finding not resolved", time.Minute},
		"deadline during the first read": {after(time.Hour, waiting, nil), 0, cluster.ErrUnreachable, "", time.Minute},
		"a read fails":                   {after(0, waiting, broken), 0, broken, "", 0},
		"the server is unreachable":      {after(0, waiting, cluster.ErrUnreachable), 0, cluster.ErrUnreachable, "", 0},
		"interrupted":                    {after(0, waiting, nil), 7 * time.Second, nil, "interrupted; 1 finding not resolved", 7 * time.Second},
		"interrupted in the first read":  {after(time.Hour, waiting, nil), 7 * time.Second, context.Canceled, "", 7 * time.Second},
		"done at once":                   {after(0, check.Report{Judged: true}, nil), 0, nil, "", 0},
		"slow reads":                     {after(20*time.Second, waiting, nil), 0, nil, "timed out", time.Minute}, // the pause after a read is twice as long as the read
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if test.stop > 0 {
					time.AfterFunc(test.stop, cancel)
				}
				begun := time.Now()
				e := &env{Streams: Streams{Err: io.Discard}}
				r, err := e.wait(ctx, time.Minute, test.look)
				said := ""
				if n := len(r.Findings); n > 0 {
					said = r.Findings[n-1].Reason
				}
				if !errors.Is(err, test.want) || !strings.HasPrefix(said, test.says) || test.says == "" && said != "" || time.Since(begun) != test.took {
					t.Errorf("wait returned %v and %q after %s, want %v and %q after %s", err, said, time.Since(begun), test.want, test.says, test.took)
				}
			})
		})
	}
}
