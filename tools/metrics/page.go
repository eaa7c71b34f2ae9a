package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/nvml"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
)

// exportable are the fields that have a row: one for the two names of a field.
func exportable() []catalog.Entry {
	var all []catalog.Entry
	for e := range catalog.All() {
		if e.Exportable() && e.BaseOf == 0 {
			all = append(all, e)
		}
	}
	return all
}

func kindOf(e catalog.Entry) gpu.MetricType {
	switch {
	case e.Type == catalog.Text:
		return gpu.MetricLabel
	case e.Monotonic:
		return gpu.MetricCounter
	default:
		return gpu.MetricGauge
	}
}

// An entityLabels is what the series of a kind of entity carry.
type entityLabels struct {
	kind   gpu.Kind
	what   string
	labels []string
}

// labelsByKind returns which labels the encoder gives each kind of entity, with everything known
// that can be known of it.
func (w *writer) labelsByKind() []entityLabels {
	whole := gpu.Device{
		UUID: "GPU-1", PCIBusID: "00000000:1B:00.0", Model: "model", Profile: "1g.10gb", Serial: "serial",
		GPU: 1, NVMLIndex: 1, InstanceID: 1, Link: 1,
	}
	var all []entityLabels
	add := func(what string, e gpu.Entity) {
		d := whole
		d.Entity = e
		topology := gpu.NewTopology([]gpu.Device{d})
		encoder := exposition.NewEncoder(exposition.Options{Hostname: "node"})
		page := encoder.Encode(&gpu.Snapshot{
			Topology: topology,
			Columns:  []gpu.Column{{Counter: &gpu.Counter{Name: "column", Type: gpu.MetricGauge, Help: "x"}, Values: []gpu.Value{gpu.Int(1)}}},
			Health:   gpu.Health{Entities: make([]gpu.EntityHealth, 1)},
		})
		for line := range strings.Lines(string(page.Bytes())) {
			if !strings.HasPrefix(line, "column{") {
				continue
			}
			var names []string
			for _, pair := range strings.Split(line[len("column{"):strings.IndexByte(line, '}')], ",") {
				name, _, _ := strings.Cut(pair, "=")
				names = append(names, name)
			}
			all = append(all, entityLabels{e.Kind, what, names})
		}
	}
	for _, k := range gpu.KindsOf(gpu.KindGPU, gpu.KindGPUInstance).List() {
		add(k.String(), gpu.Entity{Kind: k})
	}
	add("NVLink of a GPU", gpu.Entity{Kind: gpu.KindNVLink, ParentKind: gpu.KindGPU})
	add("NVLink of an NVSwitch", gpu.Entity{Kind: gpu.KindNVLink, ParentKind: gpu.KindNVSwitch})
	for _, k := range gpu.KindsOf(gpu.KindNVSwitch, gpu.KindCPU, gpu.KindCPUCore, gpu.KindConnectX).List() {
		add(k.String(), gpu.Entity{Kind: k})
	}
	if len(all) < 8 {
		w.fail("labels of only %d kinds", len(all))
	}
	return all
}

// groups are the sections of fields, the first that fits.
func groups() []struct {
	title string
	fits  func(catalog.Entry) bool
} {
	has := func(kinds ...gpu.Kind) func(catalog.Entry) bool {
		return func(e catalog.Entry) bool {
			return slices.ContainsFunc(kinds, e.Levels.Has)
		}
	}
	return []struct {
		title string
		fits  func(catalog.Entry) bool
	}{
		{"Labels", func(e catalog.Entry) bool { return e.Type == catalog.Text }},
		{"Profiling", func(e catalog.Entry) bool { return e.Profiling }},
		{"GPUs and their instances", has(gpu.KindGPU, gpu.KindGPUInstance)},
		{"NVLinks", has(gpu.KindNVLink)},
		{"NVSwitches", has(gpu.KindNVSwitch)},
		{"Grace CPUs and their cores", has(gpu.KindCPU, gpu.KindCPUCore)},
		{"ConnectX cards", has(gpu.KindConnectX)},
		{"The machine", func(catalog.Entry) bool { return true }},
	}
}

