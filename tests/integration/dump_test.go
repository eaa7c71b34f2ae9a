package integration

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// dumps returns the names of the dumps in a folder, the oldest first.
func dumps(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "snapshot-2*"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// readDump reads one dump; "" while it is being written.
func readDump(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var text io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		if text, err = gzip.NewReader(f); err != nil {
			return ""
		}
	}
	page, err := io.ReadAll(text)
	if err != nil {
		return ""
	}
	return string(page)
}

// The page of each collection is written; old dumps go, also those of an earlier release, and files of others stay.
func TestDumps(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ flag, end string }{
		"compressed": {"--dump-compression", ".prom.gz"},
		"plain":      {"--dump-compression=false", ".prom"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "dumps")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			old, older := "snapshot-20200101T000000.000000000Z.prom", "snapshot-20190101T000000.000000000Z.json"
			fresh := time.Now().Add(-30 * time.Minute).UTC().Format("snapshot-20060102T150405.000000000Z.prom")
			others := []string{old, old + ".gz", older, older + ".gz", fresh, "notes.prom", "snapshot-20200101.prom"}
			for _, other := range others {
				if err := os.WriteFile(filepath.Join(dir, other), []byte("{}"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			e := start(t, sim(t, "h100x8", faults(`fault: gpu-lost, at: 0s, for: 1h, devices: ["3"]`),
				"--dump-enabled", "--dump-directory="+dir, "--dump-retention=1h", c.flag)...)
			e.collected()
			last := ""
			e.until("a dump", func(page) bool {
				names := dumps(t, dir)
				newest := names[len(names)-1]
				if !strings.HasSuffix(newest, c.end) || newest == filepath.Join(dir, fresh) {
					return false
				}
				last = readDump(t, newest)
				return strings.Contains(last, "\ndcgm_exporter_collect_success 1")
			})
			if err := e.stop(); err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(last, "\nDCGM_FI_DEV_GPU_TEMP{"); n != 7 || !strings.Contains(last, `reason="lost"`) {
				t.Errorf("%d GPUs are served; the dump:\n%s", n, last)
			}
			var kept []string
			for _, other := range others {
				if _, err := os.Stat(filepath.Join(dir, other)); err == nil {
					kept = append(kept, other)
				}
			}
			if d := cmp.Diff([]string{fresh, "notes.prom", "snapshot-20200101.prom"}, kept); d != "" {
				t.Errorf("kept (-want +got):\n%s", d)
			}
		})
	}
}

// A folder that cannot be written costs a line in the log, and no metrics.
func TestDumpsNowhere(t *testing.T) {
	t.Parallel()
	file := write(t, "file", "")
	e := start(t, sim(t, "single", "", "--dump-enabled", "--dump-directory="+filepath.Join(file, "dumps"))...)
	e.collected()
	e.until("many cycles", func(p page) bool {
		return strings.Contains(e.log.String(), "Pages cannot be dumped") && len(p.series("DCGM_FI_DEV_GPU_TEMP")) == 1
	})
	if err := e.stop(); err != nil {
		t.Error(err)
	}
	if n := strings.Count(e.log.String(), "Pages cannot be dumped"); n != 1 {
		t.Errorf("%d lines in the log", n)
	}
}
