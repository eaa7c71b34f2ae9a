package process

import (
	"net/http"
	"strings"
	"syscall"
	"testing"

	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
)

// An end that comes while a reload hangs in the engine was requested, and the log says what hangs.
func TestEndDuringAReloadThatHangs(t *testing.T) {
	t.Parallel()
	engine, env := fakedcgm.NewFor(t, node()...)
	file, request := changingFile(t)
	r := start(t, env, "-f", file)
	r.until("dcgm_exporter_collect_success 1")
	engine.Add("block dcgmWatchFields")
	request("DCGM_FI_DEV_POWER_USAGE")
	r.signal(syscall.SIGHUP)
	until(t, "a reload that hangs", func() bool { return engine.Blocked() > 0 })
	if code, _ := r.get("/-/healthy"); code != http.StatusOK {
		t.Errorf("/-/healthy: %d", code)
	}
	r.signal(syscall.SIGTERM)
	if code := r.ends(); code != 0 || !strings.Contains(r.said(), "A driver call has not returned") {
		t.Errorf("exit code %d, want 0 and a word why:\n%s", code, r.said())
	}
}

// An engine comes back in another version, which counts some fields in other units: the page goes
// on in the units of before.
func TestEngineOfAnotherVersion(t *testing.T) {
	t.Parallel()
	engine, env := fakedcgm.NewFor(t, append(node(), "value gpu:* 203 int 40")...)
	r := start(t, env, "--remote-hostengine-info=10.0.0.9:5555")
	busy := `DCGM_FI_DEV_GPU_UTIL{gpu="7"`
	value := func(page string) string {
		_, rest, _ := strings.Cut(page, "\n"+busy)
		line, _, _ := strings.Cut(rest, "\n")
		return line[strings.LastIndex(line, " ")+1:]
	}
	if got := value(r.until(busy)); got != "40" {
		t.Errorf("utilization %s, want 40", got)
	}
	for i, change := range [][4]string{
		{"engine 4.6.1", "engine 4.7.0", "value gpu:* 203 int 40", "value gpu:* 203 double 0.4"},
		{"engine 4.7.0", "engine 4.5.2", "value gpu:* 203 double 0.4", "value gpu:* 203 int 40"},
	} {
		engine.Replace(change[0], change[1])
		engine.Replace(change[2], change[3])
		engine.Restart()
		page := r.until(`dcgm_exporter_sessions_total{cause="lost"} `+[]string{"1", "2"}[i], busy)
		if got := value(page); got != "40" {
			t.Errorf("%s: utilization %s, want 40", change[1], got)
		}
	}
	if n := strings.Count(r.said(), "are of different versions"); n != 2 {
		t.Errorf("%d warnings of different versions, want 2", n)
	}
}
