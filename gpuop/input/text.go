// Package input reads what people apply the GPU Operator with: shell scripts, Terraform files and the files of
// other tools that carry values of charts. A part of a text that is not known here stays inside its word as it is written.
//
// The package judges no value, runs nothing and opens no file. Its bounds hold for any input: a text that is too large or
// too deep is not read, with the reason.
package input

import (
	"fmt"
	"regexp"
	"strings"
)

// Filled begins the action of a template of Helm or Ansible: a value that another program fills in.
const Filled = "{{"

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
