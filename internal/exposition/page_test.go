package exposition_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

func gunzip(t testing.TB, b []byte) []byte {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Each page is compressed once and decompresses to its own text, however concurrently pages are compressed.
func TestGzip(t *testing.T) {
	var pages []*exposition.Page
	for _, n := range []int{0, 1, 1000, 10_000} {
		pages = append(pages, exposition.NewPage(bytes.Repeat([]byte(`up{instance="a"} 1`+"\n"), n)))
	}
	var group sync.WaitGroup
	for _, p := range slices.Concat(pages, pages) {
		group.Go(func() { p.Gzip() })
	}
	group.Wait()
	for _, p := range pages {
		first := p.Gzip()
		if got := gunzip(t, first); !bytes.Equal(got, p.Bytes()) {
			t.Errorf("page of %d bytes decompresses to %d bytes, want the same content", len(p.Bytes()), len(got))
		}
		if second := p.Gzip(); &second[0] != &first[0] {
			t.Error("second Gzip compressed the page again, want the bytes of the first")
		}
	}
}

// A page does not change while it is held, however many pages are published. After its release, its memory is reused.
func TestReleasedPagesAreReused(t *testing.T) {
	var pages exposition.Pages
	e, s := exposition.NewEncoder(exposition.Options{}), &gpu.Snapshot{Topology: world()}
	for _, name := range []string{"A", "B", "C"} {
		s.Columns = append(s.Columns, column(name, gpu.MetricGauge, everywhere(gpu.Float(1e9/3))))
	}
	pages.Publish(e.Encode(s), 0)
	held := pages.Current()
	before := bytes.Clone(held.Bytes())
	s.Columns = s.Columns[1:]
	for range 4 {
		pages.Publish(e.Encode(s), 0)
	}
	if !bytes.Equal(held.Bytes(), before) {
		t.Error("page changed while it was held, want it unchanged")
	}
	bytesOfHeld := held.Bytes()
	held.Release()
	for range 2 { // another buffer is used first
		pages.Publish(e.Encode(s), 0)
	}
	if bytes.Equal(bytesOfHeld, before) {
		t.Error("bytes of a released page are unchanged after later pages, want its memory reused")
	}
}

// Concurrent readers of the current page see a complete page, whatever is published meanwhile.
func TestPagesWithManyReaders(t *testing.T) {
	var pages exposition.Pages
	e := exposition.NewEncoder(exposition.Options{})
	publish := func(n int) {
		pages.Publish(e.Encode(&gpu.Snapshot{Families: []gpu.Family{{
			Name:   "n",
			Series: []gpu.Series{{Row: gpu.AllRows, Value: gpu.Int(int64(n))}},
			Help:   strings.Repeat(strconv.Itoa(n), 1000/len(strconv.Itoa(n))),
		}}}), 0)
	}
	publish(0)
	var done atomic.Bool
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for !done.Load() && !t.Failed() {
				p := pages.Current()
				text := string(p.Bytes())
				value := strings.TrimSuffix(text[strings.LastIndex(text, " ")+1:], "\n")
				if help := strings.Repeat(value, 1000/len(value)); !strings.Contains(text, " "+help+"\n") {
					t.Errorf("page = %s, want the same value in its help and its sample", text)
				}
				p.Release()
			}
		})
	}
	for n := range 2000 {
		publish(n + 1)
	}
	done.Store(true)
	readers.Wait()
}

// There is no page before the first one. A page that exceeds its limit is not served until the next one is published.
func TestExpiredPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pages exposition.Pages
		served := func() string {
			p := pages.Current()
			if p == nil {
				return ""
			}
			return string(p.Bytes())
		}
		page := func(text string) *exposition.Page { return exposition.NewPage([]byte(text)) }
		step := func(d time.Duration, want string) {
			t.Helper()
			time.Sleep(d)
			if got := served(); got != want {
				t.Errorf("served = %q, want %q", got, want)
			}
		}
		step(0, "")
		pages.Publish(page("first"), 10*time.Second)
		step(10*time.Second, "first")
		step(1, "")
		if d := pages.Expired(); d != 1 {
			t.Errorf("Expired = %v, want 1ns", d)
		}
		pages.Publish(page("second"), 5*time.Second)
		step(time.Second, "second")
		if d := pages.Expired(); d > 0 {
			t.Errorf("Expired = %v for a new page, want 0", d)
		}
		step(5*time.Second, "")
		pages.Publish(page("for good"), 0)
		step(1000*time.Hour, "for good")
	})
}

