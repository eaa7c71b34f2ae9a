package counters_test

import (
	"fmt"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
)

func ExampleParse() {
	const file = `
# Clocks
DCGM_FI_DEV_SM_CLOCK,       gauge, SM clock (in MHz).
DCGM_FI_DEV_SM_CLOCK_HERTZ, gauge, The same, in hertz.
DCGM_FI_DEV_GPU_TMEP,       gauge, GPU temperature.
DCGM_FI_DRIVER_VERSION,     label, Driver version
`
	requests, problems, err := counters.Parse(strings.NewReader(file), "my-counters.csv")
	if err != nil {
		fmt.Println(err)
	}
	for _, r := range requests {
		fmt.Printf("%s: a %s, field %d × %v\n", r.Name, r.Type, r.Named.Entry.ID, r.Named.Scale)
	}
	for _, p := range problems {
		fmt.Println(p)
	}
	// Output:
	// DCGM_FI_DEV_SM_CLOCK: a gauge, field 100 × 1
	// DCGM_FI_DEV_SM_CLOCK_HERTZ: a gauge, field 100 × 1e+06
	// DCGM_FI_DRIVER_VERSION: a label, field 1 × 1
	// my-counters.csv:5: unknown field "DCGM_FI_DEV_GPU_TMEP": expected a DCGM field or an exporter family; did you mean DCGM_FI_DEV_GPU_TEMP?
}
