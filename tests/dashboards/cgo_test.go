//go:build linux && cgo

package dashboards

// withDrivers says that this build has the sources that load a library.
const withDrivers = true