func code(names []string) string {
	if len(names) == 0 {
		return "–"
	}
	return "`" + strings.Join(names, "`, `") + "`"
}

// cell keeps a text within its cell.
func cell(text string) string { return strings.ReplaceAll(text, "|", "\\|") }

// fabric says what the families of the fabric mean, and when they are wrong.
const health = `
### Health

The three families have DCGM's own verdicts: 0 pass, 10 warn, 20 fail; a series for each watch of each entity, and where a watch finds
several things for each of their codes. NVML has none. A code is the name of DCGM's header (` + "`DCGM_FR_…`" + `), or the number of one that a later engine has.

| family | of | watches | where it comes from | when it is wrong |
|---|---|---|---|---|
| ` + "`DCGM_EXP_GPU_HEALTH_STATUS`" + ` | each GPU | the ten of GPUs; ` + "`ALL`" + `, the worst of them | DCGM's findings about GPUs | links that are down on purpose: below |
| ` + "`DCGM_EXP_NVSWITCH_HEALTH_STATUS`" + ` | each NVSwitch of the node | ` + "`NVSWITCH_FATAL`, `NVSWITCH_NONFATAL`" + ` | SXIDs and links of switches; those of a rack are not the node's | links that are down stand under ` + "`NVSWITCH_FATAL`" + `, at boot too: below |
| ` + "`DCGM_EXP_NODE_HEALTH_STATUS`" + ` | the machine; each ConnectX card, with ` + "`connectx`" + ` | ` + "`IMEX`" + `; ` + "`CONNECTX`" + ` | domain and daemon of IMEX, from DCGM 4.5 on (before 4.6.1 it says NVLink, and here it is ` + "`IMEX`" + `); the cards' health and PCIe errors | DCGM does not see an IMEX daemon that runs in a pod, and does not know where one should be: below |

A verdict that cannot be right is 0, and its label ` + "`corrected`" + ` says why; the code stays:

| corrected | code | why |
|---|---|---|
| ` + "`boot`" + ` | ` + "`DCGM_FR_NVLINK_DOWN`" + ` | the exporter's machine started less than five minutes ago, and links are trained then. Not of an engine of another host |
| ` + "`mig`" + ` | ` + "`DCGM_FR_NVLINK_DOWN`" + ` | the GPU is in MIG mode, where the driver calls its links down. DCGM leaves them out itself from 4.5 on. A link that is broken looks the same until MIG mode ends |
| ` + "`no_bridge`" + ` | ` + "`DCGM_FR_NVLINK_DOWN`" + ` | the board takes a bridge, by its model's name (PCIe, NVL, A30, A40, RTX: DCGM and NVML do not say whether one is there), none of its links is up, and none was since the exporter started. A bridge that was dead before looks the same: compare with its neighbors, or with ` + "`nvidia-smi nvlink -s`" + ` of before. A board that NVIDIA names otherwise later is not corrected |
| ` + "`no_domain`" + ` | ` + "`DCGM_FR_IMEX_UNHEALTHY`" + ` | no GPU is in a clique but 0, and no board is a rack's |
| ` + "`no_daemon`" + ` | ` + "`DCGM_FR_IMEX_UNHEALTHY`" + ` | no IMEX daemon runs on the machine (` + "`DCGM_FI_IMEX_DAEMON_STATUS`" + ` is below 0), and the domain is neither DOWN nor DEGRADED: a DRA driver runs it in pods, while there is a ComputeDomain. Not once it was ready since the exporter started. A daemon of the machine that ended before looks the same: where ` + "`nvidia-imex`" + ` runs as a service, watch its unit too (node_exporter: ` + "`node_systemd_unit_state`" + `) |

` + "`--compatibility=strict`" + ` corrects nothing and has the family of GPUs alone. The other two, and ` + "`corrected`" + `, are experimental.
`

