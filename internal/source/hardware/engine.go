package hardware

import (
	"context"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/hostengine"
)

// engineGrace is how long a configured host engine may be unavailable before the Source is no longer ready.
const engineGrace = time.Minute

// An engineState records since when neither the configured host engine nor its fallback can be opened.
type engineState struct {
	mu     sync.Mutex
	since  time.Time // zero while a session can be opened
	logged bool
}

// begin starts the grace period at an attempt to open, which may never return.
func (e *engineState) begin(engine hostengine.Address) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.since.IsZero() && !engine.IsEmbedded() {
		e.since = time.Now()
	}
}

// end records the result of the attempt. It reports whether this is the first one that found no engine.
func (e *engineState) end(err error) (first bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err == nil {
		e.since, e.logged = time.Time{}, false
		return false
	}
	first = !e.logged && !e.since.IsZero() && isAbsent(err)
	e.logged = e.logged || first
	return first
}

// Ready reports whether the engine is available, or was at most engineGrace ago.
func (s *Source) Ready() bool {
	e := &s.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.since.IsZero() || time.Since(e.since) < engineGrace
}

// isListening reports whether something listens at the address of the host engine. It returns true if that cannot be
// tried.
func (s *Source) isListening(ctx context.Context) bool {
	network, target := s.opt.Engine.Dial()
	if network == "" {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, network, target)
	if err == nil {
		_ = c.Close()
	}
	return err == nil
}

// IsLocal reports whether a host engine runs on this machine, judging by its address and by the names and addresses of
// the machine.
func IsLocal(engine hostengine.Address) bool {
	machine, _ := os.Hostname() // without a name, only addresses can match
	if engine.IsLocal() || engine.Transport == hostengine.TCP && strings.EqualFold(engine.Host, machine) {
		return true
	}
	ip := engine.IP()
	addresses, _ := net.InterfaceAddrs()
	return slices.ContainsFunc(addresses, func(a net.Addr) bool {
		n, ok := a.(*net.IPNet)
		return ok && ip.IsValid() && n.IP.Equal(ip.AsSlice())
	})
}

// A ProfilingRight says whether the driver lets this process read profiling metrics of GPUs before Hopper.
type ProfilingRight int

// The rights. By default, only processes with the capability SYS_ADMIN may profile.
const (
	RightUnknown    ProfilingRight = iota
	RightNone                      // the process lacks the capability
	RightCapability                // the process has the capability
	RightForAll                    // the driver was loaded with NVreg_RestrictProfilingToAdminUsers=0
)

// ProfilingRightOf returns the right of this process. It reads two files of /proc with read.
func ProfilingRightOf(read func(path string) (string, error)) ProfilingRight {
	const capSysAdmin = 1 << 21 // CAP_SYS_ADMIN, linux/capability.h
	status, err := read("/proc/self/status")
	_, set, found := strings.Cut("\n"+status, "\nCapEff:")
	set, _, _ = strings.Cut(set, "\n")
	mask, badMask := strconv.ParseUint(strings.TrimSpace(set), 16, 64)
	params, _ := read("/proc/driver/nvidia/params")
	switch {
	case err != nil || !found || badMask != nil:
		return RightUnknown
	case mask&capSysAdmin != 0:
		return RightCapability
	case strings.Contains(params, "RmProfilingAdminOnly: 0"):
		return RightForAll
	default:
		return RightNone
	}
}

func readFile(path string) (string, error) {
	content, err := os.ReadFile(path)
	return string(content), err
}
