package catalog

import (
	_ "embed" // the table of XIDs
	"slices"
	"strconv"
)

// An XID is a row of the table of XIDs.
type XID struct {
	text   string
	Class  XIDClass
	First  string // the action to take at once
	Then   string // the action if First does not help or the XID recurs; empty if there is none
	Source string // source of First and Then, with its date
	Why    string // why the class differs from what the actions suggest; empty if it does not
}

// XIDMessage returns the meaning of an XID for the err_msg label: "No Error" for 0, "Unknown Error" for a code without
// a published meaning. The meanings are NVIDIA's (docs.nvidia.com/deploy/xid-errors), whose catalog ends at 172.
func XIDMessage(code int64) string {
	if m := XIDOf(code); m.text != "" {
		return m.text
	}
	return "Unknown Error"
}

// XIDOf returns the row of an XID. For unlisted codes it returns the zero row, whose class is XIDUnclassified.
func XIDOf(code int64) XID {
	if code < 0 || code >= int64(len(xids)) {
		return XID{}
	}
	return xids[code]
}

// XIDsOf returns the codes of some classes in ascending order. Unlisted codes are omitted.
func XIDsOf(classes ...XIDClass) (codes []int64) {
	for code := int64(1); code < int64(len(xids)); code++ {
		if xids[code].text != "" && slices.Contains(classes, xids[code].Class) {
			codes = append(codes, code)
		}
	}
	return codes
}

// AlertXIDs returns the XIDs whose counters start at zero, so that increase() sees the first one. They are the most
// frequent XIDs that cost a GPU, its data or a node.
func AlertXIDs() []int64 { return []int64{48, 63, 64, 74, 79, 92, 94, 95, 119, 120} }

// The actions are those of the resolution buckets of NVIDIA's catalog. It covers Ampere and later, and lists codes that
// only older GPUs report as unused.
const xidCatalog = "[catalog](https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html) of 2026-09-09"

// xidSources maps the words of the table to sources.
var xidSources = map[string]string{
	"":          "",
	"catalog":   xidCatalog,
	"unused":    xidCatalog + ": unused",
	"no action": xidCatalog + ", which names no action",
}

//go:embed xids.csv
var xidTable []byte

// xids is indexed by XID. Codes without a row have the zero XID.
var xids = func() (xids []XID) {
	classes := map[string]XIDClass{}
	for _, c := range XIDClasses() {
		classes[c.String()] = c
	}
	for _, row := range readTable(xidTable) {
		code, _ := strconv.Atoi(row[0])
		xids = append(xids, make([]XID, code+1-len(xids))...)
		xids[code] = XID{row[1], classes[row[2]], row[3], row[4], xidSources[row[5]], row[6]}
	}
	return xids
}()
