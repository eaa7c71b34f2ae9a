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

// TestParseNasty parses files that broke users' exporters, or could break them. It compares requests, problems and
// warnings with a golden file.
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
			for _, p := range append(problems, counters.Lint(requests, filepath.Base(file))...) {
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
	if last := problems[len(problems)-1].Error(); last != "x.csv: 4800 more problems like these" {
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
			if p.Line != 2 || !utf8.ValidString(p.Error()) {
				t.Errorf("line %q: problem = %q, want valid UTF-8 about line 2", line, p)
			}
		}
	})
}

func TestNewRequest(t *testing.T) {
	r, err := counters.NewRequest("DCGM_FI_DEV_GPU_UTIL_RATIO", gpu.MetricGauge, "")
	if want := "Fraction of time in which a kernel was running (0 to 1)."; r.Help != want || err != nil {
		t.Errorf("help = %q, error %v, want %q", r.Help, err, want)
	}
	_, err = counters.NewRequest("DCGM_FI_DEV_GPU_UTL", gpu.MetricGauge, "x")
	if !errors.As(err, &counters.Problem{}) || !strings.HasSuffix(err.Error(), "; did you mean DCGM_FI_DEV_GPU_UTIL?") {
		t.Errorf("error = %v, want a Problem whose nearest name is DCGM_FI_DEV_GPU_UTIL", err)
	}
}

// Help texts that name another unit than the field's have a warning, in the forms that published files use.
func TestHelpOfAnotherUnit(t *testing.T) {
	table, err := os.ReadFile("testdata/units.tsv")
	if err != nil {
		t.Fatal(err)
	}
	for row := range strings.Lines(string(table)) {
		cells := strings.Split(strings.TrimSuffix(row, "\n"), "\t")
		if len(cells) < 2 {
			continue
		}
		requests, _ := parse(t, cells[0]+`, untyped, "`+cells[1]+`"`)
		want := ""
		if len(cells) == 4 {
			const form = `[my.csv:1: help text names the unit %s for %q: expected %s]`
			want = fmt.Sprintf(form, cells[2], cells[0], cells[3])
		}
		got := counters.Lint(requests, "my.csv")
		if text := fmt.Sprint(got); len(got) > 0 && (text != want || !got[0].Warning) || len(got) == 0 && want != "" {
			t.Errorf("%q: problems = %v, want %s", cells[1], got, want)
		}
	}
}