// crowded returns a snapshot of a GPU that three pods share and a GPU with one pod. Its page has 15 series, five of
// them in the basic family BASIC.
func crowded() *gpu.Snapshot {
	own := gpu.Label{Name: "team", Value: "a"}
	owners := &gpu.Owners{Labels: make([][]gpu.Label, 2), Copies: make([][][]gpu.Label, 2)}
	var split []gpu.Series
	for i := range 3 {
		owner := append(labelsOf("pod", fmt.Sprint("p", i)), own)
		owners.Copies[0] = append(owners.Copies[0], owner)
		split = append(split, gpu.Series{Row: 0, NoOwner: true, Owner: owner, Value: gpu.Int(1)})
	}
	owners.Labels[1] = []gpu.Label{{Name: "pod", Value: "alone"}, own}
	both := func(name string) gpu.Column {
		c := column(name, gpu.MetricGauge, map[int]gpu.Value{0: gpu.Int(1), 1: gpu.Int(2)})
		c.Values = c.Values[:2]
		return c
	}
	of := func(name string, row int) gpu.Family {
		return gpu.Family{Name: name, Type: gpu.MetricGauge, Series: []gpu.Series{{Row: row, Value: gpu.Int(1)}}}
	}
	return &gpu.Snapshot{
		Topology: gpu.NewTopology(world().Devices[rowGPU0 : rowGPU1+1]), Owners: owners,
		Columns: []gpu.Column{both("MORE"), both("BASIC"), both("MOST")},
		Families: []gpu.Family{
			{Name: "BASIC", Type: gpu.MetricGauge, OwnersOnly: true, Series: split},
			of("share_a", gpu.AllRows), of("share_b", 1),
		},
		Health: gpu.Health{Entities: make([]gpu.EntityHealth, 2)},
	}
}

// A page above its limit drops pod labels, copies and families in this order, as far as necessary, and counts them.
// Basic families and health series are never dropped.
func TestLimit(t *testing.T) {
	for _, tt := range []struct {
		limit int
		want  string // number of series by family
		team  int    // series with the pods' own label
		lost  string // dropped copies, families and labels
	}{
		{0, "MORE 4 BASIC 5 MOST 4 share_a 1 share_b 1 dcgm_exporter_entity_up 2", 13, "0 0 0"},
		{15, "MORE 4 BASIC 5 MOST 4 share_a 1 share_b 1 dcgm_exporter_entity_up 2", 13, "0 0 0"},
		{14, "MORE 2 BASIC 2 MOST 2 share_a 1 share_b 1 dcgm_exporter_entity_up 2", 0, "7 0 4"},
		{8, "MORE 2 BASIC 2 MOST 2 share_a 1 share_b 1 dcgm_exporter_entity_up 2", 0, "7 0 4"},
		{7, "MORE 2 BASIC 2 MOST 2 share_a 1 dcgm_exporter_entity_up 2", 0, "7 1 4"},
		{6, "MORE 2 BASIC 2 MOST 2 dcgm_exporter_entity_up 2", 0, "7 2 4"},
		{5, "MORE 2 BASIC 2 dcgm_exporter_entity_up 2", 0, "7 4 4"},
		{3, "BASIC 2 dcgm_exporter_entity_up 2", 0, "7 6 4"},
		{1, "BASIC 2 dcgm_exporter_entity_up 2", 0, "7 6 4"},
	} {
		t.Run(fmt.Sprint(tt.limit), func(t *testing.T) {
			var lost string
			registry := prometheus.NewRegistry()
			e := exposition.NewEncoder(exposition.Options{
				Registerer: registry,
				Limit: exposition.Limit{
					Series: tt.limit,
					Own:    func(label string) bool { return label == "team" },
					Rank: func(family string) int {
						switch {
						case family == "BASIC":
							return 0
						case strings.HasPrefix(family, "share"):
							return 2
						default:
							return 1
						}
					},
				},
				Trailer: func(dst []byte) []byte { // the trailer of the same page
					lost = counted(t, registry, "dcgm_exporter_max_series_dropped")
					return dst
				},
			})
			page := string(e.Encode(crowded()).Bytes())
			parse(t, []byte(page))
			var got []string
			n := map[string]int{}
			team := 0
			for _, line := range samples(page) {
				name, _, _ := strings.Cut(line, "{")
				name, _, _ = strings.Cut(name, " ")
				if n[name]++; n[name] == 1 {
					got = append(got, name)
				}
				team += strings.Count(line, `team="a"`)
			}
			for i, name := range got {
				got[i] = fmt.Sprint(name, " ", n[name])
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("series by family (-want +got)\n%s", diff)
			}
			if team != tt.team || lost != tt.lost {
				t.Errorf("pods' own labels = %d, want %d; dropped = %s, want %s", team, tt.team, lost, tt.lost)
			}
		})
	}
}

