package podmapper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"reflect"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/gpu-telemetry/dcgm-exporter/internal/deviceid"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// maxReply bounds a reply of the kubelet. A full node (500 pods, 16 devices each) needs about 2
// MiB, gRPC's default is 4 MiB; decoding takes several times the size in memory.
const maxReply = 16 << 20

// An Allocation is one device that a container has, as the kubelet lists it.
type Allocation struct {
	Namespace, Pod, Container string
	// Resource is the resource's name, for a claim the driver's.
	Resource string
	// Device is the device's id; for a claim its name in the pool.
	Device string
	// ID is the parsed device id.
	ID deviceid.ID
	// Claim, ClaimNamespace, Pool and Share are set for a device of a dynamic claim; Share where
	// several claims share it by capacity.
	Claim, ClaimNamespace, Pool, Share string
}

func (h *Allocation) podName() podName { return podName{h.Namespace, h.Pod} }

func (h Allocation) compare(o Allocation) int {
	return cmp.Or(
		cmp.Compare(h.Namespace, o.Namespace), cmp.Compare(h.Pod, o.Pod), cmp.Compare(h.Container, o.Container),
		cmp.Compare(h.Resource, o.Resource), cmp.Compare(h.Device, o.Device), cmp.Compare(h.Pool, o.Pool),
		cmp.Compare(h.ClaimNamespace, o.ClaimNamespace), cmp.Compare(h.Claim, o.Claim), cmp.Compare(h.Share, o.Share),
	)
}

// A listing is one answer to List.
type listing struct {
	allocations []Allocation // sorted
	pods        int          // also those without devices
	fresh       bool         // the kubelet may have just started
}

// A kubelet is a client of one PodResources socket. It keeps one connection and makes another when
// that fails: the kubelet replaces its socket whenever it starts. One goroutine at a time may call
// it.
type kubelet struct {
	reach   func(context.Context) (net.Conn, error)
	socket  string
	metrics *Metrics
	now     func() time.Time
	start   start

	conn    *grpc.ClientConn
	known   int                             // the dials that were noticed
	shared  map[deviceid.ID]map[string]bool // replicas by device
	learned time.Time                       // when shared was requested

	mu    sync.Mutex // guards the fields that the dialer writes
	dials int        // that succeeded
	cause error      // why the latest dial failed
}

// A start is the time in which a kubelet may not know all its pods yet: after the latest sign that
// it has started, and not for ever after the first of a series of signs.
type start struct{ first, latest time.Time }

// seen takes note of a sign.
func (s *start) seen(at time.Time) {
	if at.Sub(s.latest) >= startGrace {
		s.first = at
	}
	if at.After(s.latest) {
		s.latest = at
	}
}

// at reports whether a time lies within it.
func (s *start) at(now time.Time) bool {
	return now.Sub(s.latest) < startGrace && now.Sub(s.first) < maxStartGrace
}

const (
	// relearn is how long the number of replicas is believed: a device plugin can be reconfigured
	// without the kubelet's doing. A replica that was not heard of is asked about after learnPause.
	relearn    = time.Minute
	learnPause = 10 * time.Second
	// learnTimeout bounds the question, so that the owners are known also where that is not answered.
	learnTimeout = 500 * time.Millisecond
)

// startGrace is how long after a sign of its start a kubelet may still not know all its pods. v1.36.3
// lists none for about a second, and then one after the other for up to another. maxStartGrace bounds
// it where there is one sign after the other.
const (
	startGrace    = 10 * time.Second
	maxStartGrace = 30 * time.Second
)

// list queries once. The error wraps one of gpu's.
func (k *kubelet) list(ctx context.Context) (listing, error) {
	if k.conn == nil {
		// passthrough and the dialer keep names and proxies out of it.
		conn, err := grpc.NewClient("passthrough:///kubelet",
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(k.dial),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReply)),
		)
		if err != nil {
			return listing{}, fmt.Errorf("kubelet: %w", err)
		}
		k.conn = conn
	}
	reply, err := v1.NewPodResourcesListerClient(k.conn).List(ctx, &v1.ListPodResourcesRequest{})
	k.noteDials()
	k.metrics.requests.WithLabelValues(status.Code(err).String()).Inc()
	if err != nil {
		return listing{}, k.failed(ctx, err)
	}
	allocations := allocationsOf(reply)
	slices.SortFunc(allocations, Allocation.compare)
	allocations = slices.Compact(allocations) // a kubelet that repeats itself is no second owner
	now := k.now()
	// A kubelet that starts makes a new socket.
	if info, err := os.Stat(k.socket); err == nil && now.Sub(info.ModTime()).Abs() < startGrace {
		k.start.seen(info.ModTime())
	}
	return listing{allocations: allocations, pods: len(reply.GetPodResources()), fresh: k.start.at(now)}, nil
}

// noteDials notes whether gRPC dialed since the last call: another kubelet may answer.
func (k *kubelet) noteDials() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.dials == k.known {
		return
	}
	if k.known != 0 {
		k.start.seen(k.now())
	}
	k.known, k.learned = k.dials, time.Time{}
}

