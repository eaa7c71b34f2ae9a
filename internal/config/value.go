package config

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/hostengine"
	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// A value reads and writes one setting of a Config.
type value struct {
	form           string // the expected form, for messages that end in "expected …"
	initial        string // the default, unless the row of the table has one
	isBool, isList bool
	// set parses the setting. It returns errForm if the text does not have the form, errRange if a number is out of
	// range, a warning if the setting got a value nevertheless, and otherwise an error that says why.
	set func(string) error
	// text formats the setting. Different values have different texts, for comparisons and the configuration hash.
	text func() string
}

// errForm means that a value does not have the expected form.
var errForm = errors.New("not of the form")

// errRange means that a number is out of range. NVIDIA's dcgm-exporter accepts such numbers, so the default is used.
var errRange = errors.New("out of range")

// A warning is the error for a value that is used in part or replaced by another one, as in NVIDIA's dcgm-exporter.
type warning string

func (w warning) Error() string { return string(w) }

// parsed returns the value for p. Its text is that of fmt.Sprint.
func parsed[T any](p *T, form string, parse func(string) (T, error)) value {
	return value{form: form, text: func() string { return fmt.Sprint(*p) }, set: func(s string) error {
		v, err := parse(s)
		if err == nil {
			*p = v
		}
		return err
	}}
}

// formed replaces any error with errForm.
func formed[T any](v T, err error) (T, error) {
	if err != nil {
		err = errForm
	}
	return v, err
}

func boolean(p *bool) value {
	v := parsed(p, "true or false", func(s string) (bool, error) { return formed(strconv.ParseBool(s)) })
	v.isBool, v.initial = true, "false"
	return v
}

func anyText(s string) (string, error) { return s, nil }

// freeText accepts any text.
func freeText(p *string, form string) value { return parsed(p, form, anyText) }

// filePath accepts any non-empty text.
func filePath(p *string) value {
	return parsed(p, "a path", func(s string) (string, error) {
		if s == "" {
			return "", errForm
		}
		return s, nil
	})
}

// word accepts one of the given words. The first is the default.
func word[T ~string](p *T, words ...T) value {
	form := fmt.Sprint(words[0])
	for _, w := range words[1 : len(words)-1] {
		form += ", " + string(w)
	}
	v := parsed(p, form+" or "+string(words[len(words)-1]), func(s string) (T, error) {
		if !slices.Contains(words, T(s)) {
			return "", errForm
		}
		return T(s), nil
	})
	v.initial = string(words[0])
	return v
}

// logLevel accepts a level of DCGM's log in upper or lower case.
func logLevel(p *string) value {
	v := word(p, "NONE", "FATAL", "ERROR", "WARN", "INFO", "DEBUG", "VERB")
	set := v.set
	v.set = func(s string) error { return set(strings.ToUpper(s)) }
	return v
}

// number accepts a number that is not too small. Like NVIDIA's dcgm-exporter, it also accepts 0x10 and 0b11.
func number(p *int, least int) value {
	return parsed(p, fmt.Sprintf("a number, %d or more", least), func(s string) (int, error) {
		n, err := formed(strconv.ParseInt(s, 0, 32))
		if err == nil && n < int64(least) {
			err = errRange
		}
		return int(n), err
	})
}

func seed(p *uint64) value {
	parse := func(s string) (uint64, error) { return formed(strconv.ParseUint(s, 0, 64)) }
	return parsed(p, "a number, 0 or more", parse)
}

// duration accepts a duration in Go's syntax. If unit is set, it also accepts a number of units, as NVIDIA's flags do.
// If zeroMeans is set, zero is accepted, and negative values count as zero.
func duration(p *time.Duration, unit time.Duration, zeroMeans string) value {
	form := "a duration such as 30s"
	switch unit {
	case time.Millisecond:
		form = "a number of milliseconds or " + form
	case time.Hour:
		form = "a number of hours or " + form
	}
	if zeroMeans == "" {
		form += ", above zero"
	} else {
		form += " (0: " + zeroMeans + ")"
	}
	set := func(s string) error {
		d, err := time.ParseDuration(s)
		if n, atoi := strconv.ParseInt(s, 0, 64); atoi == nil && unit > 0 {
			if n > math.MaxInt64/int64(unit) {
				return errors.New("too long")
			}
			d, err = time.Duration(max(n, -1))*unit, nil // max keeps the product from overflowing to a positive value
		}
		switch {
		case err != nil:
			return errForm
		case d <= 0 && zeroMeans == "":
			return errRange
		case d < 0:
			*p = 0
			return warning("negative value; using 0, " + zeroMeans)
		}
		*p = d
		return nil
	}
	return value{form: form, set: set, text: func() string {
		if unit > 0 && *p%unit == 0 {
			return strconv.FormatInt(int64(*p/unit), 10)
		}
		return p.String()
	}}
}

// list accepts elements separated by commas. It trims spaces and skips empty elements and those with an error.
func list(p *[]string, form string, parse func(string) (string, error)) value {
	set := func(s string) error {
		var bad []string
		*p = nil
		for element := range strings.SplitSeq(s, ",") {
			if element = strings.TrimSpace(element); element == "" {
				continue
			}
			if parsed, err := parse(element); err != nil {
				bad = append(bad, fmt.Sprintf("skipping %q: %v", element, err))
			} else {
				*p = append(*p, parsed)
			}
		}
		if bad != nil {
			return warning(strings.Join(bad, "; "))
		}
		return nil
	}
	return value{form: form, isList: true, set: set, text: func() string { return strings.Join(*p, ",") }}
}

