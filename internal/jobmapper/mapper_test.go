package jobmapper

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/gpu-telemetry/dcgm-exporter/internal/attribution"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

const migUUID = "MIG-a0000000-0000-5000-8000-00000000000a"

func gpuUUID(n int) string { return fmt.Sprintf("GPU-%d0000000-0000-4000-8000-00000000000a", n) }

// node has two GPUs without MIG, and one with two instances. DCGM's ids of the instances differ from NVML's, and so
// does its id of the last GPU.
func node() *gpu.Topology {
	instance := func(id, number uint32, uuid string) gpu.Device {
		return gpu.Device{
			Entity: gpu.Entity{Kind: gpu.KindGPUInstance, ParentKind: gpu.KindGPU, Parent: 2, ID: id},
			GPU:    2, UUID: gpuUUID(2), InstanceID: number, MIGUUID: uuid,
		}
	}
	return gpu.NewTopology([]gpu.Device{
		{Entity: gpu.Entity{Kind: gpu.KindGPU, ID: 0}, GPU: 0, UUID: gpuUUID(0)},
		{Entity: gpu.Entity{Kind: gpu.KindGPU, ID: 1}, GPU: 1, UUID: gpuUUID(1)},
		{Entity: gpu.Entity{Kind: gpu.KindGPU, ID: 2}, GPU: 2, UUID: gpuUUID(2)},
		instance(14, 1, ""),
		instance(15, 5, migUUID),
		{Entity: gpu.Entity{Kind: gpu.KindNVSwitch, ID: 0}},
	})
}

var rowNames = []string{"0", "1", "2", "2.1", "2.5", "switch"}

// bench is a Mapper with a folder of job files that the test writes.
type bench struct {
	*Mapper
	t   *testing.T
	dir string
	log bytes.Buffer
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, dir: t.TempDir()}
	log := slog.New(slog.NewTextHandler(&b.log, nil))
	b.Mapper = New(Options{Dir: b.dir, Metrics: NewMetrics(prometheus.NewRegistry()), Log: log})
	return b
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// put writes a file with a timestamp of a minute ago, so that it counts as settled.
func (b *bench) put(name, content string) {
	b.t.Helper()
	path := filepath.Join(b.dir, name)
	check(b.t, os.WriteFile(path, []byte(content), 0o644))
	old := time.Now().Add(-time.Minute)
	check(b.t, os.Chtimes(path, old, old))
}

func (b *bench) remove(name string) {
	b.t.Helper()
	check(b.t, os.Remove(filepath.Join(b.dir, name)))
}

func (b *bench) attribute(t *gpu.Topology) *gpu.Owners {
	b.t.Helper()
	o, err := b.Attribute(context.Background(), t)
	check(b.t, err)
	return o
}

// users returns the jobs of each row, such as "2.5=7,8". A row that has the label hpc_job too is marked with "!".
func users(o *gpu.Owners) string {
	var rows []string
	for row, name := range rowNames {
		var jobs []string
		for _, owner := range o.UseOf(row).Owners {
			jobs = append(jobs, owner.Labels[0].Value)
		}
		text := strings.Join(jobs, ",")
		switch labels := o.Of(row); {
		case len(jobs) == 1 && slices.Equal(labels, []gpu.Label{{Name: "hpc_job", Value: jobs[0]}}):
			text += "!"
		case labels != nil:
			text += fmt.Sprint(labels)
		}
		if text != "" {
			rows = append(rows, name+"="+text)
		}
	}
	return strings.Join(rows, " ")
}

// has checks the jobs of each row.
func has(t *testing.T, o *gpu.Owners, want string) {
	t.Helper()
	if got := users(o); got != want {
		t.Errorf("jobs of rows = %q, want %q", got, want)
	}
}

