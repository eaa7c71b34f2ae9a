package process

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

// readDump returns the content of a dump. It returns "" while a compressed dump is still being written.
func readDump(t *testing.T, path string) string {
	t.Helper()
	page := folder.Read(t, path)
	if strings.HasSuffix(path, ".gz") {
		text, err := gzip.NewReader(strings.NewReader(page))
		if err != nil {
			return ""
		}
		all, err := io.ReadAll(text)
		if err != nil {
			return ""
		}
		return string(all)
	}
	return page
}

// Pages are dumped to files. Dumps older than --dump-retention are deleted, including the JSON dumps of earlier
// releases. Newer dumps and other files are kept.
func TestDumps(t *testing.T) {
	t.Parallel()
	old, older := "snapshot-20200101T000000.000000000Z.prom", "snapshot-20190101T000000.000000000Z.json"
	fresh := time.Now().Add(-30 * time.Minute).UTC().Format("snapshot-20060102T150405.000000000Z.prom")
	others := []string{fresh, "notes.prom", "snapshot-20200101.prom"}
	for end, flag := range map[string]string{".prom.gz": "--dump-compression", ".prom": "--dump-compression=false"} {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			files := map[string]string{}
			for _, name := range append([]string{old, old + ".gz", older, older + ".gz"}, others...) {
				files[name] = "{}"
			}
			dir := folder.Of(t, files)
			r := simulate(t, "h100x8", []string{`fault: gpu-lost, at: 0s, for: 1h, devices: ["3"]`},
				"--dump-enabled", "--dump-directory="+dir, "--dump-retention=1h", flag)
			last := ""
			r.wait("a new dump, and old dumps deleted", func() bool {
				all, err := os.ReadDir(dir)
				if err != nil {
					t.Fatal(err)
				}
				var names []string
				for _, entry := range all {
					if !slices.Contains(others, entry.Name()) {
						names = append(names, entry.Name())
					}
				}
				if len(names) == 0 || len(all) != len(names)+len(others) || names[0] <= old+".gz" {
					return false
				}
				newest := names[len(names)-1]
				if !strings.HasSuffix(newest, end) {
					t.Errorf("newest dump is %s, want the suffix %s", newest, end)
				}
				last = readDump(t, filepath.Join(dir, newest))
				return strings.Contains(last, "\ndcgm_exporter_collect_success 1")
			})
			if n := strings.Count(last, "\nDCGM_FI_DEV_GPU_TEMP{"); n != 7 || !strings.Contains(last, `reason="lost"`) {
				t.Errorf("temperatures in the dump = %d, want 7, and reason=\"lost\" in the dump:\n%s", n, last)
			}
		})
	}
}

// If the dump folder cannot be written, the log says so once, and metrics are still served.
func TestDumpsNowhere(t *testing.T) {
	t.Parallel()
	r := simulate(t, "single", nil, "--dump-enabled", "--dump-directory="+filepath.Join(write(t, "file", ""), "dumps"))
	const last = "dcgm_exporter_collect_last_success_timestamp_seconds"
	first := r.collected().Value(last)
	r.sees("more cycles", func(p page) bool { return p.Value(last) > first+1 && len(p.By("DCGM_FI_DEV_GPU_TEMP")) == 1 })
	r.logs("Page dump failed", 1)
}
