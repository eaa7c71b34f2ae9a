package record

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/recording"
)

// harmless are the text fields that name a model or a version, which many machines share; the texts
// of all others are masked.
func harmless(id gpu.FieldID) bool {
	switch id {
	case 1, 2, // versions of the driver and of NVML
		50, 51, // product and brand
		56, 80, 81, 82, 85, // versions of the InfoROM's parts and of the VBIOS
		524, 532, // the driver of a vGPU and the state of its license
		1140, 1141, // vendor and model of a CPU
		1502, // state of the IMEX domain
		1524: // firmware of an NVSwitch
		return true
	default:
		return false
	}
}

// A masker replaces what identifies a machine by made-up names, equal ones by equal ones, so that
// what can be joined before can be joined after. The names count from 1 in the order of first use:
// nothing of the original is in them.
type masker struct {
	names map[string]string // original → made up
	count map[string]int    // by form
	pids  map[uint32]uint32
}

// mask masks a recording in place.
func mask(rec *recording.Recording) {
	m := masker{names: map[string]string{}, count: map[string]int{}, pids: map[uint32]uint32{}}
	for i := range rec.Devices {
		d := &rec.Devices[i]
		d.UUID, d.MIGUUID, d.Serial, d.PCIBusID = m.uuid(d.UUID), m.uuid(d.MIGUUID), m.text(d.Serial), m.text(d.PCIBusID)
	}
	for i := range rec.Parts {
		rec.Parts[i].MIGUUID = m.uuid(rec.Parts[i].MIGUUID)
	}
	rec.Host, rec.Masked = m.named("host", rec.Host), true
	for i := range rec.Owners {
		uses := rec.Owners[i].Uses
		for j := range uses {
			m.labels(uses[j].Labels)
		}
		for j := range uses {
			m.owners(uses[j].Owners)
		}
	}
	pods := make(map[uint32]string, len(rec.Pods))
	for _, pid := range slices.Sorted(maps.Keys(rec.Pods)) {
		pods[m.pid(pid)] = m.text(rec.Pods[pid])
	}
	rec.Pods = pods
	for i := range rec.Reads {
		m.read(rec, &rec.Reads[i])
	}
}

func (m *masker) read(rec *recording.Recording, r *recording.Read) {
	for _, s := range r.Samples {
		if harmless(rec.Fields[s.Field].ID) {
			continue
		}
		for i, v := range s.Values {
			if v.IsText() {
				s.Values[i].Value = gpu.Text(m.text(v.String()))
			}
		}
	}
	for i := range r.Processes {
		r.Processes[i].PID = m.pid(r.Processes[i].PID)
	}
}

func (m *masker) owners(owners []recording.Owner) {
	for i := range owners {
		w := &owners[i]
		w.Namespace, w.Pod, w.Container = m.named("namespace", w.Namespace), m.named("pod", w.Pod), m.named("container", w.Container)
		w.PodUID, w.Replica = m.text(w.PodUID), m.replica(w.Replica)
		w.Resource = m.resource(w.Resource)
		m.labels(w.Labels)
	}
}

// ours reports whether a label's name is the exporter's, and not one that a pod or a container
// brought along.
func ours(label string) bool {
	switch label {
	case "container", "namespace", "pod", "pod_uid", "vgpu", "hpc_job",
		"dra_claim_name", "dra_claim_namespace", "dra_driver_name", "dra_pool_name", "dra_device_name",
		"dra_mig_profile", "dra_mig_device_uuid":
		return true
	default:
		return false
	}
}

// labels masks the values of labels, and the names of those that are not ours.
func (m *masker) labels(labels []recording.Label) {
	for i := range labels {
		name, value := &labels[i][0], &labels[i][1]
		if !ours(*name) {
			*name = "label_" + strconv.Itoa(m.ordinal("label", *name))
		}
		*value = m.named(*name, *value)
	}
}

// replica keeps the number of a replica; a share id of a claim is a name.
func (m *masker) replica(id string) string {
	if _, err := strconv.Atoi(id); err == nil {
		return id
	}
	return m.text(id)
}

