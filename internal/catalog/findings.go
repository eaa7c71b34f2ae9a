package catalog

import (
	"bytes"
	_ "embed" // the table of findings
	"encoding/csv"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A Finding is a row of the table of DCGM's health findings (DCGM_FR_*).
type Finding struct {
	// Code is the value of the health_error_code label. It begins with DCGM_FR_; a code without a row in the
	// table is a number.
	Code      string
	Severity  Severity
	Category  string    // as NVIDIA's exporter spells it
	Treatment Treatment // what alerts and the verdict do with the finding
	// By is the field or family that supersedes the finding. If a plan does not have it, the finding is active.
	By string
	// Watch is the only health watch to which the Treatment applies; the finding is active in other watches. If
	// empty, it applies to all.
	Watch string
	Why   string // the reason for the Treatment
}

// Severity is DCGM's class of a finding (dcgmErrorSeverity_t), as NVIDIA's exporter spells it. Besides the constants
// there are MONITOR (the GPU can do work), ISOLATE (it cannot), TRIAGE, CONFIG (a setting is wrong) and RESET (drain
// and reset).
type Severity string

// The severities of a passing watch and of a finding that DCGM does not classify.
const (
	SeverityNone    Severity = "NONE"
	SeverityUnknown Severity = "UNKNOWN"
)

// Treatment says what alerts and the verdict do with a finding, in the words of the documentation.
type Treatment string

// The treatments.
const (
	Active        Treatment = "active"                     // alerts and the verdict use it
	ByXID         Treatment = "superseded by the XID rule" // the rule of its XID applies instead
	BySeries      Treatment = "superseded by a series"     // the rule of another series applies instead
	Informational Treatment = "informational"              // alerts and the verdict ignore it
)

// TreatmentLabel is the label of findings that alerts and the verdict ignore. Active findings do not have it.
const TreatmentLabel = "treatment"

// Label returns the value of the TreatmentLabel, the first word. It is empty for Active.
func (t Treatment) Label() string {
	word, _, _ := strings.Cut(strings.TrimPrefix(string(t), string(Active)), " ")
	return word
}

// findingPrefix is the prefix of DCGM's finding codes. The table omits it.
const findingPrefix = "DCGM_FR_"

// FindingOf returns the finding for a health_error_code, an alias or DCGM's number. If the table does not have it, the
// finding is Active with severity UNKNOWN. An empty code is the result of a passing watch.
func FindingOf(code string) Finding {
	if f, ok := findingsByName()[strings.TrimPrefix(code, findingPrefix)]; ok {
		return f
	}
	return Finding{Code: code, Severity: SeverityUnknown, Category: string(SeverityUnknown), Treatment: Active,
		Why: "DCGM does not classify it"}
}

// ParseFinding returns the code of a finding from user input: a code with or without DCGM_FR_, an alias, or a
// number.
func ParseFinding(s string) (code string, ok bool) {
	_, err := strconv.ParseUint(s, 10, 32)
	f, known := findingsByName()[strings.TrimPrefix(strings.ToUpper(s), findingPrefix)]
	if !known {
		return s, err == nil
	}
	return f.Code, f.Severity != SeverityNone
}

// FindingCodes returns the codes of the table in DCGM's order, without that of a passing watch.
func FindingCodes() []string {
	codes := make([]string, 0, len(findings)-1)
	for _, f := range findings[1:] {
		codes = append(codes, f.Code)
	}
	return codes
}

// Findings returns the table in DCGM's order.
func Findings() []Finding { return slices.Clone(findings) }

// findingsByName maps codes and aliases, without prefix, and numbers to findings. The empty name maps to the result of
// a passing watch.
var findingsByName = sync.OnceValue(func() map[string]Finding {
	m := map[string]Finding{"": findings[0]}
	for number, f := range findings {
		m[strings.TrimPrefix(f.Code, findingPrefix)], m[strconv.Itoa(number)] = f, f
	}
	for alias, code := range findingAliases {
		m[alias] = m[code]
	}
	return m
})

// findingAliases maps names in DCGM's current header to the older ones that NVIDIA's exporter uses as codes.
var findingAliases = map[string]string{
	"CLOCKS_EVENT_THERMAL":   "CLOCK_THROTTLE_THERMAL",
	"CLOCKS_EVENT_POWER":     "CLOCK_THROTTLE_POWER",
	"CLOCKS_EVENT_VIOLATION": "THROTTLING_VIOLATION",
}

//go:embed findings.csv
var findingTable []byte

// findings is indexed by DCGM's error number. Severities and categories are those of DCGM 4.6.0 (dcgm_errors.c).
var findings = func() (findings []Finding) {
	for _, row := range readTable(findingTable) {
		findings = append(findings, Finding{findingPrefix + row[1], Severity(row[2]), row[3], Treatment(row[4]), row[5],
			row[6], row[7]})
	}
	return findings
}()

// readTable returns the rows of an embedded CSV file without the header. A malformed file has no rows, not even a
// header, so that no program starts with it.
func readTable(file []byte) [][]string {
	rows, _ := csv.NewReader(bytes.NewReader(file)).ReadAll()
	return rows[1:]
}
