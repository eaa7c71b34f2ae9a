package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// podsLimit bounds the question to the kubelet.
const podsLimit = 10 * time.Second

// engine looks for the host engine, or for one that is in the way of the embedded one.
func (e *examination) engine(ctx context.Context) Row {
	row := Row{Check: "host engine"}
	address := e.cfg.Source.Remote
	if address.IsEmbedded() {
		local := gpu.EngineAddress{Transport: gpu.TransportTCP, Host: "127.0.0.1", Port: gpu.EnginePort}
		row.Found = "embedded; no other one runs on this machine"
		if e.reach(ctx, "tcp", local.Endpoint()) == nil {
			row.State, row.Found = Warn, fmt.Sprintf("embedded, and another one answers on port %d", local.Port)
			row.Advice = fmt.Sprintf("Before Hopper one engine alone can profile: use the running one by --remote-hostengine-info=localhost:%d.", local.Port)
		}
		return row
	}
	var err error
	switch network, target := address.Dial(); network {
	case "unix":
		err = e.reach(ctx, network, e.at(target))
	case "tcp":
		err = e.reach(ctx, network, target)
	default: // Go has no dialer for vsock; the source, below, has.
		if _, err = os.Stat(e.at("/dev/vsock")); err == nil {
			row.Found = address.String() + ": /dev/vsock is there"
			return row
		}
	}
	if err == nil {
		row.Found = address.String() + " answers"
		// Replies of more than a segment wait on loopback for an acknowledgement that is delayed
		// (measured on DCGM 4.6: 44 to 114 ms).
		if address.Transport == gpu.TransportTCP && address.IsLocal() {
			row.State = Warn
			row.Found += "; over TCP each of its larger replies stalls for 40 to 120 ms"
			row.Advice = "An engine on the same host answers in under 1 ms through a socket: start nv-hostengine with --domain-socket PATH, and use --remote-hostengine-info=unix://PATH."
		}
		return row
	}
	row.State, row.Found = Fail, address.String()+" cannot be reached: "+err.Error()
	switch {
	case errors.Is(err, fs.ErrPermission):
		row.Advice = "Give the process the right to use the socket."
	case address.Transport == gpu.TransportUnix && errors.Is(err, fs.ErrNotExist):
		row.Advice = "Start nv-hostengine with --domain-socket, and mount the socket's folder in a container."
	case address.Transport == gpu.TransportVsock:
		row.Advice = "Load vhost_vsock or its guest driver, and give the process /dev/vsock."
	default:
		row.Advice = "Start nv-hostengine there and let it listen beyond loopback (-b), and check the name, the port and network policies."
	}
	return row
}

// kubelet looks at the PodResources socket.
func (e *examination) kubelet(ctx context.Context) Row {
	row := Row{Check: "kubelet"}
	socket := e.cfg.Kubernetes.Socket
	info, err := os.Stat(e.at(socket))
	if err == nil && info.Mode().Type() != fs.ModeSocket {
		row.State, row.Found = Fail, socket+" is no socket"
		row.Advice = "Mount the folder of the kubelet's socket, not a file made in its place."
		return row
	}
	if err == nil {
		err = e.reach(ctx, "unix", e.at(socket))
	}
	switch {
	case err == nil:
		row.Found = socket + " answers"
	case errors.Is(err, fs.ErrPermission):
		row.State, row.Found = Fail, socket+": permission denied"
		row.Advice = "Run as user 0 (no capability is needed), or with the group of the folder, which is 0750."
	case errors.Is(err, fs.ErrNotExist):
		row.State, row.Found = Fail, socket+" does not exist"
		row.Advice = "Mount the host's folder /var/lib/kubelet/pod-resources, or say where it is by --pod-resources-kubelet-socket."
	default:
		row.State, row.Found = Fail, socket+": "+err.Error()
		row.Advice = "Mount the folder, not the socket: a kubelet that restarts makes a new one."
	}
	return row
}

// nodeName looks whether the node is known by name.
func (e *examination) nodeName() Row {
	row := Row{Check: "node name", Found: e.cfg.Labels.NodeName}
	if row.Found == "" {
		row.State, row.Found = Warn, "NODE_NAME is not set"
		row.Advice = "Set it from spec.nodeName (fieldRef): else the host label is the pod's name."
	}
	return row
}

// port looks whether the address can be listened on.
func (e *examination) port(ctx context.Context) Row {
	row := Row{Check: "port"}
	if e.cfg.Web.SystemdSocket {
		row.Found = "systemd hands over the sockets"
		if _, ok := e.Env("LISTEN_FDS"); !ok {
			row.State, row.Found = Warn, "LISTEN_FDS is not set"
			row.Advice = "Start the exporter through its systemd socket unit."
		}
		return row
	}
	address := e.cfg.Web.Address
	listener, err := e.Listen("tcp", address)
	if err == nil {
		err = listener.Close()
	}
	switch {
	case err == nil:
		row.Found = address + " is free"
	case errors.Is(err, syscall.EADDRINUSE) && e.isExporter(ctx, address):
		row.Found = "an exporter serves on " + address + " already"
	case errors.Is(err, syscall.EADDRINUSE):
		row.State, row.Found = Fail, address+" is in use"
		row.Advice = "Stop what listens there (ss -ltnp names it), or choose another --address."
	case errors.Is(err, fs.ErrPermission):
		row.State, row.Found = Fail, address+": permission denied"
		row.Advice = "Choose a port from 1024 on, or add CAP_NET_BIND_SERVICE."
	default:
		row.State, row.Found = Fail, err.Error()
		row.Advice = "Choose an --address of this machine."
	}
	return row
}

