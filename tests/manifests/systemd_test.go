package manifests

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/material"
)

var unitFile = filepath.Join(root, "deployment", "systemd", "dcgm-exporter.service")

// exposure is the highest exposure level that systemd-analyze security may report, in tenths.
const exposure = "25"

// analyze runs systemd-analyze, or skips the test if it is missing.
func analyze(t *testing.T, args ...string) (string, error) {
	t.Helper()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		material.Skip(t, "systemd-analyze-absent", err)
	}
	var out bytes.Buffer
	cmd := exec.Command("systemd-analyze", args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// installed writes the unit and the drop-ins to a temporary directory, and returns the path of the unit. The unit
// starts /bin/true instead of the exporter.
func installed(t *testing.T, dropIns ...string) (unit string) {
	t.Helper()
	const program = "ExecStart=/usr/bin/dcgm-exporter"
	text := folder.Read(t, unitFile)
	if !strings.Contains(text, program+"\n") {
		t.Fatalf("unit has no line %s", program)
	}
	unit = filepath.Join(t.TempDir(), "dcgm-exporter.service")
	folder.Write(t, unit, strings.ReplaceAll(text, program, "ExecStart=/bin/true"))
	for _, d := range dropIns {
		folder.Write(t, filepath.Join(unit+".d", filepath.Base(d)), folder.Read(t, d))
	}
	return unit
}

func shippedDropIns(t *testing.T) []string {
	t.Helper()
	return folder.Files(t, filepath.Dir(unitFile), "drop-ins", "*.conf")
}

func TestSystemdAcceptsUnit(t *testing.T) {
	unit := installed(t)
	if out, err := analyze(t, "verify", unit); err != nil || strings.Contains(out, "dcgm-exporter.service") {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

func TestSystemdAcceptsDropIns(t *testing.T) {
	for _, d := range shippedDropIns(t) {
		t.Run(filepath.Base(d), func(t *testing.T) {
			if out, err := analyze(t, "verify", installed(t, d)); err != nil ||
				strings.Contains(out, "dcgm-exporter.service") {
				t.Errorf("systemd-analyze verify: %v\n%s", err, out)
			}
		})
	}
	// prove that the check reads drop-ins
	wrong := filepath.Join(t.TempDir(), "wrong.conf")
	folder.Write(t, wrong, "[Service]\nNoSuchKey=1\n")
	if out, _ := analyze(t, "verify", installed(t, wrong)); !strings.Contains(out, "NoSuchKey") {
		t.Errorf("drop-in with an unknown key was accepted, want a warning:\n%s", out)
	}
}

// Every variable in the unit, the drop-ins and the settings file is a variable of the exporter and has a valid value.
func TestUnitSettingsAreValid(t *testing.T) {
	settings := filepath.Join(root, "deployment", "packages", "settings.env")
	for _, file := range append(shippedDropIns(t), unitFile, settings) {
		env := map[string]string{}
		for line := range strings.Lines(folder.Read(t, file)) {
			line = strings.TrimPrefix(strings.TrimSpace(line), "# ") // include variables that are commented out
			if file != settings && !strings.HasPrefix(line, "Environment=") {
				continue
			}
			name, value, ok := strings.Cut(strings.TrimPrefix(line, "Environment="), "=")
			if !ok || strings.Contains(name, " ") {
				continue
			}
			if !strings.Contains(config.Help(), "$"+name) {
				t.Errorf("%s: %s is not a variable of the exporter", file, name)
			}
			env[name] = strings.NewReplacer("%S", "/var/lib", "%d",
				"/run/credentials/dcgm-exporter.service").Replace(value)
		}
		if len(env) == 0 && file != unitFile && filepath.Base(file) != "profiling.conf" {
			t.Errorf("%s sets no variable", file)
		}
		lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
		if _, err := config.Parse(nil, lookup, os.ReadFile); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestUnitIsHardened(t *testing.T) {
	out, err := analyze(t, "security", "--no-pager", "--offline=true", "--threshold="+exposure, unitFile)
	if err != nil {
		t.Errorf("systemd-analyze security: %v\n%s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	t.Log(lines[len(lines)-1])
}

// TestUnitAllowsLateDriver checks that the unit has no setting that limits access to devices. systemd resolves the list
// of allowed devices only at the start, so it would block a driver that is loaded later.
func TestUnitAllowsLateDriver(t *testing.T) {
	for line := range strings.Lines(folder.Read(t, unitFile)) {
		key, _, _ := strings.Cut(line, "=")
		switch key {
		case "DevicePolicy", "DeviceAllow", "PrivateDevices", "ProtectClock":
			t.Errorf("unit has %s, want no such setting: it blocks devices that appear after the service starts",
				strings.TrimSpace(line))
		}
	}
}

// NVIDIA's and Microsoft's packages name the service nvidia-dcgm-exporter. Enabling that name enables
// dcgm-exporter.service. A drop-in for nvidia-dcgm-exporter, such as on AKS nodes, applies to both names.
func TestNVIDIAServiceName(t *testing.T) {
	if _, err := exec.LookPath("systemctl"); err != nil {
		material.Skip(t, "systemctl-absent", err)
	}
	const other, dropIn = "nvidia-dcgm-exporter.service", "[Service]\nStandardOutput=journal\nExecStart=\n" +
		"ExecStart=/bin/true -f /etc/dcgm-exporter/default-counters.csv --address \":19400\"\nNonsense=1\n"
	packaged := folder.Read(t, root, "deployment", "packages", "nfpm.yaml")
	if !strings.Contains(packaged,
		"  - src: dcgm-exporter.service\n    dst: /usr/lib/systemd/system/"+other+"\n    type: symlink\n") {
		t.Fatal("the packages have no link " + other)
	}
	machine := t.TempDir()
	units, settings := filepath.Join(machine, "usr/lib/systemd/system"), filepath.Join(machine, "etc/systemd/system")
	folder.Write(t, filepath.Join(units, "dcgm-exporter.service"), folder.Read(t, unitFile))
	folder.Write(t, filepath.Join(settings, other+".d", "10-aks-override.conf"), dropIn)
	if err := os.Symlink("dcgm-exporter.service", filepath.Join(units, other)); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("systemctl", "--root="+machine, "enable", other).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if _, err := os.Lstat(filepath.Join(settings, "multi-user.target.wants", "dcgm-exporter.service")); err != nil {
		t.Errorf("service is not enabled: %v", err)
	}
	for _, unit := range []string{"dcgm-exporter.service",
		other} { // the error in the drop-in shows that systemd reads it
		if out, _ := analyze(t, "--root="+machine, "verify", unit); strings.Count(out, "Unknown key") != 1 {
			t.Errorf("%s: warnings about the unknown key in the drop-in = %d, want 1:\n%s", unit,
				strings.Count(out, "Unknown key"), out)
		}
	}
}
