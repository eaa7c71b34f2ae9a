//go:build !linux || !cgo

package dashboards

const withDrivers = false
