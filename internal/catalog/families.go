package catalog

import (
	"slices"
	"strings"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Names of families that other code refers to. NVIDIA's exporter does not have XIDLastSeen and those after it.
const (
	XIDErrorsCount    = "DCGM_EXP_XID_ERRORS_COUNT"
	XIDErrorsTotal    = "DCGM_EXP_XID_ERRORS_TOTAL"
	ClockEventsCount  = "DCGM_EXP_CLOCK_EVENTS_COUNT"
	ClockEventsTotal  = "DCGM_EXP_CLOCK_EVENTS_TOTAL"
	GPUHealthStatus   = "DCGM_EXP_GPU_HEALTH_STATUS"
	P2PStatus         = "DCGM_EXP_P2P_STATUS"
	XIDLastSeen       = "DCGM_EXP_XID_LAST_SEEN_TIMESTAMP_SECONDS"
	XIDDetailsTotal   = "DCGM_EXP_XID_DETAILS_TOTAL"
	SXIDErrorsTotal   = "DCGM_EXP_NVSWITCH_SXID_ERRORS_TOTAL"
	SXIDLastSeen      = "dcgm_nvswitch_sxid_last_seen_timestamp_seconds"
	ClockEventSeconds = "DCGM_EXP_CLOCK_EVENT_SECONDS_TOTAL"
	GPUPairInfo       = "DCGM_EXP_GPU_PAIR_INFO"
	GPUAffinityInfo   = "DCGM_EXP_GPU_AFFINITY_INFO"
	FabricState       = "DCGM_EXP_FABRIC_STATE"
	FabricInfo        = "DCGM_EXP_FABRIC_INFO"
	NVSwitchHealth    = "DCGM_EXP_NVSWITCH_HEALTH_STATUS"
	NodeHealth        = "DCGM_EXP_NODE_HEALTH_STATUS"
	GPUVerdict        = "dcgm_exporter_gpu_verdict"

	NVLinkRecoverySuccessful = "DCGM_EXP_NVLINK_RECOVERY_SUCCESSFUL_TOTAL"
	NVLinkRecoveryFailed     = "DCGM_EXP_NVLINK_RECOVERY_FAILED_TOTAL"
	NVLinkSymbolErrors       = "DCGM_EXP_NVLINK_SYMBOL_ERRORS_TOTAL"
	NVLinkEffectiveBER       = "DCGM_EXP_NVLINK_EFFECTIVE_BER"

	PodUtilization          = "dcgm_pod_gpu_utilization_ratio"
	PodMemory               = "dcgm_pod_gpu_memory_used_bytes"
	PodActive               = "dcgm_pod_gpu_active_seconds_total"
	PodAllocated            = "dcgm_pod_gpu_allocated_seconds_total"
	PodEnergy               = "dcgm_pod_gpu_energy_joules_total"
	PodInfo                 = "dcgm_pod_gpu_info"
	UnattributedUtilization = "dcgm_gpu_unattributed_utilization_ratio"
	UnattributedMemory      = "dcgm_gpu_unattributed_memory_used_bytes"
	UnattributedActive      = "dcgm_gpu_unattributed_active_seconds_total"
	UnattributedEnergy      = "dcgm_gpu_unattributed_energy_joules_total"
	AttributionUnavailable  = "dcgm_exporter_attribution_unavailable"
	PodXIDLastSeen          = "dcgm_pod_gpu_xid_last_seen_timestamp_seconds"

	EntityUp         = "dcgm_exporter_entity_up"
	FieldUnavailable = "dcgm_exporter_field_unavailable"
	SampleAge        = "dcgm_exporter_sample_age_seconds"
)

// A Group says which setting enables a family.
type Group uint8

// Values of Group.
const (
	Requested  Group = iota // a line of the counters file
	Accounting              // --enable-accounting-metrics
	XIDOwners               // --owner-labels=info: XIDs by owner, because device series then have no owner labels
	Health                  // --enable-health-metrics
)

// A Family is a metric family that the exporter computes itself. It is declared once, as a row of families. The package
// that computes it has a function for its name. The documentation, reserved labels, the limit of series, compatibility
// and what a plan requests derive from the row.
type Family struct {
	Name         string
	Type         gpu.MetricType // the recommended type
	Help         string         // without the final period, and without "(experimental)"
	Experimental bool           // its HELP line says so
	Labels       []string       // requested families and XIDOwners also have the labels of the entity
	Group        Group
	// Extra families are omitted from pages that must equal those of NVIDIA's exporter, even if the counters file names
	// them.
	Extra bool

	// What a plan requests for the family.

	Field       gpu.FieldID   // input field; 0 if there is none
	MaxInterval time.Duration // maximum interval between samples of Field; 0 for the plan's interval
	Values      []gpu.FieldID // fields that the family is computed from, or that correct its findings
	Health      gpu.Kinds     // kinds of entities whose health checks the family shows
	// Peers, Links and Placement are requested in the fields of gpu.Plan with these names.
	Peers, Links, Placement bool
	// Link is a GPU field whose values the family shows for each NVLink, or 0. DCGM uses one ID for both. The names
	// differ, because a sum over one name would count the links twice.
	Link gpu.FieldID
}

// Summary describes the family. It is the text of its HELP line without the period.
func (f *Family) Summary() string {
	if f.Experimental {
		return f.Help + " (experimental)"
	}
	return f.Help
}

// HelpLine returns the text of the family's HELP line.
func (f *Family) HelpLine() string { return f.Summary() + "." }

// maxEdgeInterval is the longest sampling interval of clock events if their edges and seconds are counted. It makes
// throttling of a few seconds visible at any collection interval.
const maxEdgeInterval = time.Second

// healthLabels are the labels of health findings. The label corrected says why a finding must be wrong.
// TreatmentLabel says why alerts and the verdict ignore it.
var healthLabels = []string{
	"health_watch", "health_error_code", "health_error_severity", "health_error_category", "corrected", TreatmentLabel,
}

// Labels of families that have no others.
var (
	deviceLabels = []string{"gpu", "UUID", "GPU_I_ID"}
	podLabels    = slices.Concat(deviceLabels, []string{"namespace", "pod", "container", "hpc_job"})
	entityLabels = slices.Concat(deviceLabels, []string{"nvlink", "nvswitch", "gpu_uuid", "cpu", "cpucore", "connectx"})
)

// families lists the families in the order of the documentation. Families of a group are in the order of a page.
var families = [...]Family{
	// Requested by the counters file.
	{Name: XIDErrorsCount, Type: gpu.MetricGauge, Help: "XID errors within the window, by XID",
		Labels: []string{"window_size_in_ms", "GPU_I_ID", "xid"}, Field: XIDErrors},
	{Name: XIDErrorsTotal, Type: gpu.MetricCounter, Help: "XID errors since the exporter started, by XID",
		Labels: []string{"GPU_I_ID", "xid"}, Field: XIDErrors},
	{Name: ClockEventsCount, Type: gpu.MetricGauge,
		Help:   "Samples within the window that show the clock event: one per collection interval",
		Labels: []string{"window_size_in_ms", "clock_event"}, Field: ClocksEventReasons},
	{Name: ClockEventsTotal, Type: gpu.MetricCounter, Help: "Clock events since the exporter started, by event",
		Labels: []string{"clock_event"}, Field: ClocksEventReasons, MaxInterval: maxEdgeInterval},
	{Name: GPUHealthStatus, Type: gpu.MetricGauge, Help: "Result of DCGM's health watches, by watch",
		Labels: healthLabels, Values: []gpu.FieldID{MIGMode}, Health: gpu.KindsOf(gpu.KindGPU)},
	{Name: NVSwitchHealth, Type: gpu.MetricGauge, Extra: true, Experimental: true,
		Help: "Result of DCGM's health watches of NVSwitches, by watch", Labels: healthLabels,
		Health: gpu.KindsOf(gpu.KindNVSwitch)},
	{Name: NodeHealth, Type: gpu.MetricGauge, Extra: true, Experimental: true,
		Help: "Result of DCGM's health watches of the machine and its ConnectX cards, by watch", Labels: healthLabels,
		Values: []gpu.FieldID{FabricCliqueID, IMEXDomainStatus, IMEXDaemonStatus},
		Health: gpu.KindsOf(gpu.KindNode, gpu.KindConnectX)},
	{Name: P2PStatus, Type: gpu.MetricGauge, Help: "State of NVLink between pairs of GPUs",
		Labels: []string{"peer_gpu", "link_status"}, Peers: true},
	{Name: XIDLastSeen, Type: gpu.MetricGauge,
		Help: "Unix time at which the XID was last seen, with the owner at that time; " +
			"includes XIDs from before the exporter started",
		Labels: []string{"GPU_I_ID", "xid"}, Field: XIDErrors},
	{Name: XIDDetailsTotal, Type: gpu.MetricCounter, Extra: true, Experimental: true,
		Help: "XIDs 144 to 150 and 154 in the kernel log since the exporter started, " +
			"by unit, link and requested action",
		Labels: []string{"xid", "unit", "subcode", "link", "severity", "action"}, Field: XIDErrors},
	{Name: SXIDErrorsTotal, Type: gpu.MetricCounter, Extra: true,
		Help:   "SXIDs of NVSwitches in the kernel log since the exporter started",
		Labels: []string{"nvswitch", "sxid", "severity", "link"}, Field: XIDErrors},
	{Name: SXIDLastSeen, Type: gpu.MetricGauge, Extra: true,
		Help: "Unix time at which the SXID was last seen in the kernel log; " +
			"includes SXIDs from before the exporter started",
		Labels: []string{"nvswitch", "sxid", "severity", "link"}, Field: XIDErrors},
	{Name: ClockEventSeconds, Type: gpu.MetricCounter,
		Help: "Seconds for which the event limited the clocks; " +
			"excludes gpu_idle and display_clocks, which do not slow down work",
		Labels: []string{"clock_event"}, Field: ClocksEventReasons, MaxInterval: maxEdgeInterval},
	{Name: GPUPairInfo, Type: gpu.MetricGauge, Help: "Connection of two GPUs: number of NVLinks and PCIe path",
		Labels: []string{"peer_gpu", "peer_uuid", "path", "nvlinks"}, Placement: true},
	{Name: GPUAffinityInfo, Type: gpu.MetricGauge, Help: "NUMA node and CPUs nearest to the GPU",
		Labels: []string{"numa_node", "cpu_affinity"}, Placement: true},
	{Name: FabricState, Type: gpu.MetricGauge, Extra: true, Experimental: true,
		Help: "Whether the NVLink fabric condition holds for the GPU", Labels: []string{"condition"},
		Values: []gpu.FieldID{FabricManagerStatus, FabricClusterUUID, FabricCliqueID, FabricHealthMask},
		Links:  true},
	{Name: FabricInfo, Type: gpu.MetricGauge, Extra: true, Experimental: true,
		Help:   "NVLink cluster and clique of the GPU; a cluster can span nodes",
		Labels: []string{"cluster_uuid", "clique_id"}, Values: []gpu.FieldID{FabricClusterUUID, FabricCliqueID}},
	{Name: NVLinkRecoverySuccessful, Type: gpu.MetricCounter, Extra: true, Experimental: true,
		Help: "Successful recoveries of the NVLink, for NVLink 5 and later",
		Link: NVLinkCountLinkRecoverySuccessfulEvents},
	{Name: NVLinkRecoveryFailed, Type: gpu.MetricCounter, Extra: true, Experimental: true,
		Help: "Failed recoveries of the NVLink, for NVLink 5 and later", Link: NVLinkCountLinkRecoveryFailedEvents},
	{Name: NVLinkSymbolErrors, Type: gpu.MetricCounter, Extra: true, Experimental: true,
		Help: "Symbol errors on the NVLink, for NVLink 5 and later", Link: NVLinkCountRXSymbolErrors},
	{Name: NVLinkEffectiveBER, Type: gpu.MetricGauge, Extra: true, Experimental: true,
		Help: "Bit error rate of the NVLink after correction, 0 to 1, for NVLink 5 and later",
		Link: NVLinkCountEffectiveBERFloat},
	{Name: GPUVerdict, Type: gpu.MetricGauge, Extra: true, Experimental: true,
		Help: "Verdict on the GPU and its reason; the value is 1", Labels: []string{"verdict", "reason"},
		Values: []gpu.FieldID{
			RowRemapFailure, RetiredSBE, RetiredDBE, GetGPURecoveryAction, C2CLinkCount, C2CLinkStatus, ECCDBEVolTotal,
			UncorrectableRemappedRows, RowRemapPending, RetiredPending, NVLinkRecoveryErrorCountTotal,
			NVLinkCountLinkRecoveryFailedEvents, NVLinkCountLinkRecoverySuccessfulEvents,
		}},
	// The use of GPUs by owners.
	{Name: PodUtilization, Type: gpu.MetricGauge, Group: Accounting,
		Help: "Fraction of time in which the pod's work ran on the GPU or GPU instance, 0 to 1", Labels: podLabels},
	{Name: PodMemory, Type: gpu.MetricGauge, Group: Accounting,
		Help: "Memory of the GPU or GPU instance used by the pod", Labels: podLabels},
	{Name: PodActive, Type: gpu.MetricCounter, Group: Accounting,
		Help:   "GPU seconds in which the pod's work ran. A GPU instance counts by its fraction of the GPU",
		Labels: podLabels},
	{Name: PodAllocated, Type: gpu.MetricCounter, Group: Accounting,
		Help:   "GPU seconds assigned to the pod. A replica or GPU instance counts by its fraction of the GPU",
		Labels: podLabels},
	{Name: PodEnergy, Type: gpu.MetricCounter, Group: Accounting,
		Help:   "GPU energy charged to the pod: the active part by its activity, the idle part by its share",
		Labels: podLabels},
	{Name: PodInfo, Type: gpu.MetricGauge, Group: Accounting,
		Help:   "Assignment of a GPU, GPU instance or replica to a container or job, and how the device is shared",
		Labels: slices.Concat(podLabels, []string{"pod_uid", "resource", "sharing", "replicas"})},
	{Name: UnattributedUtilization, Type: gpu.MetricGauge, Group: Accounting,
		Help: "Unattributed utilization of the GPU or GPU instance, 0 to 1", Labels: deviceLabels},
	{Name: UnattributedMemory, Type: gpu.MetricGauge, Group: Accounting,
		Help: "Unattributed used memory of the GPU or GPU instance", Labels: deviceLabels},
	{Name: UnattributedActive, Type: gpu.MetricCounter, Group: Accounting,
		Help: "Unattributed GPU seconds in which work ran", Labels: deviceLabels},
	{Name: UnattributedEnergy, Type: gpu.MetricCounter, Group: Accounting,
		Help:   "Unattributed energy of the GPU or GPU instance: work and idle time that no pod is charged for",
		Labels: deviceLabels},
	{Name: AttributionUnavailable, Type: gpu.MetricGauge, Group: Accounting,
		Help:   "Values that attribution could not determine in the latest cycle, by reason",
		Labels: []string{"what", "reason"}},
	{Name: PodXIDLastSeen, Type: gpu.MetricGauge, Group: XIDOwners,
		Help:   "Unix time at which the XID was last seen, with the owner at that time; only with --owner-labels=info",
		Labels: []string{"GPU_I_ID", "xid"}},
	// The state of the collection.
	{Name: EntityUp, Type: gpu.MetricGauge, Group: Health,
		Help:   "Whether the entity is read (1) or not (0, with the reason)",
		Labels: slices.Concat(entityLabels, []string{"reason"})},
	{Name: FieldUnavailable, Type: gpu.MetricGauge, Group: Health,
		Help:   "1 for each configured metric that is not served, with the reason",
		Labels: slices.Concat([]string{"field", "reason"}, entityLabels)},
	{Name: SampleAge, Type: gpu.MetricGauge, Group: Health,
		Help: "Age of the oldest sample served for the entity, when the page was made", Labels: entityLabels},
}

// Families returns the families of a group. Their labels are shared and must not be changed.
func Families(g Group) []Family {
	return slices.DeleteFunc(AllFamilies(), func(f Family) bool { return f.Group != g })
}

// AllFamilies returns the families of all groups.
func AllFamilies() []Family { return slices.Clone(families[:]) }

// FamilyNamed returns the family with a name, or nil if there is none. It must not be changed.
func FamilyNamed(name string) *Family {
	for i := range families {
		if families[i].Name == name {
			return &families[i]
		}
	}
	return nil
}

// IsInGroup reports whether there is a family with that name in the group.
func IsInGroup(name string, g Group) bool {
	f := FamilyNamed(name)
	return f != nil && f.Group == g
}

// ownLabels are labels of series with owner labels, in addition to the labels of families and the names of fields.
var ownLabels = [...]string{
	"uuid", "pci_bus_id", "device", "modelName", "GPU_I_PROFILE", "hostname", "Hostname",
	"vgpu", "container_name", "pod_name", "pod_namespace", "err_code", "err_msg",
	// Prometheus adds these to every series, or uses them in histograms and summaries.
	"job", "instance", "le", "quantile",
}

// IsOwnLabel reports whether the exporter itself may use the label on a series with owner labels. Labels of pods must
// not replace it.
func IsOwnLabel(name string) bool {
	if strings.HasPrefix(name, "dra_") || strings.HasPrefix(name, "DCGM_") || slices.Contains(ownLabels[:], name) {
		return true
	}
	return slices.ContainsFunc(families[:], func(f Family) bool {
		hasOwners := f.Group == Requested || slices.Contains(f.Labels, "pod")
		return hasOwners && slices.Contains(f.Labels, name)
	})
}
