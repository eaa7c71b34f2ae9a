package main

import (
	"fmt"
	"io"
	"regexp"
	"strings"
)

// heading matches the heading of a release in CHANGELOG.md, such as "## 0.1.0 / 2026-11-22".
var heading = regexp.MustCompile(`^## (\d+\.\d+\.\d+(?:-[0-9A-Za-z.]+)?) / \d{4}-\d{2}-\d{2}$`)

// writeNotes writes the section of a release in the changelog. It returns an error if the section is missing or empty.
func writeNotes(out io.Writer, changelog io.Reader, version string) error {
	text, err := io.ReadAll(changelog)
	if err != nil {
		return err
	}
	var section strings.Builder
	var known []string
	inside, found := false, false
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "## ") {
			m := heading.FindStringSubmatch(strings.TrimSpace(line))
			if inside = m != nil && m[1] == strings.TrimPrefix(version, "v"); inside {
				found = true
			}
			if m != nil {
				known = append(known, m[1])
			}
			continue
		}
		if inside {
			section.WriteString(line)
		}
	}
	notes := strings.TrimSpace(section.String())
	switch {
	case !found:
		return fmt.Errorf("CHANGELOG.md has no heading \"## %s / YYYY-MM-DD\"; it has releases %q",
			strings.TrimPrefix(version, "v"), known)
	case notes == "":
		return fmt.Errorf("CHANGELOG.md has no text below the heading of %s", version)
	}
	_, err = io.WriteString(out, notes+"\n")
	return err
}
