package goldens

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/recording"
)

// recordings are files of version 1 of the format.
const recordings = "../../internal/source/recording/testdata/v1"

// recordingCases are those of every recording: its first page, one amid its faults, and one of its
// second round.
var recordingCases = []struct {
	file, vocabulary string
	cycle            int
}{
	{"default", "classic", 1}, {"default", "classic", 3}, {"fleet", "both", 4}, {"fleet", "both", 9},
}

// Recordings of an earlier version give the pages that they gave.
func TestRecordings(t *testing.T) {
	needRounding(t)
	paths, err := filepath.Glob(filepath.Join(recordings, "*.json.gz"))
	if err != nil || len(paths) < 5 {
		t.Fatal(paths, err)
	}
	headers := newHeaders(t)
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".json.gz")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			rec, err := recording.Parse(bytes.NewReader(data), path)
			if err != nil {
				t.Fatal(err)
			}
			sheet := newSheet(t, "recording-"+name, headers)
			for _, c := range recordingCases {
				plan := planOf(t, c.file, c.vocabulary, time.Duration(rec.Interval)*time.Microsecond)
				plan.Health, plan.Peers, plan.Placement = true, true, true
				synctest.Test(t, func(t *testing.T) {
					replay := recording.NewSource(rec, recording.Options{})
					s := session{
						name: name, cycle: c.cycle, source: collector.SourceOf(replay.Open), plan: plan, podOf: replay.PodOf,
					}
					for _, owners := range replay.Attributors() {
						s.attributors = append(s.attributors, owners)
					}
					sheet.add(fmt.Sprintf("%s/%s/cycle-%d", c.file, c.vocabulary, c.cycle), s.pages(t))
				})
			}
			sheet.compare()
		})
	}
}
