package dcgm

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/hostengine"
)

// hostile is an engine that returns random IDs, counts, types and times, including some that were not requested or do
// not exist. It rejects members and sometimes returns errors.
type hostile struct {
	rng   *rand.Rand
	texts []byte
	made  uintptr
	// patience is the number of successful calls for each failing one; 0 means that no call fails.
	patience int
}

func (h *hostile) connect(Options) (engine, error) { return h, nil }

func (h *hostile) fails() error {
	if h.patience == 0 || h.rng.IntN(h.patience) > 0 {
		return nil
	}
	code := pick(h, codeTimeout, codeNotConfigured, codeGPULost, codeMaxLimit, codeUnknownField, codeNotWatched,
		codeConnectionInvalid, -9999)
	return &resultError{function: "f", code: code, words: "w"}
}

// rarely returns true once in n times.
func (h *hostile) rarely(n int) bool { return h.rng.IntN(n) == 0 }

func pick[T any](h *hostile, choices ...T) T { return choices[h.rng.IntN(len(choices))] }

// some returns up to most elements.
func some[T any](h *hostile, most int, next func() T) []T {
	list := make([]T, h.rng.IntN(most+1))
	for i := range list {
		list[i] = next()
	}
	return list
}

// id returns an ID, usually one that exists.
func (h *hostile) id() uint32 {
	if h.rarely(8) {
		return h.rng.Uint32()
	}
	return h.rng.Uint32N(4)
}

// list returns IDs. It usually returns the same ones.
func (h *hostile) list() []uint32 {
	if h.rarely(20) {
		return some(h, 5, h.id)
	}
	return []uint32{0, 1, 2}
}

func (h *hostile) entity() entity {
	if h.rarely(8) {
		return entity{entityGroup(h.rng.UintN(256)), h.id()}
	}
	return entity{entityGroup(h.rng.UintN(10)), h.id()}
}

func (h *hostile) text() string {
	if h.rarely(6) {
		return string([]byte{0xff, byte(h.rng.UintN(256))})
	}
	return fmt.Sprint("GPU-", h.id())
}

func (h *hostile) versions() (library, engine string, err error) {
	return "version:" + h.text(), "version:4.6.0", h.fails()
}
func (h *hostile) entities(entityGroup) ([]uint32, error) { return h.list(), h.fails() }
func (h *hostile) supported() ([]uint32, error)           { return h.list(), h.fails() }
func (h *hostile) status(uint32) status                   { return status(h.rng.UintN(9)) }

func (h *hostile) instances() ([]instance, error) {
	if !h.rarely(20) {
		return nil, nil
	}
	return some(h, 7, func() instance {
		return instance{entity: entity{pick(h, groupInstance, groupCompute), h.id()}, parent: h.id(), nvml: h.id()}
	}), h.fails()
}

func (h *hostile) links() ([]link, error) {
	return some(h, 7, func() link { return link{h.entity(), h.id(), h.rarely(2)} }), h.fails()
}

func (h *hostile) cpus() ([]cpu, error) {
	return []cpu{{h.id(), h.text(), h.list()}, {h.id(), h.text(), h.list()}}, h.fails()
}

func (h *hostile) place(uint32) ([]uint64, []path, error) {
	paths := some(h, 3, func() path { return path{h.id(), h.rng.Uint64()} })
	return []uint64{h.rng.Uint64(), h.rng.Uint64()}, paths, h.fails()
}

func (h *hostile) attributes(uint32) (identity, error) {
	return identity{model: h.text(), uuid: h.text(), busID: h.text()}, h.fails()
}

func (h *hostile) profiling(uint32) ([]gpu.FieldID, error) {
	return []gpu.FieldID{1001, gpu.FieldID(h.rng.UintN(1 << 16))}, h.fails()
}

