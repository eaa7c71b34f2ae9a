package process

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/kubelet"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/material"
	"github.com/gpu-telemetry/dcgm-exporter/tests/reference"
)

// labelPair matches a label of a series.
var labelPair = regexp.MustCompile(`(\w+)="((?:[^"\\]|\\.)*)"`)

// inOrder returns the lines of a page in alphabetical order. The labels of each line are sorted too.
func inOrder(page string) []string {
	var lines []string
	for line := range strings.Lines(page) {
		family, labels, ok := strings.Cut(line, "{")
		if end := strings.LastIndex(labels, "}"); ok && !strings.HasPrefix(line, "#") {
			pairs := slices.Sorted(slices.Values(labelPair.FindAllString(labels[:end], -1)))
			line = family + "{" + strings.Join(pairs, ",") + labels[end:]
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines
}

// TestReferencePages compares this exporter's pages, in strict compatibility mode, with pages that NVIDIA's exporter
// served for the same devices. Every HELP and TYPE line, label and number must be identical. The order of lines and
// labels may differ.
func TestReferencePages(t *testing.T) {
	t.Parallel()
	file := material.Path(t, "data/upstream/dcgm-exporter/default-counters.csv")
	tests := []struct {
		file string
		gpus int
		pods bool
	}{
		{"gpu1-default-nok8s.prom", 1, false},
		{"gpu8-default-k8s.prom", 8, true},
	}
	for _, tt := range tests {
		t.Run(tt.file, func(t *testing.T) {
			t.Parallel()
			theirs := material.Read(t, "data/reference-output/"+tt.file)
			_, env := fakedcgm.NewFor(t, reference.Engine(t, tt.gpus, string(theirs))...)
			args := []string{"-f", file, "--source=dcgm", "--compatibility=strict", "--hostname-label=hostname"}
			env = append(env, "NODE_NAME=vm")
			if tt.pods {
				var pods []*v1.PodResources
				for g, uuid := range reference.UUIDs() {
					pods = append(pods, kubelet.Pod(fmt.Sprintf("team-a/train-%d", g), kubelet.Container("main", "nvidia.com/gpu", uuid)))
				}
				k := kubelet.Start(t, kubelet.Lists(pods...))
				args = append(args, "--kubernetes", "--pod-resources-kubelet-socket", k.Socket())
			}
			r := start(t, env, args...)
			want, got := inOrder(string(theirs)), []string{}
			for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
				if got = inOrder(r.scrape()); cmp.Equal(want, got) {
					return
				}
			}
			t.Errorf("page (-theirs +ours):\n%s", cmp.Diff(want, got))
		})
	}
}
