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

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/kubelet"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/material"
)

// How a line of a page is taken apart: family, labels, the value's text.
var (
	sampleLine = regexp.MustCompile(`^(\w+)\{(.*)\} (\S+)$`)
	sampleGPU  = regexp.MustCompile(`(?:^|,)gpu="(\d+)"`)
	labelPair  = regexp.MustCompile(`(\w+)="((?:[^"\\]|\\.)*)"`)
)

// pageText returns a page with the order taken out: HELP and TYPE by family, and by
// family and labels each value as it is spelled.
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
			t.Fatalf("no sample: %q", line)
		}
		labels := slices.Sorted(slices.Values(labelPair.FindAllString(m[2], -1)))
		key := m[1] + "{" + strings.Join(labels, ",") + "}"
		if _, twice := out[key]; twice {
			t.Errorf("twice on the page: %s", key)
		}
		out[key] = m[3]
	}
	return out
}

// engineOf returns the script of an engine with the given number of GPUs, which
// reports the numbers of a page for them; everything else about the GPUs is
// written here.
func engineOf(t *testing.T, gpus int, page string) []string {
	t.Helper()
	uuids := []string{
		"614bc606-2078-5444-8c9c-4f8e98ae4dcc", "d76e7e7d-d80b-5cf9-af05-3054662d1df5",
		"ea7aec0a-f077-51a9-832a-abe633c111c3", "3e3838f9-29b7-5d8a-b630-332622b2210f",
		"d1044f5e-f6ab-5b2f-bad5-f810c762c9f0", "7d7f1ba9-6104-5bbc-b18e-7ca1a5875686",
		"bd4f589b-6864-59f8-9022-18efaabaee65", "8440d431-97cf-532f-b626-b30712e5b8c6",
	}
	lines := []string{"library 4.6.1", "engine 4.6.1", "driver 570.124.06", "nvml 12.570.124.06", "value any:* 1 text 570.124.06"}
	for g := range gpus {
		lines = append(lines, fmt.Sprintf("gpu %d uuid=GPU-%s name=NVIDIA+H100+80GB+HBM3 bus=00000000:%02X:00.0 index=%d minor=%d links=%d prof=1001,1004,1005,1009,1010",
			g, uuids[g], 0x1b+0x11*g, g, g, map[bool]int{true: 18, false: 0}[gpus > 1]))
	}
	for line := range strings.Lines(page) {
		m := sampleLine.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil {
			continue
		}
		named, ok := catalog.Lookup(m[1])
		if !ok {
			t.Fatalf("no field %s", m[1])
		}
		kind := "int"
		if strings.Contains(m[3], ".") {
			kind = "double"
		}
		lines = append(lines, fmt.Sprintf("value gpu:%s %d %s %s", sampleGPU.FindStringSubmatch(m[2])[1], named.Entry.ID, kind, m[3]))
	}
	return lines
}

// TestPagesOfTheReference plays the worlds of NVIDIA's pages to the exporter,
// with the command lines that its README has, and compares whole pages: every
// HELP and TYPE, every sample with its labels, and how each number is spelled.
func TestPagesOfTheReference(t *testing.T) {
	fakedcgm.Require(t)
	file := material.Path(t, "data/upstream/dcgm-exporter/default-counters.csv")
	var devices []string
	for _, line := range engineOf(t, 8, "") {
		if m := regexp.MustCompile(`uuid=(\S+)`).FindStringSubmatch(line); m != nil {
			devices = append(devices, m[1])
		}
	}
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
			theirs := material.Read(t, "data/reference-output/"+tt.file)
			_, env := fakedcgm.NewFor(t, engineOf(t, tt.gpus, string(theirs))...)
			args := []string{"-f", file, "--source=dcgm", "--compatibility=strict"}
			env = append(env, "NODE_NAME=vm")
			if tt.pods {
				var pods []*v1.PodResources
				for g, uuid := range devices {
					pods = append(pods, kubelet.Pod(fmt.Sprintf("team-a/train-%d", g), kubelet.Container("main", "nvidia.com/gpu", uuid)))
				}
				k := kubelet.Start(t, kubelet.Lists(pods...))
				args = append(args, "--kubernetes", "--pod-resources-kubelet-socket", k.Socket())
			}
			r := start(t, env, args...)
			want, got := pageText(t, string(theirs)), map[string]string{}
			for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
				_, page := r.get("/metrics")
				if got = pageText(t, page); cmp.Equal(want, got) {
					return
				}
			}
			t.Errorf("page (-theirs +ours):\n%s", cmp.Diff(want, got))
		})
	}
}
