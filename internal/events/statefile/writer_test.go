package statefile

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// keep opens path, saves s where there is one, and returns what was there, the log and the series.
func keep(t *testing.T, path string, s *state) (restored *state, log string, reg *prometheus.Registry) {
	t.Helper()
	var text strings.Builder
	reg = prometheus.NewRegistry()
	k, restored := Open(path, counts(), reg, slog.New(slog.NewTextHandler(&text, nil)))
	if s != nil {
		k.Save(s)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	k.Run(ctx)
	return restored, text.String(), reg
}

// expect compares the series of the state file.
func expect(t *testing.T, reg *prometheus.Registry, up, restored string) {
	t.Helper()
	want := "# HELP dcgm_exporter_state_file_up Whether the state file could be written the last time, with the reason if not.\n" +
		"# TYPE dcgm_exporter_state_file_up gauge\ndcgm_exporter_state_file_up" + up + "\n" +
		"# HELP dcgm_exporter_state_file_restored Whether the state file could be used at the start; 0, with the reason, where the counters started from 0.\n" +
		"# TYPE dcgm_exporter_state_file_restored gauge\ndcgm_exporter_state_file_restored" + restored + "\n"
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

const fine = `{reason=""} 1`

func TestKeptAcrossARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	_, log, reg := keep(t, path, counted("GPU-1", 1))
	expect(t, reg, fine, fine)
	if !strings.Contains(log, "level=INFO") || strings.Contains(log, "level=WARN") {
		t.Errorf("the first start says: %s", log)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	restored, log, reg := keep(t, path, nil)
	if diff := cmp.Diff(counted("GPU-1", 1), restored); diff != "" || log != "" {
		t.Errorf("log %q (-saved +restored)\n%s", log, diff)
	}
	expect(t, reg, fine, fine)
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); err != nil || len(left) != 1 {
		t.Errorf("left in the folder: %v (%v)", left, err)
	}
}

func TestUnusableFileIsPutAside(t *testing.T) {
	for name, test := range map[string]struct{ text, restored string }{
		"corrupt": {`{"version":1,"gpus":`, `{reason="corrupt"} 0`},
		"newer":   {`{"version":7}`, `{reason="version"} 0`},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state.json")
			if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			restored, log, reg := keep(t, path, counted("GPU-1", 1))
			if restored != nil {
				t.Errorf("restored %+v", restored)
			}
			if strings.Count(log, "level=WARN") != 1 {
				t.Errorf("it is to be logged once: %s", log)
			}
			expect(t, reg, fine, test.restored)
			if kept, err := os.ReadFile(path + ".corrupt"); err != nil || string(kept) != test.text {
				t.Errorf("kept %q (%v)", kept, err)
			}
			if again, _, _ := keep(t, path, nil); !cmp.Equal(counted("GPU-1", 1), again) {
				t.Errorf("the new file holds %v", again)
			}
		})
	}
}

// A folder of that name, or none to write in, is reported, and left as it is.
func TestWhatCannotBeWrittenIsLoggedOnce(t *testing.T) {
	dir := t.TempDir()
	for name, test := range map[string]struct{ path, up, restored string }{
		"a folder":  {dir, `{reason="corrupt"} 0`, `{reason="corrupt"} 0`},
		"no folder": {filepath.Join(dir, "none", "state.json"), `{reason="error"} 0`, fine},
		"a device":  {os.DevNull, `{reason="corrupt"} 0`, `{reason="corrupt"} 0`},
	} {
		t.Run(name, func(t *testing.T) {
			_, log, reg := keep(t, test.path, counted("GPU-1", 1))
			expect(t, reg, test.up, test.restored)
			if strings.Count(log, "cannot be written") != 1 || strings.Contains(log, ".corrupt") { // nothing was put aside
				t.Errorf("log: %s", log)
			}
		})
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		t.Errorf("the folder is gone: %v", err)
	}
}

// A failure that lasts is logged once, and so is its end; the old file stays meanwhile.
func TestOldFileStaysUntilTheNextIsWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	keep(t, path, counted("GPU-1", 1))
	// What is in the way of the next file: a link is never followed.
	if err := os.Symlink("/dev/full", path+".next"); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	k, _ := Open(path, counts(), prometheus.NewRegistry(), slog.New(slog.NewTextHandler(&text, nil)))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 3 {
		k.Save(counted("later", 1))
		k.Run(ctx)
	}
	if n := strings.Count(text.String(), "cannot be written"); n != 1 {
		t.Errorf("logged %d times: %s", n, text.String())
	}
	if s, _, _ := keep(t, path, nil); !cmp.Equal(counted("GPU-1", 1), s) {
		t.Errorf("the old file is %v", s)
	}
	if err := os.RemoveAll(path + ".next"); err != nil {
		t.Fatal(err)
	}
	k.Save(counted("later", 1))
	k.Run(ctx)
	if !strings.Contains(text.String(), "written again") {
		t.Errorf("log: %s", text.String())
	}
	if s, _, _ := keep(t, path, nil); s.Counts["later"] != 1 {
		t.Errorf("the new file is %v", s)
	}
}
