package dcgm

import "time"

// ErrorName is errorName.
func ErrorName(code uint32) string { return errorName(code) }

// RetryRefused sets how long what the engine refused waits for the next try.
func (o Options) RetryRefused(every time.Duration) Options {
	o.retry = every
	return o
}