func TestAttribute(t *testing.T) {
	type m = map[string]string
	inCapitals := "GPU-" + strings.ToUpper(gpuUUID(1)[4:])
	for name, tt := range map[string]struct {
		files     m
		users     string
		unmatched float64
	}{
		"nothing":                    {},
		"a job on a GPU":             {files: m{"0": "7\n"}, users: "0=7!"},
		"an idle GPU":                {files: m{"0": "7\n", "1": ""}, users: "0=7!"},
		"two jobs share":             {files: m{"0": "7\n8\n"}, users: "0=7,8"},
		"one job, named twice":       {files: m{"0": "7\r\n7\r\n"}, users: "0=7!"},
		"a job on two GPUs":          {files: m{"0": "7\n", "1": "7"}, users: "0=7! 1=7!"},
		"an instance":                {files: m{"2.5": "7\n"}, users: "2.5=7!"},
		"a job on a partitioned GPU": {files: m{"2": "7\n"}, users: "2=7! 2.1=7! 2.5=7!"},
		"a job on a partitioned GPU, one instance idle": {files: m{"2": "7\n", "2.1": ""}, users: "2=7! 2.5=7!"},
		"a job on a partitioned GPU, another on an instance": {
			files: m{"2": "7\n", "2.1": "8"}, users: "2=7 2.1=8! 2.5=7!",
		},
		"DCGM's id of an instance": {files: m{"2.14": "7\n"}, unmatched: 1},
		"a missing GPU":            {files: m{"9": "7\n", "00": "8"}, unmatched: 2},
		"other files": {
			files: m{"0.tmp": "7\n", "gpu0": "7\n", "0.": "7\n", "1.2.3": "7\n", "-1": "7\n"}, unmatched: 5,
		},
		"hidden files":                       {files: m{".0": "7\n", ".lock": ""}},
		"a GPU by its UUID":                  {files: m{gpuUUID(1): "7\n"}, users: "1=7!"},
		"a UUID in capitals":                 {files: m{inCapitals: "7\n"}, users: "1=7!"},
		"a MIG device by its UUID":           {files: m{migUUID: "7\n"}, users: "2.5=7!"},
		"an instance by the UUID of its GPU": {files: m{gpuUUID(2) + ".5": "7\n"}, users: "2.5=7!"},
		"an unknown UUID": {
			files:     m{gpuUUID(7): "7\n", gpuUUID(7) + ".5": "", "MIG-" + gpuUUID(7)[4:]: "", gpuUUID(2) + ".9": ""},
			unmatched: 4,
		},
		"names with a suffix": {
			files: m{
				gpuUUID(1) + "::0": "7\n", gpuUUID(1) + ".x": "7\n", gpuUUID(1) + ".05": "7\n", migUUID + ".1": "7\n",
				"nvidia1": "7\n",
			}, unmatched: 5,
		},
		"one GPU by two names": {files: m{gpuUUID(1): "7\n8\n", "1": "8\n9\n"}, users: "1=8,9,7"},
		"one job by two names": {files: m{gpuUUID(1): "7\n", "1": "7\n"}, users: "1=7!"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			for file, content := range tt.files {
				b.put(file, content)
			}
			has(t, b.attribute(node()), tt.users)
			if n := testutil.ToFloat64(b.metrics.unknown); n != tt.unmatched {
				t.Errorf("%v unmatched files, want %v", n, tt.unmatched)
			}
		})
	}
}

// Attribute returns the same pointer while the files contain the same jobs, in whatever form. When the jobs change, it
// returns a new value with another generation. A returned value never changes.
func TestSameUntilItChanges(t *testing.T) {
	b := newBench(t)
	nodeA := node()
	b.put("0", "7\n8\n")
	b.put("1", "9\n")
	first := b.attribute(nodeA)
	said := users(first)

	b.put("0", "8\r\n\r\n7\n8\n")
	if got := b.attribute(nodeA); got != first {
		t.Error("same jobs: Attribute returned new owners, want the previous ones")
	}
	b.put("1", "10\n")
	second := b.attribute(nodeA)
	if second == first {
		t.Error("job changed: Attribute returned the previous owners, want new ones")
	}
	b.remove("1")
	third := b.attribute(nodeA)
	has(t, third, "0=7,8")
	if other := b.attribute(node()); other == third {
		t.Error("topology changed: Attribute returned the previous owners, want new ones")
	}
	has(t, first, said)
}

