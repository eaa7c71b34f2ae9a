//go:build linux && cgo

package dcgm

/*
#cgo LDFLAGS: -ldl -Wl,--unresolved-symbols=ignore-in-object-files
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
func (l *library) connect(a hostengine.Address, o Options) (engine, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open > 0 && l.at != a {
		return nil, fmt.Errorf("%w: this process is already connected to the host engine (%s) and cannot also connect to %s",
			gpu.ErrUnavailable, l.at, a)
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
		return fmt.Errorf("%w: %w (%s): install DCGM 4 (package datacenter-gpu-manager-4-core; in a container the image "+
			"without -nvml in its tag), or add its folder to LD_LIBRARY_PATH", gpu.ErrUnavailable, ErrLibrary, C.GoString(problem))
	}
	return nil
}

// Loadable reports whether libdcgm can be loaded now.
func Loadable() bool {
	name := C.CString(Library)
	defer C.free(unsafe.Pointer(name))
	return C.thin_loadable(name) != 0
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
	found     [C.THIN_ENTITIES_MAX]C.uint
	hierarchy C.thin_hierarchy
	linked    C.thin_links
}

func (e *connection) dial(target string, a hostengine.Address) error {
	if err := result("dcgmInit", C.dcgmInit()); err != nil {
		return fmt.Errorf("%w: %w", gpu.ErrUnavailable, err)
	}
	var isUnix, isVsock C.int
	switch a.Transport {
	case hostengine.Unix:
		isUnix = 1
	case hostengine.Vsock:
		isVsock = 1
	}
	text := C.CString(target)
	defer C.free(unsafe.Pointer(text))
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

func (e *connection) entities(group entityGroup) ([]uint32, error) {
	var n C.int
	code := C.thin_entities(e.handle, C.uint(group), &e.found[0], &n)
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(e.found[i])
	}
	return ids, result("dcgmGetEntityGroupEntities", code)
}

func (e *connection) supported() ([]uint32, error) {
	ids, err := godcgm.GetSupportedDevices()
	list := make([]uint32, len(ids))
	for i, id := range ids {
		list[i] = uint32(id)
	}
	return list, coded("dcgmGetAllSupportedDevices", err)
}

func (e *connection) status(id uint32) status { return status(godcgm.GetGPUStatus(uint(id))) }

func (e *connection) instances() ([]instance, error) {
	code := C.thin_instances(e.handle, &e.hierarchy)
	list := make([]instance, e.hierarchy.count)
	for i := range list {
		x := &e.hierarchy.entries[i]
		list[i] = instance{
			entity: entity{entityGroup(x.entity.group), uint32(x.entity.id)}, parent: uint32(x.parent.id),
			nvml: uint32(x.info.nvml_instance), profile: uint32(x.info.nvml_profile),
		}
	}
	return list, result("dcgmGetGpuInstanceHierarchy", code)
}

// States of links that do not exist (dcgmNvLinkLinkState_t). Switches report linkDisabled for them.
const (
	linkNotSupported = 0
	linkDisabled     = 1
	linkUp           = 3
)

func (e *connection) links() (list []link, err error) {
	code := C.thin_get_links(e.handle, &e.linked)
	add := func(parent entity, states []C.uint) {
		for index, state := range states {
			if state != linkNotSupported && (state != linkDisabled || parent.group == groupGPU) {
				list = append(list, link{parent, uint32(index), state == linkUp})
			}
		}
	}
	for i := range e.linked.gpus[:e.linked.gpu_count] {
		g := &e.linked.gpus[i]
		add(entity{groupGPU, uint32(g.id)}, g.states[:])
	}
	for i := range e.linked.switches[:e.linked.switch_count] {
		s := &e.linked.switches[i]
		add(entity{groupSwitch, uint32(s.id)}, s.states[:])
	}
	return list, result("dcgmGetNvLinkLinkStatus", code)
}

func (e *connection) cpus() ([]cpu, error) {
	var found C.thin_cpus
	code := C.thin_get_cpus(e.handle, &found)
	list := make([]cpu, found.count)
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
	return list, result("dcgmGetCpuHierarchy_v2", code)
}

func (e *connection) place(id uint32) (cpus []uint64, paths []path, err error) {
	var found C.thin_place
	if err := result("dcgmGetDeviceTopology", C.thin_get_place(e.handle, C.uint(id), &found)); err != nil {
		return nil, nil, err
	}
	for _, word := range found.cpus {
		cpus = append(cpus, uint64(word))
	}
	for i := range found.paths[:found.count] {
		paths = append(paths, path{uint32(found.paths[i].id), uint64(found.paths[i].path)})
	}
	return cpus, paths, nil
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
	return identity{
		model: clean(d.Identifiers.Model), uuid: clean(d.UUID), busID: clean(d.PCI.BusID), index: -1, minor: -1,
	}, nil
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
	list := make([]C.thin_entity, len(members))
	codes := make([]C.int, len(members))
	for i, m := range members {
		list[i] = C.thin_entity{group: C.uint(m.group), id: C.uint(m.id)}
	}
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	var id C.uintptr_t
	code := C.thin_create_group(e.handle, text, unsafe.SliceData(list), C.int(len(list)), unsafe.SliceData(codes), &id)
	if code != 0 {
		return 0, nil, result("dcgmGroupCreate", code)
	}
	var refused []refusal
	for i, code := range codes {
		if code != 0 {
			refused = append(refused, refusal{i, result("dcgmGroupAddEntity", code)})
		}
	}
	return handle(id), refused, nil
}

func (e *connection) destroyGroup(id handle) error {
	return result("dcgmGroupDestroy", C.dcgmGroupDestroy(e.handle, C.uintptr_t(id)))
}

func (e *connection) createFieldGroup(name string, ids []gpu.FieldID) (handle, error) {
	list := make([]C.ushort, len(ids))
	for i, id := range ids {
		list[i] = C.ushort(id)
	}
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	var id C.uintptr_t
	code := C.dcgmFieldGroupCreate(e.handle, C.int(len(list)), unsafe.SliceData(list), text, &id)
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
	var next C.longlong
	code := C.thin_since(e.handle, C.uintptr_t(group), C.uintptr_t(fields), C.longlong(from), &next, &e.buffer)
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
	found := (*C.thin_health)(C.malloc(C.sizeof_thin_health)) // too large for the stack: one megabyte
	defer C.free(unsafe.Pointer(found))
	code := C.thin_check_health(e.handle, C.uintptr_t(group), found)
	var list []incident
	for i := range found.incidents[:found.count] {
		x := &found.incidents[i]
		list = append(list, incident{
			entity: entity{entityGroup(x.entity.group), uint32(x.entity.id)},
			system: uint32(x.system), result: uint32(x.result), code: uint32(x.code),
		})
	}
	return list, result("dcgmHealthCheck", code)
}

func (e *connection) peers() ([]peer, error) {
	var found C.thin_peers
	code := C.thin_get_peers(e.handle, &found)
	var list []peer
	gpus := found.gpus[:found.count]
	for i := range gpus {
		for j := range gpus {
			if i != j {
				list = append(list, peer{from: uint32(gpus[i].id), to: uint32(gpus[j].id), state: uint32(gpus[i].states[j])})
			}
		}
	}
	return list, result("dcgmGetNvLinkP2PStatus", code)
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