func (h *hostile) createGroup(_ string, members []entity) (handle, []refusal, error) {
	if err := h.fails(); err != nil {
		return 0, nil, err
	}
	var refused []refusal
	for i := range members {
		if h.rarely(6) {
			code := pick(h, codeGPULost, codeGPUNotSupported, codeBadParameter)
			refused = append(refused, refusal{i, &resultError{function: "f", code: code}})
		}
	}
	h.made++
	if len(refused) == len(members) {
		return 0, refused, nil
	}
	return handle(h.made), refused, nil
}

func (h *hostile) createFieldGroup(string, []gpu.FieldID) (handle, error) {
	h.made++
	return handle(h.made), h.fails()
}
func (h *hostile) destroyGroup(handle) error                                     { return h.fails() }
func (h *hostile) destroyFieldGroup(handle) error                                { return h.fails() }
func (h *hostile) watch(handle, handle, time.Duration, time.Duration, int) error { return h.fails() }
func (h *hostile) unwatch(handle, handle) error                                  { return h.fails() }
func (h *hostile) update() error                                                 { return h.fails() }

func (h *hostile) readout() readout {
	return readout{some(h, 59, func() sample {
		e := h.entity()
		x := sample{
			at: time.Now().UnixMicro() - h.rng.Int64N(1e7), bits: h.rng.Uint64(), entity: e.id,
			group: pick(h, e.group, groupGPU), text: h.rng.Uint32N(64),
			kind: pick[byte](h, kindInt, kindDouble, kindText, kindTimestamp, 'b', 0),
			field: pick[uint16](h, 1, 50, 52, 54, 55, 57, 63, 69, 70, 73, 74, 85, 86, 89, 90, 112, 150, 155, 230, 780,
				1001, 65535),
		}
		switch h.rng.IntN(8) {
		case 0:
			x.at = int64(h.rng.Uint64())
		case 1:
			x.status = int32(h.rng.IntN(80)) - 70
		case 2:
			x.field = uint16(h.rng.UintN(1 << 16))
		case 3:
			x.bits = uint64(h.rng.IntN(64))
		case 4:
			x.bits = math.Float64bits(pick(h, math.NaN(), math.Inf(1), -1, 5))
		}
		return x
	}), h.texts}
}

func (h *hostile) latest(handle, handle) (readout, error)       { return h.readout(), h.fails() }
func (h *hostile) since(handle, handle, int64) (readout, error) { return h.readout(), h.fails() }
func (h *hostile) setHealth(handle, uint32) error               { return h.fails() }

func (h *hostile) checkHealth(handle) ([]incident, error) {
	return some(h, 4, func() incident {
		return incident{h.entity(), h.rng.Uint32(), h.rng.Uint32N(30), h.rng.Uint32()}
	}), h.fails()
}

func (h *hostile) peers() ([]peer, error) {
	return some(h, 4, func() peer { return peer{h.id(), h.id(), h.rng.Uint32()} }), h.fails()
}
func (h *hostile) close() error { return nil }

// FuzzHostileEngine checks that no response of an engine crashes the process, and that values that were not requested
// are ignored.
func FuzzHostileEngine(f *testing.F) {
	for seed := range uint64(64) {
		f.Add(seed, uint16(seed))
	}
	f.Fuzz(func(t *testing.T, seed uint64, shape uint16) { defy(t, seed, shape) })
}

// TestHostileEngine runs the same check with thousands of seeds.
func TestHostileEngine(t *testing.T) {
	samples := 0
	for seed := range uint64(6000) {
		samples += defy(t, seed, uint16(seed*40503))
	}
	if samples < 10000 {
		t.Errorf("samples of all seeds = %d, want at least 10000", samples)
	}
}

