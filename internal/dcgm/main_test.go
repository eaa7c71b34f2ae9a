//go:build linux && cgo

package dcgm_test

import (
	"os"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fakedcgm"
)

// TestMain runs the tests over the real go-dcgm and the test library.
func TestMain(m *testing.M) { os.Exit(fakedcgm.Main(m)) }
