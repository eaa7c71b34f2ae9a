package app

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
)

// failing is a source that cannot be opened.
type failing struct{ err error }

func (f *failing) Open(context.Context, *gpu.Plan) (collector.Session, error) { return nil, f.err }

func TestMissingLibraryIsASeriesWhileItIsMissing(t *testing.T) {
	reg := prometheus.NewRegistry()
	source := &failing{}
	needs := needsLibrary{Source: source, missing: newNoLibrary(reg)}
	const series = `# HELP dcgm_exporter_library_missing 1 while DCGM is configured and its library cannot be loaded, with what to do; absent otherwise.
# TYPE dcgm_exporter_library_missing gauge
dcgm_exporter_library_missing{library="libdcgm.so.4",remedy="install datacenter-gpu-manager-4-core; in a container use the image whose tag ends in -dcgm"} 1
`
	for _, tt := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("%w: %w", gpu.ErrUnavailable, dcgm.ErrLibrary), series},
		{gpu.ErrUnavailable, ""}, // the engine is missing, the library is not
		{fmt.Errorf("open: %w", dcgm.ErrLibrary), series},
		{nil, ""},
	} {
		source.err = tt.err
		_, _ = needs.Open(context.Background(), nil)
		if err := testutil.GatherAndCompare(reg, strings.NewReader(tt.want)); err != nil {
			t.Errorf("after %v: %v", tt.err, err)
		}
	}
}
