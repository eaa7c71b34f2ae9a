package catalog

import (
	"slices"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Names of the exporter's own families. NVIDIA's exporter does not have XIDLastSeen and those after it.
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
)

// Needs lists what a plan must request for a family besides fields.
type Needs uint8

// Values of Needs.
const (
	NeedsPeers     Needs = 1 << iota // states of peer-to-peer connections (gpu.Plan.Peers)
	NeedsLinks                       // whether a GPU has an active NVLink (gpu.Plan.Links)
	NeedsPlacement                   // connections and affinity of GPUs (gpu.Plan.Placement)
)

// A Family is a metric family that the exporter computes itself. Each has a row in families and a function of a
// Deriver.
type Family struct {
	Name        string
	Type        gpu.MetricType // the recommended type
	Help        string         // a short description
	Field       gpu.FieldID    // input field; 0 if there is none
	MaxInterval time.Duration  // maximum interval between samples of Field; 0 for the plan's interval
	Values      []gpu.FieldID  // fields that the family is computed from, or that correct its findings; nil if there are none
	Needs       Needs
	Health      gpu.Kinds // kinds of entities whose health checks the family shows (gpu.Plan.Health)
	// Link is a GPU field whose values the family shows for each NVLink, or 0. DCGM uses one ID for both. If
	// both had the same name, a sum would count twice.
	Link   gpu.FieldID
	Labels []string // labels in addition to the entity's
	// Extra families are omitted from pages that must equal those of NVIDIA's exporter, even if the counters file names
	// them.
	Extra bool
}

// maxEdgeInterval is the longest sampling interval of clock events if their edges and seconds are counted. It makes
// throttling of a few seconds visible at any collection interval.
const maxEdgeInterval = time.Second

// healthLabels are the labels of health findings. The label corrected says why a finding must be wrong.
// TreatmentLabel says why alerts and the verdict ignore it.
var healthLabels = []string{
	"health_watch", "health_error_code", "health_error_severity", "health_error_category", "corrected", TreatmentLabel,
}

