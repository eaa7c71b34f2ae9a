package podmapper

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/deviceid"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// ErrEmpty is for an answer without pods from a kubelet that has just started and that had some
// before: it has not read them yet.
var ErrEmpty = errors.New("the kubelet has just started and lists no pods yet")

// A PodInfo is a pod as the API server knows it.
type PodInfo struct {
	UID      string
	Hash     string // the UID by which the node knows a static pod; "" for others
	Labels   map[string]string
	Finished bool // it succeeded or failed, and uses nothing any more
	Created  time.Time
	// Allocated is HAMi's annotation of the devices of the pod's containers, whose names are then
	// Containers, in the pod's order.
	Containers []string
	Allocated  string
}

// A ClaimDevice is a device of a ResourceSlice.
type ClaimDevice struct {
	UUID    string // of the GPU or the MIG device; "" for a MIG device that is made when a pod starts
	MIG     bool
	Profile string // of the MIG device, where known
	// Parent is the UUID of the GPU of a MIG device without a UUID, and Start its first memory slice there.
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

// A Claimed is what a claim's allocation says about a device. The zero value means that the claim has
// not been read yet.
type Claimed struct {
	Read      bool               // the allocation was read and has the device
	Forbidden bool               // the exporter may not read claims
	Admin     bool               // access that does not make an owner
	Consumed  map[string]float64 // of the device's capacity, by name; nil for a device that is not shared by capacity
}

// pending reports whether it is not known yet if the claim makes an owner.
func (c *Claimed) pending() bool { return !c.Read && !c.Forbidden }

// Options configure a Mapper. Metrics is required; zero values of the others are off.
type Options struct {
	// Socket is the path of the kubelet's PodResources socket. Dial connects to it; nil for a plain
	// dialer.
	Socket string
	Dial   func(context.Context) (net.Conn, error)
	// Resources are names of resources of GPUs outside nvidia.com.
	Resources []string
	// PodUID adds the label pod_uid, PodLabels the pods' own; both need Pod.
	PodUID    bool
	PodLabels bool
	// LabelsAllowed are expressions for the keys of pods' labels; none allows all.
	LabelsAllowed []*regexp.Regexp
	// MaxPodLabels is the maximum number of labels taken from a pod; 0 means DefaultPodLabels.
	MaxPodLabels int

	// LogFolder is the path of the folder of the pods' logs, whose names have the UIDs of pods that Pod
	// does not know. It need not exist; "" for none.
	LogFolder string

	// Pod returns a pod of this node, if it is known; nil knows none.
	Pod func(namespace, name string) (PodInfo, bool)
	// Stale reports that the API server does not answer, and since when Pod has heard nothing of it.
	// Nil: it answers.
	Stale func() (since time.Time, stale bool)
	// Device returns a device that a claim holds, if it is known; nil ignores claims.
	Device func(driver, pool, name string) (ClaimDevice, bool)
	// Claimed returns what the allocation of a claim says about a device or a share of it, without
	// waiting. A nil Claimed means that claims must not be read.
	Claimed func(namespace, claim, driver, pool, device, share string) Claimed
	// ClaimsRead waits until the claims that Claimed was asked about are read, cannot be read, or ctx is
	// done. Nil does not wait.
	ClaimsRead func(context.Context)
	// Ready are closed when Pod and Device begin to know things. The first Attribute waits for them,
	// for 1.5 s at most, so that the first page has all labels.
	Ready []<-chan struct{}
	// Revision differs whenever Pod, Device or Claimed may answer otherwise.
	Revision func() uint64
	// Replicated says how replicas of a device share it: time-slicing or MPS, which ids do not
	// distinguish. Nil means time-slicing.
	Replicated func() gpu.Sharing

	Metrics *Metrics
}

// A Mapper is the Attributor "kubernetes". Its methods may be called from any goroutine; they run
// one at a time.
type Mapper struct {
	opt     Options
	policy  labelPolicy
	mu      sync.Mutex
	kubelet kubelet

	now      func() time.Time
	validFor time.Duration // how long an answer is good for
	memory   memory
	logs     logFolders
	known    map[podName]PodInfo   // what the API server last said of the pods that hold devices
	left     map[podName]time.Time // when pods left the list
	since    time.Time             // since when the API server has not answered, where
	stale    bool                  // it does not

	inputs   inputs // that owners were made of
	pods     int    // in the latest believed listing
	owners   *gpu.Owners
	resolver *deviceid.Resolver
	seen     map[tenancy]uint64 // when a pod was first seen with a device
	count    uint64             // of listings, for seen
}

// inputs are all that owners depend on.
type inputs struct {
	topology    *gpu.Topology
	allocations []Allocation
	doubted     []Allocation // of devices that others may hold
	known       bool         // no device but these may be held
	revision    uint64
	replicated  gpu.Sharing
	since       time.Time          // since when the API server has not answered, where it does not
	uids        map[podName]string // of pods, by the folders of their logs
}

func (a *inputs) equal(b *inputs) bool {
	return a.topology == b.topology && a.revision == b.revision && a.replicated == b.replicated &&
		a.known == b.known && a.since.Equal(b.since) && maps.Equal(a.uids, b.uids) &&
		slices.Equal(a.allocations, b.allocations) && slices.Equal(a.doubted, b.doubted)
}

// New returns a Mapper. It connects when it is first queried.
func New(opt Options) *Mapper {
	if opt.Pod == nil {
		opt.Pod = func(string, string) (PodInfo, bool) { return PodInfo{}, false }
	}
	if opt.Stale == nil {
		opt.Stale = func() (time.Time, bool) { return time.Time{}, false }
	}
	if opt.Claimed == nil {
		opt.Claimed = func(_, _, _, _, _, _ string) Claimed { return Claimed{Forbidden: true} }
	}
	if opt.Revision == nil {
		opt.Revision = func() uint64 { return 0 }
	}
	if opt.Replicated == nil {
		opt.Replicated = func() gpu.Sharing { return gpu.SharingTimeSlicing }
	}
	if opt.ClaimsRead == nil {
		opt.ClaimsRead = func(context.Context) {}
	}
	if opt.MaxPodLabels == 0 {
		opt.MaxPodLabels = DefaultPodLabels
	}
	if opt.Dial == nil {
		opt.Dial = func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", opt.Socket)
		}
	}
	return &Mapper{
		opt:      opt,
		now:      time.Now,
		validFor: minMemory,
		policy:   labelPolicy{on: opt.PodLabels, allowed: opt.LabelsAllowed, most: opt.MaxPodLabels},
		kubelet:  kubelet{reach: opt.Dial, socket: opt.Socket, metrics: opt.Metrics, now: time.Now},
		logs:     logFolders{path: opt.LogFolder},
		seen:     map[tenancy]uint64{},
		left:     map[podName]time.Time{},
	}
}

