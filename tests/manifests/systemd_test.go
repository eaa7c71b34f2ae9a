package manifests

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var unitFile = filepath.Join(root, "deployment", "systemd", "dcgm-exporter.service")

// exposure is the most that systemd-analyze security may find, in tenths; see
// docs/security.md.
const exposure = "25"

// analyze runs systemd-analyze, or skips the test where there is none.
func analyze(t *testing.T, args ...string) (string, error) {
	t.Helper()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze unavailable: not in PATH")
	}
	var out bytes.Buffer
	cmd := exec.Command("systemd-analyze", args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

func TestSystemdTakesTheUnit(t *testing.T) {
	// The program need not be installed to check the unit.
	const program = "ExecStart=/usr/bin/dcgm-exporter"
	unit := string(read(t, unitFile))
	if !strings.Contains(unit, program+"\n") {
		t.Fatalf("no line %s", program)
	}
	copied := filepath.Join(t.TempDir(), "dcgm-exporter.service")
	if err := os.WriteFile(copied, []byte(strings.Replace(unit, program, "ExecStart=/bin/true", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := analyze(t, "verify", copied); err != nil || strings.Contains(out, "dcgm-exporter.service") {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

func TestTheUnitIsHardened(t *testing.T) {
	out, err := analyze(t, "security", "--no-pager", "--offline=true", "--threshold="+exposure, unitFile)
	if err != nil {
		t.Errorf("systemd-analyze security: %v\n%s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	t.Log(lines[len(lines)-1])
}

// A device list is made when the service starts, and a driver that is loaded
// later is not on it. The exporter waits for one.
func TestTheUnitLetsALateDriverIn(t *testing.T) {
	for line := range strings.Lines(string(read(t, unitFile))) {
		key, _, _ := strings.Cut(line, "=")
		switch key {
		case "DevicePolicy", "DeviceAllow", "PrivateDevices", "ProtectClock":
			t.Errorf("%s makes a list of devices at start", strings.TrimSpace(line))
		}
	}
}
