package dcgm

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// allHealth is the mask of all health watches (DCGM_HEALTH_WATCH_ALL).
const allHealth = 0xffffffff

// codeIMEX is the number of DCGM_FR_IMEX_UNHEALTHY. linkDown is the code of a link that is down (dcgm_errors.h).
const (
	codeIMEX = 122
	linkDown = "DCGM_FR_NVLINK_DOWN"
)

// systemIMEX is the machine's health watch (DCGM_HEALTH_WATCH_IMEX). Engines before 4.6.1 report its findings under
// NVLink. Engines before 4.5 do not have it.
const systemIMEX = 0x2000

// A healthSystem describes one of DCGM's health watches.
type healthSystem struct {
	name string   // value of the health_watch label
	mask uint32   // dcgmHealthSystems_t
	of   gpu.Kind // kind of entities that always have a result; findings of other kinds are reported too
}

// healthSystems lists the health watches. DCGM reports a failure of the whole GPU, such as falling off the bus, under
// all of them at the same time.
var healthSystems = []healthSystem{
	{"PCIE", 0x1, gpu.KindGPU}, {"NVLINK", 0x2, gpu.KindGPU}, {"PMU", 0x4, gpu.KindGPU}, {"MCU", 0x8, gpu.KindGPU},
	{"MEM", 0x10, gpu.KindGPU}, {"SM", 0x20, gpu.KindGPU}, {"INFOROM", 0x40, gpu.KindGPU},
	{"THERMAL", 0x80, gpu.KindGPU}, {"POWER", 0x100, gpu.KindGPU}, {"DRIVER", 0x200, gpu.KindGPU},
	{"ALL", allHealth, gpu.KindGPU},
	{"NVSWITCH_NONFATAL", 0x400, gpu.KindNVSwitch}, {"NVSWITCH_FATAL", 0x800, gpu.KindNVSwitch},
	{"CONNECTX", 0x1000, gpu.KindConnectX}, {"IMEX", systemIMEX, gpu.KindNode},
}

// A healthWatch holds the session's health checks at the engine.
type healthWatch struct {
	group handle // 0 until created
	set   bool   // whether the watches are on
}

// wantsHealth reports whether the health of a row is requested.
func (inv *inventory) wantsHealth(row int) bool {
	return inv.plan.Health.Has(inv.top.Devices[row].Entity.Kind)
}

// watchHealth turns on the health watches if the plan requests them. If this fails, readHealth tries again. The engine
// checks the machine through its GPUs, so all GPUs are in the group.
func (s *Session) watchHealth() error {
	h := &s.health
	var members []entity
	for row, e := range s.members {
		if e.group == groupGPU || e.group != groupNone && s.wantsHealth(row) {
			members = append(members, e)
		}
	}
	if s.plan.Health == 0 || len(members) == 0 {
		return nil
	}
	if h.group == 0 {
		group, refused, err := s.engine.createGroup(s.nextName(), members)
		if err == nil && group == 0 {
			err = refused[0].err // lost GPUs, which do not pass
		}
		if err != nil {
			return err
		}
		h.group = group
	}
	err := s.engine.setHealth(h.group, allHealth)
	h.set = err == nil
	return err
}

// readHealth appends the results of the health checks. A lost GPU does not pass.
func (s *Session) readHealth(b *gpu.Batch) error {
	if s.plan.Health == 0 {
		return nil
	}
	var err error
	if !s.health.set {
		err = s.watchHealth()
	}
	var found []incident
	if s.health.set {
		found, err = s.engine.checkHealth(s.health.group)
	}
	if err != nil {
		b.FailPart(gpu.AllRows, gpu.PartHealthChecks, s.withVersions(err))
		return reopenOnly(err)
	}
	if !s.health.set {
		return nil
	}
	for i := range found {
		if found[i].group == groupNone && found[i].code == codeIMEX {
			found[i].system = systemIMEX
		}
	}
	first := len(b.Health)
	for row := range s.members {
		if s.wantsHealth(row) {
			s.addHealth(b, row, found)
		}
	}
	return reopenOnly(s.findLinks(b.Health[first:]))
}