// Every says how often Attribute is called, which may change. Who held what is remembered for two
// intervals, and 30 s at least.
func (m *Mapper) Every(interval time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.validFor = max(2*interval, minMemory)
}

// Name returns "kubernetes".
func (m *Mapper) Name() string { return "kubernetes" }

// Close lets the connection go. A later call makes another.
func (m *Mapper) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kubelet.close()
}

// Attribute queries the kubelet once and returns the owners of t. The error wraps
// gpu.ErrUnavailable where the socket or the kubelet is not there (or, with ErrEmpty, is not
// ready), gpu.ErrPermission, gpu.ErrTimeout, or gpu.ErrVersion; the caller then keeps the last
// result for as long as it believes it.
func (m *Mapper) Attribute(ctx context.Context, t *gpu.Topology) (*gpu.Owners, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.attribute(ctx, t)
}

func (m *Mapper) attribute(ctx context.Context, t *gpu.Topology) (*gpu.Owners, error) {
	l, err := m.kubelet.list(ctx)
	if err != nil {
		return nil, err
	}
	m.await(ctx, l.allocations)
	now := m.now()
	if l.pods == 0 && m.pods > 0 && l.fresh {
		m.kubelet.start.seen(now)
		return nil, fmt.Errorf("kubelet: %s: %w: %w", m.opt.Socket, gpu.ErrUnavailable, ErrEmpty)
	}
	m.pods = l.pods
	m.opt.Metrics.age.now()
	if m.resolver == nil || m.resolver.Topology() != t {
		m.resolver = deviceid.NewResolver(t)
	}
	if m.logs.path != "" {
		m.logs.refresh(now)
	}
	if m.since, m.stale = m.opt.Stale(); !m.stale {
		m.since = time.Time{}
	}
	// The revision is read first: a change meanwhile shows next time.
	in := inputs{topology: t, since: m.since, revision: m.opt.Revision(), replicated: m.opt.Replicated()}
	in.allocations, in.doubted = m.complete(l.allocations, now, l.fresh)
	in.known = m.memory.known
	m.opt.Metrics.kept.Set(float64(m.memory.kept))
	if !slices.Equal(in.allocations, m.inputs.allocations) {
		m.noteLeft(in.allocations, now)
	}
	in.uids = m.uidsOf(in.allocations)
	divided := m.kubelet.learnReplicas(ctx, in.allocations)
	if m.owners != nil && !divided && in.equal(&m.inputs) {
		return m.owners, nil
	}
	m.inputs = in
	m.owners = m.owners.Renewed(m.assign(&in))
	return m.owners, nil
}

