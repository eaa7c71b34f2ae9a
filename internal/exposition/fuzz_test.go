package exposition_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
)

// A stream creates a snapshot from arbitrary bytes. When the bytes end, it continues with zeros.
type stream []byte

func (st *stream) byte() byte {
	if len(*st) == 0 {
		return 0
	}
	b := (*st)[0]
	*st = (*st)[1:]
	return b
}

func (st *stream) below(n int) int { return int(st.byte()) % n }

func (st *stream) word() uint64 {
	var b [8]byte
	for i := range b {
		b[i] = st.byte()
	}
	return binary.LittleEndian.Uint64(b[:])
}

// text returns one of a few texts that collide, or the bytes.
func (st *stream) text() string {
	some := []string{
		"", "a", "b", "gpu", "UUID", "nvswitch", "pod", "reason", "__name__", "//name__", "0x", "a-b", "a.b", "ä",
		`quote"`, `back\slash`, "new\nline", "car\rriage", "\xff\xfe", "nul\x00", "#", "{}", `\n`, "\u2028", "le",
		"quantile",
	}
	if i := st.below(len(some) + 10); i < len(some) {
		return some[i]
	}
	b := make([]byte, st.below(12))
	for i := range b {
		b[i] = st.byte()
	}
	return string(b)
}

func (st *stream) labels() []gpu.Label {
	var ls []gpu.Label
	for range st.below(4) {
		ls = append(ls, gpu.Label{Name: st.text(), Value: st.text()})
	}
	return ls
}

func (st *stream) value() gpu.Value {
	switch st.below(6) {
	case 0:
		return gpu.Value{}
	case 1:
		return gpu.Text(st.text())
	case 2:
		return gpu.Int(int64(st.word()))
	case 3:
		return gpu.Float(math.Float64frombits(st.word()))
	default:
		return gpu.Float(float64(int8(st.byte())) / 4)
	}
}

// snapshot returns a snapshot of GPUs and switches, some of which may look the same.
func (st *stream) snapshot() *gpu.Snapshot {
	var devices []gpu.Device
	for i := range st.below(5) {
		d := gpu.Device{Entity: gpu.Entity{Kind: gpu.KindGPU, ID: uint32(i)}}
		if st.below(3) == 0 {
			d.Entity = gpu.Entity{Kind: gpu.KindNVSwitch, ID: uint32(i)}
		} else {
			d.GPU, d.UUID, d.Model = uint32(st.below(3)), st.text(), st.text()
		}
		devices = append(devices, d)
	}
	s := &gpu.Snapshot{Time: time.Unix(1000, 0), Topology: gpu.NewTopology(devices), Owners: &gpu.Owners{}}
	for range st.below(len(devices) + 1) {
		s.Owners.Labels = append(s.Owners.Labels, st.labels())
	}
	for range st.below(6) {
		c := gpu.Column{Counter: &gpu.Counter{Name: st.text(), Help: st.text(), Type: gpu.MetricType(st.below(4))}}
		for range devices {
			c.Values = append(c.Values, st.value())
		}
		s.Columns = append(s.Columns, c)
	}
	for range st.below(4) {
		f := gpu.Family{Name: st.text(), Help: st.text(), Type: gpu.MetricType(st.below(3))}
		for range st.below(5) {
			row := st.below(len(devices)+2) - 1
			f.Series = append(f.Series, gpu.Series{Row: row, Labels: st.labels(), Value: st.value()})
		}
		s.Families = append(s.Families, f)
	}
	return s
}

var (
	notLabel  = regexp.MustCompile(`[^a-zA-Z0-9_]`)
	notMetric = regexp.MustCompile(`[^a-zA-Z0-9_:]`)
	ownByProm = regexp.MustCompile(`^__+`)
)

func repaired(name string, not *regexp.Regexp) string {
	if name == "" {
		return "_"
	}
	if name[0] >= '0' && name[0] <= '9' {
		name = "_" + name
	}
	// Byte by byte: a rune of two bytes becomes two underscores.
	latin := make([]rune, len(name))
	for i := range len(name) {
		latin[i] = rune(name[i])
	}
	return not.ReplaceAllString(string(latin), "_")
}

