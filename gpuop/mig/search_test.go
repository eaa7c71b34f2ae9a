package mig

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/material"
)

func board(t *testing.T, name string) Board {
	t.Helper()
	b, err := FindBoard(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func request(t *testing.T, words ...string) Request {
	t.Helper()
	r, err := ParseRequest(words)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Fit accepts exactly the requests that a GPU can hold, and names the reason for the others. NVIDIA's offline validator
// is wrong about some of these requests.
func TestFitWhereUpstreamIsWrong(t *testing.T) {
	for _, tc := range []struct {
		board, request string
		reason         string
	}{
		{"A100-40GB", "3g.20gb=2 1g.5gb=1", "memory slices needed"},
		{"A100-40GB", "2g.10gb=3 1g.5gb=1", ""},
		{"A100-40GB", "1g.10gb=4", ""},
		{"A100-40GB", "4g.20gb 3g.20gb", ""},
		{"A100-40GB", "4g.20gb=2", "even on an empty GPU"},
		{"A100-40GB", "1g.5gb+me=1 1g.5gb=6", ""},
		{"A100-40GB", "1g.5gb+me=2", "even on an empty GPU"},
		{"A30", "1g.6gb+me 2g.12gb+me", "only one fits on a GPU"},
		{"A100-40GB", "4g.20gb 2g.10gb=2", "compute slices needed"},
		{"A100-40GB", "1g.10gb=4 1g.5gb", "memory slices needed"},
		{"A100-40GB", "1g.20gb=1", "the board has no profile"},
		{"H100-80GB", "3g.40gb 2g.20gb 1g.10gb=2", ""},
		{"H100-80GB", "3g.40gb=2 1g.10gb=1", "3g.40gb=2 1g.10gb does not fit on H100/H800-80GB: 9 memory slices needed, but the GPU has 8 (3g.40gb takes 2 × 4, 1g.10gb takes 1 × 1)"},
		{"A100-80GB", "1g.5gb=7", "available: 1g.10gb, "},
		{"RTX-PRO-6000", "1g.24gb-me=3 1g.24gb+me.all", ""},
	} {
		t.Run(tc.board+" "+tc.request, func(t *testing.T) {
			layout, err := Fit(board(t, tc.board), request(t, tc.request))
			if (err != nil) != (tc.reason != "") || err != nil && !strings.Contains(err.Error(), tc.reason) {
				t.Fatalf("layout = %v, error = %v, want an error with %q (none if empty)", layout, err, tc.reason)
			}
		})
	}
}

// Exactly twelve combinations of standard instances are maximal on an A100-40GB.
func TestMaximalSetsOfA100(t *testing.T) {
	var got []string
	for _, r := range Maximal(board(t, "A100-40GB")) {
		var sizes []string
		for name, n := range r {
			sizes = append(sizes, slices.Repeat([]string{name[:1]}, n)...)
		}
		slices.SortFunc(sizes, func(a, b string) int { return strings.Compare(b, a) })
		got = append(got, strings.Join(sizes, "+"))
	}
	want := []string{
		"7", "4+3", "3+3", "3+2+2", "4+2+1", "2+2+2+1", "3+2+1+1", "4+1+1+1",
		"2+2+1+1+1", "3+1+1+1+1", "2+1+1+1+1+1", "1+1+1+1+1+1+1",
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("maximal sets (-want +got):\n%s", diff)
	}
}

// Max of each profile in boards.yaml equals the largest number of instances that the search can place.
func TestTableMaximaAreWhatTheSearchReaches(t *testing.T) {
	for _, b := range Boards() {
		for _, p := range b.Profiles {
			unbounded := b
			unbounded.Profiles = slices.Clone(b.Profiles)
			i := slices.IndexFunc(b.Profiles, func(q Profile) bool { return q.Name == p.Name })
			unbounded.Profiles[i].Max = 99
			n, err := 0, error(nil)
			for ; err == nil; n++ {
				_, err = Fit(unbounded, Request{p.Name: n + 1})
			}
			n--
			if n != p.Max {
				t.Errorf("%s %s: maximum in the table = %d, maximum found by search = %d", b.Name, p.Name, p.Max, n)
			}
		}
	}
}

// oracle reports whether the request fits. It tries every combination of starts, without any order or pruning.
func oracle(b Board, r Request) bool {
	var wanted []Profile
	compute, exclusive := 0, 0
	for name, n := range r {
		p, ok := b.Profile(name)
		if !ok && n > 0 {
			return false
		}
		if n > p.Max {
			return false
		}
		compute += n * p.Compute
		if strings.HasSuffix(name, "+me") || strings.HasSuffix(name, "+me.all") {
			exclusive += n
		}
		for range n {
			wanted = append(wanted, p)
		}
	}
	if compute > b.ComputeSlices || exclusive > 1 {
		return false
	}
	odometer := make([]int, len(wanted))
	for {
		free := make([]bool, b.MemorySlices)
		ok := true
		for i, p := range wanted {
			for s := p.Starts[odometer[i]]; s < p.Starts[odometer[i]]+p.Memory; s++ {
				ok = ok && s < len(free) && !free[s]
				if s < len(free) {
					free[s] = true
				}
			}
		}
		if ok {
			return true
		}
		i := 0
		for ; i < len(wanted); i++ {
			if odometer[i]++; odometer[i] < len(wanted[i].Starts) {
				break
			}
			odometer[i] = 0
		}
		if i == len(wanted) {
			return false
		}
	}
}

// Fit and a brute-force search agree on random requests. Each layout has exactly the requested instances, at allowed
// starts and without overlap.
func TestSearchAgreesWithBruteForce(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	boards := Boards()
	fits := 0
	for range 1500 {
		b := boards[random.IntN(len(boards))]
		r := Request{}
		for range 1 + random.IntN(5) {
			r[b.Profiles[random.IntN(len(b.Profiles))].Name]++
		}
		layout, err := Fit(b, r)
		if want := oracle(b, r); (err == nil) != want {
			t.Fatalf("%s: %s: error of Fit = %v, brute-force search fits = %t", b.Name, r, err, want)
		}
		if err != nil {
			continue
		}
		fits++
		soundLayout(t, b, layout, r)
	}
	if fits < 200 || fits > 1300 {
		t.Errorf("random requests that fit = %d of 1500, want some that fit and some that do not", fits)
	}
}

func soundLayout(t *testing.T, b Board, l []Instance, r Request) {
	t.Helper()
	end, compute := 0, 0
	held := Request{}
	for _, i := range l {
		p, _ := b.Profile(i.Profile)
		held[i.Profile]++
		compute += p.Compute
		if i.Start < end || i.Size != p.Memory || i.Start+i.Size > b.MemorySlices || !slices.Contains(p.Starts, i.Start) {
			t.Fatalf("%s: an instance in %v overlaps, has a wrong size or has an invalid start", b.Name, l)
		}
		end = i.Start + i.Size
	}
	if diff := cmp.Diff(r, held); diff != "" {
		t.Fatalf("%s: layout differs from the request (-want +got):\n%s", b.Name, diff)
	}
	if compute > b.ComputeSlices {
		t.Fatalf("%s: %v needs %d compute slices, want at most %d", b.Name, l, compute, b.ComputeSlices)
	}
}

func FuzzParseRequest(f *testing.F) {
	for _, s := range []string{"3g.40gb=2 1g.10gb", "1g.5gb=x", "nvidia.com/mig-1g.10gb.me=1", "1c.3g.20gb", "1g.5gb=-1", "=", "1g.24gb-me 2g.48gb+gfx"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseRequest([]string{s})
		if err != nil {
			return
		}
		again, err := ParseRequest([]string{r.String()})
		if err != nil {
			t.Fatalf("%q is printed as %q, which cannot be parsed: %v", s, r, err)
		}
		if diff := cmp.Diff(r, again); diff != "" {
			t.Fatalf("round trip (-first +second):\n%s", diff)
		}
	})
}

// The geometry in boards.yaml equals the facts collected in mig-geometry.json.
func TestTableEqualsTheCollectedFacts(t *testing.T) {
	data := material.Read(t, "data/mig-geometry.json")
	var rows []struct {
		Board         string
		PCIIDs        []string `json:"pciIDs"`
		MemorySlices  int
		ComputeSlices int
		Evidence      string `json:"placementEvidence"`
		Profiles      map[string]struct {
			Compute, Max int
			Placements   [][2]int
		}
	}
	if err := json.Unmarshal(data, &rows); err != nil {
		t.Fatal(err)
	}
	if len(rows) != len(Boards()) {
		t.Fatalf("boards in mig-geometry.json = %d, in boards.yaml = %d, want equal numbers", len(rows), len(Boards()))
	}
	for _, row := range rows {
		b := board(t, row.Board)
		if diff := cmp.Diff(row.PCIIDs, b.PCIIDs); diff != "" {
			t.Errorf("%s: PCI ids (-collected +table):\n%s", row.Board, diff)
		}
		if b.MemorySlices != row.MemorySlices || b.ComputeSlices != row.ComputeSlices {
			t.Errorf("%s: slices %d/%d, want %d/%d", row.Board, b.MemorySlices, b.ComputeSlices, row.MemorySlices, row.ComputeSlices)
		}
		if attested := !strings.HasPrefix(row.Evidence, "UNVERIFIED"); attested != (b.Evidence == "attested") {
			t.Errorf("%s: evidence = %v, want %q as in the data", row.Board, b.Evidence, row.Evidence)
		}
		for name, want := range row.Profiles {
			p, ok := b.Profile(name)
			if !ok || p.Compute != want.Compute || p.Max != want.Max {
				t.Errorf("%s %s: %+v, want compute %d, max %d", row.Board, name, p, want.Compute, want.Max)
			}
			var placements [][2]int
			for _, s := range p.Starts {
				placements = append(placements, [2]int{s, p.Memory})
			}
			if want.Placements != nil && !cmp.Equal(want.Placements, placements) {
				t.Errorf("%s %s: placements %v, want %v", row.Board, name, placements, want.Placements)
			}
		}
		for _, p := range b.Profiles {
			if _, ok := row.Profiles[p.Name]; !ok && !p.Synonym {
				t.Errorf("%s: %s is in the table but not in the data", row.Board, p.Name)
			}
		}
	}
}

func TestFindBoard(t *testing.T) {
	for word, want := range map[string]string{
		"A100-40": "A100/A800-40GB", "a100-40gb": "A100/A800-40GB", "NVIDIA A100-SXM4-40GB": "A100/A800-40GB",
		"NVIDIA-A100-SXM4-80GB": "A100/A800-80GB", "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb-SHARED": "A100/A800-80GB",
		"NVIDIA A100 80GB PCIe": "A100/A800-80GB", "NVIDIA-H100-80GB-HBM3": "H100/H800-80GB", "H100 NVL": "H100/H800 NVL 94GB",
		"NVIDIA-H100-NVL": "H100/H800 NVL 94GB", "NVIDIA-GH200-480GB": "H100-96GB/GH200-96/H20/PG506", "GH200-144G-HBM3e": "GH200-144GB",
		"NVIDIA-H200": "H200-141GB/H200 NVL", "NVIDIA-H200-NVL": "H200-141GB/H200 NVL", "GB200": "GB200", "NVIDIA-B200": "B200",
		"NVIDIA-A30": "A30-24GB",
		"NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition": "RTX PRO 6000 Blackwell 96GB",
	} {
		if b, err := FindBoard(word); err != nil || b.Name != want {
			t.Errorf("FindBoard(%q) = %q, error %v; want %q", word, b.Name, err, want)
		}
	}
	for word, hint := range map[string]string{"A100": "A100-40GB, A100-80GB", "H20O": "did you mean H200?", "": "such as T4",
		"H20-3e": "gpuop has no MIG profiles", "NVIDIA-H20-3e": "gpuop has no MIG profiles", "H20-141GB": "gpuop has no MIG profiles", "NVIDIA-H20-141GB-HBM3e": "gpuop has no MIG profiles",
		"NVIDIA-H100-SXM5-94GB": "gpuop has no MIG profiles", "H100-94GB": "H100-", "NVIDIA-RTX-PRO-5000-Blackwell": "gpuop has no MIG profiles",
		"RTX PRO 5000": "Supported GPUs", "RTX PRO 4500": "gpuop has no MIG profiles", "NVIDIA-GH200-120GB": "gpuop has no MIG profiles"} {
		if b, err := FindBoard(word); err == nil || !strings.Contains(err.Error(), hint) {
			t.Errorf("FindBoard(%q) = %q, error %v; want an error with %q", word, b.Name, err, hint)
		}
	}
	if b, err := FindBoard("T4"); !errors.Is(err, ErrNoMIG) || err.Error() != `GPU does not support MIG: "T4"` {
		t.Errorf("FindBoard(T4) = %q, error %v; want ErrNoMIG with the name", b.Name, err)
	}
}

func TestFindGPU(t *testing.T) {
	for word, want := range map[string]string{
		"t4": "Tesla-T4", "Tesla T4": "Tesla-T4", "NVIDIA-L40S": "NVIDIA-L40S", "A100-40GB": "NVIDIA-A100-SXM4-40GB", "NVIDIA-A100-PCIE-40GB": "NVIDIA-A100-PCIE-40GB",
		"NVIDIA-A100-SXM4-80GB-MIG-1g.10gb-SHARED": "NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-SXM4-80GB-SHARED": "NVIDIA-A100-SXM4-80GB",
		"NVIDIA-A100-SXM4-80GB-MIG-INVALID": "NVIDIA-A100-SXM4-80GB",
	} {
		if g, err := FindGPU(word); err != nil || g.Product != want {
			t.Errorf("FindGPU(%q) = %q, error %v; want %q", word, g.Product, err, want)
		}
	}
	for word, hint := range map[string]string{"A100": "A100-40GB", "L40X": "did you mean L40?", "banana": "such as T4"} {
		if _, err := FindGPU(word); err == nil || !strings.Contains(err.Error(), hint) {
			t.Errorf("FindGPU(%q): error = %v, want %q", word, err, hint)
		}
	}
}

// The numbers of streaming multiprocessors equal the published output of nvidia-smi mig -lgip.
func TestStreamingMultiprocessors(t *testing.T) {
	for _, tt := range []struct {
		board, source string
		want          map[string]int
	}{
		{"H200", "github.com/NVIDIA/mig-parted, issue 120", map[string]int{"1g.18gb": 16, "1g.18gb+me": 16, "1g.35gb": 26, "2g.35gb": 32, "3g.71gb": 60, "4g.71gb": 64}},
		{"GH200-144GB", "github.com/NVIDIA/mig-parted, pull request 139", map[string]int{"1g.18gb": 16, "1g.18gb+me": 16, "1g.36gb": 26, "2g.36gb": 32, "3g.72gb": 0}},
		{"B200", "github.com/NVIDIA/mig-parted, pull request 166", map[string]int{"1g.23gb": 18, "1g.23gb+me": 18, "1g.45gb": 30, "2g.45gb": 36, "3g.90gb": 0}},
		{"GB200", "github.com/NVIDIA/mig-parted, issue 227", map[string]int{"1g.23gb": 18, "1g.23gb+me": 18, "1g.47gb": 32, "2g.47gb": 38, "3g.93gb": 0}},
	} {
		b := board(t, tt.board)
		for name, want := range tt.want {
			if p, ok := b.Profile(name); !ok || p.SMs != want {
				t.Errorf("%s %s: SMs = %d (known: %t), want %d as in %s", tt.board, name, p.SMs, ok, want, tt.source)
			}
		}
		if !strings.Contains(b.Source, tt.source) {
			t.Errorf("%s: source %q does not contain %s", tt.board, b.Source, tt.source)
		}
	}
}
