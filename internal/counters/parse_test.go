package counters_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestParseNasty parses files that broke users' exporters, or could break them. It compares requests and problems
// with a golden file.
func TestParseNasty(t *testing.T) {
	files, err := filepath.Glob("testdata/nasty/*.csv")
	if err != nil || len(files) == 0 {
		t.Fatalf("files in testdata/nasty = %d, error = %v; want at least one", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".csv"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			requests, problems, err := counters.Parse(bytes.NewReader(data), filepath.Base(file))
			var got strings.Builder
			for _, r := range requests {
				fmt.Fprintf(&got, "use  %d: %s %s %q", r.Line, r.Name, r.Type, r.Help)
				if r.Family == nil {
					fmt.Fprintf(&got, " field %d × %v", r.Named.Entry.ID, r.Named.Scale)
				}
				got.WriteByte('\n')
			}
			for _, p := range problems {
				word := "drop"
				if p.Warning {
					word = "warn"
				}
				fmt.Fprintf(&got, "%s %s\n", word, p)
			}
			if err != nil {
				fmt.Fprintf(&got, "fail %v\n", err)
			}
			golden := strings.TrimSuffix(file, ".csv") + ".golden"
			if *update {
				if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestParseErrors(t *testing.T) {
	broken := errors.New("broken disk")
	for name, test := range map[string]struct {
		r    io.Reader
		want error
	}{
		"reader":   {iotest.ErrReader(broken), broken},
		"size":     {strings.NewReader(strings.Repeat("#", counters.MaxSize+1)), counters.ErrTooLarge},
		"UTF-16":   {strings.NewReader("\xfe\xff\x00D"), counters.ErrEncoding},
		"zeros":    {strings.NewReader("DCGM_FI_DEV_SM_CLOCK\x00, gauge, x"), counters.ErrEncoding},
		"empty":    {strings.NewReader(""), counters.ErrNoCounters},
		"all off":  {strings.NewReader("# off\n"), counters.ErrNoCounters},
		"all bad":  {strings.NewReader("nonsense\n"), counters.ErrNoCounters},
		"all good": {strings.NewReader("DCGM_FI_DEV_SM_CLOCK, gauge, x"), nil},
		"full": {
			strings.NewReader("DCGM_FI_DEV_SM_CLOCK, gauge, x\n" + strings.Repeat("#", counters.MaxSize-31)), nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			requests, _, err := counters.Parse(test.r, "my.csv")
			if !errors.Is(err, test.want) {
				t.Fatalf("error = %v, want %v", err, test.want)
			}
			if (err == nil) != (len(requests) > 0) {
				t.Errorf("requests = %d with error %v; want requests only without an error", len(requests), err)
			}
			if err != nil && !strings.HasPrefix(strings.TrimPrefix(err.Error(), "no usable counter: "), "my.csv") {
				t.Errorf("error = %v, want it to name my.csv", err)
			}
		})
	}
}

// The number of problems is limited. The last one says how many more there are.
func TestParseBoundsProblems(t *testing.T) {
	_, problems, err := counters.Parse(strings.NewReader(strings.Repeat("NO_SUCH_FIELD, gauge, x\n", 5000)), "x.csv")
	if !errors.Is(err, counters.ErrNoCounters) {
		t.Fatal(err)
	}
	if len(problems) > 300 {
		t.Errorf("problems = %d, want at most 300", len(problems))
	}
	if last := problems[len(problems)-1].String(); last != "x.csv: 4800 more problems like these" {
		t.Errorf("last problem = %q, want the number of the 4800 omitted ones", last)
	}
}

// A bad line does not affect other lines: adding any line to a file adds at most one request and loses none.
func FuzzParseLineIsolation(f *testing.F) {
	for _, line := range []string{
		"x", `"`, `DCGM_FI_DEV_GPU_TEMP,gauge,"open`, "a,b,c", "#", "\xff", "DCGM_FI_DEV_SM_CLOCK,gauge,again",
	} {
		f.Add(line)
	}
	const before, after = "DCGM_FI_DEV_SM_CLOCK, gauge, first\n", "\nDCGM_FI_DEV_MEM_CLOCK, gauge, last"
	f.Fuzz(func(t *testing.T, line string) {
		isCopy := strings.Contains(line, "DCGM_FI_DEV_MEM_CLOCK")
		if strings.ContainsAny(line, "\x00\r\n") || len(line) > 1000 || isCopy {
			t.Skip("not a single line, or a copy of the last line")
		}
		requests, problems, err := counters.Parse(strings.NewReader(before+line+after), "f")
		if err != nil {
			t.Fatal(err)
		}
		if n := len(requests); n < 2 || n > 3 || requests[0].Line != 1 || requests[n-1].Line != 3 {
			t.Errorf("line %q: requests = %v, want lines 1 and 3 and at most one more", line, requests)
		}
		for _, p := range problems {
			if p.Line != 2 || !utf8.ValidString(p.String()) {
				t.Errorf("line %q: problem = %q, want valid UTF-8 about line 2", line, p)
			}
		}
	})
}

func TestNewRequest(t *testing.T) {
	r, err := counters.NewRequest("DCGM_FI_DEV_GPU_UTIL_RATIO", gpu.MetricGauge, "")
	if err != nil {
		t.Fatal(err)
	}
	if want := "Fraction of time in which a kernel was running (0 to 1)."; r.Help != want {
		t.Errorf("help = %q, want %q", r.Help, want)
	}
	_, err = counters.NewRequest("DCGM_FI_DEV_GPU_UTL", gpu.MetricGauge, "x")
	var problem counters.Problem
	if !errors.As(err, &problem) || problem.Nearest != "DCGM_FI_DEV_GPU_UTIL" {
		t.Errorf("error = %v, want a Problem whose nearest name is DCGM_FI_DEV_GPU_UTIL", err)
	}
}

// TestHelpOfAnotherUnit checks help texts in the forms that published counters files use. If word is empty, there is
// no warning.
func TestHelpOfAnotherUnit(t *testing.T) {
	for _, tt := range []struct{ field, help, word, unit string }{
		{"DCGM_FI_DEV_POWER_VIOLATION", "Throttling duration due to power constraints (in us).", "us", "ns"},
		{"DCGM_FI_DEV_POWER_VIOLATION", "Throttling duration due to power constraints in us", "us", "ns"},
		{"DCGM_FI_DEV_POWER_VIOLATION", "Throttling duration in us due to power constraints", "us", "ns"},
		{"DCGM_FI_DEV_POWER_VIOLATION", "Throttling duration (microseconds)", "microseconds", "ns"},
		{"DCGM_FI_DEV_POWER_VIOLATION", "Throttling duration (in ms, cumulative)", "ms", "ns"},
		{"DCGM_FI_DEV_POWER_VIOLATION", "Throttling duration (for GPUs that have it) (in us)", "us", "ns"},
		{"DCGM_FI_DEV_POWER_VIOLATION", "Throttling duration (in ns)", "", ""},
		{"DCGM_FI_DEV_POWER_VIOLATION", "Throttling duration in nanoseconds.", "", ""},
		{"DCGM_FI_DEV_POWER_VIOLATION", "Duration of power violation(s) (in ns).", "", ""},
		{"DCGM_FI_DEV_POWER_VIOLATION", "Duration of power violation(s).", "", ""},
		{"DCGM_FI_DEV_POWER_VIOLATION", "Time for which the clock was limited, in the interval.", "", ""},
		{"DCGM_FI_DEV_POWER_VIOLATION", "Time for which the clock was limited", "", ""},
		{"DCGM_FI_PROF_SM_ACTIVE", "Ratio of cycles an SM has a warp assigned (in %).", "%", "ratio"},
		{"DCGM_FI_PROF_SM_ACTIVE", "SM activity (0 to 1)", "", ""},
		{"DCGM_FI_DEV_GPU_UTIL", "GPU utilization (0 to 1)", "0 to 1", "percent"},
		{"DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %)", "", ""},
		{"DCGM_FI_DEV_GPU_UTIL", "GPU utilization in percent (0-100)", "", ""},
		{"DCGM_FI_DEV_FB_FREE", "Frame buffer free (in MB)", "MB", "MiB"},
		{"DCGM_FI_DEV_FB_FREE", "Frame buffer free (GiB)", "GiB", "MiB"},
		{"DCGM_FI_DEV_FB_FREE", "Frame buffer free in mebibytes", "", ""},
		{"DCGM_FI_DEV_PCIE_TX_THROUGHPUT", "Bytes transmitted through PCIe TX (in KB) via NVML.", "KB", "KB/s"},
		{"DCGM_FI_DEV_PCIE_TX_THROUGHPUT", "PCIe transmit (in bytes/sec)", "bytes/sec", "KB/s"},
		{"DCGM_FI_DEV_PCIE_TX_THROUGHPUT", "PCIe transmit, in KB per second.", "", ""},
		{"DCGM_FI_PROF_PCIE_TX_BYTES", "Rate of data transmitted - with headers - in bytes per second.", "", ""},
		{"DCGM_FI_DEV_POWER_USAGE", "Power draw (in kW)", "kW", "watts"},
		{"DCGM_FI_DEV_POWER_USAGE", "Power draw (in W)", "", ""},
		{"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "Energy since boot (in MJ)", "MJ", "mJ"},
		{"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "Energy since boot (in mJ)", "", ""},
		{"DCGM_FI_DEV_SM_CLOCK", "SM clock (GHz)", "GHz", "MHz"},
		{"DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in mhz)", "", ""},
		{"DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in F)", "F", "celsius"},
		{"DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).", "", ""},
		{"DCGM_FI_DEV_GPU_TEMP", "GPU temperature in degrees Celsius", "", ""},
	} {
		requests, _, err := counters.Parse(strings.NewReader(tt.field+`, untyped, "`+tt.help+`"`), "c.csv")
		if err != nil {
			t.Fatal(err)
		}
		problems := counters.Lint(requests, "c.csv")
		if tt.word == "" {
			if len(problems) > 0 {
				t.Errorf("%q: problems = %v, want none", tt.help, problems)
			}
			continue
		}
		text := fmt.Sprintf("c.csv:1: help text names the unit %s for %q: expected %s", tt.word, tt.field, tt.unit)
		if len(problems) != 1 || problems[0].String() != text || !problems[0].Warning {
			t.Errorf("%q: problems = %v, want %s", tt.help, problems, text)
		}
	}
}

// If two lines name the same field, the line with the right type is used. If both or neither have it, the first is
// used.
func TestTwoLinesForOneField(t *testing.T) {
	const name = "DCGM_FI_PROF_PCIE_TX_BYTES"
	for _, tt := range []struct {
		first, second string
		used          int
	}{{"counter", "gauge", 2}, {"gauge", "counter", 1}, {"gauge", "gauge", 1}, {"counter", "counter", 1}} {
		file := name + ", " + tt.first + ", a\n" + name + ", " + tt.second + ", b\n"
		requests, problems, err := counters.Parse(strings.NewReader(file), "c.csv")
		if err != nil || len(requests) != 1 || len(problems) != 1 {
			t.Fatalf("%s, %s: requests %v, problems %v, error %v; want one of each and no error",
				tt.first, tt.second, requests, problems, err)
		}
		if requests[0].Line != tt.used {
			t.Errorf("%s, %s: line %d is used, want %d", tt.first, tt.second, requests[0].Line, tt.used)
		}
	}
}
