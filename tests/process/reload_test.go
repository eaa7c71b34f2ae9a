package process

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
)

// changingFile returns the path of a counters file, and what writes a field into it.
func changingFile(t *testing.T) (path string, request func(fields ...string)) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "counters.csv")
	request = func(fields ...string) {
		t.Helper()
		next := path + ".next"
		if err := os.WriteFile(next, []byte(strings.Join(fields, ", gauge, H\n")+", gauge, H\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, path); err != nil {
			t.Fatal(err)
		}
	}
	request("DCGM_FI_DEV_GPU_TEMP")
	return path, request
}

// A change that comes while a driver call hangs is in force once that has returned.
func TestAChangeDuringADriverCallIsKept(t *testing.T) {
	t.Parallel()
	engine, env := fakedcgm.NewFor(t, node()...)
	path, request := changingFile(t)
	r := start(t, env, "-f", path)
	r.until(`DCGM_FI_DEV_GPU_TEMP{gpu="7"`)
	frozen := []string{"block dcgmGetLatestValues_v2", "block dcgmEntitiesGetLatestValues", "block dcgmGetGpuStatus"}
	engine.Add(frozen...)
	until(t, "a call that hangs", func() bool { return engine.Blocked() > 0 })
	request("DCGM_FI_DEV_POWER_USAGE")
	r.until(`dcgm_exporter_collect_unavailable{reason="timeout"} 1`)
	// The watch has seen the change by then.
	thawed := make(chan struct{})
	time.AfterFunc(3*time.Second, func() {
		defer close(thawed)
		for _, line := range frozen {
			engine.Remove(line)
		}
	})
	<-thawed
	page := r.until(`DCGM_FI_DEV_POWER_USAGE{gpu="7"`, "dcgm_exporter_config_last_reload_successful 1")
	if strings.Contains(page, "\nDCGM_FI_DEV_GPU_TEMP{") {
		t.Errorf("the field of before is still there:\n%s", page)
	}
}

// A change that the driver does not take now is tried again until it is in force.
func TestAChangeIsTriedAgain(t *testing.T) {
	t.Parallel()
	engine, env := fakedcgm.NewFor(t, node()...)
	path, request := changingFile(t)
	r := start(t, env, "-f", path)
	r.until(`DCGM_FI_DEV_GPU_TEMP{gpu="7"`)
	engine.Add("fail dcgmWatchFields -7")
	request("DCGM_FI_DEV_POWER_USAGE")
	r.until("dcgm_exporter_config_last_reload_successful 0", `DCGM_FI_DEV_GPU_TEMP{gpu="7"`)
	engine.Remove("fail dcgmWatchFields -7")
	r.until(`DCGM_FI_DEV_POWER_USAGE{gpu="7"`, "dcgm_exporter_config_last_reload_successful 1")

	// What is proven bad is not: the log has one line about it.
	request("NO_SUCH_FIELD")
	r.until("dcgm_exporter_config_last_reload_successful 0", `DCGM_FI_DEV_POWER_USAGE{gpu="7"`)
	before := strings.Count(r.said(), "NO_SUCH_FIELD")
	first := value(t, r.until("dcgm_exporter_collect_success 1"), "dcgm_exporter_collect_last_success_timestamp_seconds ")
	until(t, "three seconds of cycles", func() bool {
		_, page := r.get("/metrics")
		return value(t, page, "dcgm_exporter_collect_last_success_timestamp_seconds ") > first+3
	})
	if n := strings.Count(r.said(), "NO_SUCH_FIELD"); n != before {
		t.Errorf("a bad file was read %d times more", n-before)
	}
}

// A reload is one change: passwords that come with a session which the driver refuses are in force with the session, and
// not before.
func TestAReloadIsOneChange(t *testing.T) {
	t.Parallel()
	engine, env := fakedcgm.NewFor(t, node()...)
	path, request := changingFile(t)
	web := filepath.Join(t.TempDir(), "web.yml")
	configure := func(text string) {
		t.Helper()
		if err := os.WriteFile(web, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	configure("http_server_config: {http2: false}\n")
	r := start(t, env, "-f", path, "--web-config-file", web)
	r.until(`DCGM_FI_DEV_GPU_TEMP{gpu="7"`)
	engine.Add("fail dcgmWatchFields -7")
	configure(`basic_auth_users: {me: "$2y$10$abcdefghijklmnopqrstuuAaBbCcDdEeFfGgHhIiJjKkLlMmNnOoPp"}` + "\n")
	request("DCGM_FI_DEV_POWER_USAGE")
	r.until("dcgm_exporter_config_last_reload_successful 0", `DCGM_FI_DEV_GPU_TEMP{gpu="7"`)
	engine.Remove("fail dcgmWatchFields -7")
	until(t, "a password that is needed", func() bool {
		code, _ := r.get("/metrics")
		return code == http.StatusUnauthorized
	})
}
