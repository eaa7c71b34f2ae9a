// Package compat makes pages that look like those of NVIDIA's dcgm-exporter.
//
// A Rewriter stands between a snapshot and its page. It implements three settings: --compatibility=strict,
// --kubernetes-virtual-gpus and --owner-labels=copies. AppendFloat formats numbers for strict mode.
//
// Strict mode also acts in other places:
//   - Package config changes the defaults of other settings, such as --enable-health-metrics (rules.go, strict).
//   - Package app asks Options.Reads and Options.Omits which entities and families to read (counters.go), and selects
//     the format of numbers and of empty HELP lines (encoder.go).
//   - Three habits of NVIDIA's exporter change how a value is computed, not how it is shown. The packages that compute
//     them have an option for each: snapshot.Facts.AsReported, events.Options.LastXIDAsStored and
//     gpu.Plan.KeepContradicted. Package app sets them (pipeline.go, counters.go).
package compat
