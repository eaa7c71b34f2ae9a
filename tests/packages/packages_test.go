//go:build packages

package packages

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/material"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/selfsigned"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/wait"
)

const (
	root     = "../.."
	patience = 40 * time.Second
	// epoch is the commit time that the packages are built with, as a Unix timestamp (SOURCE_DATE_EPOCH).
	epoch = "1795365907"
)

// older and newer are directories with the packages of two releases. debian is the archive of a minimal system.
var older, newer, debian string

func TestMain(m *testing.M) { os.Exit(folder.RunAsRoot(m, "packages", prepare)) }

// prepare builds the packages of two releases and the archive of the system on which they are installed.
func prepare(work string) error {
	older, newer = filepath.Join(work, "older"), filepath.Join(work, "newer")
	if err := build(older, "v0.0.9", "amd64"); err != nil {
		return err
	}
	if err := build(newer, "v0.1.0", "amd64 arm64"); err != nil {
		return err
	}
	out, err := exec.Command(filepath.Join(root, "deployment/docker/debian.sh")).Output()
	if err != nil {
		return fmt.Errorf("debian.sh: %w", err)
	}
	debian = strings.TrimSpace(string(out))
	return nil
}

func build(out, version, arches string) error {
	cmd := exec.Command(filepath.Join(root, "deployment/packages/build.sh"), out)
	cmd.Env = append(os.Environ(), "VERSION="+version, "EPOCH="+epoch, "ARCHES="+arches)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build.sh: %w\n%s", err, text)
	}
	return nil
}

// A machine is a directory with a minimal Debian root file system, in which programs run with chroot.
type machine struct {
	t    *testing.T
	root string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{t, t.TempDir()}
	if out, err := exec.Command("tar", "-C", m.root, "-xf", debian).CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	if err := os.Chmod(m.root, 0o755); err != nil {
		t.Fatal(err)
	}
	// programs expect that /dev/null exists
	if out, err := exec.Command("mknod", "-m", "666", m.at("/dev/null"), "c", "1", "3").CombinedOutput(); err != nil {
		t.Fatalf("mknod: %v\n%s", err, out)
	}
	return m
}

func (m *machine) at(path string) string { return filepath.Join(m.root, path) }

