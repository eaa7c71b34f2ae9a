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

// sampleLine splits a line of a page into family, labels and the text of the value. labelPair matches one of the
// labels.
var (
	sampleLine = regexp.MustCompile(`^(\w+)\{(.*)\} (\S+)$`)
	labelPair  = regexp.MustCompile(`(\w+)="((?:[^"\\]|\\.)*)"`)
)

// pageText returns the content of a page regardless of order: HELP and TYPE by family, and the text of each value by
// family and labels.
func pageText(t *testing.T, page string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for line := range strings.Lines(page) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "# ") {
			words := strings.SplitN(line, " ", 4)
			out[words[1]+" "+words[2]] = words[3]
			continue
		}
		m := sampleLine.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("line is not a sample: %q", line)
		}
		labels := slices.Sorted(slices.Values(labelPair.FindAllString(m[2], -1)))
		key := m[1] + "{" + strings.Join(labels, ",") + "}"
		if _, twice := out[key]; twice {
			t.Errorf("duplicate on the page: %s", key)
		}
		out[key] = m[3]
	}
	return out
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
			want, got := pageText(t, string(theirs)), map[string]string{}
			for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
				if got = pageText(t, r.scrape()); cmp.Equal(want, got) {
					return
				}
			}
			t.Errorf("page (-theirs +ours):\n%s", cmp.Diff(want, got))
		})
	}
}
