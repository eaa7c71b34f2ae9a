//go:build linux && cgo

package dcgm

/*
#cgo LDFLAGS: -ldl -Wl,--unresolved-symbols=ignore-in-object-files
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include "thin.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"strings"
	"sync"
	"time"
	"unsafe"

	godcgm "github.com/NVIDIA/go-dcgm/pkg/dcgm"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/hostengine"
)

// These do not compile if the layouts in Go and C differ.
var (
	_ = [1]struct{}{}[unsafe.Sizeof(sample{})-C.sizeof_thin_sample]
	_ = [1]struct{}{}[unsafe.Offsetof(sample{}.field)-unsafe.Offsetof(C.thin_sample{}.field)]
	_ = [1]struct{}{}[unsafe.Offsetof(sample{}.text)-unsafe.Offsetof(C.thin_sample{}.text)]
)

// A library is libdcgm. go-dcgm has one connection per process and counts its initializations. When the count is zero,
// it shuts down libdcgm with all connections. library keeps the same count.
type library struct {
	mu   sync.Mutex
	open int
	at   hostengine.Address // address of go-dcgm's connection while open > 0
}

func newConnector() connector { return new(library).connect }

// connect first makes a connection without go-dcgm, because that returns a result code, and then go-dcgm's.
func (l *library) connect(o Options) (engine, error) {
	a := o.Remote
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open > 0 && l.at != a {
		return nil, fmt.Errorf("%w: this process is already connected to the host engine (%s) "+
			"and cannot also connect to %s", gpu.ErrUnavailable, l.at, a)
	}
	if err := l.load(o); err != nil {
		return nil, err
	}
	e := &connection{lib: l, handle: C.THIN_EMBEDDED}
	mode, args := godcgm.Embedded, []string(nil)
	if !a.IsEmbedded() {
		mode, args = godcgm.Standalone, standaloneArgs(a)
		if err := e.dial(args[0], a); err != nil {
			l.release()
			return nil, err
		}
	}
	// An embedded engine changes the working directory to DCGM_HOME_DIR. Relative paths of the exporter's own files
	// must still work.
	if dir, err := os.Getwd(); err == nil {
		defer os.Chdir(dir)
	}
	if _, err := godcgm.Init(mode, args...); err != nil {
		e.disconnect()
		l.release()
		return nil, fmt.Errorf("%w: %w", gpu.ErrUnavailable, err)
	}
	l.open++
	l.at = a
	return e, nil
}

// standaloneArgs returns the arguments of godcgm.Init for a remote engine, starting with its address.
func standaloneArgs(a hostengine.Address) []string {
	switch a.Transport {
	case hostengine.Unix:
		return []string{a.Path, "1"}
	case hostengine.Vsock:
		return []string{a.String()}
	default:
		return []string{a.Endpoint(), "0"}
	}
}

// load loads the library and looks up every function that is used.
func (l *library) load(o Options) error {
	if o.EngineLog != "" { // os.Setenv also changes C's environment
		_ = os.Setenv("__DCGM_DBG_FILE", "-")
		_ = os.Setenv("__DCGM_DBG_LVL", o.EngineLog)
	}
	name := C.CString(Library)
	defer C.free(unsafe.Pointer(name))
	var missing C.int
	if problem := C.thin_load(name, &missing); problem != nil {
		if missing != 0 {
			return fmt.Errorf("%w: %s does not have %s: it is too old or not DCGM; install DCGM 4.0 or newer",
				gpu.ErrVersion, Library, C.GoString(problem))
		}
		return fmt.Errorf("%w: %w (%s): install DCGM 4 (package datacenter-gpu-manager-4-core; "+
			"in a container the image without -nvml in its tag), or add its folder to LD_LIBRARY_PATH",
			gpu.ErrUnavailable, ErrLibrary, C.GoString(problem))
	}
	return nil
}

// Loadable reports whether libdcgm can be loaded now. It does not keep it loaded.
func Loadable() bool {
	name := C.CString(Library)
	defer C.free(unsafe.Pointer(name))
	handle := C.dlopen(name, C.RTLD_LAZY|C.RTLD_LOCAL)
	if handle == nil {
		return false
	}
	C.dlclose(handle)
	return true
}

// release shuts down libdcgm if it is not in use. go-dcgm does not do so if its own connection failed or did not close.
func (l *library) release() {
	if l.open == 0 {
		C.dcgmShutdown()
	}
}

// result returns the error for a result code, or nil for success.
func result(function string, code C.int) error {
	if code == 0 {
		return nil
	}
	return &resultError{function: function, code: int(code), words: C.GoString(C.errorString(code))}
}

// A connection is an engine accessed through libdcgm.
type connection struct {
	lib    *library
	handle C.uintptr_t // C.THIN_EMBEDDED, or a connection made without go-dcgm

	buffer    C.thin_buffer
	hierarchy C.thin_hierarchy // too large to allocate in each cycle
}

func (e *connection) dial(target string, a hostengine.Address) error {
	if err := result("dcgmInit", C.dcgmInit()); err != nil {
		return fmt.Errorf("%w: %w", gpu.ErrUnavailable, err)
	}
	text := C.CString(target)
	defer C.free(unsafe.Pointer(text))
	isUnix, isVsock := C.bool(a.Transport == hostengine.Unix), C.bool(a.Transport == hostengine.Vsock)
	err := result("dcgmConnect", C.thin_connect(text, isUnix, isVsock, &e.handle))
	switch {
	case err == nil:
		return nil
	case hasCode(err, codeConnectionInvalid):
		return fmt.Errorf("%w: no engine answers at %v: %s", gpu.ErrUnavailable, a, err)
	case hasCode(err, codeFunctionNotFound):
		return fmt.Errorf("%w: %s has no dcgmConnect_v3: vsock needs DCGM 4.5 or newer", gpu.ErrVersion, Library)
	case gpu.Reason(err) == "error":
		return fmt.Errorf("%w: connect to %v: %w", gpu.ErrUnavailable, a, err)
	default:
		return fmt.Errorf("connect to %v: %w", a, err)
	}
}

// disconnect closes the connection made without go-dcgm. It ignores the error of a connection that is already closed.
func (e *connection) disconnect() {
	if e.handle != C.THIN_EMBEDDED {
		C.dcgmDisconnect(e.handle)
	}
}

// coded converts an error of go-dcgm with a result code to a resultError.
func coded(function string, err error) error {
	var c *godcgm.Error
	if errors.As(err, &c) {
		return &resultError{function: function, code: int(c.Code), words: c.Error()}
	}
	return err
}

func (e *connection) versions() (library, engine string, err error) {
	own, err := godcgm.GetVersionInfo()
	if err != nil {
		return "", "", coded("dcgmVersionInfo", err)
	}
	theirs, err := godcgm.GetHostengineVersionInfo()
	return own.RawBuildInfoString, theirs.RawBuildInfoString, coded("dcgmHostengineVersionInfo", err)
}

// structVersion returns the first member of a structure of libdcgm: its size and version.
func structVersion[T any](version C.uint) C.uint { return C.uint(unsafe.Sizeof(*new(T))) | version<<24 }

// get calls a function that DCGM 4.0 may lack.
func (e *connection) get(function string, answer unsafe.Pointer) C.int {
	name := C.CString(function)
	defer C.free(unsafe.Pointer(name))
	return C.thin_get(name, e.handle, answer)
}

func (e *connection) entities(group entityGroup) ([]uint32, error) {
	var found [C.THIN_ENTITIES_MAX]C.uint
	n := C.int(len(found))
	if code := C.dcgmGetEntityGroupEntities(e.handle, C.uint(group), &found[0], &n, 0); code != 0 {
		return nil, result("dcgmGetEntityGroupEntities", code)
	}
	return mapped(found[:max(0, min(int(n), len(found)))], func(id C.uint) uint32 { return uint32(id) }), nil
}

func entityOf(e C.thin_entity) entity { return entity{entityGroup(e.group), uint32(e.id)} }

func (e *connection) supported() ([]uint32, error) {
	ids, err := godcgm.GetSupportedDevices()
	return mapped(ids, func(id uint) uint32 { return uint32(id) }), coded("dcgmGetAllSupportedDevices", err)
}

func (e *connection) status(id uint32) status { return status(godcgm.GetGPUStatus(uint(id))) }

func (e *connection) instances() ([]instance, error) {
	found := &e.hierarchy
	found.version, found.count = structVersion[C.thin_hierarchy](2), 0
	if code := C.dcgmGetGpuInstanceHierarchy(e.handle, found); code != 0 {
		return nil, result("dcgmGetGpuInstanceHierarchy", code)
	}
	entries := found.entries[:min(int(found.count), len(found.entries))]
	return mapped(entries, func(x C.thin_hierarchy_entry) instance {
		nvml, profile := uint32(x.info.nvml_instance), uint32(x.info.nvml_profile)
		return instance{entityOf(x.entity), uint32(x.parent.id), nvml, profile}
	}), nil
}

// States of links that do not exist (dcgmNvLinkLinkState_t). Switches report linkDisabled for them.
const (
	linkNotSupported = 0
	linkDisabled     = 1
	linkUp           = 3
)

func (e *connection) links() (list []link, err error) {
	found := C.thin_links{version: structVersion[C.thin_links](5)}
	code := C.dcgmGetNvLinkLinkStatus(e.handle, unsafe.Pointer(&found))
	if code == codeVersionMismatch {
		old := C.thin_links_old{version: structVersion[C.thin_links_old](4)}
		code = C.dcgmGetNvLinkLinkStatus(e.handle, unsafe.Pointer(&old))
		found = C.thin_links{gpu_count: old.gpu_count, switch_count: old.switch_count, switches: old.switches}
		for i := range old.gpus {
			found.gpus[i].id = old.gpus[i].id
			copy(found.gpus[i].states[:], old.gpus[i].states[:])
		}
	}
	if code != 0 {
		return nil, result("dcgmGetNvLinkLinkStatus", code)
	}
	add := func(parent entity, states []C.uint) {
		for index, state := range states {
			if state != linkNotSupported && (state != linkDisabled || parent.group == groupGPU) {
				list = append(list, link{parent, uint32(index), state == linkUp})
			}
		}
	}
	for i := range min(int(found.gpu_count), len(found.gpus)) {
		add(entity{groupGPU, uint32(found.gpus[i].id)}, found.gpus[i].states[:])
	}
	for i := range min(int(found.switch_count), len(found.switches)) {
		add(entity{groupSwitch, uint32(found.switches[i].id)}, found.switches[i].states[:])
	}
	return list, nil
}

func (e *connection) cpus() ([]cpu, error) {
	found := C.thin_cpus{version: structVersion[C.thin_cpus](2)}
	code := e.get("dcgmGetCpuHierarchy_v2", unsafe.Pointer(&found))
	if code == codeVersionMismatch || code == codeFunctionNotFound {
		old := C.thin_cpus_old{version: structVersion[C.thin_cpus_old](1)}
		code = e.get("dcgmGetCpuHierarchy", unsafe.Pointer(&old))
		found = C.thin_cpus{count: old.count}
		for i, c := range old.cpus {
			found.cpus[i].id, found.cpus[i].cores = c.id, c.cores
		}
	}
	if code != 0 {
		return nil, result("dcgmGetCpuHierarchy_v2", code)
	}
	list := make([]cpu, min(int(found.count), len(found.cpus)))
	for i := range list {
		c := &found.cpus[i]
		serial := C.GoStringN(&c.serial[0], C.int(C.strnlen(&c.serial[0], C.size_t(len(c.serial)))))
		list[i] = cpu{id: uint32(c.id), serial: clean(serial)}
		for w, word := range c.cores.words {
			for ; word != 0; word &= word - 1 {
				list[i].cores = append(list[i].cores, uint32(w*64+bits.TrailingZeros64(uint64(word))))
			}
		}
	}
	return list, nil
}

func (e *connection) place(id uint32) (cpus []uint64, paths []path, err error) {
	found := C.thin_place{version: structVersion[C.thin_place](2)}
	code := C.dcgmGetDeviceTopology(e.handle, C.uint(id), unsafe.Pointer(&found))
	if code == codeVersionMismatch {
		old := C.thin_place_old{version: structVersion[C.thin_place_old](1)}
		code = C.dcgmGetDeviceTopology(e.handle, C.uint(id), unsafe.Pointer(&old))
		found = C.thin_place{cpus: old.cpus, count: old.count}
		for i, p := range old.paths {
			found.paths[i].id, found.paths[i].path = p.id, C.uint64_t(p.path)
		}
	}
	if code != 0 {
		return nil, nil, result("dcgmGetDeviceTopology", code)
	}
	for _, p := range found.paths[:min(int(found.count), len(found.paths))] {
		paths = append(paths, path{uint32(p.id), uint64(p.path)})
	}
	return mapped(found.cpus[:], func(word C.ulong) uint64 { return uint64(word) }), paths, nil
}

// clean returns a string, or "" if it is one of DCGM's blanks.
func clean(text string) string {
	if blank, _ := blankText([]byte(text)); blank {
		return ""
	}
	return text
}

func (e *connection) attributes(id uint32) (identity, error) {
	d, err := godcgm.GetDeviceInfo(uint(id))
	if err != nil {
		return identity{}, coded("dcgmGetDeviceAttributes", err)
	}
	return identity{clean(d.Identifiers.Model), clean(d.UUID), clean(d.PCI.BusID), -1, -1}, nil
}

func (e *connection) profiling(id uint32) ([]gpu.FieldID, error) {
	groups, err := godcgm.GetSupportedMetricGroups(uint(id))
	if err != nil {
		return nil, coded("dcgmProfGetSupportedMetricGroups", err)
	}
	var fields []gpu.FieldID
	for _, g := range groups {
		for _, f := range g.FieldIds {
			fields = append(fields, gpu.FieldID(f))
		}
	}
	return fields, nil
}

func (e *connection) createGroup(name string, members []entity) (handle, []refusal, error) {
	const empty = 1 // DCGM_GROUP_EMPTY
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	var id C.uintptr_t
	if code := C.dcgmGroupCreate(e.handle, empty, text, &id); code != 0 {
		return 0, nil, result("dcgmGroupCreate", code)
	}
	var refused []refusal
	for i, m := range members {
		switch code := C.dcgmGroupAddEntity(e.handle, id, C.uint(m.group), C.uint(m.id)); code {
		case 0:
		case codeBadParameter, codeGPULost, codeGPUNotSupported:
			refused = append(refused, refusal{i, result("dcgmGroupAddEntity", code)})
		default: // the call failed, not the member
			C.dcgmGroupDestroy(e.handle, id)
			return 0, nil, result("dcgmGroupCreate", code)
		}
	}
	if len(refused) == len(members) {
		return 0, refused, result("dcgmGroupCreate", C.dcgmGroupDestroy(e.handle, id))
	}
	return handle(id), refused, nil
}

func (e *connection) destroyGroup(id handle) error {
	return result("dcgmGroupDestroy", C.dcgmGroupDestroy(e.handle, C.uintptr_t(id)))
}

func (e *connection) createFieldGroup(name string, ids []gpu.FieldID) (handle, error) {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	var id C.uintptr_t
	fields := mapped(ids, func(id gpu.FieldID) C.ushort { return C.ushort(id) })
	code := C.dcgmFieldGroupCreate(e.handle, C.int(len(ids)), unsafe.SliceData(fields), text, &id)
	return handle(id), result("dcgmFieldGroupCreate", code)
}

func (e *connection) destroyFieldGroup(id handle) error {
	return result("dcgmFieldGroupDestroy", C.dcgmFieldGroupDestroy(e.handle, C.uintptr_t(id)))
}

func (e *connection) watch(group, fields handle, every, keepAge time.Duration, keepSamples int) error {
	code := C.dcgmWatchFields(e.handle, C.uintptr_t(group), C.uintptr_t(fields),
		C.longlong(every.Microseconds()), C.double(keepAge.Seconds()), C.int(keepSamples))
	return result("dcgmWatchFields", code)
}

func (e *connection) unwatch(group, fields handle) error {
	return result("dcgmUnwatchFields", C.dcgmUnwatchFields(e.handle, C.uintptr_t(group), C.uintptr_t(fields)))
}

func (e *connection) update() error {
	return result("dcgmUpdateAllFields", C.dcgmUpdateAllFields(e.handle, 1))
}

func (e *connection) latest(group, fields handle) (readout, error) {
	code := C.thin_latest(e.handle, C.uintptr_t(group), C.uintptr_t(fields), &e.buffer)
	return e.readout(), result("dcgmGetLatestValues_v2", code)
}

func (e *connection) since(group, fields handle, from int64) (readout, error) {
	code := C.thin_since(e.handle, C.uintptr_t(group), C.uintptr_t(fields), C.longlong(from), &e.buffer)
	return e.readout(), result("dcgmGetValuesSince_v2", code)
}

func (e *connection) readout() readout {
	return readout{
		samples: unsafe.Slice((*sample)(unsafe.Pointer(e.buffer.samples)), int(e.buffer.n)),
		texts:   unsafe.Slice((*byte)(unsafe.Pointer(e.buffer.text)), int(e.buffer.text_n)),
	}
}

func (e *connection) setHealth(group handle, systems uint32) error {
	return result("dcgmHealthSet", C.dcgmHealthSet(e.handle, C.uintptr_t(group), C.uint(systems)))
}

func (e *connection) checkHealth(group handle) ([]incident, error) {
	found := (*C.thin_health)(C.malloc(C.sizeof_thin_health)) // one megabyte would be much garbage in each cycle
	defer C.free(unsafe.Pointer(found))
	found.version, found.count = structVersion[C.thin_health](5), 0
	if code := C.dcgmHealthCheck(e.handle, C.uintptr_t(group), found); code != 0 {
		return nil, result("dcgmHealthCheck", code)
	}
	return mapped(found.incidents[:min(int(found.count), len(found.incidents))], func(x C.thin_incident) incident {
		return incident{entityOf(x.entity), uint32(x.system), uint32(x.result), uint32(x.code)}
	}), nil
}

func (e *connection) peers() ([]peer, error) {
	found := C.thin_peers{version: structVersion[C.thin_peers](1)} // no GPU ids: request all GPUs
	if code := e.get("dcgmGetNvLinkP2PStatus", unsafe.Pointer(&found)); code != 0 {
		return nil, result("dcgmGetNvLinkP2PStatus", code)
	}
	var list []peer
	gpus := found.gpus[:min(int(found.count), len(found.gpus))]
	for i, from := range gpus {
		for j, to := range gpus {
			if i != j {
				list = append(list, peer{uint32(from.id), uint32(to.id), uint32(from.states[j])})
			}
		}
	}
	return list, nil
}

func (e *connection) close() error {
	e.lib.mu.Lock()
	defer e.lib.mu.Unlock()
	e.disconnect()
	C.thin_free(&e.buffer)
	e.lib.open--
	if err := godcgm.Shutdown(); err != nil {
		e.lib.release()
		return fmt.Errorf("shut down: %s", strings.TrimSpace(err.Error()))
	}
	return nil
}
