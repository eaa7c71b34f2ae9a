package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
	fakenvml "github.com/gpu-telemetry/dcgm-exporter/tests/fake/nvml"
)

// Over both libraries two XIDs within one interval are two, and the counts go on over a reload.
func TestXIDsAreCounted(t *testing.T) {
	t.Parallel()
	for name, source := range map[string]func(t *testing.T) (env []string, happen func(xids ...int)){
		"dcgm": func(t *testing.T) ([]string, func(...int)) {
			engine, env := fakedcgm.NewFor(t, node()...)
			number := 0
			return env, func(xids ...int) {
				var lines []string
				for _, xid := range xids {
					number++
					lines = append(lines, fmt.Sprintf("event %d gpu:0 230 %d", number, xid))
				}
				engine.Add(lines...)
			}
		},
		"nvml": func(t *testing.T) ([]string, func(...int)) {
			dir := t.TempDir()
			if _, err := fakenvml.Build(dir); err != nil {
				fakenvml.Need(t, err)
			}
			world := fakenvml.NewFor(t, "gpus 2")
			return append(world.Env(), "LD_LIBRARY_PATH="+dir), func(xids ...int) {
				lines := []string{"gpus 2"}
				for _, xid := range xids {
					lines = append(lines, fmt.Sprintf("xid 0 %d", xid))
				}
				world.Play(t, lines...)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env, happen := source(t)
			dir := t.TempDir()
			file := filepath.Join(dir, "counters.csv")
			configure := func(more string) {
				if err := os.WriteFile(file, []byte(counters+more), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			configure("")
			args := []string{"--source=" + name, "-f", file}
			counted := func(r *running, xid62, xid45 int) {
				t.Helper()
				const total = `DCGM_EXP_XID_ERRORS_TOTAL\{gpu="0",.*xid="%d".*\} %d`
				r.matching(fmt.Sprintf(total, 62, xid62), fmt.Sprintf(total, 45, xid45))
			}
			r := start(t, env, args...)
			r.until(`xid="48"`)
			happen(62, 45, 62)
			counted(r, 2, 1)
			happen(45)
			configure("DCGM_FI_DEV_SM_CLOCK, gauge, C\n")
			r.signal(syscall.SIGHUP)
			r.until("\nDCGM_FI_DEV_SM_CLOCK{")
			counted(r, 2, 2)
			happen(62)
			counted(r, 3, 2)
			r.signal(syscall.SIGTERM)
			if code := r.ends(); code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// XIDs in a storm are counted once each, over reloads.
func TestXIDsInAStormOverReloads(t *testing.T) {
	t.Parallel()
	const xids, reloads = 250, 5
	engine, env := fakedcgm.NewFor(t, node()...)
	file, request := changingFile(t)
	r := start(t, env, "-f", file)
	change := func(n int) {
		request([]string{"DCGM_EXP_XID_ERRORS_TOTAL", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE"}[:2+n%2]...)
		r.signal(syscall.SIGHUP)
	}
	change(0)
	r.until("\nDCGM_EXP_XID_ERRORS_TOTAL{")
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for n := range xids {
		<-tick.C
		engine.Add(fmt.Sprintf("event %d gpu:%d 230 62", n+1, n%8))
		if n%(xids/reloads) == 0 {
			change(1 + n/(xids/reloads))
		}
	}
	sum := func() (sum float64) {
		_, page := r.get("/metrics")
		for line := range strings.Lines(page) {
			if strings.HasPrefix(line, "DCGM_EXP_XID_ERRORS_TOTAL{") && strings.Contains(line, `xid="62"`) {
				sum += value(t, line, line[:strings.Index(line, "}")])
			}
		}
		return sum
	}
	until(t, "every XID", func() bool { return sum() >= xids })
	_, page := r.get("/metrics")
	if n := value(t, page, `dcgm_exporter_sessions_total{cause="reload"}`); n != 1+reloads {
		t.Errorf("%v reloads, want %d", n, 1+reloads)
	}
	if n := sum(); n != xids {
		t.Errorf("%v XIDs counted of %d", n, xids)
	}
}
