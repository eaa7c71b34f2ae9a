package judge_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/judge"
)

func TestPrepare(t *testing.T) {
	file := load[string](t, "mig.yaml")
	idle := patched(t, &cluster.State{}, file.Bases["idle"])
	for _, c := range file.States {
		t.Run(c.Name, func(t *testing.T) {
			s := patched(t, idle, c.Patch)
			rows, err := judge.Prepare(s, options, "gpu-1", cmp.Or(c.Config, "all-1g.10gb"))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, v := range evidenced(t, rows) {
				if v.Severity > check.Note {
					got = append(got, v.Severity.String()+" "+v.Check.ID+" "+v.Subject)
				}
				if v.Node != "gpu-1" {
					t.Errorf("%s is about the node %q, want gpu-1", v.Check.ID, v.Node)
				}
			}
			got = slices.Compact(got) // each GPU can have the same finding
			if diff := gocmp.Diff(c.Want, got); diff != "" {
				t.Errorf("warnings and errors (-want +got):\n%s", diff)
			}
			if said := fmt.Sprint(rows); !strings.Contains(said, c.Says) {
				t.Errorf("findings = %s, want one that contains %q", said, c.Says)
			}
		})
	}
	_, err := judge.Prepare(idle, options, "gpu1", "all-1g.10gb")
	if !errors.Is(err, judge.ErrNode) || !strings.Contains(err.Error(), "did you mean gpu-1?") {
		t.Errorf("error = %v, want ErrNode that suggests gpu-1", err)
	}
}