const (
	// maxReady bounds the wait for the API server before the first answer: a loop gives it 2 s.
	maxReady = 1500 * time.Millisecond
	// maxClaimWait bounds the wait for new claims before each answer: a loop gives a later one 100 ms.
	maxClaimWait = 80 * time.Millisecond
)

// await waits until the API server has listed its objects, once, and has answered about the claims of
// allocations.
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
		wait = m.isPending(&allocations[i]) || wait // ask about each
	}
	if wait {
		m.opt.ClaimsRead(ctx)
	}
}

// pod returns a pod as the API server knows it, or knew it while the kubelet still lists the pod and
// the folder of its logs confirms its UID: the mirror of a static pod can be deleted.
func (m *Mapper) pod(key podName) (PodInfo, bool) {
	info, ok := m.opt.Pod(key.namespace, key.pod)
	if !ok {
		info = m.known[key]
		uid := m.logs.folders[key].uid
		ok = uid != "" && (uid == info.UID || uid == info.Hash)
	}
	if ok && m.isAnother(key, &info) {
		return PodInfo{}, false
	}
	return info, ok
}

// isAnother reports whether the API server speaks of an earlier pod of the name, since it has
// fallen silent: the folder of the pod's logs is younger than that pod, or the pod has left the
// list since then and has come again.
func (m *Mapper) isAnother(key podName, info *PodInfo) bool {
	if f := m.logs.folders[key]; f.uid != "" && f.uid != info.UID && f.uid != info.Hash {
		if m.stale || f.changed.After(info.Created) {
			return true
		}
	}
	return m.stale && m.left[key].After(m.since)
}

// noteLeft notes which pods are not among the allocations any more, or without a device of a plugin
// that they had: a pod that comes again between two lists has others, mostly.
func (m *Mapper) noteLeft(allocations []Allocation, now time.Time) {
	if len(m.left) > maxUnlisted {
		clear(m.left)
	}
	pods := make(map[podName]bool, len(allocations))
	for i := range allocations {
		pods[allocations[i].podName()] = true
	}
	for _, h := range m.inputs.allocations {
		_, held := slices.BinarySearchFunc(allocations, h, Allocation.compare)
		if key := (h.podName()); !pods[key] || !held && h.Claim == "" {
			m.left[key] = now
		}
	}
}

// uidsOf returns the UIDs of the pods that the API server does not know, by the folders of their
// logs. A pod that is remembered and not listed keeps the UID that it had: the newest folder of its
// name can be a later pod's.
func (m *Mapper) uidsOf(allocations []Allocation) map[podName]string {
	uids := map[podName]string{}
	for i := range allocations {
		h := &allocations[i]
		key := h.podName()
		uid := m.logs.folders[key].uid
		if m.memory.seen[*h].Before(m.memory.at) {
			uid = m.inputs.uids[key]
		}
		if _, ok := m.pod(key); !ok && uid != "" {
			uids[key] = uid
		}
	}
	return uids
}

// claimed returns what the claim of h says about its device; a device of a plugin has no claim.
func (m *Mapper) claimed(h *Allocation) Claimed {
	if h.Claim == "" {
		return Claimed{Read: true}
	}
	return m.opt.Claimed(h.ClaimNamespace, h.Claim, h.Resource, h.Pool, h.Device, h.Share)
}

// isPending reports whether it is not known yet if h makes an owner.
func (m *Mapper) isPending(h *Allocation) bool {
	claimed := m.claimed(h)
	return claimed.pending()
}
