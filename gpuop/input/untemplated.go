package input

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
)

var (
	// action is what Helm, Ansible, Terraform and their like replace in a template. What is between
	// ${ and } stands as it is: a shell's variables look the same.
	action = regexp.MustCompile(`(?s)\{\{.*?\}\}|\{%.*?%\}|%\{~?\s*(?:if|else|endif|for|endfor)\b[^}]*\}`)
	// control is an action that writes nothing itself.
	control = regexp.MustCompile(`^\{\{-?\s*(if|else|end|range|with|define|block|template|/\*|\$\w+\s*:?=)`)
)

// Filled begins a stand-in for the output of an action: a value that another program fills in.
const Filled = "$___"

// Untemplated makes YAML of a template, as far as that goes: actions that stand in a line become
// values that are not known, all others go. Every place stays where it is. ok is false for what is
// no template.
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
