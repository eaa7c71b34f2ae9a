package main

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
)

//go:embed flags_head.md
var flagsHead string

//go:embed flags_tail.md
var flagsTail string

// flags returns docs/flags.md.
func (w *writer) flags() string {
	var b strings.Builder
	b.WriteString(flagsHead)
	section, settings := "", config.Settings()
	unused := map[string]bool{}
	for id := range details {
		unused[id] = true
	}
	for _, s := range settings {
		if s.Section != section {
			section = s.Section
			fmt.Fprintf(&b, "\n## %s\n\n| flag | variable | default | description |\n|---|---|---|---|\n", section)
		}
		delete(unused, s.ID())
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n",
			codeSpans(s.Flags()...), codeSpans(s.Variables()...), codeSpans(s.Default), description(&s))
	}
	for id := range unused {
		w.fail("details.go has a row for %q, which is not a setting: remove it", id)
	}
	b.WriteString(flagsTail)
	return b.String()
}

// description returns the last cell of a setting's row.
func description(s *config.Setting) string {
	parts := []string{s.Help}
	if more := details[s.ID()]; more != "" {
		parts = append(parts, more)
	}
	parts = append(parts, s.Expects())
	if s.Key != "" {
		parts = append(parts, "In the YAML file: `"+s.Key+"`.")
	}
	if s.Needs != "" {
		parts = append(parts, "Requires `--"+s.Needs+"`.")
	}
	if sentence := s.NoEffect(); sentence != "" {
		parts = append(parts, "**"+sentence+"**")
	}
	return cell(strings.Join(parts, " "))
}

// codeSpans returns the words that are not empty as code, separated by commas.
func codeSpans(words ...string) string {
	var spans []string
	for _, word := range words {
		if word != "" {
			spans = append(spans, "`"+word+"`")
		}
	}
	return strings.Join(spans, ", ")
}
