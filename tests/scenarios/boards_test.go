package scenarios

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
)

// simulates returns an error if the simulator cannot have a node with this board and these GPU instances.
func simulates(board string, profiles []string) error {
	node := fmt.Sprintf("name: x\ngpus: [{board: %s, mig: [%s]}]\n", board, strings.Join(profiles, ", "))
	_, err := sim.ParseNode([]byte(node), "x.yaml")
	return err
}

// fit reports whether instances of two profiles fit on a board together, according to gpuop's table.
func fit(board mig.Board, a, b mig.Profile) bool {
	slices := func(p mig.Profile, start int) uint { return uint(1<<p.Memory-1) << start }
	for _, first := range a.Starts {
		for _, second := range b.Starts {
			if slices(a, first)&slices(b, second) == 0 {
				return a.Compute+b.Compute <= board.ComputeSlices
			}
		}
	}
	return false
}

// The tables of MIG boards in the simulator and in gpuop agree.
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
				for n := 1; n <= 8; n++ {
					if err := simulates(name, slices.Repeat([]string{p.Name}, n)); (err == nil) != (n <= p.Max) {
						t.Errorf("%d instances of %s: simulator error = %v, but gpuop allows at most %d",
							n, p.Name, err, p.Max)
					}
				}
				for _, other := range board.Profiles {
					err := simulates(name, []string{p.Name, other.Name})
					if p.Name != other.Name && (err == nil) != fit(board, p, other) {
						t.Errorf("instances %s and %s: simulator error = %v, but gpuop says that both fit: %t",
							p.Name, other.Name, err, fit(board, p, other))
					}
				}
			}
			slices.Sort(names)
			_, words, ok := strings.Cut(fmt.Sprint(simulates(name, []string{"none"})), "expected one of ")
			if diff := cmp.Diff(names, strings.Split(words, ", ")); !ok || diff != "" {
				t.Fatalf("profiles (-gpuop +simulator):\n%s", diff)
			}
		})
	}
}
