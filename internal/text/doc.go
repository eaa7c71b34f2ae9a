// Package text reads and repairs texts of people: the nearest right word, YAML that is read strictly and whose errors name
// the line, and names that Prometheus accepts.
package text
