package catalog

import (
	"slices"
	"strconv"
	"testing"
)

// The tables have only known words, and their numbers are ascending; those of findings have no gap.
func TestTablesOfFaults(t *testing.T) {
	var classes []string
	for _, c := range XIDClasses() {
		classes = append(classes, c.String())
	}
	last := -1
	for _, row := range readTable(xidTable) {
		code, err := strconv.Atoi(row[0])
		if err != nil || code <= last || !slices.Contains(classes, row[2]) {
			t.Errorf("xids.csv: row %q after %d: want an ascending number and a class of %q", row, last, classes)
		}
		if _, ok := xidSources[row[5]]; !ok {
			t.Errorf("xids.csv: row %q: unknown source", row)
		}
		last = code
	}
	severities := []Severity{SeverityNone, SeverityMonitor, SeverityIsolate, SeverityUnknown, SeverityTriage,
		SeverityConfig, SeverityReset}
	for i, row := range readTable(findingTable) {
		if row[0] != strconv.Itoa(i) || !slices.Contains(severities, Severity(row[2])) {
			t.Errorf("findings.csv: row %q: want number %d and a severity of %q", row, i, severities)
		}
		if !slices.Contains([]Treatment{Active, ByXID, BySeries, Informational}, Treatment(row[4])) {
			t.Errorf("findings.csv: row %q: unknown treatment", row)
		}
	}
}