// says returns the expected content of the page of s. It uses maps and ignores order and number formats.
func says(s *gpu.Snapshot) parsed {
	page := parsed{}
	declare := func(name, help string, typ gpu.MetricType) parsedFamily {
		name = repaired(name, notMetric)
		if _, ok := page[name]; !ok {
			help = strings.Trim(string([]rune(help)), " \t")
			page[name] = parsedFamily{Type: typ.String(), Help: help, Samples: map[string]float64{}}
		}
		return page[name]
	}
	add := func(family parsedFamily, pairs map[string]string, v gpu.Value) {
		valid := map[string]string{}
		for k, v := range pairs {
			if v != "" {
				valid[k] = string([]rune(v))
			}
		}
		key := labels.FromMap(valid).String()
		if _, twice := family.Samples[key]; twice {
			return
		}
		if n, ok := v.Number(); ok {
			family.Samples[key] = n
		}
	}
	label := func(name string) string { return ownByProm.ReplaceAllString(repaired(name, notLabel), "_") }
	put := func(pairs map[string]string, name, value string) {
		if pairs[name] == "" {
			pairs[name] = value
		}
	}
	identity := func(row int) map[string]string {
		if row < 0 {
			return map[string]string{}
		}
		d := s.Topology.Devices[row]
		if d.Entity.Kind == gpu.KindNVSwitch {
			return map[string]string{"nvswitch": fmt.Sprintf("nvswitch%d", d.Entity.ID), "hostname": "h"}
		}
		return map[string]string{
			"gpu": fmt.Sprint(d.GPU), "UUID": d.UUID, "pci_bus_id": "", "device": "nvidia0", "modelName": d.Model,
			"hostname": "h",
		}
	}
	rest := func(pairs map[string]string, row int) map[string]string {
		if row < 0 {
			return pairs
		}
		for _, c := range s.Columns {
			if c.Counter.Type == gpu.MetricLabel {
				put(pairs, label(c.Counter.Name), c.Values[row].String())
			}
		}
		if s.Topology.Devices[row].Entity.Kind == gpu.KindGPU {
			for _, l := range s.Owners.Of(row) {
				put(pairs, label(l.Name), l.Value)
			}
		}
		return pairs
	}
	for _, c := range s.Columns {
		if c.Counter.Type == gpu.MetricLabel {
			continue
		}
		family := declare(c.Counter.Name, c.Counter.Help, c.Counter.Type)
		for row, v := range c.Values {
			add(family, rest(identity(row), row), v)
		}
	}
	for _, f := range s.Families {
		family := declare(f.Name, f.Help, f.Type)
		for _, sr := range f.Series {
			if sr.Row >= len(s.Topology.Devices) {
				continue
			}
			pairs := identity(sr.Row)
			for _, l := range sr.Labels {
				put(pairs, label(l.Name), l.Value)
			}
			add(family, rest(pairs, sr.Row), sr.Value)
		}
	}
	maps.DeleteFunc(page, func(_ string, f parsedFamily) bool { return len(f.Samples) == 0 })
	return page
}

// Prometheus parses the page of any snapshot to the expected content. An encoder that has encoded another snapshot
// before produces the same page as a new one.
func FuzzEncode(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte(strings.Repeat("\x03\x01\x02\x04\x05\x07", 60)))
	f.Add([]byte("\x04\x01\x00\x01\x01\x01\x00\x01\x01\x01\x00\x01\x01\x02\x02\x03\x0e\x0f\x10\x12" +
		"\x06\x05\x0d\x0e\x0f\x03\x04\x05\x02\x01\x09\x08\x08\x08"))
	f.Fuzz(func(t *testing.T, data []byte) {
		st := stream(data)
		first, second := st.snapshot(), st.snapshot()
		opts := exposition.Options{Hostname: "h"}
		used := exposition.NewEncoder(opts)
		before := used.Encode(first)
		if diff := cmp.Diff(says(first), parse(t, before.Bytes())); diff != "" {
			t.Errorf("page (-expected +parsed):\n%s\n%s", diff, before.Bytes())
		}
		after, fresh := used.Encode(second), exposition.NewEncoder(opts).Encode(second)
		if diff := cmp.Diff(string(fresh.Bytes()), string(after.Bytes())); diff != "" {
			t.Errorf("page of a used encoder (-new encoder +used encoder):\n%s", diff)
		}
	})
}

// parsed is the content of a page by family.
type parsed map[string]parsedFamily

type parsedFamily struct {
	Type, Help string
	Samples    map[string]float64 // by labels, in the form of labels.Labels
}

// parse parses a page with both of Prometheus' parsers. It fails the test if one of them rejects the page, they
// disagree, or a label set occurs twice.
func parse(t testing.TB, page []byte) parsed {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(page))
	if err != nil {
		t.Fatalf("expfmt: %v\n%s", err, page)
	}
	out, left := parsed{}, 0
	for name, mf := range families {
		family := parsedFamily{strings.ToLower(mf.GetType().String()), mf.GetHelp(), map[string]float64{}}
		for _, m := range mf.Metric {
			pairs := map[string]string{}
			for _, l := range m.Label {
				if pairs[l.GetName()] = l.GetValue(); l.GetValue() == "" {
					t.Fatalf("%s: label %s is empty, want no empty label", name, l.GetName())
				}
			}
			if m.TimestampMs != nil {
				t.Fatalf("%s: sample has a timestamp", name)
			}
			key := labels.FromMap(pairs).String()
			if _, twice := family.Samples[key]; twice {
				t.Fatalf("%s: label set %q occurs twice, want once", name, key)
			}
			family.Samples[key] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()
			left++
		}
		out[name] = family
	}
	for s := range prom.Samples(t, page) {
		key := s.Labels.DropReserved(func(name string) bool { return name == model.MetricNameLabel }).String()
		got, ok := out[s.Labels.Get(model.MetricNameLabel)].Samples[key]
		if left--; !ok || got != s.Value {
			t.Fatalf("%s: textparse returned %v, expfmt %v (%v)", s.Series, s.Value, got, ok)
		}
	}
	if left != 0 {
		t.Fatalf("expfmt found %d samples more than textparse, want the same", left)
	}
	return out
}
