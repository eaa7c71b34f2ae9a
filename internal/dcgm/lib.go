package dcgm

import (
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A lib is the door to libdcgm. It is safe for several sessions after one
// another, and for two that overlap during a reload.
type lib interface {
	// connect loads the library if need be and starts or reaches the engine.
	connect(address, Options) (engine, error)
}

// An engine is a connection to a running DCGM. Errors wrap gpu's errors; those
// that come from a result code are a *resultError. Nothing here may be called
// concurrently, and nothing but close after close.
type engine interface {
	// versions returns the versions of the library and of the engine, as
	// DCGM's build information spells them.
	versions() (library, engine string, err error)
	// gpus returns the ids of all GPUs, also of lost and unsupported ones. The
	// slice is the caller's until the next call.
	gpus() ([]uint32, error)
	// supported returns the ids of the GPUs that DCGM reads at present.
	supported() ([]uint32, error)
	// status returns the state of a GPU.
	status(id uint32) status
	// instances returns the MIG GPU instances. The slice is the caller's until
	// the next call.
	instances() ([]instance, error)
	// attributes returns what the engine remembers of a GPU that can no longer
	// be asked.
	attributes(id uint32) (identity, error)
	// profiling returns the profiling fields that a GPU has.
	profiling(id uint32) ([]gpu.FieldID, error)

	createGroup(name string, members []entity) (handle, error)
	destroyGroup(handle) error
	createFieldGroup(name string, ids []gpu.FieldID) (handle, error)
	destroyFieldGroup(handle) error
	// watch asks for a sample of each field of each member every so often. The
	// engine keeps the samples of keepAge, keepSamples of them at most; zero
	// is no limit.
	watch(group, fields handle, every, keepAge time.Duration, keepSamples int) error
	unwatch(group, fields handle) error
	// update takes the samples that are due, and returns when they are taken.
	update() error

	// latest returns the newest sample of each field of each member, since
	// those from a time on and the time to go on from (microseconds in the
	// engine's clock). The readout is valid until the next of these calls.
	latest(group, fields handle) (readout, error)
	since(group, fields handle, from int64) (r readout, next int64, err error)

	// close gives up the connection. It undoes one connect, also of an engine
	// that is gone.
	close() error
}

// A handle names a group or a field group at the engine.
type handle uintptr

// entityGroup is a DCGM entity group (dcgm_field_entity_group_t).
type entityGroup uint8

const (
	groupNone     entityGroup = 0 // DCGM_FE_NONE: the whole node
	groupGPU      entityGroup = 1 // DCGM_FE_GPU
	groupInstance entityGroup = 4 // DCGM_FE_GPU_I
)

// An entity is what DCGM calls an entity pair.
type entity struct {
	group entityGroup
	id    uint32
}

// status is the state of a GPU (DcgmEntityStatus_t).
type status uint8

const (
	statusUnknown      status = 0
	statusOK           status = 1
	statusUnsupported  status = 2
	statusInaccessible status = 3
	statusLost         status = 4
	statusFake         status = 5
	statusDisabled     status = 6
	statusDetached     status = 7
)

// String returns the state in the words that logs and errors use.
func (s status) String() string {
	switch s {
	case statusOK, statusFake:
		return "OK"
	case statusUnsupported:
		return "not supported by DCGM"
	case statusInaccessible:
		return "not accessible"
	case statusLost:
		return "lost"
	case statusDisabled:
		return "disabled"
	case statusDetached:
		return "detached from the driver"
	default:
		return "in an unknown state"
	}
}

// An instance is a MIG GPU instance.
type instance struct {
	id      uint32 // DCGM's entity id
	gpu     uint32 // DCGM's id of its GPU
	nvml    uint32 // NVML's GPU-instance id
	profile uint32 // NVML's profile id, which tells a repartition
}

// An identity is what a GPU or instance tells of itself. For an instance,
// model is the profile.
type identity struct {
	model, uuid, busID string
	index, minor       int64 // negative where unknown
}

// A readout is what one call to the engine delivered. Its memory belongs to
// the engine's buffer.
type readout struct {
	samples []sample
	texts   []byte
}

// A sample is a dcgmFieldValue_v1 without its padding of 4 KiB. Its layout is
// that of thin_sample in thin.h.
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
	if s.kind != kindText || uint64(s.text)+s.bits > uint64(len(r.texts)) {
		return nil
	}
	return r.texts[s.text:][:s.bits]
}