// resource keeps NVIDIA's own names.
func (m *masker) resource(name string) string {
	if strings.HasPrefix(name, "nvidia.com/") || name == "gpu.nvidia.com" {
		return name
	}
	return m.named("resource", name)
}

func (m *masker) pid(pid uint32) uint32 {
	if _, known := m.pids[pid]; !known {
		m.pids[pid] = uint32(1000 + len(m.pids))
	}
	return m.pids[pid]
}

// ordinal returns the number of a name among those of its kind.
func (m *masker) ordinal(kind, name string) int {
	n, err := strconv.Atoi(m.remember("#"+kind+"#"+name, func() string { m.count[kind]++; return strconv.Itoa(m.count[kind]) }))
	if err != nil {
		return 0
	}
	return n
}

func (m *masker) remember(original string, made func() string) string {
	if _, known := m.names[original]; !known {
		m.names[original] = made()
	}
	return m.names[original]
}

// named returns "KIND-N"; nothing for nothing. A name that was met as an identity elsewhere keeps
// what it became there.
func (m *masker) named(kind, name string) string {
	if name == "" {
		return ""
	}
	if made, known := m.names[strings.ToLower(name)]; known {
		return made
	}
	if uuids.MatchString(name) {
		return m.text(name)
	}
	return kind + "-" + strconv.Itoa(m.ordinal(kind, name))
}

var (
	uuids     = regexp.MustCompile(`(?i)[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	deviceIDs = regexp.MustCompile(`(?i)^((MIG-)?(GPU-)?@(/\d+/\d+)?,?)+$`)
	digits    = regexp.MustCompile(`^\d+$`)
	hex       = regexp.MustCompile(`^0x[0-9a-fA-F]+$`)
	busIDs    = regexp.MustCompile(`(?i)^([0-9a-f]{4,8}):[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)
)

// uuid masks what is known to be a UUID with its prefix, whatever its form.
func (m *masker) uuid(s string) string {
	if s == "" || uuids.MatchString(s) {
		return m.text(s)
	}
	prefix, _, _ := strings.Cut(s, "-")
	return m.remember(strings.ToLower(s), func() string { return prefix + "-" + m.made() })
}

// made returns the next UUID, of version 8 (RFC 9562: of one's own making).
func (m *masker) made() string {
	m.count["uuid"]++
	return fmt.Sprintf("%08x-0000-8000-8000-%012x", m.count["uuid"], m.count["uuid"])
}

// text masks a text of which nothing is known, and keeps its form: device ids with their prefixes,
// UUIDs, PCI bus ids, numbers of as many digits, and "text-N".
func (m *masker) text(s string) string {
	key := strings.ToLower(s)
	if s == "" {
		return ""
	}
	if bus := busIDs.FindStringSubmatch(s); bus != nil {
		return m.bus(len(bus[1]), key)
	}
	if made, known := m.names[key]; known {
		return made
	}
	if deviceIDs.MatchString(uuids.ReplaceAllString(s, "@")) {
		return uuids.ReplaceAllStringFunc(s, func(core string) string { return m.remember(strings.ToLower(core), m.made) })
	}
	return m.remember(key, func() string {
		switch {
		case digits.MatchString(s):
			return fmt.Sprintf("%0*d", len(s), m.next("number"))
		case hex.MatchString(s):
			return fmt.Sprintf("0x%0*x", len(s)-2, m.next("number"))
		default:
			return "text-" + strconv.Itoa(m.next("text"))
		}
	})
}

// bus masks a PCI bus id, which has so many digits of a domain: that of the made-up ones is on no
// machine. A card is spelled with four digits here and eight there, and stays one card.
func (m *masker) bus(digits int, id string) string {
	place := m.remember("#bus#"+strings.TrimLeft(id, "0"), func() string {
		n := m.next("bus")
		return fmt.Sprintf(":%02X:%02X.0", n&0xff, n>>8)
	})
	return strings.Repeat("F", digits) + place
}

func (m *masker) next(kind string) int {
	m.count[kind]++
	return m.count[kind]
}
