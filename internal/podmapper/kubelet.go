package podmapper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
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

// maxReply is the maximum size of a reply of the kubelet. A full node (500 pods with 16 devices each) needs about 2
// MiB; gRPC's default is 4 MiB. Decoding takes several times as much memory.
const maxReply = 16 << 20

// Allocation is one device of a container, as the kubelet lists it.
type Allocation struct {
	podName
	Container string
	// Resource is the resource's name, or the driver's name for a claim.
	Resource string
	// Device is the device's id, or its name in the pool for a claim.
	Device string
	// ID is the parsed device id.
	ID deviceid.ID
	// Claim, ClaimNamespace, Pool and Share are set for a device of a dynamic claim. Share is set only if several
	// claims share the device by capacity.
	Claim, ClaimNamespace, Pool, Share string
	// hami is the replica number in an id of HAMi's plugin, which may name another GPU; "" for other devices.
	hami string
}

// sharesClaim reports whether both are devices of one claim, which several pods can share.
func (alloc *Allocation) sharesClaim(o *Allocation) bool {
	return alloc.Claim != "" && alloc.Claim == o.Claim && alloc.ClaimNamespace == o.ClaimNamespace
}

// isReplica reports whether a device plugin shares the device of alloc.
func (alloc *Allocation) isReplica() bool {
	return alloc.Claim == "" &&
		(alloc.hami != "" || alloc.ID.Replica != "" || strings.HasSuffix(alloc.Resource, ".shared"))
}

// isExclusive reports whether only the pod or claim of alloc can hold its device. Several pods can share a claim.
func (alloc *Allocation) isExclusive() bool { return alloc.Share == "" && !alloc.isReplica() }

// device returns the device of an allocation, without its replica. An id of HAMi's plugin can stand for any GPU, so
// all of them count as one device.
func (alloc *Allocation) device() deviceid.ID {
	if alloc.hami != "" {
		return deviceid.ID{}
	}
	return alloc.ID.WithoutReplica()
}

func (alloc Allocation) compare(o Allocation) int {
	return cmp.Or(
		cmp.Compare(alloc.Namespace, o.Namespace), cmp.Compare(alloc.Pod, o.Pod),
		cmp.Compare(alloc.Container, o.Container),
		cmp.Compare(alloc.Resource, o.Resource), cmp.Compare(alloc.Device, o.Device), cmp.Compare(alloc.Pool, o.Pool),
		cmp.Compare(alloc.ClaimNamespace, o.ClaimNamespace), cmp.Compare(alloc.Claim, o.Claim),
		cmp.Compare(alloc.Share, o.Share),
	)
}

// kubelet is a client of one PodResources socket. It keeps one connection and reconnects when that fails, because the
// kubelet replaces its socket at every start. It is not safe for concurrent use.
type kubelet struct {
	opt     *Options
	now     func() time.Time
	start   start
	pods    int // number of pods in the latest answer, with or without devices
	conn    *grpc.ClientConn
	known   int                             // dials when the kubelet last answered
	shared  map[deviceid.ID]map[string]bool // replica ids by device
	learned time.Time                       // when shared was requested

	mu    sync.Mutex // guards the fields that the dialer writes
	dials int        // number of successful dials
	cause error      // why the latest dial failed
}

const (
	// startGrace is how long after a sign of its start a kubelet may not know all its pods. v1.36.3 lists none for
	// about a second, and then adds them one by one for up to another second. maxStartGrace limits a series of signs.
	startGrace    = 10 * time.Second
	maxStartGrace = 30 * time.Second
	// relearn is how often the number of replicas is requested again, because a device plugin can be reconfigured
	// without the kubelet. An unknown replica leads to a new request after learnPause.
	relearn    = time.Minute
	learnPause = 10 * time.Second
	// learnTimeout bounds that request, so that owners are found even if it is not answered.
	learnTimeout = 500 * time.Millisecond
)

// start is the period in which a kubelet may not know all its pods yet. It follows the latest sign of a start, and is
// limited after the first of a series of signs.
type start struct{ first, latest time.Time }

// seen records a sign that the kubelet has started.
func (s *start) seen(at time.Time) {
	if at.Sub(s.latest) >= startGrace {
		s.first = at
	}
	if at.After(s.latest) {
		s.latest = at
	}
}

// list queries the kubelet once and returns the allocations, sorted. fresh reports whether it may have just started.
// The error is that of Attribute.
func (k *kubelet) list(ctx context.Context) (allocations []Allocation, fresh bool, err error) {
	if k.conn == nil {
		// passthrough and the dialer avoid name resolution and proxies.
		k.conn, err = grpc.NewClient("passthrough:///kubelet",
			grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(k.dial),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReply)))
		if err != nil {
			return nil, false, fmt.Errorf("kubelet: %w", err)
		}
	}
	reply, err := v1.NewPodResourcesListerClient(k.conn).List(ctx, &v1.ListPodResourcesRequest{})
	k.opt.Metrics.requests.WithLabelValues(status.Code(err).String()).Inc()
	now := k.now()
	k.mu.Lock()
	dials, cause := k.dials, k.cause
	k.mu.Unlock()
	if dials != k.known { // another kubelet may answer
		if k.known != 0 {
			k.start.seen(now)
		}
		k.known, k.learned = dials, time.Time{}
	}
	if err != nil {
		return nil, false, k.failed(ctx, err, cause)
	}
	// A kubelet creates a new socket when it starts.
	if info, err := os.Stat(k.opt.Socket); err == nil && now.Sub(info.ModTime()).Abs() < startGrace {
		k.start.seen(info.ModTime())
	}
	fresh = now.Sub(k.start.latest) < startGrace && now.Sub(k.start.first) < maxStartGrace
	pods := len(reply.GetPodResources())
	if pods == 0 && k.pods > 0 && fresh {
		k.start.seen(now)
		return nil, false, fmt.Errorf("kubelet: %s: %w: %w", k.opt.Socket, gpu.ErrUnavailable, ErrEmpty)
	}
	k.pods = pods
	return allocationsOf(reply), fresh, nil
}

