package record_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/command"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/recording"
)

// A keeper makes secrets up, and remembers them.
type keeper struct {
	rng     *rand.Rand
	secrets []string
}

func (k *keeper) keep(s string) string { k.secrets = append(k.secrets, s); return s }

// word is one that no program of ours writes: its letters are q, x and z.
func (k *keeper) word() string {
	b := make([]byte, 9+k.rng.IntN(9))
	for i := range b {
		b[i] = "qxz"[k.rng.IntN(3)]
	}
	return k.keep(string(b))
}

func (k *keeper) hex(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = "abcdef23456789"[k.rng.IntN(14)]
	}
	return string(b)
}

func (k *keeper) uuid() string {
	return k.keep(fmt.Sprintf("%s-%s-%s-%s-%s", k.hex(8), k.hex(4), k.hex(4), k.hex(4), k.hex(12)))
}

func (k *keeper) bus() string {
	return k.keep(fmt.Sprintf("%s:%s:%s.%d", "0000"+k.hex(4), k.hex(2), "1"+k.hex(1), k.rng.IntN(8)))
}

// text is one of the forms that a field's text can have.
func (k *keeper) text() string {
	switch k.rng.IntN(8) {
	case 0:
		return "GPU-" + k.uuid()
	case 1:
		return strings.ToUpper(k.uuid())
	case 2:
		return "MIG-GPU-" + k.uuid() + fmt.Sprintf("/%d/%d", k.rng.IntN(14), k.rng.IntN(7))
	case 3:
		return k.keep(fmt.Sprintf("16%011d", k.rng.Uint64N(1e11)))
	case 4:
		return k.keep("0x" + k.hex(16))
	case 5:
		return "/home/" + k.word() + "/" + k.word() + ".sock"
	case 6:
		return k.bus()
	default:
		return k.word() + " " + k.uuid()
	}
}

// secretive is a machine of which everything that has a name has a secret one.
type secretive struct {
	topology  *gpu.Topology
	owners    *gpu.Owners
	texts     map[int]gpu.Value // by field
	processes []gpu.Process
	pods      map[uint32]string
	err       error
}

func (k *keeper) machine(plan *gpu.Plan) *secretive {
	m := &secretive{texts: map[int]gpu.Value{}, pods: map[uint32]string{}}
	var devices []gpu.Device
	for id := range uint32(1 + k.rng.IntN(4)) {
		d := gpu.Device{
			Entity: gpu.Entity{Kind: gpu.KindGPU, ID: id}, GPU: id, UUID: "GPU-" + k.uuid(), PCIBusID: k.bus(),
			Model: "NVIDIA H100", Serial: k.keep(fmt.Sprintf("13%011d", k.rng.Uint64N(1e11))),
		}
		devices = append(devices, d)
		if k.rng.IntN(2) == 0 {
			d.Entity = gpu.Entity{Kind: gpu.KindGPUInstance, ID: 14*id + 7, ParentKind: gpu.KindGPU, Parent: id}
			d.InstanceID, d.Profile, d.MIGUUID = 1, "1g.10gb", "MIG-"+k.uuid()
			devices = append(devices, d)
		}
	}
	devices = append(devices, gpu.Device{Entity: gpu.Entity{Kind: gpu.KindCPU}, Serial: k.word()},
		gpu.Device{Entity: gpu.Entity{Kind: gpu.KindConnectX}, PCIBusID: k.bus()})
	m.topology = gpu.NewTopology(devices)
	m.topology.Source, m.topology.Host = "dcgm", k.word()+".example.com"
	for row := range devices {
		if devices[row].Entity.Kind == gpu.KindGPUInstance {
			m.topology.ComputeInstances = append(m.topology.ComputeInstances, gpu.ComputeInstance{Instance: row, ID: 0, Profile: "1c.1g.10gb", UUID: "MIG-" + k.uuid()})
		}
	}
	m.owners = &gpu.Owners{Generation: 1, Labels: make([][]gpu.Label, len(devices)), Uses: make([]gpu.Use, len(devices))}
	for row := range devices {
		for range k.rng.IntN(3) {
			pid := 1 + k.rng.Uint32N(1<<22)
			m.pods[pid] = k.uuid()
			o := gpu.Owner{
				Namespace: k.word(), Pod: k.word() + "-0", Container: k.word(), PodUID: m.pods[pid],
				Resource: k.word() + ".example.com/gpu", Replica: k.word(),
				Labels: []gpu.Label{{Name: k.word(), Value: k.word()}, {Name: "dra_" + k.word(), Value: k.uuid()}, {Name: "hpc_job", Value: k.word()}},
			}
			m.owners.Uses[row].Owners = append(m.owners.Uses[row].Owners, o)
			m.owners.Labels[row] = append(m.owners.Labels[row], gpu.Label{Name: "pod", Value: o.Pod}, gpu.Label{Name: "dra_claim_name", Value: k.word()})
			m.processes = append(m.processes, gpu.Process{Row: row, PID: pid, Memory: gpu.Int(1)})
		}
	}
	for i := range plan.Fields {
		f := &plan.Fields[i]
		if f.Text && !kept[f.ID] && f.Levels.Has(gpu.KindGPU) {
			m.texts[i] = gpu.Text(k.text())
		}
	}
	m.err = fmt.Errorf("open /run/%s: %w", k.word(), gpu.ErrPermission)
	return m
}

