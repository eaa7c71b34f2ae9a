package config

import (
	"errors"
	"fmt"
	"math"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A value reads and writes one setting of a Config.
type value interface {
	// Set reads the setting. Its error says what is wrong with s beyond not having the form; it is
	// errForm where there is nothing more to say, and a usable where the setting has a value
	// nevertheless.
	Set(s string) error
	// String writes the setting so that Set reads the same.
	String() string
	// Form says what Set expects, as the end of "expected …".
	Form() string
}

var errForm = errors.New("not of the form")

// errRange is of a number that is read and makes no sense: dcgm-exporter takes it, so that a start
// goes on with the default.
var errRange = errors.New("out of range")

// A usable is the error of a value that was taken in part, or for another one, as dcgm-exporter
// does. It says what was wrong and what counts.
type usable string

func (u usable) Error() string { return string(u) }

type boolValue struct{ p *bool }

func (v boolValue) Set(s string) error {
	b, err := strconv.ParseBool(s)
	if err != nil {
		return errForm
	}
	*v.p = b
	return nil
}

func (v boolValue) String() string { return strconv.FormatBool(*v.p) }
func (v boolValue) Form() string   { return "true or false" }

// textValue takes any text; form says what the text is.
type textValue struct {
	p    *string
	form string
}

func (v textValue) Set(s string) error { *v.p = s; return nil }
func (v textValue) String() string     { return *v.p }
func (v textValue) Form() string       { return v.form }

// pathValue is a text that must not be empty.
type pathValue struct{ p *string }

func (v pathValue) Set(s string) error {
	if s == "" {
		return errForm
	}
	*v.p = s
	return nil
}

func (v pathValue) String() string { return *v.p }
func (v pathValue) Form() string   { return "a path" }

// wordValue is one of a few words. Case counts, unless upper is set.
type wordValue[T ~string] struct {
	p     *T
	upper bool // read any case, keep upper case
	words []T
}

func (v wordValue[T]) Set(s string) error {
	if v.upper {
		s = strings.ToUpper(s)
	}
	for _, w := range v.words {
		if string(w) == s {
			*v.p = w
			return nil
		}
	}
	return errForm
}

func (v wordValue[T]) String() string { return string(*v.p) }

func (v wordValue[T]) Form() string {
	words := v.choices()
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// countValue is a number that is not negative. As in the reference, 0x10 and 0b11 are numbers too.
type countValue struct{ p *int }

func (v countValue) Set(s string) error {
	n, err := strconv.ParseInt(s, 0, 32)
	switch {
	case err != nil:
		return errForm
	case n < 0:
		return errRange
	}
	*v.p = int(n)
	return nil
}

func (v countValue) String() string { return strconv.Itoa(*v.p) }
func (v countValue) Form() string   { return "a number, 0 or more" }

type seedValue struct{ p *uint64 }

func (v seedValue) Set(s string) error {
	n, err := strconv.ParseUint(s, 0, 64)
	if err != nil {
		return errForm
	}
	*v.p = n
	return nil
}

func (v seedValue) String() string { return strconv.FormatUint(*v.p, 10) }
func (v seedValue) Form() string   { return "a number, 0 or more" }

// durationValue is a duration in Go's form. Where unit is set, a bare number counts in it, since
// the reference's flags do. Zero is read where zeroMeans says what it means, and then stands for
// what is below it too.
type durationValue struct {
	p         *time.Duration
	unit      time.Duration
	zeroMeans string
}

func (v durationValue) Set(s string) error {
	d, err := time.ParseDuration(s)
	if n, atoi := strconv.ParseInt(s, 0, 64); atoi == nil && v.unit > 0 {
		if n > math.MaxInt64/int64(v.unit) {
			return errors.New("too long")
		}
		n = max(n, -1) // so that the product cannot turn positive
		d, err = time.Duration(n)*v.unit, nil
	}
	switch {
	case err != nil:
		return errForm
	case d <= 0 && v.zeroMeans == "":
		return errRange
	case d < 0:
		*v.p = 0
		return usable("below zero counts as 0, " + v.zeroMeans)
	}
	*v.p = d
	return nil
}

func (v durationValue) String() string {
	if v.unit > 0 && *v.p%v.unit == 0 {
		return strconv.FormatInt(int64(*v.p/v.unit), 10)
	}
	return v.p.String()
}

func (v durationValue) Form() string {
	form := "a duration such as 30s"
	switch v.unit {
	case time.Millisecond:
		form = "a number of milliseconds or " + form
	case time.Hour:
		form = "a number of hours or " + form
	}
	if v.zeroMeans == "" {
		return form + ", above zero"
	}
	return form + " (0: " + v.zeroMeans + ")"
}

// listValue is a list separated by commas; blanks around an element and empty elements do not
// count. check, where set, judges each element: those that fail are left out.
type listValue struct {
	p     *[]string
	form  string
	check func(string) error
}

func (v listValue) Set(s string) error {
	var list, bad []string
	for element := range strings.SplitSeq(s, ",") {
		if element = strings.TrimSpace(element); element == "" {
			continue
		}
		if v.check != nil {
			if err := v.check(element); err != nil {
				bad = append(bad, fmt.Sprintf("%q is left out: %v", element, err))
				continue
			}
		}
		list = append(list, element)
	}
	*v.p = list
	if bad != nil {
		return usable(strings.Join(bad, "; "))
	}
	return nil
}

func (v listValue) String() string { return strings.Join(*v.p, ",") }
func (v listValue) Form() string   { return v.form }

func checkRegexp(s string) error {
	_, err := regexp.Compile(s)
	return err
}

// A selectorValue is a device selector.
type selectorValue struct{ p *gpu.Selector }

func (v selectorValue) Set(s string) error {
	sel, err := gpu.ParseSelector(s)
	if err != nil {
		return err
	}
	*v.p = sel
	return nil
}

func (v selectorValue) String() string { return v.p.String() }

func (v selectorValue) Form() string { return gpu.SelectorForm }

type vocabularyValue struct{ p *catalog.Vocabulary }

func (v vocabularyValue) Set(s string) error {
	vocabulary, ok := catalog.ParseVocabulary(s)
	if !ok {
		return errForm
	}
	*v.p = vocabulary
	return nil
}

func (v vocabularyValue) String() string { return v.p.String() }
func (v vocabularyValue) Form() string   { return "classic, current or both" }

// configMapValue is NAMESPACE:NAME, or none.
type configMapValue struct{ p *ConfigMapName }

func (v configMapValue) Set(s string) error {
	if s == "" || s == "none" {
		*v.p = ConfigMapName{}
		return nil
	}
	namespace, name, _ := strings.Cut(s, ":")
	if namespace == "" || name == "" || strings.Contains(name, ":") {
		return errForm
	}
	*v.p = ConfigMapName{Namespace: namespace, Name: name}
	return nil
}

func (v configMapValue) String() string {
	if *v.p == (ConfigMapName{}) {
		return "none"
	}
	return v.p.Namespace + ":" + v.p.Name
}

func (v configMapValue) Form() string { return "NAMESPACE:NAME or none" }

// listenValue is the address that a server listens on.
type listenValue struct{ p *string }

func (v listenValue) Set(s string) error {
	if scheme, _, ok := strings.Cut(s, "://"); ok {
		return fmt.Errorf("it listens on TCP, not on %q; systemd can pass a socket of any kind (--web-systemd-socket)", scheme+"://")
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return errForm
	}
	if host != "" && strings.Contains(host, " ") {
		return errForm
	}
	// A service name such as "http" is as good as a number to net.Listen.
	if n, err := strconv.Atoi(port); port == "" || err == nil && (n < 0 || n > 65535) {
		return fmt.Errorf("%q is no port", port)
	}
	*v.p = s
	return nil
}

func (v listenValue) String() string { return *v.p }
func (v listenValue) Form() string {
	return "[HOST]:PORT, an IPv6 host in brackets, such as :9400 or [::1]:9400"
}

// engineValue is the address of a host engine.
type engineValue struct{ p *gpu.EngineAddress }

func (v engineValue) Set(s string) error {
	a, err := gpu.ParseEngineAddress(s)
	if err != nil {
		return err
	}
	*v.p = a
	return nil
}

func (v engineValue) String() string {
	if v.p.IsEmbedded() {
		return ""
	}
	return v.p.String()
}

func (v engineValue) Form() string { return gpu.EngineAddressForm }
