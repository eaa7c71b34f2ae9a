package scenarios

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
)

// simulates returns why the simulator has no node of one board with these GPU instances; nil where
// it has.
func simulates(board string, profiles []string) error {
	_, err := sim.ParseNode(strings.NewReader(fmt.Sprintf("name: x\ngpus: [{board: %s, mig: [%s]}]\n", board, strings.Join(profiles, ", "))), "x.yaml")
	return err
}

// fits reports whether the profiles have room on a board of gpuop's: by trying every place.
func fits(b mig.Board, profiles []string, taken uint) bool {
	if len(profiles) == 0 {
		return true
	}
	p, _ := b.Profile(profiles[0])
	return slices.ContainsFunc(p.Starts, func(start int) bool {
		at := uint(1<<p.Memory-1) << start
		return taken&at == 0 && fits(b, profiles[1:], taken|at)
	})
}

// allowed reports whether a board of gpuop's can have the profiles at once.
func allowed(b mig.Board, profiles []string) bool {
	compute, count := 0, map[string]int{}
	for _, name := range profiles {
		p, _ := b.Profile(name)
		compute += p.Compute
		if count[name]++; count[name] > p.Max {
			return false
		}
	}
	return compute <= b.ComputeSlices && fits(b, profiles, 0)
}

// The simulator and gpuop each have a table of MIG boards. They say the same.
func TestMIGBoardsOfBothPrograms(t *testing.T) {
	for _, name := range []string{"A100-PCIE-40GB", "A100-SXM4-80GB", "H100-SXM5-80GB", "GH200-96GB"} {
		t.Run(name, func(t *testing.T) {
			board, err := mig.FindBoard(strings.Replace(name, "-SXM5", "", 1))
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, p := range board.Profiles {
				names = append(names, p.Name)
			}
			slices.Sort(names)
			_, words, ok := strings.Cut(fmt.Sprint(simulates(name, []string{"none"})), "expected one of ")
			if diff := cmp.Diff(names, strings.Split(words, ", ")); !ok || diff != "" {
				t.Fatalf("profiles (-gpuop +simulator):\n%s", diff)
			}
			compare := func(set []string) {
				t.Helper()
				if err := simulates(name, set); (err == nil) != allowed(board, set) {
					t.Errorf("%v: the simulator says %v, gpuop %t", set, err, allowed(board, set))
				}
			}
			for _, p := range names {
				for n := 1; n <= 8; n++ {
					compare(slices.Repeat([]string{p}, n))
				}
			}
			rng := rand.New(rand.NewPCG(14, 0))
			fit := 0
			for range 500 {
				var set []string
				for range 2 + rng.IntN(5) {
					set = append(set, names[rng.IntN(len(names))])
				}
				compare(set)
				if allowed(board, set) {
					fit++
				}
			}
			if fit < 20 || fit > 480 {
				t.Errorf("%d of 500 random sets fit: they say little", fit)
			}
		})
	}
}
