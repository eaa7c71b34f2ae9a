// Package browser drives a headless Chromium for tests of pages, over the pipe of its DevTools
// protocol: it opens a page, evaluates expressions in it and takes pictures.
package browser

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

// ErrAbsent: there is no Chromium on this machine.
var ErrAbsent = errors.New("no chromium in PATH")

// patience bounds one command of the protocol.
const patience = 60 * time.Second

// A Browser is a running Chromium with one page. Close ends it.
type Browser struct {
	process *exec.Cmd
	home    string
	to      *os.File
	session string

	mu      sync.Mutex
	next    int
	waiting map[int]chan answer
	loaded  chan struct{} // gets a value when a page has loaded
	errors  []string      // what the page logged as an error, and exceptions
}

type answer struct {
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// Start starts a Chromium with an empty page of the given size in CSS pixels.
func Start(ctx context.Context, width, height int) (*Browser, error) {
	program := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			program = path
			break
		}
	}
	if program == "" {
		return nil, ErrAbsent
	}
	home, err := os.MkdirTemp("", "chromium")
	if err != nil {
		return nil, err
	}
	theirs, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	from, ours, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	b := &Browser{home: home, to: to, waiting: map[int]chan answer{}, loaded: make(chan struct{}, 1)}
	b.process = exec.CommandContext(ctx, program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--hide-scrollbars", "--remote-debugging-pipe", "--user-data-dir="+filepath.Join(home, "profile"), "about:blank")
	b.process.ExtraFiles = []*os.File{theirs, ours} // 3 and 4, as --remote-debugging-pipe has it
	b.process.Env = append(os.Environ(), "HOME="+home)
	err = b.process.Start()
	_, _ = theirs.Close(), ours.Close() // the child has its own
	if err != nil {
		_, _ = to.Close(), from.Close()
		return nil, errors.Join(err, os.RemoveAll(home))
	}
	go b.read(from)
	if err := b.attach(width, height); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

func (b *Browser) attach(width, height int) error {
	var targets struct {
		TargetInfos []struct{ TargetID, Type string }
	}
	if err := b.call("Target.getTargets", nil, &targets); err != nil {
		return err
	}
	for _, t := range targets.TargetInfos {
		if t.Type != "page" {
			continue
		}
		var attached struct{ SessionID string }
		if err := b.call("Target.attachToTarget", map[string]any{"targetId": t.TargetID, "flatten": true}, &attached); err != nil {
			return err
		}
		b.mu.Lock()
		b.session = attached.SessionID
		b.mu.Unlock()
		for _, domain := range []string{"Page.enable", "Runtime.enable", "Log.enable"} {
			if err := b.call(domain, nil, nil); err != nil {
				return err
			}
		}
		return b.Resize(width, height)
	}
	return errors.New("chromium has no page")
}

// read takes messages until the pipe ends: texts that a NUL ends.
func (b *Browser) read(from *os.File) {
	defer from.Close()
	r := bufio.NewReaderSize(from, 1<<20)
	for {
		text, err := r.ReadBytes(0)
		if err != nil {
			break
		}
		var m struct {
			answer
			ID     int             `json:"id"`
			Method string          `json:"method"`
			Params json.RawMessage `json:"params"`
		}
		if json.Unmarshal(text[:len(text)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		if reply := b.waiting[m.ID]; reply != nil {
			delete(b.waiting, m.ID)
			reply <- m.answer
		}
		if m.Method == "Page.loadEventFired" {
			select {
			case b.loaded <- struct{}{}:
			default:
			}
		}
		if said := complaint(m.Method, m.Params); said != "" {
			b.errors = append(b.errors, said)
		}
		b.mu.Unlock()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, reply := range b.waiting {
		delete(b.waiting, id)
		close(reply)
	}
}

// complaint returns what an event says that a page without mistakes would not cause.
func complaint(method string, params json.RawMessage) string {
	switch method {
	case "Runtime.exceptionThrown":
		return "exception: " + string(params)
	case "Log.entryAdded":
		var p struct {
			Entry struct{ Level, Text, URL string }
		}
		if json.Unmarshal(params, &p) == nil && p.Entry.Level == "error" {
			return p.Entry.Text + " " + p.Entry.URL
		}
	}
	return ""
}

func (b *Browser) call(method string, params map[string]any, result any) error {
	if params == nil {
		params = map[string]any{}
	}
	reply := make(chan answer, 1)
	b.mu.Lock()
	b.next++
	id := b.next
	b.waiting[id] = reply
	message := map[string]any{"id": id, "method": method, "params": params}
	if b.session != "" {
		message["sessionId"] = b.session
	}
	b.mu.Unlock()
	text, err := json.Marshal(message)
	if err != nil {
		return err
	}
	if _, err := b.to.Write(append(text, 0)); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case a, ok := <-reply:
		switch {
		case !ok:
			return fmt.Errorf("%s: chromium ended", method)
		case a.Error != nil:
			return fmt.Errorf("%s: %s", method, a.Error.Message)
		case result == nil:
			return nil
		}
		return json.Unmarshal(a.Result, result)
	case <-timer.C:
		return fmt.Errorf("%s: no answer within %s", method, patience)
	}
}

// Resize gives the page a size in CSS pixels.
func (b *Browser) Resize(width, height int) error {
	return b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, nil)
}

// Dark sets whether the page is to prefer dark colors.
func (b *Browser) Dark(dark bool) error {
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	return b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// Open loads a page. What its scripts do afterwards is for Wait.
func (b *Browser) Open(url string) error {
	select {
	case <-b.loaded: // of an earlier page
	default:
	}
	var r struct{ ErrorText string }
	if err := b.call("Page.navigate", map[string]any{"url": url}, &r); err != nil {
		return err
	}
	if r.ErrorText != "" {
		return fmt.Errorf("open %s: %s", url, r.ErrorText)
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-b.loaded:
		return nil
	case <-timer.C:
		return fmt.Errorf("open %s: not loaded within %s", url, patience)
	}
}

// Evaluate evaluates a JavaScript expression, awaits it if it is a promise, and decodes its value
// into result, which may be nil.
func (b *Browser) Evaluate(expression string, result any) error {
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	if err := b.call("Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true}, &r); err != nil {
		return err
	}
	if r.ExceptionDetails != nil {
		return fmt.Errorf("%s: %s", r.ExceptionDetails.Text, r.ExceptionDetails.Exception.Description)
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(r.Result.Value, result)
}

// Wait waits until an expression is true, for limit at most.
func (b *Browser) Wait(condition string, limit time.Duration) error {
	return b.Evaluate(fmt.Sprintf(`new Promise((yes, no) => {
		const end = Date.now() + %d;
		const look = () => { if (%s) yes(true); else if (Date.now() > end) no(new Error("not within the limit")); else setTimeout(look, 20); };
		look();
	})`, limit.Milliseconds(), condition), nil)
}

// Picture returns what of the page is in the window as a PNG.
func (b *Browser) Picture() ([]byte, error) {
	var r struct{ Data string }
	err := b.call("Page.captureScreenshot", map[string]any{"format": "png"}, &r)
	if err != nil {
		return nil, err
	}
	return base64.StdEncoding.DecodeString(r.Data)
}

// Complaints returns the errors that the page logged so far: exceptions, refused or failed loads.
func (b *Browser) Complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.errors...)
}

// Close ends the browser and removes its profile.
func (b *Browser) Close() {
	_ = b.to.Close()
	_ = b.process.Process.Kill() // it has nothing to save
	_ = b.process.Wait()
	_ = os.RemoveAll(b.home)
}
