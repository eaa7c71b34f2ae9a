package dcgm

import "time"

// RetryRefused sets how long a refused watch waits for the next try.
func (o Options) RetryRefused(every time.Duration) Options {
	o.retry = every
	return o
}
