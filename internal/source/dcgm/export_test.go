package dcgm

import "time"

// ErrorName is errorName.
func ErrorName(code uint32) string { return errorName(code) }

// RetryProfiling sets how long the profiling waits between tries.
func (o Options) RetryProfiling(every time.Duration) Options {
	o.profilingRetry = every
	return o
}