// does runs a program in the machine and returns its output. The test fails if the program fails.
func (m *machine) does(args ...string) string {
	m.t.Helper()
	cmd := exec.Command("chroot", append([]string{m.root}, args...)...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		m.t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// prints checks the output of a program in the machine.
func (m *machine) prints(want string, args ...string) {
	m.t.Helper()
	if got := m.does(args...); got != want {
		m.t.Errorf("%s prints %q, want %q", strings.Join(args, " "), got, want)
	}
}

// keeps checks which files exist after a package was removed.
func (m *machine) keeps(files map[string]bool) {
	m.t.Helper()
	for f, want := range files {
		if got := m.has(f); got != want {
			m.t.Errorf("after removal, %s exists: %t, want %t", f, got, want)
		}
	}
}

// brings copies a package into the machine and returns its path.
func (m *machine) brings(pkg string) string {
	m.t.Helper()
	m.writes("/tmp/"+filepath.Base(pkg), folder.Read(m.t, pkg), 0o644)
	return "/tmp/" + filepath.Base(pkg)
}

func (m *machine) writes(path, content string, mode os.FileMode) {
	m.t.Helper()
	if err := os.WriteFile(m.at(path), []byte(content), mode); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) has(path string) bool {
	_, err := os.Lstat(m.at(path))
	return err == nil
}

// files lists paths that the package installs. Files whose path differs between Debian and RPM systems are left out.
var files = []string{
	"/usr/bin/dcgm-exporter",
	"/etc/dcgm-exporter/default-counters.csv", "/etc/dcgm-exporter/dcp-metrics-included.csv",
	"/etc/dcgm-exporter/1.x-compatibility-metrics.csv", "/etc/dcgm-exporter/fleet-counters.csv",
	"/etc/dcgm-exporter/web",
	"/usr/lib/systemd/system/dcgm-exporter.service", "/usr/lib/systemd/system/nvidia-dcgm-exporter.service",
	"/usr/lib/sysusers.d/dcgm-exporter.conf",
	"/usr/share/dcgm-exporter/dcgm-exporter.service.d/tls.conf",
	"/usr/share/dcgm-exporter/dcgm-exporter.service.d/tls-credentials.conf",
	"/usr/share/dcgm-exporter/dcgm-exporter.service.d/xid-kernel-log.conf",
	"/usr/share/dcgm-exporter/dcgm-exporter.service.d/container-labels.conf",
	"/usr/share/dcgm-exporter/dcgm-exporter.service.d/profiling.conf",
	"/usr/share/doc/dcgm-exporter/examples/alertmanager.yml",
	"/usr/share/doc/dcgm-exporter/examples/rules/alerts-gpu.yml",
}

func TestDebianInstallsUpgradesRemovesPurges(t *testing.T) {
	m := newMachine(t)
	m.does("dpkg", "-i", m.brings(filepath.Join(older, "dcgm-exporter_0.0.9-1_amd64.deb")))
	for _, f := range append(slices.Clone(files), "/etc/default/dcgm-exporter",
		"/usr/share/doc/dcgm-exporter/copyright") {
		if !m.has(f) {
			t.Errorf("%s is missing", f)
		}
	}
	if got := m.does("getent", "passwd", "dcgm-exporter"); !strings.Contains(got, ":/usr/sbin/nologin") {
		t.Errorf("account = %s, want the shell /usr/sbin/nologin", got)
	}
	m.prints("root:dcgm-exporter 750\n", "stat", "-c", "%U:%G %a", "/etc/dcgm-exporter/web")
	m.prints("root:root 755\n", "stat", "-c", "%U:%G %a", "/usr/bin/dcgm-exporter")
	m.prints("", "dpkg", "--verify", "dcgm-exporter") // no changes

	// an upgrade keeps the administrator's changes
	m.writes("/etc/default/dcgm-exporter", "DCGM_EXPORTER_INTERVAL=1000\n", 0o644)
	m.writes("/etc/dcgm-exporter/web/tls.key", "secret", 0o640)
	m.does("dpkg", "-i", m.brings(filepath.Join(newer, "dcgm-exporter_0.1.0-1_amd64.deb")))
	m.prints("1:0.1.0-1 install ok installed", "dpkg-query", "-W", "-f", "${Version} ${Status}", "dcgm-exporter")
	m.prints("DCGM_EXPORTER_INTERVAL=1000\n", "cat", "/etc/default/dcgm-exporter")

	m.serves()

	m.does("dpkg", "-r", "dcgm-exporter")
	m.keeps(map[string]bool{"/usr/bin/dcgm-exporter": false, "/etc/default/dcgm-exporter": true,
		"/etc/dcgm-exporter/default-counters.csv": true})
	m.does("dpkg", "-P", "dcgm-exporter")
	for _, f := range append(slices.Clone(files), "/etc/default/dcgm-exporter") {
		if f != "/etc/dcgm-exporter/web" && m.has(f) {
			t.Errorf("after purge, %s exists, want it deleted", f)
		}
	}
	m.keeps(map[string]bool{"/etc/dcgm-exporter/web/tls.key": true}) // it is the administrator's
}

// The package replaces NVIDIA's package, and Microsoft's, which is also called dcgm-exporter. Both have a program and a
// counters file at our paths. Their unit is below /lib, which is a symbolic link to /usr/lib.
func TestDebianReplacesOtherPackages(t *testing.T) {
	for name, version := range map[string]string{"datacenter-gpu-manager-exporter": "4.8.2-1",
		"dcgm-exporter": "4.8.3-ubuntu24.04u5"} {
		m, build := newMachine(t), t.TempDir()
		for path, content := range map[string]string{
			"DEBIAN/control": "Package: " + name + "\nVersion: " + version +
				"\nArchitecture: amd64\nMaintainer: x <x@x>\nDescription: x\n",
			"DEBIAN/conffiles":                                "/etc/dcgm-exporter/default-counters.csv\n",
			"etc/dcgm-exporter/default-counters.csv":          "# theirs\n",
			"usr/bin/dcgm-exporter":                           "theirs",
			"lib/systemd/system/nvidia-dcgm-exporter.service": "theirs",
		} {
			folder.Write(t, filepath.Join(build, path), content)
		}
		theirs := filepath.Join(t.TempDir(), "theirs.deb")
		reads(t, "dpkg-deb", "--build", build, theirs)
		m.does("dpkg", "-i", m.brings(theirs))
		m.does("dpkg", "-i", m.brings(filepath.Join(newer, "dcgm-exporter_0.1.0-1_amd64.deb")))
		m.prints("1:0.1.0-1 install ok installed", "dpkg-query", "-W", "-f", "${Version} ${Status}", "dcgm-exporter")
		m.prints("dcgm-exporter.service\n", "readlink", "/usr/lib/systemd/system/nvidia-dcgm-exporter.service")
	}
}

// serves runs the installed program as the package's user, with a simulated node and the variable of the drop-in for
// TLS. It waits for GPU series over TLS, and stops the program. web.yaml has paths relative to its own directory.
func (m *machine) serves() {
	t := m.t
	t.Helper()
	certificate, key := selfsigned.Pair(t)
	for name, content := range map[string]string{
		"tls.crt": certificate, "tls.key": key,
		"web.yaml": "tls_server_config:\n  cert_file: tls.crt\n  key_file: tls.key\n",
	} {
		m.writes("/etc/dcgm-exporter/web/"+name, content, 0o640)
		m.does("chgrp", "dcgm-exporter", "/etc/dcgm-exporter/web/"+name)
	}
	m.writes("/tmp/faults.yaml", "faults:\n  - {fault: xid, at: 1s, devices: [\"0\"], xids: [31]}\n", 0o644)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	cmd := exec.Command("chroot", "--userspec=dcgm-exporter:dcgm-exporter", m.root, "/usr/bin/dcgm-exporter",
		"--source=sim", "--sim-scenario=/tmp/faults.yaml", "-f", "/etc/dcgm-exporter/fleet-counters.csv",
		"--address="+address, "-c", "500")
	cmd.Env = []string{
		"DCGM_EXPORTER_WEB_CONFIG_FILE=/etc/dcgm-exporter/web/web.yaml", // as in tls.conf
	}
	var log bytes.Buffer // only read after the process has ended
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(certificate))
	client := &http.Client{Timeout: 5 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	err = wait.Until(patience, func() error {
		response, err := client.Get("https://" + address + "/metrics")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		page, err := io.ReadAll(response.Body)
		if err == nil && !bytes.Contains(page, []byte("\nDCGM_FI_DEV_GPU_TEMP{")) {
			err = errors.New("no GPU series")
		}
		return err
	})
	if interrupt := cmd.Process.Signal(os.Interrupt); interrupt != nil {
		t.Error(interrupt)
	}
	if ended := cmd.Wait(); err != nil || ended != nil {
		t.Errorf("%v, %v\n%s", err, ended, &log)
	}
}

// reads runs a program of the host, such as tar or rpm, and returns its output. If the program is missing, the test is
// skipped.
func reads(t *testing.T, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(args[0]); err != nil {
		material.Skip(t, args[0]+"-absent", err)
	}
	cmd := exec.Command(args[0], args[1:]...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, &stderr)
	}
	return string(out)
}

// The RPM installs, upgrades without replacing changed settings, and on erase keeps the administrator's key. It is
// installed with --nodeps into an empty RPM database.
func TestRPMInstallsUpgradesErases(t *testing.T) {
	m := newMachine(t)
	rpm := func(args ...string) {
		t.Helper()
		reads(t, append([]string{"rpm", "--root", m.root, "--dbpath", "/var/lib/rpm", "--nodeps"}, args...)...)
	}
	rpm("-i", filepath.Join(older, "dcgm-exporter-0.0.9-1.x86_64.rpm"))
	m.writes("/etc/sysconfig/dcgm-exporter", "DCGM_EXPORTER_INTERVAL=1000\n", 0o644)
	m.prints("root:dcgm-exporter 750\n", "stat", "-c", "%U:%G %a", "/etc/dcgm-exporter/web")
	rpm("-U", filepath.Join(newer, "dcgm-exporter-0.1.0-1.x86_64.rpm"))
	m.prints("DCGM_EXPORTER_INTERVAL=1000\n", "cat", "/etc/sysconfig/dcgm-exporter")
	m.serves()
	rpm("-e", "dcgm-exporter")
	m.keeps(map[string]bool{"/usr/bin/dcgm-exporter": false, "/etc/dcgm-exporter/web/tls.key": true})
}
