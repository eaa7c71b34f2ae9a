// Package podmapper finds the pods and containers that use each GPU. It implements the attributor "kubernetes", which
// the Loop queries once per cycle.
//
// It calls List of the kubelet's PodResources service over one connection. A deviceid.Resolver maps the device ids to
// rows of the topology. Functions in Options provide the API server's data: UIDs, labels and phases of pods, and the
// devices of dynamic claims. The package itself never queries the API server.
//
// A query goes through these files: mapper.go (Attribute), kubelet.go (the list), memory.go (devices that a restarted
// kubelet does not list yet), pods.go (what is known about the pods), and assign.go (from devices to owners).
//
// Results are immutable, and the same pointer is returned until something changes. Memory is bounded: only recent
// listings are kept.
package podmapper

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/gpu-telemetry/dcgm-exporter/internal/attribution"
	"github.com/gpu-telemetry/dcgm-exporter/internal/deviceid"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gauge"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// ErrEmpty means that a kubelet that has just started listed no pods although there were some before: it has not loaded
// them yet.
var ErrEmpty = errors.New("the kubelet has just started and lists no pods yet")

// ClaimDevice is a device of a ResourceSlice.
type ClaimDevice struct {
	UUID    string // UUID of the GPU or MIG device; "" for a MIG device that is created when a pod starts
	MIG     bool
	Profile string // profile of a MIG device, if known
	// Parent is the UUID of the GPU of a MIG device without a UUID, and Start is its first memory slice.
	Parent   string
	Start    uint32
	Capacity map[string]float64 // by name
}

// id returns the device's id.
func (d *ClaimDevice) id() deviceid.ID {
	if d.UUID == "" {
		return deviceid.Placed(d.Parent, d.Profile, d.Start)
	}
	return deviceid.Parse(d.UUID)
}

// Claimed is what a claim's allocation says about a device. The zero value means that the claim has not been read yet.
type Claimed struct {
	Read      bool               // the allocation was read and includes the device
	Forbidden bool               // the exporter has no permission to read claims
	Admin     bool               // admin access, which does not make an owner
	Consumed  map[string]float64 // consumed capacity by name; nil if the device is not shared by capacity
}

// pending reports whether the claim has not been read yet, so that it may or may not make an owner.
func (c Claimed) pending() bool { return !c.Read && !c.Forbidden }

// Options configure a Mapper. Metrics is required; the zero values of all other fields disable them.
type Options struct {
	// Socket is the path of the kubelet's PodResources socket. Dial connects to it; nil means a plain dialer.
	Socket string
	Dial   func(context.Context) (net.Conn, error)
	// Resources lists GPU resources outside nvidia.com.
	Resources []string
	// PodUID adds the label pod_uid, and PodLabels adds the pods' own labels. Both need Pod.
	PodUID    bool
	PodLabels bool
	// LabelsAllowed are patterns for the keys of pod labels; none means all keys.
	LabelsAllowed []*regexp.Regexp
	// MaxPodLabels is the maximum number of labels taken from a pod; 0 means DefaultPodLabels.
	MaxPodLabels int

	// LogFolder is the path of the pods' log folder. Its entries give the UIDs of pods that Pod does not know. It need
	// not exist; "" disables it.
	LogFolder string

	// Pod returns a pod of this node, if it is known. Nil means that no pod is known.
	Pod func(namespace, name string) (PodInfo, bool)
	// Stale returns since when the API server has not answered, and the zero time if it answers. Nil means that it
	// answers.
	Stale func() time.Time
	// Device returns a claimed device, if it is known. A nil Device ignores claims.
	Device func(driver, pool, name string) (ClaimDevice, bool)
	// Claimed returns what the allocation of a claim says about a device or a share of it, without
	// waiting. A nil Claimed means that claims must not be read.
	Claimed func(namespace, claim, driver, pool, device, share string) Claimed
	// ClaimsRead waits until every claim that Claimed was asked about was read or failed, or ctx is done. Nil does not
	// wait.
	ClaimsRead func(context.Context)
	// Ready are channels that are closed once Pod and Device have data. The first Attribute waits for them for up to
	// 1.5 s, so that the first page has all labels.
	Ready []<-chan struct{}
	// Revision changes whenever Pod, Device or Claimed may return something else.
	Revision func() uint64
	// MPS reports whether replicas share a device by MPS, because the ids do not show it. Nil means time-slicing.
	MPS func() bool

	Metrics *Metrics
}

