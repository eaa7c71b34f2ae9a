package dcgm

import "time"

// RetryRefused sets the delay before a rejected watch is tried again.
func (o Options) RetryRefused(every time.Duration) Options {
	o.retry = every
	return o
}