// xids says where the families of XIDs come from, and when they are wrong.
const xids = `
### XIDs and SXIDs

| family | where it comes from | when it is wrong |
|---|---|---|
| ` + "`DCGM_EXP_XID_ERRORS_COUNT`, `DCGM_EXP_XID_ERRORS_TOTAL`" + ` | the kernel's log while it is read (` + "`--xid-kernel-log`" + `), else DCGM or NVML | an XID of the moment at which one gives way to another: [adr/0022](adr/0022-one-witness-of-an-xid.md) |
| ` + "`DCGM_EXP_XID_LAST_SEEN_TIMESTAMP_SECONDS`" + ` | the kernel log and driver events alike, with the owner at that time. XIDs from before the start have no owner: the kernel log has those of this boot, DCGM those of its last minutes | lines that the kernel has overwritten; the log's clock drifts by seconds a day; NVML alone knows no XID from before it was opened |
| ` + "`DCGM_EXP_XID_DETAILS_TOTAL`" + ` | lines of the kernel's log alone: of XIDs 144 to 150 the word of the unit, the bits 20 to 25 of the first number as ` + "`subcode`" + `, and the link; of 154 the action by its number | an XID that was injected is not told from others; link -1 is no link and has no label; a line of another form is in ` + "`dcgm_exporter_kernel_log_unparsed_total`" + ` |
| ` + "`DCGM_EXP_NVSWITCH_SXID_ERRORS_TOTAL`" + ` | lines of the kernel's log alone, up to NVSwitches of H100 and H200: later ones have no SXIDs | ` + "`nvswitch`" + ` is the driver's number (` + "`nvidia-nvswitch3`" + `), which need not be DCGM's |
| ` + "`dcgm_nvswitch_sxid_last_seen_timestamp_seconds`" + ` | the same lines, and those of this boot from before the start, whose count is 0 | as ` + "`" + `DCGM_EXP_XID_LAST_SEEN_TIMESTAMP_SECONDS` + "`" + ` |

Of one GPU, or of all switches, 128 combinations of labels have a series; others are counted as ` + "`other`" + `. The last three are not
served under ` + "`--compatibility=strict`" + `; details are experimental.
`

// links says what is read of each link, and when it is wrong.
const links = `
### NVLink 5 by link

The counters ` + "`DCGM_FI_DEV_NVLINK_COUNT_…`" + ` are over all links of a GPU. These families have four of them for each link, with the labels
of a link above. They are experimental, and in no file as shipped: [fleet-counters.csv](../etc/fleet-counters.csv) has their lines,
switched off, since a GPU of 18 links has 72 series more. ` + "`GPUNVLink5Errors`" + ` names the link where they are collected.

| family | where it comes from | when it is wrong |
|---|---|---|
| ` + "`DCGM_EXP_NVLINK_RECOVERY_SUCCESSFUL_TOTAL`, `DCGM_EXP_NVLINK_RECOVERY_FAILED_TOTAL`" + ` | DCGM: fields 1211 and 1212 of the link's entity, which DCGM 4.6.0 reads ([DcgmCacheManager.cpp](https://github.com/NVIDIA/DCGM/blob/72fa3feaa67d716a75323a8f47c34ff3ee73f824/dcgmlib/src/DcgmCacheManager.cpp), ReadAndCacheNvLinkCountField); NVML: the field values 213 and 214 of the link | they count since the driver was loaded; before Blackwell not supported; an engine that does not read them by link says nothing |
| ` + "`DCGM_EXP_NVLINK_SYMBOL_ERRORS_TOTAL`" + ` | 1214; NVML's 221 | likewise; some symbol errors are normal |
| ` + "`DCGM_EXP_NVLINK_EFFECTIVE_BER`" + ` | 1218; NVML's 220, unpacked | likewise; 1.5e-254 stands for none |

They are not served under ` + "`--compatibility=strict`" + `. Before NVLink 5 no error counter of a GPU's link has a name of its own but those by lane
number (` + "`DCGM_FI_DEV_NVLINK_…_L0`" + `) and DCGM's ` + "`…_PER_LINK_TOTAL`" + ` (1525 to 1528), which any file can request under DCGM; ` + "`DCGM_EXP_XID_DETAILS_TOTAL`" + `
has the link of an XID.
`

