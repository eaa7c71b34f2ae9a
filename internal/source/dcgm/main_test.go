//go:build linux && cgo

package dcgm_test

import (
	"os"
	"testing"

	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
)

// TestMain runs the tests with the real go-dcgm and the test library.
func TestMain(m *testing.M) { os.Exit(fakedcgm.MainParallel(m, 4)) }