// dial connects to the socket. gRPC calls it on its own goroutine.
func (k *kubelet) dial(ctx context.Context, _ string) (net.Conn, error) {
	conn, err := k.opt.Dial(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cause = err
	if err == nil {
		k.dials++
	}
	return conn, err
}

// maxName is the maximum length in bytes of a name from the kubelet. No Kubernetes name is longer.
const maxName = 253

func bounded(name string) string { return name[:min(len(name), maxName)] }

// allocationsOf returns the devices of a reply, sorted. The kubelet may list a device twice.
func allocationsOf(reply *v1.ListPodResourcesResponse) (all []Allocation) {
	for _, p := range reply.GetPodResources() {
		pod := podName{bounded(p.GetNamespace()), bounded(p.GetName())}
		for _, c := range p.GetContainers() {
			all = appendDevices(all, c, Allocation{podName: pod, Container: bounded(c.GetName())})
		}
	}
	slices.SortFunc(all, Allocation.compare)
	return slices.Compact(all)
}

// appendDevices appends the devices of a container. alloc names the container.
func appendDevices(all []Allocation, c *v1.ContainerResources, alloc Allocation) []Allocation {
	for _, d := range c.GetDevices() {
		alloc.Resource = bounded(d.GetResourceName())
		for _, id := range d.GetDeviceIds() {
			alloc.Device = bounded(id)
			alloc.ID, alloc.hami = deviceid.Parse(alloc.Device), hamiReplica(alloc.Device)
			all = append(all, alloc)
		}
	}
	alloc.hami = ""
	for _, claim := range c.GetDynamicResources() {
		alloc.Claim, alloc.ClaimNamespace = bounded(claim.GetClaimName()), bounded(claim.GetClaimNamespace())
		for _, r := range claim.GetClaimResources() {
			alloc.Resource, alloc.Pool = bounded(r.GetDriverName()), bounded(r.GetPoolName())
			alloc.Device, alloc.Share = bounded(r.GetDeviceName()), bounded(r.GetShareId())
			alloc.ID = deviceid.Claim(alloc.Resource, alloc.Pool, alloc.Device)
			all = append(all, alloc)
		}
	}
	return all
}

// failed explains an error, and closes the connection if a new one may help. cause is why the latest dial failed.
func (k *kubelet) failed(ctx context.Context, err, cause error) error {
	switch code := status.Code(err); {
	case ctx.Err() != nil || code == codes.DeadlineExceeded:
		// The call used all its time. Keep the connection: the next call shows whether the kubelet answers again.
		err = gpu.ErrTimeout
	case code == codes.Unavailable:
		now := k.now()
		k.start = start{now, now} // the next answer may come from a restarted kubelet
		// Reconnect at once instead of using gRPC's backoff, which grows to two minutes.
		k.close()
		kind := gpu.ErrUnavailable
		if errors.Is(cause, fs.ErrPermission) {
			kind = gpu.ErrPermission
		}
		err = fmt.Errorf("%w: %w", kind, cmp.Or(cause, err))
	case code == codes.Unimplemented:
		err = fmt.Errorf("%w: the kubelet does not serve PodResources v1 (Kubernetes 1.20 or later): %w",
			gpu.ErrVersion, err)
	}
	return fmt.Errorf("kubelet: list pods on %s: %w", k.opt.Socket, err)
}

func (k *kubelet) close() {
	if k.conn != nil {
		k.conn.Close() // ignore the error: it fails only if already closed
		k.conn = nil
	}
}

// learnReplicas requests how many replicas the plugins offer of each device, because List reports only assigned ones.
// It reports whether the answer changed.
func (k *kubelet) learnReplicas(ctx context.Context, allocations []Allocation) bool {
	held, news := map[deviceid.ID]bool{}, false
	for i := range allocations {
		if id := allocations[i].ID; id.Replica != "" {
			device := id.WithoutReplica()
			held[device] = true
			news = news || !k.shared[device][id.Replica]
		}
	}
	age := k.now().Sub(k.learned).Abs() // Abs: the clock may be set back
	if k.conn == nil || len(held) == 0 || age < learnPause || !news && age < relearn {
		return false
	}
	k.learned = k.now()
	ctx, cancel := context.WithTimeout(ctx, learnTimeout)
	defer cancel()
	reply, err := v1.NewPodResourcesListerClient(k.conn).GetAllocatableResources(ctx, &v1.AllocatableResourcesRequest{})
	k.opt.Metrics.requests.WithLabelValues(status.Code(err).String()).Inc()
	if err != nil {
		return false // the number of replicas stays unknown
	}
	next := map[deviceid.ID]map[string]bool{}
	for _, d := range reply.GetDevices() {
		for _, text := range d.GetDeviceIds() {
			id := deviceid.Parse(text)
			device := id.WithoutReplica()
			if id.Replica != "" && next[device] == nil {
				next[device] = map[string]bool{}
			}
			if id.Replica != "" {
				next[device][id.Replica] = true
			}
		}
	}
	for device := range held {
		// The kubelet omits unhealthy devices, and all devices while their plugin is down. They still have replicas.
		if next[device] == nil {
			next[device] = k.shared[device]
		}
	}
	changed := !maps.EqualFunc(next, k.shared, maps.Equal)
	k.shared = next
	return changed
}
