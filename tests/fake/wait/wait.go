// Package wait has a polling loop for tests.
package wait

import "time"

// Until calls try until it returns no error. After patience, it returns the last error.
func Until(patience time.Duration, try func() error) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); ; <-tick.C {
		if err := try(); err == nil || time.Now().After(end) {
			return err
		}
	}
}