// kept are the fields that docs/recordings.md says are kept: models, versions and states.
var kept = map[gpu.FieldID]bool{
	1: true, 2: true, 50: true, 51: true, 56: true, 80: true, 81: true, 82: true, 85: true,
	524: true, 532: true, 1140: true, 1141: true, 1502: true, 1524: true,
}

func (m *secretive) Name() string { return "secretive" }

func (m *secretive) Attribute(context.Context, *gpu.Topology) (*gpu.Owners, error) {
	return m.owners, nil
}

func (m *secretive) read(_ *gpu.Plan, b *gpu.Batch) error {
	now := time.Now()
	for field, v := range m.texts {
		b.Add(0, field, v, now)
	}
	for _, p := range m.processes {
		p.Time = now.UnixNano()
		b.Processes = append(b.Processes, p)
	}
	b.Fail(1, gpu.AllFields, m.err)
	return nil
}

// Of whatever machine, a masked recording has none of its UUIDs, serial numbers, bus ids, names,
// paths and process ids; and as many different ones as there were, so that what could be joined can
// be joined.
func TestMaskedRecordingsKeepSecrets(t *testing.T) {
	for seed := range uint64(60) {
		k := &keeper{rng: rand.New(rand.NewPCG(seed, 9))}
		var m *secretive
		src := &staged{}
		src.read = func(plan *gpu.Plan, b *gpu.Batch) error { return m.read(plan, b) }
		open := opener(func(plan *gpu.Plan) {
			m = k.machine(plan)
			src.topology = m.topology
		}, src)
		attributor := &late{of: func() collector.Attributor { return m }}
		s := run(t.Context(), app.Backend{
			Source: open, Attributors: []collector.Attributor{attributor},
			PodOf: func(pid uint32) (string, error) { return m.pods[pid], nil },
		}, 0, "--source=dcgm", "--samples=1", "--out=r.json")
		if s.code != command.OK {
			t.Fatalf("code %d: %s", s.code, &s.Err)
		}
		text := strings.ToLower(string(s.files["r.json"]))
		for _, secret := range k.secrets {
			if at := strings.Index(text, strings.ToLower(secret)); at >= 0 {
				t.Fatalf("seed %d: %q is in the file: …%s", seed, secret, text[max(at-90, 0):min(at+len(secret)+30, len(text))])
			}
		}
		for pid := range m.pods {
			if strings.Contains(text, fmt.Sprintf(`"pid":%d,`, pid)) {
				t.Fatalf("seed %d: process %d is in the file", seed, pid)
			}
		}
		if len(k.secrets) < 10 {
			t.Fatalf("%d secrets only", len(k.secrets))
		}
		if was, is := distinct(m), distinctOf(s.recording(t)); was != is {
			t.Fatalf("seed %d: %s different, masked %s", seed, was, is)
		}
	}
}

// distinct counts what differs in a machine.
func distinct(m *secretive) string {
	var uuids, buses, pods, texts []string
	for _, d := range m.topology.Devices {
		uuids, buses = append(uuids, d.UUID, d.MIGUUID, d.Serial), append(buses, d.PCIBusID)
	}
	for _, u := range m.owners.Uses {
		for _, o := range u.Owners {
			pods = append(pods, o.Pod, o.Namespace, o.PodUID)
		}
	}
	for _, v := range m.texts {
		texts = append(texts, strings.ToLower(v.String()))
	}
	return counts(uuids, buses, pods, texts)
}

func distinctOf(rec *recording.Recording) string {
	m := &secretive{topology: rec.Topology(), owners: &gpu.Owners{}, texts: map[int]gpu.Value{}}
	for _, u := range rec.Owners[0].Uses {
		use := gpu.Use{}
		for _, o := range u.Owners {
			use.Owners = append(use.Owners, gpu.Owner{Pod: o.Pod, Namespace: o.Namespace, PodUID: o.PodUID})
		}
		m.owners.Uses = append(m.owners.Uses, use)
	}
	for _, x := range rec.Reads[0].Samples {
		m.texts[x.Field] = x.Values[0].Value
	}
	return distinct(m)
}

func counts(lists ...[]string) string {
	text := ""
	for _, l := range lists {
		slices.Sort(l)
		text += fmt.Sprint(len(slices.Compact(l)), " ")
	}
	return text
}

// opener opens a source and prepares it for the plan before.
func opener(prepare func(*gpu.Plan), src *staged) collector.Source {
	return collector.SourceOf(func(ctx context.Context, plan *gpu.Plan) (collector.Session, error) {
		prepare(plan)
		return src.Open(ctx, plan)
	})
}

// late is an attributor that is known only when it is called.
type late struct{ of func() collector.Attributor }

func (l *late) Name() string { return "late" }
func (l *late) Attribute(ctx context.Context, t *gpu.Topology) (*gpu.Owners, error) {
	return l.of().Attribute(ctx, t)
}