// isExporter reports whether what listens on the address is an exporter: its /health has a header
// that nothing else has.
func (e *examination) isExporter(ctx context.Context, address string) bool {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if ip := net.ParseIP(host); host == "" || ip.IsUnspecified() {
		host = "localhost"
	}
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+"/health", nil)
	if err != nil {
		return false
	}
	transport := &http.Transport{DialContext: e.Dial, DisableKeepAlives: true, ResponseHeaderTimeout: dialLimit}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	return response.Header.Get("X-Registry-Available") != ""
}

// webConfig looks whether the file for TLS and authentication can be read.
func (e *examination) webConfig() Row {
	row := Row{Check: "web config", Found: e.cfg.Web.ConfigFile + " can be read"}
	if _, err := e.ReadFile(e.cfg.Web.ConfigFile); err != nil {
		row.State, row.Found = Fail, err.Error()
		row.Advice = "Mount the file, or let the exporter's user read it."
	}
	return row
}

// counters looks at what is requested.
func (e *examination) counters(err error) Row {
	row := Row{Check: "counters"}
	if err != nil {
		row.State, row.Found = Fail, err.Error()
		row.Advice = "Name a file that the exporter's user can read by --collectors; without it the built-in one is used."
		return row
	}
	unusable := 0
	for _, p := range e.set.Problems {
		if !p.Warning {
			unusable++
		}
	}
	row.Found = fmt.Sprintf("%s names %s", e.set.Name, plural(len(e.set.Requests), "metric"))
	switch {
	case len(e.set.Requests) == 0:
		row.State, row.Found = Fail, e.set.Name+" has no usable line"
		row.Advice = "dcgm-exporter check says what is wrong with each line."
	case unusable > 0:
		row.State = Warn
		row.Found += fmt.Sprintf(", and %s cannot be used", plural(unusable, "line"))
		row.Advice = "dcgm-exporter check says which lines, and why."
	}
	return row
}

// source opens what the exporter would read.
func (e *examination) source(ctx context.Context) Row {
	row := Row{Check: "source"}
	plan, err := e.set.Plan(e.cfg, time.Second)
	var source app.Backend
	if err == nil {
		source, err = e.Open(ctx, e.cfg, plan)
	}
	if err == nil {
		err = app.Collect(ctx, source, plan, 1, func(s *gpu.Snapshot) { row, e.topology = opened(s), s.Topology })
	}
	if err == nil {
		return row
	}
	row = Row{Check: "source", State: Fail, Found: err.Error()}
	switch {
	case errors.Is(err, gpu.ErrVersion):
		row.Advice = "Install the same version of DCGM here and where the host engine runs."
	case errors.Is(err, gpu.ErrPermission):
		row.Advice = "Give the process access to the device files and sockets above."
	case gpu.Reason(err) == "timeout", errors.Is(err, gpu.ErrWedged):
		row.Advice = "The driver or the host engine does not answer: look at dmesg for XIDs, and at nvidia-smi."
	case errors.Is(err, gpu.ErrUnavailable):
		row.Advice = "Mend what fails above; the exporter keeps trying and picks the GPU up."
	default:
		row.Advice = "Mend what fails above."
	}
	return row
}

// opened describes a source that could be opened.
func opened(s *gpu.Snapshot) Row {
	t := s.Topology
	row := Row{Check: "source"}
	gpus, lost := 0, 0
	for i := range t.Devices {
		if t.Devices[i].Entity.Kind != gpu.KindGPU {
			continue
		}
		gpus++
		if i < len(s.Health.Entities) && s.Health.Entities[i].Err != nil {
			lost++
		}
	}
	row.Found = fmt.Sprintf("%s opened: %s", t.Source, plural(gpus, "GPU"))
	for _, fact := range []struct{ what, version string }{{"driver", t.Driver}, {"library", t.Library}, {"engine", t.Engine}} {
		if fact.version != "" {
			row.Found += ", " + fact.what + " " + fact.version
		}
	}
	switch {
	case s.Health.Err != nil:
		row.State, row.Advice = Fail, "It opens, and cannot be read: "+s.Health.Err.Error()+"."
	case gpus == 0:
		row.State, row.Advice = Warn, "No GPU is visible. "+inContainer
	case lost > 0:
		row.State = Warn
		row.Found += fmt.Sprintf(", %d of them cannot be read", lost)
		row.Advice = "Look at dmesg for XIDs; a GPU that fell off the bus needs a reset or a reboot."
	}
	return row
}

// maxIDs bounds the rows of device ids.
const maxIDs = 20

// deviceIDs queries the kubelet for the devices of containers, and has a row for each that matches
// no entity of the source.
func (e *examination) deviceIDs(ctx context.Context) []Row {
	ctx, cancel := context.WithTimeout(ctx, podsLimit)
	defer cancel()
	unmatched, err := e.Unmatched(ctx, e.cfg, e.topology)
	switch {
	case err != nil:
		return []Row{{State: Fail, Check: "device ids", Found: err.Error(), Advice: "Look at the kubelet's log."}}
	case len(unmatched) == 0:
		return []Row{{Check: "device ids", Found: "every GPU that a container holds is one of the source"}}
	}
	var rows []Row
	for i, u := range unmatched {
		if i == maxIDs {
			return append(rows, Row{State: Warn, Check: "device ids", Found: fmt.Sprintf("%d more match nothing", len(unmatched)-i)})
		}
		rows = append(rows, Row{
			State: Warn, Check: "device ids", Advice: u.Why,
			Found: fmt.Sprintf("%s of container %s of pod %s/%s (%s) matches nothing", u.ID(), u.Container, u.Namespace, u.Pod, u.Resource),
		})
	}
	return rows
}