// A page that was over the limit stays without the pods' labels until it has a tenth fewer series than the limit, so
// that one pod more or less does not change every series.
func TestLimitHasHysteresis(t *testing.T) {
	e := exposition.NewEncoder(exposition.Options{
		Limit: exposition.Limit{
			Series: 14, Own: func(label string) bool { return label == "team" }, Rank: func(string) int { return 1 },
		},
	})
	for _, step := range []struct {
		families int // number of derived families, up to three; the page has 12 series and one for each of them
		limited  bool
	}{{2, false}, {3, true}, {2, true}, {1, false}, {2, false}} {
		s := crowded()
		s.Families = s.Families[:step.families]
		page := e.Encode(s)
		if got := !strings.Contains(string(page.Bytes()), `team="a"`); got != step.limited {
			t.Errorf("page of %d series: pod labels omitted = %t, want %t", 12+step.families, got, step.limited)
		}
	}
}

// A family that was left out comes back only if the page with it has a tenth fewer series than the limit. Families of a
// lower rank are not affected.
func TestLimitOfFamiliesHasHysteresis(t *testing.T) {
	e := exposition.NewEncoder(exposition.Options{Limit: exposition.Limit{
		Series: 20, Own: func(string) bool { return false },
		Rank: func(family string) int { return map[string]int{"SMALL": 1, "BIG": 2}[family] },
	}})
	family := func(name string, n int) gpu.Family {
		f := gpu.Family{Name: name, Type: gpu.MetricGauge}
		for i := range n {
			labels := labelsOf("n", fmt.Sprint(i))
			f.Series = append(f.Series, gpu.Series{Row: gpu.AllRows, Labels: labels, Value: gpu.Int(1)})
		}
		return f
	}
	for i, step := range []struct {
		small, big int
		want       string
	}{
		{2, 18, "SMALL BIG"}, {2, 19, "SMALL"}, {2, 18, "SMALL"}, {2, 17, "SMALL"}, {2, 16, "SMALL BIG"},
		{2, 18, "SMALL BIG"}, {21, 2, "BASIC"}, {20, 2, "BASIC"}, {17, 2, "SMALL"}, {17, 1, "SMALL BIG"},
	} {
		s := &gpu.Snapshot{Families: []gpu.Family{family("SMALL", step.small), family("BIG", step.big)}}
		if step.want == "BASIC" {
			s.Families = append(s.Families, family("BASIC", 1))
		}
		var got []string
		for _, line := range samples(string(e.Encode(s).Bytes())) {
			if name, _, _ := strings.Cut(line, "{"); !slices.Contains(got, name) && !strings.HasPrefix(name, "dcgm_") {
				got = append(got, name)
			}
		}
		if diff := cmp.Diff(step.want, strings.Join(got, " ")); diff != "" {
			t.Errorf("step %d, %d and %d series (-want +got)\n%s", i, step.small, step.big, diff)
		}
	}
}
