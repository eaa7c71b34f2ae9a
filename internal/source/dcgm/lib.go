package dcgm

import (
	"cmp"
	"errors"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Library is the file name of libdcgm. go-dcgm loads the same file.
const Library = "libdcgm.so.4"

// ErrLibrary means that this process cannot load libdcgm. The error of Open then wraps it in addition to
// gpu.ErrUnavailable.
var ErrLibrary = errors.New(Library + " cannot be loaded")

// A connector loads the library if necessary, and starts or connects to the engine.
type connector func(Options) (engine, error)

// An engine is a connection to a running DCGM. Errors with a result code are of type *resultError, which wraps an error
// of package gpu. Calls must not be concurrent.
type engine interface {
	// versions returns the build information of the library and the engine.
	versions() (library, engine string, err error)
	// entities returns the IDs of all GPUs, switches or ConnectX cards. Lost and unsupported GPUs are included.
	entities(entityGroup) ([]uint32, error)
	// supported returns the IDs of the GPUs that DCGM can read now.
	supported() ([]uint32, error)
	status(gpu uint32) status
	// instances returns MIG GPU instances and their compute instances.
	instances() ([]instance, error)
	links() ([]link, error)
	cpus() ([]cpu, error)
	// place returns the mask of the CPUs closest to a GPU, and the paths to other GPUs.
	place(gpu uint32) (cpus []uint64, paths []path, err error)
	// attributes returns the identity of a GPU that the engine has cached.
	attributes(gpu uint32) (identity, error)
	// profiling returns the profiling fields of a GPU.
	profiling(gpu uint32) ([]gpu.FieldID, error)

	// createGroup creates a group of the members that the engine accepts. If it accepts none, there is no group and the
	// handle is 0.
	createGroup(name string, members []entity) (handle, []refusal, error)
	destroyGroup(handle) error
	createFieldGroup(name string, ids []gpu.FieldID) (handle, error)
	destroyFieldGroup(handle) error
	// watch requests a sample of each field of each member at an interval. The engine keeps samples for keepAge, and at
	// most keepSamples of them. Zero means no limit.
	watch(group, fields handle, every, keepAge time.Duration, keepSamples int) error
	unwatch(group, fields handle) error
	// update takes the samples that are due, and waits until they are taken.
	update() error

	// latest returns the newest sample of each field of each member. since returns all samples from a time on, in
	// microseconds of the engine's clock. A readout is valid until the next call of either.
	latest(group, fields handle) (readout, error)
	since(group, fields handle, from int64) (readout, error)

	// setHealth sets the mask of health watches of a group.
	setHealth(group handle, systems uint32) error
	checkHealth(group handle) ([]incident, error)
	// peers returns the NVLink state from each GPU to every other GPU.
	peers() ([]peer, error)

	// close closes the connection. It undoes one connect, even if the engine is gone.
	close() error
}

// A refusal is a member that the engine does not accept into a group. The index is that of the member or of its row.
type refusal struct {
	at  int
	err error
}

// A handle identifies a group or a field group of the engine.
type handle uintptr

// entityGroup is a DCGM entity group (dcgm_field_entity_group_t).
type entityGroup uint8

const (
	groupNone     entityGroup = 0 // DCGM_FE_NONE: the whole node
	groupGPU      entityGroup = 1 // DCGM_FE_GPU
	groupSwitch   entityGroup = 3 // DCGM_FE_SWITCH
	groupInstance entityGroup = 4 // DCGM_FE_GPU_I
	groupCompute  entityGroup = 5 // DCGM_FE_GPU_CI
	groupLink     entityGroup = 6 // DCGM_FE_LINK
	groupCPU      entityGroup = 7 // DCGM_FE_CPU
	groupCore     entityGroup = 8 // DCGM_FE_CPU_CORE
	groupConnectX entityGroup = 9 // DCGM_FE_CONNECTX
)

// An entity is an entity pair of DCGM.
type entity struct {
	group entityGroup
	id    uint32
}

func (e entity) compare(o entity) int {
	return cmp.Or(cmp.Compare(e.group, o.group), cmp.Compare(e.id, o.id))
}

// status is the state of a GPU (DcgmEntityStatus_t).
type status uint8

const (
	statusLost     status = 4
	statusDetached status = 7
)

// String returns the state as used in logs and errors.
func (s status) String() string {
	words := [...]string{
		"in an unknown state", "OK", "not supported by DCGM", "not accessible", "lost", "OK", "disabled",
		"detached from the driver",
	}
	if int(s) < len(words) {
		return words[s]
	}
	return words[0]
}

// An instance is a MIG GPU instance, or a compute instance.
type instance struct {
	entity
	parent  uint32 // DCGM's ID of the GPU, or of the GPU instance
	nvml    uint32 // NVML's GPU instance ID; for a compute instance that of its GPU instance
	profile uint32 // NVML's profile ID, which changes with a repartition
}

// A link is one end of an NVLink.
type link struct {
	parent entity // a GPU or a switch
	index  uint32
	up     bool
}

// entity returns the link as dcgm_link_t: the parent's kind in the low byte, the index in the next two bytes, and the
// parent's ID in the high byte.
func (l link) entity() entity {
	return entity{groupLink, uint32(l.parent.group) | l.index&0xffff<<8 | l.parent.id<<24}
}

// A cpu is a Grace CPU.
type cpu struct {
	id     uint32
	serial string
	cores  []uint32 // IDs of its cores, ascending
}

// A path is a connection to another GPU. levels is a DCGM_TOPOLOGY_* mask: a bit of the low byte for the PCIe path, and
// a higher bit for the number of NVLinks.
type path struct {
	gpu    uint32
	levels uint64
}

// An identity holds the properties that a GPU or instance reports. The model of an instance is its profile.
type identity struct {
	model, uuid, busID string
	index, minor       int64 // negative if unknown
}

// An incident is a finding of a health watch (dcgmIncidentInfo_t).
type incident struct {
	entity
	system uint32 // one of DCGM_HEALTH_WATCH_*
	result uint32 // 10 warn, 20 fail
	code   uint32 // DCGM_FR_*
}

// A peer is the NVLink state from one GPU to another.
type peer struct {
	from, to uint32 // GPU ids
	state    uint32 // dcgmNvLinkGpuP2PStatus_t
}

// A readout is the result of one read. It uses the engine's buffer.
type readout struct {
	samples []sample
	texts   []byte
}

// A sample is a dcgmFieldValue_v1 without its 4 KiB of padding. It has the layout of thin_sample in thin.h.
type sample struct {
	at     int64  // microseconds in the engine's clock
	bits   uint64 // an int64 or float64; for strings the length
	entity uint32
	status int32
	field  uint16
	kind   byte // DCGM_FT_*: one of the kinds below
	group  entityGroup
	text   uint32 // offset of a string in readout.texts
}

const (
	kindInt       = 'i'
	kindDouble    = 'd'
	kindText      = 's'
	kindTimestamp = 't'
)

// textOf returns the bytes of a string sample.
func (r readout) textOf(s *sample) []byte {
	if n := uint64(len(r.texts)); s.kind != kindText || s.bits > n || uint64(s.text) > n-s.bits {
		return nil
	}
	return r.texts[s.text:][:s.bits]
}