// parseFinding returns the code of a health finding. The error suggests the code that was probably meant.
func parseFinding(s string) (string, error) {
	code, ok := catalog.ParseFinding(s)
	if ok {
		return code, nil
	}
	s = "DCGM_FR_" + strings.TrimPrefix(strings.ToUpper(s), "DCGM_FR_")
	if near := text.Nearest(s, catalog.FindingCodes()); near != "" {
		return "", fmt.Errorf("unknown DCGM error code; the nearest is %s", near)
	}
	return "", errors.New("unknown DCGM error code; docs/verdict.md lists them")
}

func parseRegexp(s string) (string, error) {
	_, err := regexp.Compile(s)
	return s, err
}

func configMap(p *ConfigMapName) value {
	return parsed(p, "NAMESPACE:NAME or none", func(s string) (ConfigMapName, error) {
		if s == "" || s == "none" {
			return ConfigMapName{}, nil
		}
		namespace, name, _ := strings.Cut(s, ":")
		if namespace == "" || name == "" || strings.Contains(name, ":") {
			return ConfigMapName{}, errForm
		}
		return ConfigMapName{namespace, name}, nil
	})
}

// listen accepts the address that a server listens on.
func listen(p *string) value {
	const form = "[HOST]:PORT, an IPv6 host in brackets, such as :9400 or [::1]:9400"
	return parsed(p, form, func(s string) (string, error) {
		if scheme, _, ok := strings.Cut(s, "://"); ok {
			const onlyTCP = "cannot listen on %q, only on TCP; systemd can pass other sockets (--web-systemd-socket)"
			return "", fmt.Errorf(onlyTCP, scheme+"://")
		}
		host, port, err := net.SplitHostPort(s)
		if err != nil || strings.Contains(host, " ") {
			return "", errForm
		}
		// net.Listen also accepts a service name, such as "http".
		if n, err := strconv.Atoi(port); port == "" || err == nil && (n < 0 || n > 65535) {
			return "", fmt.Errorf("%q is not a port", port)
		}
		return s, nil
	})
}

// engine accepts the address of a host engine. The embedded one has no text.
func engine(p *hostengine.Address) value {
	v := parsed(p, hostengine.Form, hostengine.Parse)
	v.text = func() string {
		if p.IsEmbedded() {
			return ""
		}
		return p.String()
	}
	return v
}

// maxSelected is the largest number of IDs in a selector: DCGM's largest number of entities of one kind
// (DCGM_MAX_NUM_CPU_CORES).
const maxSelected = 1024

// selector accepts a device selector:
//
//	f            whole GPUs, and the instances of those partitioned by MIG
//	g[:ids]      GPUs, switches or CPUs
//	i[:ids]      GPU instances, links or cores
//	g[:ids]+i[:ids]
//
// If ids are omitted, all entities are selected. The default is f.
func selector(p *gpu.Selector) value {
	const form = "f, g[:ids], i[:ids] or g[:ids]+i[:ids], where ids are numbers and ranges such as 0,2-4"
	v := parsed(p, form, parseSelector)
	v.initial, v.text = "f", func() string { return formatSelector(*p) }
	return v
}

func parseSelector(s string) (sel gpu.Selector, err error) {
	for part := range strings.SplitSeq(s, "+") {
		letter, list, hasList := strings.Cut(strings.TrimSpace(part), ":")
		var ids []uint32
		if hasList {
			if ids, err = parseIDs(list); err != nil {
				return gpu.Selector{}, err
			}
		}
		switch {
		case letter == "f" && !hasList && !sel.Flex:
			sel.Flex = true
		case letter == "g" && !sel.Major:
			sel.Major, sel.MajorIDs = true, ids
		case letter == "i" && !sel.Minor:
			sel.Minor, sel.MinorIDs = true, ids
		default:
			return gpu.Selector{}, errForm
		}
	}
	if sel.Flex && (sel.Major || sel.Minor) {
		return gpu.Selector{}, errForm
	}
	return sel, nil
}

// parseIDs returns the IDs of a list of numbers and ranges, sorted and without duplicates.
func parseIDs(list string) (ids []uint32, err error) {
	for item := range strings.SplitSeq(list, ",") {
		low, high, isRange := strings.Cut(strings.TrimSpace(item), "-")
		if !isRange {
			high = low
		}
		first, errFirst := strconv.ParseUint(low, 10, 32)
		last, errLast := strconv.ParseUint(high, 10, 32)
		if cmp.Or(errFirst, errLast) != nil || last < first {
			return nil, errForm
		}
		if uint64(len(ids))+last-first >= maxSelected {
			return nil, fmt.Errorf("more than %d IDs", maxSelected)
		}
		for id := first; id <= last; id++ {
			ids = append(ids, uint32(id))
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// formatSelector returns the selector in the syntax of parseSelector.
func formatSelector(s gpu.Selector) string {
	var parts []string
	add := func(letter string, selected bool, ids []uint32) {
		if ids != nil {
			letter += ":" + strings.ReplaceAll(strings.Trim(fmt.Sprint(ids), "[]"), " ", ",")
		}
		if selected {
			parts = append(parts, letter)
		}
	}
	add("f", s.Flex, nil)
	add("g", s.Major, s.MajorIDs)
	add("i", s.Minor, s.MinorIDs)
	return strings.Join(parts, "+")
}