// Mapper is the attributor "kubernetes". Its methods are safe for concurrent use.
type Mapper struct {
	opt     Options
	mu      sync.Mutex
	kubelet kubelet

	validFor time.Duration // how long an answer is valid
	memory   memory
	logs     logFolders
	podInfo  map[podName]PodInfo   // the latest information about the pods that hold devices
	left     map[podName]time.Time // when pods left the list
	since    time.Time             // since when the API server has not answered; zero if it answers

	inputs inputs // inputs of the latest owners
	owners *gpu.Owners
	// unmatched lists the GPUs of the latest owners that match no entity.
	unmatched []Allocation
	resolver  *deviceid.Resolver
	seen      map[podDevice]uint64 // the number of the listing in which a pod first had a device
	count     uint64               // number of listings
}

// inputs holds everything that the owners depend on.
type inputs struct {
	topology    *gpu.Topology
	allocations []Allocation
	doubted     []Allocation // allocations in doubt: others may hold their devices
	ownersKnown bool         // devices that are not listed are free
	revision    uint64
	replicated  gpu.Sharing
	since       time.Time          // Mapper.since
	uids        map[podName]string // UIDs of pods from their log folders
}

func (a *inputs) equal(b *inputs) bool {
	return a.topology == b.topology && a.revision == b.revision && a.replicated == b.replicated &&
		a.ownersKnown == b.ownersKnown && a.since.Equal(b.since) && maps.Equal(a.uids, b.uids) &&
		slices.Equal(a.allocations, b.allocations) && slices.Equal(a.doubted, b.doubted)
}

// New returns a Mapper. It connects at the first query.
func New(opt Options) *Mapper {
	if opt.Pod == nil {
		opt.Pod = func(string, string) (PodInfo, bool) { return PodInfo{}, false }
	}
	if opt.Stale == nil {
		opt.Stale = func() time.Time { return time.Time{} }
	}
	if opt.Revision == nil {
		opt.Revision = func() uint64 { return 0 }
	}
	if opt.Dial == nil {
		opt.Dial = func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", opt.Socket)
		}
	}
	opt.MaxPodLabels = cmp.Or(opt.MaxPodLabels, DefaultPodLabels)
	m := &Mapper{opt: opt, validFor: minMemory, logs: logFolders{path: opt.LogFolder}, left: map[podName]time.Time{}}
	m.kubelet.opt, m.kubelet.now = &m.opt, time.Now
	return m
}

// Every sets how often Attribute is called. Unlisted allocations are remembered for two intervals, but at least 30 s.
func (m *Mapper) Every(interval time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.validFor = max(2*interval, minMemory)
}

// Name returns "kubernetes".
func (m *Mapper) Name() string { return "kubernetes" }

// Close closes the connection. A later call reconnects.
func (m *Mapper) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kubelet.close()
}

// Attribute queries the kubelet once and returns the owners of t. The error wraps gpu.ErrUnavailable if there is no
// socket or kubelet, or with ErrEmpty if the kubelet is not ready. Other errors wrap gpu.ErrPermission, gpu.ErrTimeout
// or gpu.ErrVersion. On an error the caller keeps the last result while it is valid.
func (m *Mapper) Attribute(ctx context.Context, t *gpu.Topology) (*gpu.Owners, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	allocations, fresh, err := m.kubelet.list(ctx)
	if err != nil {
		return nil, err
	}
	m.await(ctx, allocations)
	now, answered := m.kubelet.now(), time.Now()
	m.opt.Metrics.answered.Store(&answered)
	if m.resolver == nil || m.resolver.Topology() != t {
		m.resolver = deviceid.NewResolver(t)
	}
	m.logs.refresh(now)
	m.since = m.opt.Stale()
	// Read the revision first, so that a concurrent change shows in the next call.
	in := inputs{topology: t, since: m.since, revision: m.opt.Revision(), replicated: gpu.SharingTimeSlicing}
	if m.opt.MPS != nil && m.opt.MPS() {
		in.replicated = gpu.SharingMPS
	}
	in.allocations, in.doubted = m.complete(allocations, fresh, now)
	in.ownersKnown = m.memory.ownersKnown
	if !slices.Equal(in.allocations, m.inputs.allocations) {
		m.noteLeft(in.allocations, now)
	}
	in.uids = m.uidsOf(in.allocations)
	divided := m.kubelet.learnReplicas(ctx, in.allocations)
	if m.owners != nil && !divided && in.equal(&m.inputs) {
		return m.owners, nil
	}
	m.inputs = in
	m.owners = attribution.ReuseIfEqual(m.owners, m.assign())
	return m.owners, nil
}

