// Package input reads what people apply the GPU Operator with: shell scripts, Terraform files, templates and the files of
// other tools that carry values of charts. A part of a text that is not known here stays inside its word as it is written.
//
// The package judges no value, runs nothing and opens no file. Its bounds hold for any input: a text that is too large or
// too deep is not read, with the reason.
package input

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

var (
	// action is a part of a template that Helm, Ansible, Terraform and their like replace. Text between
	// ${ and } stands as it is: a shell's variables look the same.
	action = regexp.MustCompile(`(?s)\{\{.*?\}\}|\{%.*?%\}|%\{~?\s*(?:if|else|endif|for|endfor)\b[^}]*\}`)
	// control is an action that writes nothing itself.
	control = regexp.MustCompile(`^\{\{-?\s*(if|else|end|range|with|define|block|template|/\*|\$\w+\s*:?=)`)
)

// Filled begins a stand-in for the output of an action: a value that another program fills in.
const Filled = "$___"

// Untemplated makes YAML of a template, as far as that goes: actions that stand in a line become
// values that are not known, all others go. Every place stays where it is. ok is false for other
// texts.
func Untemplated(data []byte) (out []byte, ok bool) {
	if !action.Match(data) {
		return data, false
	}
	out = slices.Clone(data)
	for _, m := range action.FindAllIndex(data, -1) {
		start, end := m[0], m[1]
		text := data[start:end]
		before := data[bytes.LastIndexByte(data[:start], '\n')+1 : start]
		after, _, _ := bytes.Cut(data[end:], []byte("\n"))
		alone := len(bytes.TrimSpace(before)) == 0 && len(bytes.TrimSpace(after)) == 0
		if alone || text[0] == '%' || text[1] == '%' || bytes.ContainsRune(text, '\n') || control.Match(text) {
			for i, c := range text {
				if c != '\n' {
					out[start+i] = ' '
				}
			}
			continue
		}
		copy(out[start:end], "$"+strings.Repeat("_", len(text)-1))
	}
	return out, true
}

// The parsers of shell and Terraform recurse, and a stack that is used up ends the program.
const (
	maxSource = 1 << 20  // bytes of a script or Terraform file
	maxDepth  = 2000     // brackets and blocks within each other
	maxWord   = 64 << 10 // bytes of a word once its variables are expanded
)

var nested = regexp.MustCompile(`[({\[` + "`" + `]|[)}\]]|\b(?:if|while|until|for|case|select)\b|\b(?:fi|done|esac)\b`)

// tooComplex says why a script or Terraform file is not judged; empty where it is.
func tooComplex(source string) string {
	if len(source) > maxSource {
		return fmt.Sprintf("it is larger than %d MiB, so it is not judged", maxSource>>20)
	}
	depth := 0
	for _, m := range nested.FindAllString(source, -1) {
		switch {
		case strings.Contains(")}]", m), m == "fi", m == "done", m == "esac":
			depth = max(0, depth-1)
		default:
			depth++
		}
		if depth > maxDepth {
			return "brackets or blocks stand too deep within each other, so it is not judged"
		}
	}
	return ""
}
