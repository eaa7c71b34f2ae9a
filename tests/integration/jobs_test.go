package integration

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// writeJobs replaces a job file as a prolog should.
func writeJobs(t *testing.T, dir, name, jobs string) {
	t.Helper()
	temporary := filepath.Join(dir, "."+name+".new")
	if err := os.WriteFile(temporary, []byte(jobs), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temporary, filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

// owned returns the GPUs, or GPU/instance, whose memory series carry a label, with its value.
func owned(p page, label string) map[string]string {
	got := map[string]string{}
	for key := range p.series("DCGM_FI_DEV_FB_USED", "gpu", "GPU_I_ID", label) {
		part := strings.Split(key, "/")
		if part[2] != "" {
			got[strings.TrimSuffix(part[0]+"."+part[1], ".")] = part[2]
		}
	}
	return got
}

// untilOwned waits for a page on which exactly these are owned.
func (e *exporter) untilOwned(label string, want map[string]string) page {
	e.t.Helper()
	return e.until(fmt.Sprintf("%s of %v", label, want), func(p page) bool { return cmp.Equal(want, owned(p, label)) })
}

// TestJobs follows job files from the start of a job to its end, over a folder that comes late,
// goes and comes again, and over a reload.
func TestJobs(t *testing.T) {
	t.Parallel()
	type m = map[string]string
	dir := filepath.Join(t.TempDir(), "jobs")
	e := start(t, sim(t, "a100-mig", "", "--hpc-job-mapping-dir="+dir)...)
	missing := func(p page) bool {
		return p.series("dcgm_exporter_attribution_success", "attributor")["hpc"] == 0
	}
	p := e.until("the missing folder", func(p page) bool { return p.value("dcgm_exporter_collect_success") == 1 && missing(p) })
	if n := len(p.series("DCGM_FI_DEV_FB_USED", "gpu", "GPU_I_ID")); n == 0 || len(owned(p, "hpc_job")) != 0 {
		t.Fatalf("without a folder: %d memory series, owned %v", n, owned(p, "hpc_job"))
	}
	const whole, part = "2", "0.11" // neither has a pod
	samples := len(p.series("DCGM_FI_DEV_POWER_USAGE", "gpu"))

	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	writeJobs(t, dir, whole, "4711\r\n4711\n")
	writeJobs(t, dir, part, `job "x" \ 7`)
	e.untilOwned("hpc_job", m{whole: "4711", part: `job "x" \ 7`})
	writeJobs(t, dir, whole, "4712\n")
	e.untilOwned("hpc_job", m{whole: "4712", part: `job "x" \ 7`})

	// Several jobs: the device once, and each job by its own series.
	writeJobs(t, dir, whole, "4712\n4713\n")
	p = e.until("two jobs", func(p page) bool {
		jobs := p.series("dcgm_pod_gpu_allocated_seconds_total", "gpu", "hpc_job")
		_, a := jobs[whole+"/4712"]
		_, b := jobs[whole+"/4713"]
		return a && b && cmp.Equal(m{part: `job "x" \ 7`}, owned(p, "hpc_job"))
	})
	if n := len(p.families["DCGM_FI_DEV_POWER_USAGE"].GetMetric()); n != samples {
		t.Errorf("%d power series with two jobs on a GPU, %d without", n, samples)
	}

	// What the folder said is gone with it, after a bounded time.
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	e.untilOwned("hpc_job", m{})
	e.until("the folder gone", missing)
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	e.untilOwned("hpc_job", m{part: `job "x" \ 7`})

	e.hangup <- struct{}{}
	e.untilOwned("hpc_job", m{part: `job "x" \ 7`})
	writeJobs(t, dir, part, "")
	e.untilOwned("hpc_job", m{})
}

// TestSlurmScripts runs the scripts of the documentation as Slurm would.
func TestSlurmScripts(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"sh", "flock"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs the program %s: %v", tool, err)
		}
	}
	page, err := os.ReadFile("../../docs/attribution.md")
	if err != nil {
		t.Fatal(err)
	}
	scripts := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllSubmatch(page, -1)
	if len(scripts) != 2 {
		t.Fatalf("%d scripts, want a prolog and an epilog", len(scripts))
	}
	dir := filepath.Join(t.TempDir(), "jobs")
	run := func(script int, job, gpus string) {
		t.Helper()
		cmd := exec.Command("sh", "-c", string(scripts[script][1]))
		cmd.Env = append(os.Environ(), "GPU_JOBS_DIR="+dir, "SLURM_JOB_ID="+job, "SLURM_JOB_GPUS="+gpus)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	const prolog, epilog = 0, 1
	e := start(t, sim(t, "h100x8", "", "--hpc-job-mapping-dir="+dir)...)
	run(prolog, "71", "0,2")
	e.untilOwned("hpc_job", map[string]string{"0": "71", "2": "71"})
	run(prolog, "7", "0,1")
	e.untilOwned("hpc_job", map[string]string{"1": "7", "2": "71"})
	run(epilog, "7", "0,1")
	e.untilOwned("hpc_job", map[string]string{"0": "71", "2": "71"})
	run(epilog, "71", "0,2")
	e.untilOwned("hpc_job", map[string]string{})
}

// TestContainers follows the containers of a runtime on a socket, one that hangs and comes back
// included.
func TestContainers(t *testing.T) {
	t.Parallel()
	const id = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	socket := filepath.Join(t.TempDir(), "docker.sock")
	hang := make(chan chan struct{}, 1)
	hang <- nil
	mux := http.NewServeMux()
	mux.HandleFunc("GET /_ping", func(w http.ResponseWriter, r *http.Request) {
		wait := <-hang
		hang <- wait
		if wait != nil {
			select {
			case <-wait:
			case <-r.Context().Done():
			}
		}
		w.Header().Set("Api-Version", "1.47")
	})
	mux.HandleFunc("GET /v1.47/containers/json", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `[{"Id":%q,"Names":["/trainer"],"Labels":{"com.docker.compose.service":"train","secret":"x"}}]`, id)
	})
	mux.HandleFunc("GET /v1.47/containers/"+id+"/json", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"Config":{"Env":[]},"HostConfig":{"Runtime":"runc","DeviceRequests":[{"Driver":"","Count":0,"DeviceIDs":["2"],"Capabilities":[["gpu"]]}]}}`)
	})
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()

	e := start(t, sim(t, "a100-mig", "", "--container-labels", "--container-runtime-socket="+socket, "--container-label-allowlist-regex=compose")...)
	want := map[string]string{"2": "train"} // which has no pod
	p := e.untilOwned("com_docker_compose_service", want)
	if got := owned(p, "container")["2"]; got != "trainer" || strings.Contains(p.text, "secret") {
		t.Errorf("container %q, want trainer; and nothing that is not allowed", got)
	}
	release := make(chan struct{})
	<-hang
	hang <- release
	p = e.untilOwned("com_docker_compose_service", map[string]string{})
	if p.value("dcgm_exporter_collect_success") != 1 || p.series("dcgm_exporter_attribution_success", "attributor")["containers"] != 0 {
		t.Error("while the runtime hangs, the GPUs are served and the attributor is said to fail")
	}
	<-hang
	hang <- nil
	close(release)
	e.untilOwned("com_docker_compose_service", want)
}