const fabric = `
### The fabric

Both families are experimental and not served under ` + "`--compatibility=strict`" + `. They come from DCGM's fields or from NVML's
` + "`nvmlGpuFabricInfo` (v3, else v2)" + `, alike. ` + "`DCGM_EXP_FABRIC_STATE`" + ` is 1 while a condition holds and 0 while it does not; without
an answer of the driver it has no series.

| condition | holds where | no series |
|---|---|---|
| ` + "`not_completed`" + ` | the registration has not begun or is under way; a GPU of a rack says that it is of no fabric | no fabric, a state that NVML has since added, a driver before NVML's function (reason ` + "`version`" + ` under DCGM, ` + "`not_supported`" + ` under NVML) |
| ` + "`failed`" + ` | the registration has ended, and not with success | until it has ended |
| ` + "`no_cluster`, `no_clique`" + ` | zeros | until the registration has ended; boards whose name has no GB200 or GB300, since zeros are right on an HGX |
| ` + "`degraded_bandwidth`, `route_recovery`, `route_unhealthy`, `access_timeout_recovery`" + `; ` + "`incorrect_system_guid`, `incorrect_chassis_serial`, `no_partition`, `insufficient_nvlinks`, `incompatible_firmware`, `invalid_location`, `invalid_gpu_state`" + `; ` + "`partition_unassigned`, `manager_disconnected`" + ` | the driver's health mask says so | that part of the mask is "not supported", as a GB200 of 2025 had all of them |

` + "`DCGM_EXP_FABRIC_INFO`" + ` has the cluster and clique of GPUs whose cluster is not zero. A clique can change while the node runs.

They are wrong, or silent: a GPU that is not registered has a clique of 0 and no cluster, and so no series of the rack; a rack's GPU that
a virtual machine has alone is of no fabric, and no condition says otherwise; a GB200 NVL4, which is no part of a rack, may show
` + "`no_cluster`" + `; under MIG mode links carry nothing, and no board was seen to say so here. That jobs reach each other
takes IMEX as well (` + "`DCGM_FI_IMEX_DOMAIN_STATUS`" + `).
`

