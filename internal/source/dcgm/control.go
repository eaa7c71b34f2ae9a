package dcgm

// controls is the part of an engine that some plans need. A library that is older than one of the
// functions answers with gpu.ErrVersion.
type controls interface {
	// setHealth turns the health watches of a group on for these systems, a bit each, and off for the
	// others.
	setHealth(group handle, systems uint32) error
	// checkHealth returns what the health watches of a group have found. The group must have been set.
	checkHealth(group handle) ([]incident, error)
	// peers returns the state of NVLink from each GPU to each other one.
	peers() ([]peer, error)
}

// An incident is what a health watch found (dcgmIncidentInfo_t).
type incident struct {
	entity
	system uint32 // one of DCGM_HEALTH_WATCH_*
	result uint32 // 10 warn, 20 fail
	code   uint32 // DCGM_FR_*
}

// A peer is the state of NVLink from one GPU to another.
type peer struct {
	from, to uint32 // GPU ids
	state    uint32 // dcgmNvLinkGpuP2PStatus_t
}