// dial is called by gRPC, on a goroutine of its own.
func (k *kubelet) dial(ctx context.Context, _ string) (net.Conn, error) {
	conn, err := k.reach(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cause = err
	if err == nil {
		k.dials++
	}
	return conn, err
}

// maxName bounds the names that a kubelet gives, in bytes: Kubernetes has none that are longer.
const maxName = 253

func bounded(name string) string { return name[:min(len(name), maxName)] }

func allocationsOf(reply *v1.ListPodResourcesResponse) []Allocation {
	var all []Allocation
	for _, p := range reply.GetPodResources() {
		for _, c := range p.GetContainers() {
			all = appendAllocations(all, c, Allocation{
				Namespace: bounded(p.GetNamespace()), Pod: bounded(p.GetName()), Container: bounded(c.GetName()),
			})
		}
	}
	return all
}

// appendAllocations appends the devices of a container, which h names.
func appendAllocations(all []Allocation, c *v1.ContainerResources, h Allocation) []Allocation {
	for _, d := range c.GetDevices() {
		h.Resource = bounded(d.GetResourceName())
		for _, id := range d.GetDeviceIds() {
			h.Device = bounded(id)
			h.ID = deviceid.Parse(h.Device)
			all = append(all, h)
		}
	}
	for _, claim := range c.GetDynamicResources() {
		h.Claim, h.ClaimNamespace = bounded(claim.GetClaimName()), bounded(claim.GetClaimNamespace())
		for _, r := range claim.GetClaimResources() {
			h.Resource, h.Pool, h.Device, h.Share = bounded(r.GetDriverName()), bounded(r.GetPoolName()), bounded(r.GetDeviceName()), bounded(r.GetShareId())
			h.ID = deviceid.Claim(h.Resource, h.Pool, h.Device)
			all = append(all, h)
		}
	}
	return all
}

// failed lets the connection go where that may help, and explains the error.
func (k *kubelet) failed(ctx context.Context, err error) error {
	k.mu.Lock()
	cause := k.cause
	k.mu.Unlock()
	code := status.Code(err)
	if ctx.Err() != nil || code == codes.DeadlineExceeded {
		// The call took all the time it had. A kubelet that hangs is left alone; the next call finds out
		// whether it answers again.
		return fmt.Errorf("kubelet: list pods on %s: %w", k.socket, gpu.ErrTimeout)
	}
	if code == codes.Unavailable {
		k.start = start{} // what comes next is another's
		k.start.seen(k.now())
		// Not gRPC's own backoff, which grows to two minutes.
		k.close()
		kind := gpu.ErrUnavailable
		if errors.Is(cause, fs.ErrPermission) {
			kind = gpu.ErrPermission
		}
		err = fmt.Errorf("%w: %w", kind, cmp.Or(cause, err))
	}
	switch code {
	case codes.Unimplemented:
		err = fmt.Errorf("%w: it does not serve PodResources v1 (Kubernetes 1.20 or later): %w", gpu.ErrVersion, err)
	case codes.ResourceExhausted:
		err = fmt.Errorf("%w (the rate limit, or a reply of more than %d MiB)", err, maxReply>>20)
	}
	return fmt.Errorf("kubelet: list pods on %s: %w", k.socket, err)
}

func (k *kubelet) close() {
	if k.conn != nil {
		k.conn.Close() // it fails only if it was closed before
		k.conn = nil
	}
}

// learnReplicas finds out into how many replicas the plugins divide the devices of allocations: a
// List knows only those that are held. It reports whether the answer is another than before.
func (k *kubelet) learnReplicas(ctx context.Context, allocations []Allocation) bool {
	held, news := map[deviceid.ID]bool{}, false
	for i := range allocations {
		if id := allocations[i].ID; id.Replica != "" {
			device := id.WithoutReplica()
			held[device] = true
			news = news || !k.shared[device][id.Replica]
		}
	}
	age := k.now().Sub(k.learned).Abs() // of a clock that is set back, too
	if k.conn == nil || len(held) == 0 || age < learnPause || !news && age < relearn {
		return false
	}
	k.learned = k.now()
	ctx, cancel := context.WithTimeout(ctx, learnTimeout)
	defer cancel()
	reply, err := v1.NewPodResourcesListerClient(k.conn).GetAllocatableResources(ctx, &v1.AllocatableResourcesRequest{})
	k.metrics.requests.WithLabelValues(status.Code(err).String()).Inc()
	if err != nil {
		return false // the number stays unknown, which is a value of its own
	}
	next := replicasOf(reply)
	for device := range held {
		// The kubelet leaves out unhealthy devices, and all while the plugin is away: they are divided all
		// the same.
		if next[device] == nil && k.shared[device] != nil {
			next[device] = k.shared[device]
		}
	}
	if reflect.DeepEqual(next, k.shared) {
		return false
	}
	k.shared = next
	return true
}

// replicas returns into how many replicas the device of id is divided, 0 where that is not known.
func (k *kubelet) replicas(id deviceid.ID) int { return len(k.shared[id.WithoutReplica()]) }

// replicasOf returns the replicas of each device that the plugins offer.
func replicasOf(reply *v1.AllocatableResourcesResponse) map[deviceid.ID]map[string]bool {
	shared := map[deviceid.ID]map[string]bool{}
	for _, d := range reply.GetDevices() {
		for _, text := range d.GetDeviceIds() {
			id := deviceid.Parse(text)
			if id.Replica == "" {
				continue
			}
			device := id.WithoutReplica()
			if shared[device] == nil {
				shared[device] = map[string]bool{}
			}
			shared[device][id.Replica] = true
		}
	}
	return shared
}
