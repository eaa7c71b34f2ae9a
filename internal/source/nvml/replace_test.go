//go:build linux && cgo

package nvml_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/nvml"
	fakenvml "github.com/gpu-telemetry/dcgm-exporter/tests/fake/nvml"
)

// replaceEnv names the library that replace puts in the place of the other.
const replaceEnv = "NVML_TEST_REPLACEMENT"

// replace is a process beneath which a driver is upgraded, file and module. It prints what each
// Open came to.
func replace(path, next string) int {
	entry, _ := catalog.ByID(53)
	plan := &gpu.Plan{Interval: time.Second, Devices: gpu.Selector{Flex: true}, Fields: []gpu.Field{entry.Field()}}
	src := nvml.New(nvml.Options{Library: path})
	step := func(name string) {
		s, err := src.Open(context.Background(), plan)
		if err != nil {
			fmt.Printf("%s: %s, replaced: %t\n", name, gpu.Reason(err), errors.Is(err, nvml.ErrReplaced))
			return
		}
		defer s.Close()
		var b gpu.Batch
		if err := s.Read(context.Background(), &b); err != nil {
			fmt.Printf("%s: %v\n", name, err)
			return
		}
		fmt.Printf("%s: serial %s\n", name, results(s.Topology(), plan, &b)["GPU 0 DCGM_FI_DEV_SERIAL"])
	}
	play := func(script string) {
		path := os.Getenv("FAKENVML_SCRIPT")
		if err := errors.Join(os.WriteFile(path+".next", []byte(script), 0o600), os.Rename(path+".next", path)); err != nil {
			panic(err)
		}
	}
	play("gpus 1\ndriver 18\n")
	step("an old module under a new library, from the start")
	play("gpus 1\n")
	step("before")
	if err := os.Rename(next, path); err != nil {
		panic(err)
	}
	step("another library in its place")
	play("gpus 1\ndriver 18\n")
	step("another module too")
	play("gpus 1\n")
	step("the first module again")
	return 0
}

// A driver that is upgraded beneath the process cannot be followed: the first library stays, and
// its file's successor is not loaded. What does not fit any more is said, and nothing crashes; what
// fits again is served again.
func TestDriverUpgradedBeneath(t *testing.T) {
	old, err := fakenvml.Build(t.TempDir(), "nvmlDeviceGetSerial")
	fakenvml.Need(t, err)
	next, err := fakenvml.Build(t.TempDir())
	fakenvml.Need(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), append(fakenvml.NewWorld(t).Env(), childEnv+"="+old, replaceEnv+"="+next)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("the process ended with %v: %s", err, out)
	}
	want := `an old module under a new library, from the start: version, replaced: false
before: serial fault:not_supported
another library in its place: serial fault:not_supported
another module too: version, replaced: true
the first module again: serial fault:not_supported
`
	if diff := cmp.Diff(want, string(out)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
