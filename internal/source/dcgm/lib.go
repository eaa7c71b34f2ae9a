package dcgm

import (
	"errors"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Library is the file name of libdcgm, which go-dcgm loads too.
const Library = "libdcgm.so.4"

// ErrLibrary is wrapped, beside gpu.ErrUnavailable, by the error of Open where this process cannot
// load libdcgm.
var ErrLibrary = errors.New(Library + " cannot be loaded")

// A connector loads the library if need be, and starts or reaches the engine.
type connector func(gpu.EngineAddress, Options) (engine, error)

// An engine is a connection to a running DCGM. A result code is a *resultError, which wraps an error
// of package gpu. Calls are made one at a time.
type engine interface {
	// versions returns the build information of the library and of the engine.
	versions() (library, engine string, err error)
	// entities returns the ids of all GPUs (lost and unsupported ones too), switches or ConnectX cards.
	entities(entityGroup) ([]uint32, error)
	// supported returns the ids of the GPUs that DCGM reads at present.
	supported() ([]uint32, error)
	status(gpu uint32) status
	// instances returns MIG GPU instances and their compute instances.
	instances() ([]instance, error)
	links() ([]link, error)
	cpus() ([]cpu, error)
	// place returns the mask of the CPUs that are nearest to a GPU, and the ways to other GPUs.
	place(gpu uint32) (cpus []uint64, paths []path, err error)
	// attributes returns the identity that the engine remembers of a GPU.
	attributes(gpu uint32) (identity, error)
	// profiling returns the profiling fields of a GPU.
	profiling(gpu uint32) ([]gpu.FieldID, error)

	// createGroup makes a group of the members that the engine takes, and none of none.
	createGroup(name string, members []entity) (handle, []refusal, error)
	destroyGroup(handle) error
	createFieldGroup(name string, ids []gpu.FieldID) (handle, error)
	destroyFieldGroup(handle) error
	// watch requests a sample of each field of each member every so often. The engine keeps the
	// samples of keepAge, keepSamples of them at most; zero is no limit.
	watch(group, fields handle, every, keepAge time.Duration, keepSamples int) error
	unwatch(group, fields handle) error
	// update takes the samples that are due, and returns when they are taken.
	update() error

	// latest returns the newest sample of each field of each member, since all samples from a time on
	// (microseconds in the engine's clock). The readout is valid until the next of these calls.
	latest(group, fields handle) (readout, error)
	since(group, fields handle, from int64) (readout, error)

	// setHealth sets the systems that are watched for a group, a bit each.
	setHealth(group handle, systems uint32) error
	checkHealth(group handle) ([]incident, error)
	// peers returns the state of NVLink from each GPU to each other one.
	peers() ([]peer, error)

	// close gives up the connection. It undoes one connect, also of an engine that is gone.
	close() error
}

// A refusal is a member, or the row of one, that the engine does not take into a group.
type refusal struct {
	at  int
	err error
}

// A handle names a group or a field group at the engine.
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

// status is the state of a GPU (DcgmEntityStatus_t).
type status uint8

const (
	statusLost     status = 4
	statusDetached status = 7
)

// String returns the state in the words that logs and errors use.
func (s status) String() string {
	words := [...]string{"in an unknown state", "OK", "not supported by DCGM", "not accessible", "lost", "OK", "disabled",
		"detached from the driver"}
	if int(s) >= len(words) {
		return words[0]
	}
	return words[s]
}

// An instance is a MIG GPU instance, or a compute instance of one.
type instance struct {
	entity
	parent  uint32 // DCGM's id of its GPU, or of its GPU instance
	nvml    uint32 // NVML's GPU-instance id, of a compute instance that of its GPU instance
	profile uint32 // NVML's profile id, which shows a repartition
}

// A link is an NVLink at one of its ends.
type link struct {
	parent entity // a GPU or a switch
	index  uint32
	up     bool
}

// entity returns the link as dcgm_link_t: its parent's kind in the low byte, the index in the two
// bytes above, the parent's id on top.
func (l link) entity() entity {
	return entity{groupLink, uint32(l.parent.group) | l.index&0xffff<<8 | l.parent.id<<24}
}

// A cpu is a Grace CPU.
type cpu struct {
	id     uint32
	serial string
	cores  []uint32 // the ids of its cores, ascending
}

// A path leads to another GPU. Its levels are DCGM_TOPOLOGY_*: a bit of the low byte for the way
// through the machine, and a higher one for the number of NVLinks.
type path struct {
	gpu    uint32
	levels uint64
}

// An identity is the properties that a GPU or instance reports. An instance's model is its profile.
type identity struct {
	model, uuid, busID string
	index, minor       int64 // negative where unknown
}

// An incident is a finding of a health watch (dcgmIncidentInfo_t).
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

// A readout is the answer of one read. Its memory is the engine's buffer.
type readout struct {
	samples []sample
	texts   []byte
}

// A sample is a dcgmFieldValue_v1 without its padding of 4 KiB. Its layout is that of thin_sample
// in thin.h.
type sample struct {
	at     int64  // microseconds in the engine's clock
	bits   uint64 // an int64 or a float64; for a text its length
	entity uint32
	status int32
	field  uint16
	kind   byte // DCGM_FT_*: one of the kinds below
	group  entityGroup
	text   uint32 // where the text begins in readout.texts
}

const (
	kindInt       = 'i'
	kindDouble    = 'd'
	kindText      = 's'
	kindTimestamp = 't'
)

// textOf returns the bytes of a text sample.
func (r readout) textOf(s *sample) []byte {
	if n := uint64(len(r.texts)); s.kind != kindText || s.bits > n || uint64(s.text) > n-s.bits {
		return nil
	}
	return r.texts[s.text:][:s.bits]
}
