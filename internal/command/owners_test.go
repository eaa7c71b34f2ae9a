package command_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// rowsOf returns the rows of one check.
func rowsOf(all []line, check string) (rows []string) {
	for _, r := range all {
		if r.Check == check {
			rows = append(rows, r.State+" "+r.Found+": "+r.Advice)
		}
	}
	return rows
}

func TestDoctorChecksJobFiles(t *testing.T) {
	const names = "Name it by GPU index (0), GPU instance (0.1), GPU-UUID, GPU-UUID.INSTANCE or MIG-UUID."
	m := machineOf(t, map[string]string{
		"/jobs/0": "7\n", "/jobs/.lock": "", "/jobs/GPU-00000000-0000-4000-8000-0000000000ff": "7\n", "/jobs/tmp": "", "/good/0": "7\n",
	})
	for dir, wants := range map[string][]string{
		"/good": {"ok /good can be read: "},
		"/jobs": {
			"warn GPU-00000000-0000-4000-8000-0000000000ff in /jobs matches no GPU: " + names,
			"warn tmp in /jobs matches no GPU: " + names,
		},
		"/absent": {"fail /absent: no such file or directory: Create it at boot, for example with tmpfiles.d. In a container, mount the host's folder."},
	} {
		got := rowsOf(examine(t, &world{}, m, simulate, "--source=sim", "--hpc-job-mapping-dir="+dir), "job files")
		if strings.Join(got, "\n") != strings.Join(wants, "\n") {
			t.Errorf("%s: %q, want %q", dir, got, wants)
		}
	}
}

func TestDoctorChecksContainerSockets(t *testing.T) {
	m := machineOf(t, map[string]string{"/run/docker.sock": ""}) // the dialer simulates the daemon
	m.Dial = answers("unix /run/docker.sock")
	check := func(args ...string) string {
		args = append([]string{"--source=sim", "--container-labels"}, args...)
		return strings.Join(rowsOf(examine(t, &world{}, m, simulate, args...), "containers"), "\n")
	}
	for _, tt := range []struct{ got, want string }{
		{check(), "ok /run/docker.sock answers: "},
		{check("--container-runtime-socket=unix:///run/docker.sock"), "ok /run/docker.sock answers: "},
		{check("--container-runtime-socket=/run/other.sock"), "fail /run/other.sock: no such file or directory: "},
		{check("--kubernetes"), ""},
	} {
		if !strings.HasPrefix(tt.got, tt.want) || (tt.want == "") != (tt.got == "") {
			t.Errorf("%q, want %q", tt.got, tt.want)
		}
	}
	m.Dial = fails(syscall.EACCES)
	if got := check(); !strings.HasPrefix(got, "fail /run/docker.sock: permission denied: ") {
		t.Errorf("row = %q, want it to say permission denied", got)
	}
	m.Dial = fails(syscall.ECONNREFUSED)
	if got := check(); !strings.Contains(got, "Start the container runtime") {
		t.Errorf("row = %q, want the advice to start the container runtime", got)
	}
	_ = os.Remove(filepath.Join(m.Root, "run", "docker.sock"))
	if got := check(); !strings.Contains(got, "no such file or directory") {
		t.Errorf("row = %q, want it to say that it does not exist", got)
	}
}