// families lists the families in the order of the documentation.
var families = [...]Family{
	{Name: XIDErrorsCount, Type: gpu.MetricGauge, Field: XIDErrors, Labels: []string{"window_size_in_ms", "GPU_I_ID", "xid"},
		Help: "XID errors within the window, by XID"},
	{Name: XIDErrorsTotal, Type: gpu.MetricCounter, Field: XIDErrors, Labels: []string{"GPU_I_ID", "xid"},
		Help: "XID errors since the exporter started, by XID"},
	{Name: ClockEventsCount, Type: gpu.MetricGauge, Field: ClocksEventReasons, Labels: []string{"window_size_in_ms", "clock_event"},
		Help: "Samples within the window that show the clock event: one per collection interval"},
	{Name: ClockEventsTotal, Type: gpu.MetricCounter, Field: ClocksEventReasons, MaxInterval: maxEdgeInterval, Labels: []string{"clock_event"},
		Help: "Clock events since the exporter started, by event"},
	{Name: GPUHealthStatus, Type: gpu.MetricGauge, Health: gpu.KindsOf(gpu.KindGPU), Values: []gpu.FieldID{MIGMode}, Labels: healthLabels,
		Help: "Result of DCGM's health watches, by watch"},
	{Name: NVSwitchHealth, Extra: true, Type: gpu.MetricGauge, Health: gpu.KindsOf(gpu.KindNVSwitch), Labels: healthLabels,
		Help: "Result of DCGM's health watches of NVSwitches, by watch"},
	{Name: NodeHealth, Extra: true, Type: gpu.MetricGauge, Health: gpu.KindsOf(gpu.KindNode, gpu.KindConnectX), Labels: healthLabels,
		Values: []gpu.FieldID{FabricCliqueID, IMEXDomainStatus, IMEXDaemonStatus},
		Help:   "Result of DCGM's health watches of the machine and its ConnectX cards, by watch"},
	{Name: P2PStatus, Type: gpu.MetricGauge, Needs: NeedsPeers, Labels: []string{"peer_gpu", "link_status"},
		Help: "State of NVLink between pairs of GPUs"},
	{Name: XIDLastSeen, Type: gpu.MetricGauge, Field: XIDErrors, Labels: []string{"GPU_I_ID", "xid"},
		Help: "Unix time at which the XID was last seen, with the owner at that time; includes XIDs from before the exporter started"},
	{Name: XIDDetailsTotal, Extra: true, Type: gpu.MetricCounter, Field: XIDErrors,
		Labels: []string{"xid", "unit", "subcode", "link", "severity", "action"},
		Help:   "XIDs 144 to 150 and 154 in the kernel log since the exporter started, by unit, link and requested action (experimental)"},
	{Name: SXIDErrorsTotal, Extra: true, Type: gpu.MetricCounter, Field: XIDErrors, Labels: []string{"nvswitch", "sxid", "severity", "link"},
		Help: "SXIDs of NVSwitches in the kernel log since the exporter started"},
	{Name: SXIDLastSeen, Extra: true, Type: gpu.MetricGauge, Field: XIDErrors, Labels: []string{"nvswitch", "sxid", "severity", "link"},
		Help: "Unix time at which the SXID was last seen in the kernel log; includes SXIDs from before the exporter started"},
	{Name: ClockEventSeconds, Type: gpu.MetricCounter, Field: ClocksEventReasons, MaxInterval: maxEdgeInterval, Labels: []string{"clock_event"},
		Help: "Seconds for which the event limited the clocks; excludes gpu_idle and display_clocks, which do not slow down work"},
	{Name: GPUPairInfo, Type: gpu.MetricGauge, Needs: NeedsPlacement, Labels: []string{"peer_gpu", "peer_uuid", "path", "nvlinks"},
		Help: "Connection of two GPUs: number of NVLinks and PCIe path"},
	{Name: GPUAffinityInfo, Type: gpu.MetricGauge, Needs: NeedsPlacement, Labels: []string{"numa_node", "cpu_affinity"},
		Help: "NUMA node and CPUs nearest to the GPU"},
	{Name: FabricState, Extra: true, Type: gpu.MetricGauge, Needs: NeedsLinks, Labels: []string{"condition"},
		Values: []gpu.FieldID{FabricManagerStatus, FabricClusterUUID, FabricCliqueID, FabricHealthMask},
		Help:   "Whether the condition of the GPU in the NVLink fabric holds (experimental)"},
	{Name: FabricInfo, Extra: true, Type: gpu.MetricGauge, Labels: []string{"cluster_uuid", "clique_id"},
		Values: []gpu.FieldID{FabricClusterUUID, FabricCliqueID},
		Help:   "NVLink cluster and clique of the GPU; a cluster can span nodes (experimental)"},
	{Name: NVLinkRecoverySuccessful, Extra: true, Type: gpu.MetricCounter, Link: NVLinkCountLinkRecoverySuccessfulEvents,
		Help: "Successful recoveries of the NVLink, for NVLink 5 and later (experimental)"},
	{Name: NVLinkRecoveryFailed, Extra: true, Type: gpu.MetricCounter, Link: NVLinkCountLinkRecoveryFailedEvents,
		Help: "Failed recoveries of the NVLink, for NVLink 5 and later (experimental)"},
	{Name: NVLinkSymbolErrors, Extra: true, Type: gpu.MetricCounter, Link: NVLinkCountRXSymbolErrors,
		Help: "Symbol errors on the NVLink, for NVLink 5 and later (experimental)"},
	{Name: NVLinkEffectiveBER, Extra: true, Type: gpu.MetricGauge, Link: NVLinkCountEffectiveBERFloat,
		Help: "Bit error rate of the NVLink after correction, 0 to 1, for NVLink 5 and later (experimental)"},
	{Name: GPUVerdict, Extra: true, Type: gpu.MetricGauge, Labels: []string{"verdict", "reason"},
		Values: []gpu.FieldID{
			RowRemapFailure, RetiredSBE, RetiredDBE, GetGPURecoveryAction, C2CLinkCount, C2CLinkStatus, ECCDBEVolTotal,
			UncorrectableRemappedRows, RowRemapPending, RetiredPending, NVLinkRecoveryErrorCountTotal,
			NVLinkCountLinkRecoveryFailedEvents, NVLinkCountLinkRecoverySuccessfulEvents,
		},
		Help: "Verdict on the GPU and its reason; the value is 1 (experimental)"},
}

// Families returns all families. Their labels are shared and must not be changed.
func Families() []Family { return slices.Clone(families[:]) }

// FamilyNamed returns the family with a name, or nil if there is none. It must not be changed.
func FamilyNamed(name string) *Family {
	for i := range families {
		if families[i].Name == name {
			return &families[i]
		}
	}
	return nil
}
