package integration

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A dumped snapshot, as far as a reader of it needs.
type dumped struct {
	Time     time.Time
	Error    string
	Source   string
	Entities []struct {
		Entity, UUID, Error string
		Owner               map[string]string
		Values              map[string]any
	}
	Families    []struct{ Name string }
	Unavailable []struct{ Field, Entity, Reason string }
}

// dumps returns the names of the dumps in a folder, the oldest first.
func dumps(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "snapshot-2*"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// readDump reads one dump; false while it is being written.
func readDump(t *testing.T, path string) (d dumped, whole bool) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var text io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		if text, err = gzip.NewReader(f); err != nil {
			return dumped{}, false
		}
	}
	return d, json.NewDecoder(text).Decode(&d) == nil
}

// Each collection is written down, with what failed in it; old dumps go, and files of others stay.
func TestDumps(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ flag, end string }{
		"compressed": {"--dump-compression", ".json.gz"},
		"plain":      {"--dump-compression=false", ".json"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "dumps")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			old := "snapshot-20200101T000000.000000000Z.json"
			fresh := time.Now().Add(-30 * time.Minute).UTC().Format("snapshot-20060102T150405.000000000Z.json")
			for _, other := range []string{old, old + ".gz", fresh, "notes.json", "snapshot-20200101.json"} {
				if err := os.WriteFile(filepath.Join(dir, other), []byte("{}"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			e := start(t, sim(t, "h100x8", faults(`fault: gpu-lost, at: 0s, for: 1h, devices: ["3"]`),
				"--dump-enabled", "--dump-directory="+dir, "--dump-retention=1h", c.flag)...)
			e.collected()
			var last dumped
			e.until("a dump", func(page) bool {
				names := dumps(t, dir)
				newest := names[len(names)-1]
				if !strings.HasSuffix(newest, c.end) || newest == filepath.Join(dir, fresh) {
					return false
				}
				var whole bool
				last, whole = readDump(t, newest)
				return whole && last.Error == ""
			})
			if err := e.stop(); err != nil {
				t.Fatal(err)
			}
			lost, served := 0, 0
			for _, x := range last.Entities {
				if !strings.HasPrefix(x.Entity, "GPU ") || strings.Contains(x.Entity, "instance") {
					continue
				}
				if x.Error != "" {
					lost++
				} else if temperature, ok := x.Values["DCGM_FI_DEV_GPU_TEMP"].(float64); ok && temperature > 0 && x.UUID != "" {
					served++
				}
			}
			if lost != 1 || served != 7 || last.Source != "sim" || time.Since(last.Time) > time.Hour {
				t.Errorf("%d GPUs lost, %d served; the dump: %+v", lost, served, last)
			}
			var kept []string
			for _, other := range []string{old, old + ".gz", fresh, "notes.json", "snapshot-20200101.json"} {
				if _, err := os.Stat(filepath.Join(dir, other)); err == nil {
					kept = append(kept, other)
				}
			}
			if d := cmp.Diff([]string{fresh, "notes.json", "snapshot-20200101.json"}, kept); d != "" {
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
		return strings.Contains(e.log.String(), "Snapshots cannot be dumped") && len(p.series("DCGM_FI_DEV_GPU_TEMP")) == 1
	})
	if err := e.stop(); err != nil {
		t.Error(err)
	}
	if n := strings.Count(e.log.String(), "Snapshots cannot be dumped"); n != 1 {
		t.Errorf("%d lines in the log", n)
	}
}
