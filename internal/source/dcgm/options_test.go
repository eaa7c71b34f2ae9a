package dcgm

import (
	"strings"
	"testing"
)

func TestOptionsCheck(t *testing.T) {
	for name, tt := range map[string]struct {
		opt  Options
		word string
	}{
		"zero":    {Options{}, ""},
		"level":   {Options{EngineLog: "DEBUG"}, ""},
		"timeout": {Options{ConnectTimeout: -1}, "negative"},
		"words":   {Options{EngineLog: "loud"}, "NONE, FATAL, ERROR, WARN, INFO, DEBUG, VERB"},
	} {
		err := tt.opt.Check()
		if (err == nil) != (tt.word == "") || err != nil && !strings.Contains(err.Error(), tt.word) {
			t.Errorf("%s: %v, want %q", name, err, tt.word)
		}
	}
}
