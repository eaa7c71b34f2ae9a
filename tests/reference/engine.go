package reference

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
)

// UUIDs returns the UUIDs of the eight GPUs on NVIDIA's pages, by index.
func UUIDs() []string {
	return []string{
		"GPU-614bc606-2078-5444-8c9c-4f8e98ae4dcc", "GPU-d76e7e7d-d80b-5cf9-af05-3054662d1df5",
		"GPU-ea7aec0a-f077-51a9-832a-abe633c111c3", "GPU-3e3838f9-29b7-5d8a-b630-332622b2210f",
		"GPU-d1044f5e-f6ab-5b2f-bad5-f810c762c9f0", "GPU-7d7f1ba9-6104-5bbc-b18e-7ca1a5875686",
		"GPU-bd4f589b-6864-59f8-9022-18efaabaee65", "GPU-8440d431-97cf-532f-b626-b30712e5b8c6",
	}
}

var (
	sampleLine = regexp.MustCompile(`^(\w+)\{(.*)\} (\S+)$`)
	sampleGPU  = regexp.MustCompile(`(?:^|,)gpu="(\d+)"`)
)

// Engine returns the script of a fake engine (tests/fake/dcgm) with a number of GPUs. It reports the values on the
// given page, which is one of NVIDIA's. This package defines all other properties of the GPUs.
func Engine(t testing.TB, gpus int, page string) []string {
	t.Helper()
	links := 0
	if gpus > 1 {
		links = 18
	}
	lines := []string{"library 4.6.1", "engine 4.6.1", "driver 570.124.06", "nvml 12.570.124.06",
		"value any:* 1 text 570.124.06"}
	for g, uuid := range UUIDs()[:gpus] {
		lines = append(lines,
			fmt.Sprintf("gpu %d uuid=%s name=NVIDIA+H100+80GB+HBM3 bus=00000000:%02X:00.0 index=%d minor=%d "+
				"links=%d prof=1001,1004,1005,1009,1010",
				g, uuid, 0x1b+0x11*g, g, g, links))
	}
	for line := range strings.Lines(page) {
		m := sampleLine.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil {
			continue
		}
		named, ok := catalog.Lookup(m[1])
		if !ok {
			t.Fatalf("field %s is not in the catalog", m[1])
		}
		kind := "int"
		if strings.Contains(m[3], ".") {
			kind = "double"
		}
		lines = append(lines,
			fmt.Sprintf("value gpu:%s %d %s %s", sampleGPU.FindStringSubmatch(m[2])[1], named.Entry.ID, kind, m[3]))
	}
	return lines
}