// reference returns docs/metrics.md.
func (w *writer) reference() string {
	var b strings.Builder
	fmt.Fprintf(&b, `<!-- Generated by tools/metrics (make generate). Do not edit. -->
# Metrics

Every family that the exporter can serve. What is served is what the counters file names; the exporter's own series and
those of attribution come by themselves. `+"`dcgm-exporter fields WORD…`"+` searches the fields, `+"`dcgm-exporter check FILE`"+`
says which of a file this machine can give.

A field has a name in each vocabulary: that of dcgm-exporter 4.8 (classic, the default) and that of 4.9 (current).
`+"`--vocabulary=both`"+` serves both from the same sample. A counters file may use either and gets what it names. "4.8 unit → 4.9 unit" means that
the current name is in another unit. The type is the one that suits the field; the file decides. "from" names the sources
that read it (`+"`--source`"+`), which the hardware, the driver and the engine may still not have. The catalog is made from
go-dcgm %s.

## Labels

| of | labels |
|---|---|
`, catalog.ModuleVersion)
	for _, e := range w.labelsByKind() {
		fmt.Fprintf(&b, "| %s | %s |\n", e.what, code(e.labels))
	}
	b.WriteString(`
Behind these come the label-typed counters of the file, and on GPUs and instances those of the owner: ` + "`container`, `namespace`, `pod`" + `,
and where configured ` + "`pod_uid`, `vgpu`, `hpc_job`, `dra_…`" + ` and the pod's labels. ` + "`DCGM_FI_DEV_XID_ERRORS`" + ` has ` + "`err_code` and `err_msg`" + ` too. What is
not known is left out. Fields of the machine stand at every GPU. Fields that hold structures, and those of vGPUs, cannot
be exported and are not listed here; ` + "`dcgm-exporter fields`" + ` shows them. [flags.md](flags.md) has what changes label names.

## Fields
`)
	rest := exportable()
	for _, g := range groups() {
		var out []catalog.Entry
		fmt.Fprintf(&b, "\n### %s\n\n| classic (4.8) | current (4.9) | id | type | unit | of | from | what |\n|---|---|---|---|---|---|---|---|\n", g.title)
		for _, e := range rest {
			if !g.fits(e) {
				out = append(out, e)
				continue
			}
			current := "same"
			if e.Current != e.Classic {
				current = "`" + e.Current + "`"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %d | %s | %s | %s | %s | %s |\n",
				e.Classic, current, e.ID, kindOf(e), unitsOf(e), levels(e), w.from(e.Classic, kindOf(e)), cell(e.Help))
		}
		rest = out
	}
	b.WriteString(`
## Families of the exporter

They are named in the counters file like fields, are the same in both vocabularies, and carry the labels of their GPU
and its owner beside their own, those of health the labels of their switch, card or machine, those by link the labels of the link.

| name | type | unit | own labels | made of field | from | what |
|---|---|---|---|---|---|---|
`)
	for _, d := range catalog.Families() {
		var of []string
		for _, id := range append(slices.Clone(d.Values), d.Field, d.Link) {
			if e, ok := catalog.ByID(id); ok && id != 0 {
				of = append(of, fmt.Sprintf("%d `%s`", id, e.Classic))
			}
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s | %s |\n",
			d.Name, d.Type, promisedUnit(d.Name), code(d.Labels), cmp.Or(strings.Join(of, ", "), "–"), w.from(d.Name, d.Type), cell(d.Help))
	}
	b.WriteString(health + xids + links + fabric + `
## Who uses what

They come where owners are known ([attribution.md](attribution.md)); [Shared GPUs](attribution.md#shared-gpus) says how they are reckoned. They are the
same in both vocabularies.

| name | type | unit | labels | what |
|---|---|---|---|---|
`)
	for _, f := range attribution() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", f.Name, f.Type, promisedUnit(f.Name), code(attributionLabels(f.Name)), cell(f.Help))
	}
	b.WriteString(`
## The exporter itself

[The exporter's own series](operations.md#the-exporters-own-series) says what each means and what to do. Beside them are those of the Go runtime and of the process, ` + "`go_…` and `process_…`" + `.

| name | type | labels |
|---|---|---|
`)
	rows := w.documented()
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", name, rows[name].kind, code(rows[name].labels))
	}
	return b.String()
}

func unitsOf(e catalog.Entry) string {
	classic, _ := catalog.Lookup(e.Classic)
	current, _ := catalog.Lookup(e.Current)
	if classic.Unit == current.Unit {
		return string(classic.Unit)
	}
	return fmt.Sprintf("%s → %s", classic.Unit, current.Unit)
}

func levels(e catalog.Entry) string {
	var words []string
	for _, k := range e.Levels.List() {
		words = append(words, k.String())
	}
	return strings.Join(words, ", ")
}

// from returns the names of the sources that read a family, as --source has them.
func (w *writer) from(name string, typ gpu.MetricType) string {
	request, err := counters.NewRequest(name, typ, "")
	if err != nil {
		w.fail("%w", err)
	}
	plan := counters.NewPlan([]counters.Request{request}, counters.PlanOptions{})
	var names []string
	for _, source := range []struct {
		name  string
		reads func(*gpu.Plan) bool
	}{{"dcgm", dcgm.Reads}, {"nvml", nvml.Reads}, {"sim", sim.Reads}} {
		if source.reads(plan) {
			names = append(names, source.name)
		}
	}
	if len(names) == 0 {
		w.fail("%s: no source reads it", name)
	}
	return strings.Join(names, ", ")
}

// promisedUnit returns the unit that the name of a family says.
func promisedUnit(name string) string {
	name = strings.TrimSuffix(strings.ToLower(name), "_total")
	for _, unit := range []gpu.Unit{catalog.Seconds, catalog.Bytes, catalog.Joules, catalog.Ratio} {
		if strings.HasSuffix(name, "_"+string(unit)) {
			return string(unit)
		}
	}
	return ""
}
