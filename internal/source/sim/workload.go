package sim

import (
	"math"
	"time"

	"go.yaml.in/yaml/v3"
)

// A workload is what a pod does on its devices. It is defined in data/workloads.yaml.
type workload struct {
	Name, Shape             string // Shape is steady, diurnal, burst or idle
	Low, High, Duty, Jitter float64
	Period, Pause           time.Duration
	Peak                    float64 // hour of the day, UTC

	Ratios yaml.Node                      // maps names of levels in data/fields.csv to their values at activity 1
	Memory struct{ Base, Active float64 } // fraction of the memory that is not reserved
	PCIe   struct{ Tx, Rx float64 }       // bytes per second
	NVLink float64                        // bytes per second and direction, whole GPU

	ratios [ratioCount]float64
}

// activity returns the utilization of the workload's devices at a time in Unix nanoseconds, 0 to 1. All devices of a
// pod share its key, so they are busy at the same times.
func (w *workload) activity(key uint64, at int64) float64 {
	t := float64(at) / 1e9
	period := w.Period.Seconds()
	phase := uniform(key, 1)
	a := w.Low
	switch w.Shape {
	case "steady":
		if into := math.Mod(t+phase*period, period); into >= w.Pause.Seconds() {
			a = w.High
		}
	case "diurnal":
		hour := math.Mod(t/3600, 24)
		day := 0.5 + 0.5*math.Cos((hour-w.Peak)/24*2*math.Pi)
		a = w.Low + (w.High-w.Low)*day
	case "burst":
		window := math.Floor(t/period + phase)
		if uniform(key, uint64(int64(window))+2) < w.Duty {
			a = w.High
		}
	}
	a *= 1 + w.Jitter*smooth(key, t, 90)
	return min(max(a, 0), 1)
}

// mix is a round of the splitmix64 generator, used as a 64-bit hash.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// uniform returns a number in [0, 1) that depends only on key and n.
func uniform(key, n uint64) float64 {
	return float64(mix(key^mix(n))>>11) / (1 << 53)
}

// smooth returns noise in [-1, 1]. It interpolates between random values that are `every` seconds apart.
func smooth(key uint64, t, every float64) float64 {
	at := math.Floor(t / every)
	x := t/every - at
	n := uint64(int64(at))
	a, b := uniform(key, n), uniform(key, n+1)
	return 2*(a+(b-a)*x) - 1
}

// keyOf hashes a name with a seed.
func keyOf(seed uint64, name string) uint64 {
	key := mix(seed)
	for i := range len(name) {
		key = mix(key ^ uint64(name[i]))
	}
	return key
}
