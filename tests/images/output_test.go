package images

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// build.sh prints the command that loads the image into Docker, unless it writes OCI layouts. The test replaces the
// programs that build images.
func TestCommandForDocker(t *testing.T) {
	root := t.TempDir()
	put := func(path, content string) {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	script, err := os.ReadFile("../../deployment/docker/build.sh")
	if err != nil {
		t.Fatal(err)
	}
	put("deployment/docker/build.sh", string(script))
	for _, program := range []string{"dcgm-exporter", "gpuop"} {
		put("bin/linux/"+runtime.GOARCH+"/"+program, "")
	}
	put("fakes/dpkg", "#!/bin/sh\necho "+runtime.GOARCH+"\n")
	put("fakes/buildah", "#!/bin/sh\n")
	put("fakes/jq", "#!/bin/sh\ncat >/dev/null 2>&1\n")
	run := func(args ...string) string {
		cmd := exec.Command(filepath.Join(root, "deployment/docker/build.sh"), args...)
		path := filepath.Join(root, "fakes") + ":" + os.Getenv("PATH")
		cmd.Env = []string{"PATH=" + path, "BUILDER=debian", "ARCHES=" + runtime.GOARCH}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("build.sh %q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	got := run()
	for _, tag := range []string{"dev", "dev-nvml"} {
		want := "  buildah push localhost/dcgm-exporter:" + tag + " docker-daemon:localhost/dcgm-exporter:" + tag + "\n"
		if !strings.Contains(got, want) {
			t.Errorf("output does not contain %q:\n%s", want, got)
		}
	}
	if got := run(filepath.Join(root, "layouts")); strings.Contains(got, "docker-daemon") {
		t.Errorf("output for OCI layouts has a command for docker-daemon, want none:\n%s", got)
	}
}
