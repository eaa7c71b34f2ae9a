//go:build e2e

package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// gpuop verify --smoke creates its pod, the scheduler places it by the GPU that it requests, and
// nothing is left of it. This node gives a network to pods on the host's alone: the container does
// not start, and the row fails at the deadline.
func TestSmokePodsAreRemoved(t *testing.T) {
	n := theNode(t)
	offer(t, n)
	program := filepath.Join(t.TempDir(), "gpuop")
	build := exec.Command("go", "build", "-o", program, "./gpuop")
	build.Dir = "../.."
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.Command(program, "verify", "--smoke", "--image", "e2e.local/hold:1", "--node", nodeName, "--smoke-namespace", "ml",
		"--wait-timeout", "20s", "--kubeconfig", filepath.Join(n.state, "admin.kubeconfig"))
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	err := cmd.Run()
	if code := cmd.ProcessState.ExitCode(); code != 1 {
		t.Fatalf("exit code %d (%v), want 1\n%s%s", code, err, &out, &log)
	}
	if !strings.Contains(out.String(), "vectorAdd") || !strings.Contains(log.String(), "smoke test: ") {
		t.Errorf("no row of the smoke test, or no word of what it creates:\n%s%s", &out, &log)
	}
	if left := n.must(t, "", "get", "pods", "-n", "ml", "-o", "name"); strings.Contains(left, "gpuop-smoke") {
		t.Errorf("left behind: %s", left)
	}
	t.Logf("%s%s", &log, &out)
}
