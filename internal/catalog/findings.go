package catalog

import (
	_ "embed" // the table of findings
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A Finding is a row of the table of DCGM's health findings (DCGM_FR_*).
type Finding struct {
	// Code is the value of the health_error_code label. It begins with DCGM_FR_; a code without a row in the
	// table is a number.
	Code     string
	Severity Severity
	Category string // as NVIDIA's exporter spells it
	Reason
}

// A Reason says how findings are treated, and why.
type Reason struct {
	// Treatment says what alerts and the verdict do with the finding.
	Treatment Treatment
	// Watch is the only health watch to which the Treatment applies; the finding is active in other watches. If
	// empty, it applies to all.
	Watch string
	// By is the field or family that supersedes the finding. If a plan does not have it, the finding is active.
	By  string
	Why string // the reason for the Treatment
}

// Severity says how DCGM wants a finding to be handled (dcgmErrorSeverity_t), as NVIDIA's exporter spells it.
type Severity string

// The severities.
const (
	SeverityNone    Severity = "NONE"
	SeverityMonitor Severity = "MONITOR" // the GPU can do work
	SeverityIsolate Severity = "ISOLATE" // the GPU cannot do work
	SeverityUnknown Severity = "UNKNOWN"
	SeverityTriage  Severity = "TRIAGE"
	SeverityConfig  Severity = "CONFIG" // a setting is wrong
	SeverityReset   Severity = "RESET"  // drain and reset the GPU
)

// Treatment says what alerts and the verdict do with a finding.
type Treatment uint8

// The treatments.
const (
	Active        Treatment = iota // alerts and the verdict use it
	ByXID                          // the rule of its XID applies instead
	BySeries                       // the rule of another series applies instead
	Informational                  // alerts and the verdict ignore it
)

// String returns the words of the documentation.
func (t Treatment) String() string {
	return [...]string{"active", "superseded by the XID rule", "superseded by a series", "informational"}[t]
}

// TreatmentLabel is the label of findings that alerts and the verdict ignore. Active findings do not have it.
const TreatmentLabel = "treatment"

// Label returns the value of the TreatmentLabel. It is empty for Active.
func (t Treatment) Label() string {
	return [...]string{"", "superseded", "superseded", "informational"}[t]
}

// findingPrefix is the prefix of DCGM's finding codes. The table omits it.
const findingPrefix = "DCGM_FR_"

// FindingNumbered returns the finding with DCGM's number. If the table does not have it, the Code is the
// number.
func FindingNumbered(number uint32) Finding {
	if number < uint32(len(findings)) {
		return findings[number]
	}
	return unknownFinding(strconv.FormatUint(uint64(number), 10))
}

// FindingOf returns the finding for a health_error_code or an alias. If the table does not have it, the finding
// is Active with severity UNKNOWN. An empty code is the result of a passing watch.
func FindingOf(code string) Finding {
	if f, ok := findingsByCode()[strings.TrimPrefix(code, findingPrefix)]; ok {
		return f
	}
	return unknownFinding(code)
}

// ParseFinding returns the code of a finding from user input: a code with or without DCGM_FR_, an alias, or a
// number.
func ParseFinding(s string) (code string, ok bool) {
	if number, err := strconv.ParseUint(s, 10, 32); err == nil {
		return FindingNumbered(uint32(number)).Code, number != 0
	}
	f, ok := findingsByCode()[strings.TrimPrefix(strings.ToUpper(s), findingPrefix)]
	return f.Code, ok && f.Severity != SeverityNone
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

func unknownFinding(code string) Finding {
	return Finding{Code: code, Severity: SeverityUnknown, Category: string(SeverityUnknown),
		Reason: Reason{Why: "DCGM does not classify it"}}
}

// findingsByCode maps codes and aliases, without prefix, to findings. The empty code maps to the result of a
// passing watch.
var findingsByCode = sync.OnceValue(func() map[string]Finding {
	m := make(map[string]Finding, len(findings)+len(findingAliases)+1)
	for _, f := range findings {
		m[strings.TrimPrefix(f.Code, findingPrefix)] = f
	}
	for alias, code := range findingAliases {
		m[alias] = m[code]
	}
	m[""] = findings[0]
	return m
})

// findingAliases maps names in DCGM's current header to the older ones that NVIDIA's exporter uses as codes.
var findingAliases = map[string]string{
	"CLOCKS_EVENT_THERMAL":   "CLOCK_THROTTLE_THERMAL",
	"CLOCKS_EVENT_POWER":     "CLOCK_THROTTLE_POWER",
	"CLOCKS_EVENT_VIOLATION": "THROTTLING_VIOLATION",
}

// treatments maps the words of the table to treatments.
var treatments = map[string]Treatment{"active": Active, "xid": ByXID, "series": BySeries, "informational": Informational}

//go:embed findings.csv
var findingTable []byte

// findings is indexed by DCGM's error number. Severities and categories are those of DCGM 4.6.0 (dcgm_errors.c).
var findings = func() (findings []Finding) {
	for _, row := range readTable(findingTable) {
		reason := Reason{Treatment: treatments[row[4]], By: row[5], Watch: row[6], Why: row[7]}
		findings = append(findings, Finding{findingPrefix + row[1], Severity(row[2]), row[3], reason})
	}
	return findings
}()