// A settled file is read again only when it changes. The test replaces the cached jobs to show that they are used.
func TestReadsOnlyWhatChanged(t *testing.T) {
	b := newBench(t)
	b.put("0", "7\n")
	b.attribute(node())
	f := b.files["0"]
	f.jobs = []string{"from memory"}
	b.files["0"] = f
	has(t, b.attribute(node()), "0=from memory!")
	b.put("0", "77\n")
	has(t, b.attribute(node()), "0=77!")
}

// One writer truncates a file and writes it while the mapper waits. Another writes the same number of bytes within
// one tick of the file system's clock.
func TestRewrittenWhileRead(t *testing.T) {
	b := newBench(t)
	path := filepath.Join(b.dir, "0")
	write := func(content string) { check(t, os.WriteFile(path, []byte(content), 0o644)) }
	waited := 0
	b.pause = func(time.Duration) {
		if waited++; waited == 1 {
			write("7\n")
		}
	}
	write("")
	has(t, b.attribute(node()), "0=7!")
	if waited == 0 {
		t.Error("pauses = 0, want at least 1")
	}
	info, err := os.Stat(path)
	check(t, err)
	write("8\n")
	check(t, os.Chtimes(path, info.ModTime(), info.ModTime()))
	has(t, b.attribute(node()), "0=8!")
}

// If a file cannot be read, only its own GPU loses the label. The failure is counted by reason and logged once. The
// GPU recovers with the file.
func TestUnreadable(t *testing.T) {
	link := func(target string) func(*testing.T, string) {
		return func(t *testing.T, path string) { check(t, os.Symlink(target, path)) }
	}
	breaks := map[string]func(*testing.T, string){
		"not_a_file": func(t *testing.T, path string) { check(t, os.Mkdir(path, 0o755)) },
		"too_large": func(t *testing.T, path string) {
			check(t, os.WriteFile(path, bytes.Repeat([]byte("7\n"), maxFile/2+1), 0o644))
		},
		"outside": link("/proc/version"),
		"permission": func(t *testing.T, path string) {
			if os.Geteuid() == 0 {
				t.Skip("needs a user whom permissions bind; this is root")
			}
			check(t, os.WriteFile(path, []byte("7\n"), 0o000))
		},
		"error": link("1"), // a link to itself
	}
	for reason, spoil := range breaks {
		t.Run(reason, func(t *testing.T) {
			b := newBench(t)
			b.put("0", "7\n")
			b.put("1", "8\n")
			b.attribute(node())
			b.remove("1")
			spoil(t, filepath.Join(b.dir, "1"))
			for range 2 {
				o := b.attribute(node())
				has(t, o, "0=7!")
				if o.UseOf(0).Incomplete || !o.UseOf(1).Incomplete || o.UseOf(2).Incomplete {
					t.Errorf("jobs unknown for GPU 0: %t, 1: %t, 2: %t; want true only for GPU 1",
						o.UseOf(0).Incomplete, o.UseOf(1).Incomplete, o.UseOf(2).Incomplete)
				}
			}
			if n := testutil.ToFloat64(b.metrics.failed.WithLabelValues(reason)); n != 2 {
				t.Errorf("failures counted = %v, want 2", n)
			}
			b.remove("1")
			b.put("1", "9\n")
			has(t, b.attribute(node()), "0=7! 1=9!")
			if n := strings.Count(b.log.String(), "\n"); n != 2 {
				t.Errorf("log has %d lines, want 2:\n%s", n, &b.log)
			}
		})
	}
	// Files of /proc are longer than their reported size, like a file that is being written. The entries of fd name
	// open files, at least 0 to 2.
	changing := newBench(t)
	changing.Mapper.dir = "/proc/self/fdinfo"
	has(t, changing.attribute(node()), "")
	if n := testutil.ToFloat64(changing.metrics.failed.WithLabelValues("changing")); n != 3 {
		t.Errorf("changing files = %v, want 3", n)
	}
	if n := testutil.CollectAndCount(changing.metrics.failed); n != len(breaks)+1 {
		t.Errorf("reasons initialized at the start = %d, want %d", n, len(breaks)+1)
	}
}

