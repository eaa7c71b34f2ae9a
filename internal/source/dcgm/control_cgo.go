//go:build linux && cgo

package dcgm

/*
#include <stdlib.h>
#include "control.h"
*/
import "C"

import "unsafe"

func (e *connection) setHealth(group handle, systems uint32) error {
	return e.lib.result("dcgmHealthSet", C.control_set_health(e.lib.c, e.handle, C.uintptr_t(group), C.uint(systems)))
}

func (e *connection) checkHealth(group handle) ([]incident, error) {
	found := (*C.control_health)(C.malloc(C.sizeof_control_health))
	defer C.free(unsafe.Pointer(found))
	code := C.control_check_health(e.lib.c, e.handle, C.uintptr_t(group), found)
	var list []incident
	for i := range found.incidents[:found.count] {
		x := &found.incidents[i]
		list = append(list, incident{
			entity: entity{entityGroup(x.entity.group), uint32(x.entity.id)},
			system: uint32(x.system), result: uint32(x.result), code: uint32(x.code),
		})
	}
	return list, e.lib.result("dcgmHealthCheck", code)
}

func (e *connection) peers() ([]peer, error) {
	found := (*C.control_peers)(C.calloc(1, C.sizeof_control_peers))
	defer C.free(unsafe.Pointer(found))
	code := C.control_get_peers(e.lib.c, e.handle, found)
	var list []peer
	gpus := found.gpus[:found.count]
	for i := range gpus {
		for j := range gpus {
			if i != j {
				list = append(list, peer{from: uint32(gpus[i].id), to: uint32(gpus[j].id), state: uint32(gpus[i].states[j])})
			}
		}
	}
	return list, e.lib.result("dcgmGetNvLinkP2PStatus", code)
}
