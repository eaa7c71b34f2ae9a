package catalog

import (
	"bytes"
	"encoding/csv"
)

// readTable returns the rows of an embedded CSV file without the header. A malformed file has no rows, not even a
// header, so that no program starts with it.
func readTable(file []byte) [][]string {
	rows, _ := csv.NewReader(bytes.NewReader(file)).ReadAll()
	return rows[1:]
}