// A folder that cannot be read is reported. The mapper recovers when it exists again.
func TestFolder(t *testing.T) {
	b := newBench(t)
	b.put("0", "7\n")
	hidden := b.dir + ".hidden"
	check(t, os.Rename(b.dir, hidden))
	_, err := b.Attribute(context.Background(), node())
	if !errors.Is(err, gpu.ErrUnavailable) || !strings.Contains(err.Error(), b.dir) {
		t.Errorf("missing folder: error = %v, want gpu.ErrUnavailable that names %s", err, b.dir)
	}
	check(t, os.Rename(hidden, b.dir))
	b.attribute(node())

	for i := range maxEntries {
		check(t, os.Symlink("nowhere", filepath.Join(b.dir, fmt.Sprint("link-", i))))
	}
	if _, err := b.Attribute(context.Background(), node()); !errors.Is(err, ErrTooManyFiles) {
		t.Errorf("folder with %d entries: error = %v, want ErrTooManyFiles", maxEntries+1, err)
	}

	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := b.Attribute(ended, node()); err == nil {
		t.Error("Attribute with a canceled context succeeded, want an error")
	}
}

// A prolog should replace job files by renaming. While it does, every result matches one version of the files, and
// the last version is found.
func TestChurn(t *testing.T) {
	b := newBench(t)
	b.pause = func(time.Duration) {}
	const last = 400
	done := make(chan error, 1)
	go func() {
		for i := range last + 1 {
			temporary := filepath.Join(b.dir, ".0.new")
			if err := os.WriteFile(temporary, fmt.Appendf(nil, "%d\n%d\n", 1000+i, 2000+i), 0o644); err != nil {
				done <- err
				return
			}
			if err := os.Rename(temporary, filepath.Join(b.dir, "0")); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	current := func() int {
		var a, c int
		jobs := users(b.attribute(node()))
		if jobs == "" {
			return 0 // before the first version
		}
		if _, err := fmt.Sscanf(jobs, "0=%d,%d", &a, &c); err != nil || c-a != 1000 {
			t.Fatalf("jobs = %q, want both of one version", jobs)
		}
		return a
	}
	for newest := 0; ; {
		select {
		case err := <-done:
			check(t, err)
			if got := current(); got != 1000+last {
				t.Errorf("job after the last write = %d, want %d", got, 1000+last)
			}
			return
		default:
			got := current()
			if got < newest {
				t.Fatalf("job = %d after job %d, want no earlier job", got, newest)
			}
			newest = got
		}
	}
}

// The file has ten thousand lines, as if an epilog never removed jobs.
func TestVeryManyJobs(t *testing.T) {
	b := newBench(t)
	var content strings.Builder
	for i := range 10_000 {
		fmt.Fprintln(&content, i)
	}
	b.put("0", content.String())
	b.put("2", content.String())
	o := b.attribute(node())
	for _, row := range []int{0, 2, 3, 4} {
		if got := len(o.UseOf(row).Owners); got != attribution.MaxOwners || o.Of(row) != nil {
			t.Errorf("row %d: owners = %d, want %d; labels = %v, want none", row, got, attribution.MaxOwners, o.Of(row))
		}
	}
	if got := testutil.ToFloat64(b.metrics.droppedJobs); got != 2*(10_000-attribution.MaxOwners) {
		t.Errorf("jobs dropped = %v, want %d", got, 2*(10_000-attribution.MaxOwners))
	}
	b.put("0", "1\n")
	b.remove("2")
	b.attribute(node())
	if got := testutil.ToFloat64(b.metrics.droppedJobs); got != 0 {
		t.Errorf("jobs dropped = %v, want 0", got)
	}
}

// Links within the folder are followed, as in Kubernetes volumes. Links that lead out of the folder are rejected.
func TestLinksOfJobFiles(t *testing.T) {
	b := newBench(t)
	secret := filepath.Join(t.TempDir(), "secret")
	check(t, os.WriteFile(secret, []byte("password\n"), 0o644))
	b.put("jobs-of-0", "4711\n")
	up, err := filepath.Rel(b.dir, secret)
	check(t, err)
	check(t, os.Mkdir(filepath.Join(b.dir, "..data"), 0o755))
	b.put("..data/2", "4712\n")
	for name, target := range map[string]string{"0": "jobs-of-0", "1": secret, "2": "..data/2", "2.1": up} {
		check(t, os.Symlink(target, filepath.Join(b.dir, name)))
	}
	has(t, b.attribute(node()), "0=4711! 2=4712! 2.5=4712!")
	if got := testutil.ToFloat64(b.metrics.failed.WithLabelValues("outside")); got != 2 {
		t.Errorf("rejected links = %v, want 2; log:\n%s", got, b.log.String())
	}
}

func TestParse(t *testing.T) {
	long := strings.Repeat("x", maxJob)
	tests := map[string]struct {
		content string
		want    []string
		dropped int
	}{
		"empty":                           {},
		"blank lines":                     {content: "\n \n\t\r\n\n"},
		"one":                             {content: "4711\n", want: []string{"4711"}},
		"no newline at the end":           {content: "4711", want: []string{"4711"}},
		"several names, one twice":        {content: "b\na\nb\n", want: []string{"a", "b"}},
		"from Windows":                    {content: "\ufeffa\r\nb\r\n", want: []string{"a", "b"}},
		"blanks around a name":            {content: "  a \t\n", want: []string{"a"}},
		"blanks in a name":                {content: "a job\n", want: []string{"a job"}},
		"quotes are kept":                 {content: `job "x"` + "\n", want: []string{`job "x"`}},
		"not UTF-8":                       {content: "job\xff\xfe7\n", want: []string{"job\ufffd7"}},
		"control characters":              {content: "a\x00b\x1b\n\x00\x00\n", want: []string{"a\ufffdb"}},
		"longest name, and one byte more": {content: long + "\n" + long + "y\n", want: []string{long}, dropped: 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, dropped := parse([]byte(tt.content))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if dropped != tt.dropped {
				t.Errorf("dropped %d, want %d", dropped, tt.dropped)
			}
		})
	}
}

// Every parsed name is a valid label value, and parsing the names again yields the same result. A new line adds one
// job. Neither the order nor the line endings matter.
func FuzzParse(f *testing.F) {
	f.Add([]byte("b\r\n\na \xff\n\x00\nb"))
	f.Add([]byte("\ufeff1234\n" + strings.Repeat("z", 300)))
	f.Fuzz(func(t *testing.T, content []byte) {
		jobs, dropped := parse(content)
		for _, job := range jobs {
			if job == "" || len(job) > maxJob || !utf8.ValidString(job) || strings.TrimSpace(job) != job ||
				strings.ContainsFunc(job, unicode.IsControl) {
				t.Errorf("job = %q, want a valid job name", job)
			}
		}
		if !slices.IsSorted(jobs) || len(slices.Compact(slices.Clone(jobs))) != len(jobs) {
			t.Errorf("jobs = %q, want them sorted without duplicates", jobs)
		}
		longer, _ := parse(append(bytes.Clone(content), "\nzzz-4711"...))
		union := append(slices.Clone(jobs), "zzz-4711")
		slices.Sort(union)
		if diff := cmp.Diff(slices.Compact(union), longer); diff != "" {
			t.Errorf("jobs after adding a line (-want +got):\n%s", diff)
		}
		again, more := parse([]byte(strings.Join(jobs, "\n")))
		if diff := cmp.Diff(jobs, again); diff != "" || more != 0 {
			t.Errorf("jobs parsed again: %d dropped, want 0; names (-want +got):\n%s", more, diff)
		}
		lines := slices.Collect(bytes.Lines(content))
		slices.Reverse(lines)
		var other []byte
		for _, line := range lines {
			other = append(append(other, bytes.TrimSuffix(line, []byte("\n"))...), "\r\n"...)
		}
		turned, turnedDropped := parse(other)
		if diff := cmp.Diff(jobs, turned); diff != "" || turnedDropped != dropped {
			t.Errorf("jobs in reverse order with other line endings: %d dropped, want %d; names (-want +got):\n%s",
				turnedDropped, dropped, diff)
		}
	})
}