const (
	// maxReady bounds the wait for the API server before the first answer. A loop waits 2 s for it.
	maxReady = 1500 * time.Millisecond
	// maxClaimWait bounds the wait for new claims before each answer. A loop waits 100 ms for later answers.
	maxClaimWait = 80 * time.Millisecond
)

// await waits until the API server has listed its objects, the first time, and until the claims of the allocations are
// read.
func (m *Mapper) await(ctx context.Context, allocations []Allocation) {
	limit := maxClaimWait
	if m.opt.Ready != nil {
		limit = maxReady
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for _, ready := range m.opt.Ready {
		select {
		case <-ready:
		case <-ctx.Done():
		}
	}
	m.opt.Ready = nil
	wait := false
	for i := range allocations {
		wait = m.claimed(&allocations[i]).pending() || wait // claimed also requests the claim
	}
	if wait && m.opt.ClaimsRead != nil {
		m.opt.ClaimsRead(ctx)
	}
}

// claimed returns what the claim of alloc says about its device. A plugin device has no claim.
func (m *Mapper) claimed(alloc *Allocation) Claimed {
	if alloc.Claim == "" || m.opt.Claimed == nil {
		return Claimed{Read: alloc.Claim == "", Forbidden: alloc.Claim != ""}
	}
	return m.opt.Claimed(alloc.ClaimNamespace, alloc.Claim, alloc.Resource, alloc.Pool, alloc.Device, alloc.Share)
}

// Metrics holds the package's metrics. A process registers them once, and all its Mappers share them.
type Metrics struct {
	requests  *prometheus.CounterVec
	unmatched *gauge.State
	labels    *prometheus.GaugeVec
	owners    prometheus.Gauge
	kept      prometheus.Gauge
	answered  atomic.Pointer[time.Time] // when the kubelet last answered; nil before the first answer
}

// Reasons for dropping a label of a pod.
const (
	droppedCollision = "collision" // its name is taken by the exporter or an earlier label
	droppedBudget    = "budget"    // the pod has too many labels
	droppedLength    = "length"    // its value is too long
)

// setDropped sets the number of dropped labels by reason.
func (m *Metrics) setDropped(labels map[string]int) {
	for _, reason := range []string{droppedCollision, droppedBudget, droppedLength} {
		m.labels.WithLabelValues(reason).Set(float64(labels[reason]))
	}
}

// maxUnmatched is the maximum number of pairs of resource and form that are counted.
const maxUnmatched = 64

// setUnmatched counts the unmatched devices.
func (m *Metrics) setUnmatched(devices []Allocation) {
	counts := map[[2]string]int{}
	for i := range devices {
		key := [2]string{devices[i].Resource, string(devices[i].ID.Form)}
		if _, ok := counts[key]; !ok && len(counts) >= maxUnmatched {
			key[0] = "other"
		}
		counts[key]++
	}
	var series []gauge.Series
	for key, n := range counts {
		series = append(series, gauge.Series{Value: float64(n), Labels: key[:]})
	}
	m.unmatched.Set(series...)
}

// NewMetrics registers the metrics at reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	auto := promauto.With(reg)
	m := &Metrics{
		requests: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "dcgm_exporter_kubelet_requests_total",
			Help: "Requests to the kubelet's PodResources service, by the gRPC code of the answer.",
		}, []string{"code"}),
		unmatched: gauge.NewState("dcgm_exporter_unmatched_devices",
			"Devices that containers hold and that match no entity of the source, by resource and form of their ids. "+
				"The subcommand doctor lists them.", "resource", "form"),
		labels: auto.NewGaugeVec(prometheus.GaugeOpts{
			Name: "dcgm_exporter_pod_labels_dropped", Help: "Pod labels currently dropped, by reason.",
		}, []string{"reason"}),
		owners: auto.NewGauge(prometheus.GaugeOpts{
			Name: "dcgm_exporter_owners_dropped", Help: "Owners currently dropped because their entity has too many.",
		}),
		kept: auto.NewGauge(prometheus.GaugeOpts{
			Name: "dcgm_exporter_attribution_holdings_kept",
			Help: "Devices with a remembered owner, because the kubelet has just started and does not list it.",
		}),
	}
	age := prometheus.NewDesc("dcgm_exporter_attribution_map_age_seconds",
		"Seconds since the kubelet last reported which pod has which device.", nil, nil)
	reg.MustRegister(m.unmatched, prometheus.CollectorFunc(func(metrics chan<- prometheus.Metric) {
		if at := m.answered.Load(); at != nil {
			metrics <- prometheus.MustNewConstMetric(age, prometheus.GaugeValue, time.Since(*at).Seconds())
		}
	}))
	m.setDropped(nil)
	return m
}