// defy opens a session of a hostile engine, reads it, and returns the number of samples.
func defy(t *testing.T, seed uint64, shape uint16) (samples int) {
	h := &hostile{rng: rand.New(rand.NewPCG(seed, uint64(shape))), texts: []byte("GPU-1<<<NULL>>>\xff\xfeMIG 1g.10gb")}
	h.patience = [...]int{0, 40, 400}[h.rng.IntN(3)]
	bit := func(n int) bool { return shape>>n&1 != 0 }
	onBoth, onGPU := gpu.KindsOf(gpu.KindGPU, gpu.KindGPUInstance), gpu.KindsOf(gpu.KindGPU)
	flex := gpu.Selector{Flex: true}
	plan := &gpu.Plan{
		Interval: time.Millisecond, Devices: flex, Switches: flex, CPUs: flex, Peers: bit(1), Placement: bit(2),
		Fields: []gpu.Field{
			{ID: 1, Text: true, Levels: onBoth}, {ID: 150, Levels: onBoth},
			{ID: 155, Levels: onBoth, AllSamples: bit(4)}, {ID: 112, Levels: onGPU, AllSamples: true},
			{ID: catalog.XIDErrors, Levels: onGPU},
			{ID: 1001, Levels: onBoth, Profiling: true, AllSamples: bit(5)},
			{ID: 780, Levels: gpu.KindsOf(gpu.KindNVLink)}, {ID: 50, Text: true, Levels: onBoth},
			{ID: 1100, Levels: gpu.KindsOf(gpu.KindCPU, gpu.KindCPUCore)},
		},
	}
	if bit(0) {
		plan.Health = gpu.KindsOf(gpu.KindGPU, gpu.KindNVSwitch, gpu.KindConnectX, gpu.KindNode)
	}
	opt := Options{Log: slog.New(slog.DiscardHandler), retry: time.Nanosecond}
	if bit(7) {
		opt.Remote = hostengine.Address{Transport: hostengine.TCP, Host: "10.0.0.9", Port: hostengine.DefaultPort}
	}
	src := &Source{opt: opt, connect: h.connect}
	s, err := src.Open(context.Background(), plan)
	if err != nil {
		return 0
	}
	var b gpu.Batch
	for range 6 {
		b.Reset()
		_ = s.Read(context.Background(), gpu.ReadRequest{}, &b)
		checkHostile(t, seed, s, &b)
		samples += len(b.Samples)
	}
	_ = s.Close()
	return samples
}

func checkHostile(t *testing.T, seed uint64, s *Session, b *gpu.Batch) {
	top := s.Topology()
	for _, x := range b.Samples {
		if x.Row < 0 || x.Row >= len(top.Devices) || x.Field < 0 || x.Field >= len(s.plan.Fields) {
			t.Fatalf("seed %d: sample with row %d, field %d outside the topology or plan", seed, x.Row, x.Field)
		}
		field := &s.plan.Fields[x.Field]
		n, number := x.Value.Number()
		switch {
		case !field.Levels.Has(top.Devices[x.Row].Entity.Kind), s.watches.slot(x.Row, x.Field).watch == nil:
			t.Fatalf("seed %d: sample of field %d of %v was not requested", seed, field.ID, top.Devices[x.Row].Entity)
		case x.Value.IsAbsent(), number && (math.IsNaN(n) || math.IsInf(n, 0)), x.Value.IsText() != field.Text:
			t.Fatalf("seed %d: invalid value %v of field %d", seed, x.Value, field.ID)
		case !number && !utf8.ValidString(x.Value.String()):
			t.Fatalf("seed %d: invalid string %q", seed, x.Value.String())
		}
	}
	for _, x := range b.Faults {
		if x.Err == nil || x.Row < gpu.AllRows || x.Row >= len(top.Devices) || x.Part > gpu.PartPeerStates ||
			x.Field < 0 || x.Field >= len(s.plan.Fields) {
			t.Fatalf("seed %d: invalid fault %+v", seed, x)
		}
	}
	seen := map[gpu.Entity]bool{}
	for i := range top.Devices {
		e := top.Devices[i].Entity
		if seen[e] {
			t.Fatalf("seed %d: %v has two rows, want one", seed, e)
		}
		seen[e] = true
	}
}