// addHealth appends the results of each health watch of an entity. Each code is reported once with its worst result;
// without findings, the watch passes. Unknown watches follow by number.
func (s *Session) addHealth(b *gpu.Batch, row int, found []incident) {
	kind := s.top.Devices[row].Entity.Kind
	for _, system := range healthSystems {
		first := len(b.Health)
		for _, x := range found {
			if x.system == system.mask {
				s.addFinding(b, first, row, system.name, x)
			}
		}
		if len(b.Health) == first && kind == system.of && s.checks(row) {
			b.Health = append(b.Health, gpu.HealthCheck{Row: row, Watch: system.name})
		}
	}
	first := len(b.Health)
	for _, x := range found {
		if !slices.ContainsFunc(healthSystems, func(system healthSystem) bool { return system.mask == x.system }) {
			s.addFinding(b, first, row, fmt.Sprintf("0x%x", x.system), x)
		}
	}
}

// addFinding appends a finding of a row under a watch. If b.Health has the code from index first on, it only keeps the
// worse result.
func (s *Session) addFinding(b *gpu.Batch, first, row int, watch string, x incident) {
	if x.entity != s.members[row] || x.result == 0 {
		return
	}
	code := catalog.FindingOf(strconv.FormatUint(uint64(x.code), 10)).Code
	c := gpu.HealthCheck{Row: row, Watch: watch, Code: code, Result: int64(x.result)}
	same := func(o gpu.HealthCheck) bool { return o.Watch == c.Watch && o.Code == c.Code }
	if i := slices.IndexFunc(b.Health[first:], same); i >= 0 {
		b.Health[first+i].Result = max(b.Health[first+i].Result, c.Result)
		return
	}
	b.Health = append(b.Health, c)
}

// checks reports whether a row without findings passes. A lost GPU does not pass. The machine does not pass if the
// engine cannot check it (before 4.5).
func (s *Session) checks(row int) bool {
	if s.members[row].group != groupNone {
		return !s.lost[row]
	}
	var major, minor int
	n, _ := fmt.Sscanf(s.version, "%d.%d", &major, &minor)
	return n == 2 && (major > 4 || major == 4 && minor >= 5)
}

// findLinks adds the link numbers to findings about GPU links that are down.
func (s *Session) findLinks(checks []gpu.HealthCheck) error {
	var links []link
	for i := range checks {
		c := &checks[i]
		if c.Code != linkDown || s.members[c.Row].group != groupGPU {
			continue
		}
		if links == nil {
			var err error
			if links, err = s.engine.links(); err != nil {
				return err
			}
		}
		c.NoLink = !slices.ContainsFunc(links, func(l link) bool { return l.up && l.parent == s.members[c.Row] })
	}
	return nil
}

// unwatchHealth undoes watchHealth.
func (s *Session) unwatchHealth() error {
	if s.health.group == 0 {
		return nil
	}
	var err error
	if s.health.set {
		err = s.engine.setHealth(s.health.group, 0)
	}
	return errors.Join(err, s.engine.destroyGroup(s.health.group))
}

// readPeers appends the NVLink states between the session's GPUs. Lost GPUs are left out.
func (s *Session) readPeers(b *gpu.Batch) error {
	if !s.plan.Peers {
		return nil
	}
	found, err := s.engine.peers()
	if err != nil {
		b.FailPart(gpu.AllRows, gpu.PartPeerStates, s.withVersions(err))
		return reopenOnly(err)
	}
	for _, x := range found {
		row, ok := s.rows[entity{groupGPU, x.from}]
		peer, known := s.rows[entity{groupGPU, x.to}]
		if ok && known && !s.lost[row] && !s.lost[peer] {
			b.Peers = append(b.Peers, gpu.PeerState{Row: row, Peer: peer, Status: gpu.PeerStatus(x.state)})
		}
	}
	return nil
}
