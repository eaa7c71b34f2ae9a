package config

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// Hash returns the value of dcgm_exporter_config_hash, which is equal on nodes with the same configuration. It covers
// all settings except those that differ between nodes, and the content of files such as the counters file. It has 48
// bits, so that a float64 holds it exactly.
func (c *Config) Hash(files ...[]byte) uint64 {
	h := sha256.New()
	for _, o := range table(c) {
		if !o.perNode {
			fmt.Fprintf(h, "%s=%q\n", o.ID(), o.text())
		}
	}
	for _, f := range c.Metrics.Fields {
		fmt.Fprintf(h, "field %q %q %q\n", f.Name, f.Type, f.Help)
	}
	for _, g := range c.Collection.Groups {
		fmt.Fprintf(h, "group %q %s %q\n", g.Name, g.Interval, g.Patterns)
	}
	for _, file := range files {
		fmt.Fprintf(h, "file %x\n", sha256.Sum256(file))
	}
	return binary.BigEndian.Uint64(h.Sum(nil)) >> 16
}
