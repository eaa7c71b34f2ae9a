package dcgm

import "time"

// RetryRefused sets how long what the engine refused waits for the next try.
func (o Options) RetryRefused(every time.Duration) Options {
	o.retry = every
	return o
}
