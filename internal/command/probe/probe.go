package probe

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/gpu-telemetry/dcgm-exporter/internal/command"
)

const name = "probe"

// Usage is the text of "probe --help".
const Usage = `Usage: dcgm-exporter probe [--wait DURATION] [--ca-file FILE] [--insecure] [--credentials FOLDER] URL

Scrapes the page of a running exporter and reports what it serves. URL is that
of the page, such as http://127.0.0.1:9400/metrics.

  --wait DURATION       how long to repeat until there is data (default 0s: once)
  --ca-file FILE        the CA of the server's certificate, in PEM
  --insecure            take any certificate
  --credentials FOLDER  a folder with the files username and password

Exit code: 0 the page has data of the last collection; 1 it has none, or there is
no page; 2 a bad flag, or a file that cannot be read.
`

const (
	limit   = 10 * time.Second       // of a request
	between = 500 * time.Millisecond // two requests
	largest = 256 << 20              // bytes of a page
)

// A Command is the subcommand.
type Command struct{ command.Process }

// Run scrapes the page and returns the exit code.
func (c Command) Run(ctx context.Context) int {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	wait := flags.Duration("wait", 0, "")
	ca := flags.String("ca-file", "", "")
	insecure := flags.Bool("insecure", false, "")
	credentials := flags.String("credentials", "", "")
	if err := flags.Parse(c.Args); errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(c.Out, Usage)
		return command.OK
	} else if err != nil {
		return c.Fail(name, err)
	}
	if flags.NArg() != 1 {
		return c.Fail(name, fmt.Errorf("found %d URLs: expected one, such as http://127.0.0.1:9400/metrics", flags.NArg()))
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, flags.Arg(0), http.NoBody)
	if err != nil {
		return c.Fail(name, err)
	}
	if s := request.URL.Scheme; s != "http" && s != "https" || request.URL.Host == "" {
		return c.Fail(name, fmt.Errorf("%q is no URL: expected one such as http://127.0.0.1:9400/metrics", flags.Arg(0)))
	}
	if *credentials != "" {
		user, err := c.line(path.Join(*credentials, "username"))
		if err != nil {
			return c.Fail(name, err)
		}
		password, err := c.line(path.Join(*credentials, "password"))
		if err != nil {
			return c.Fail(name, err)
		}
		request.SetBasicAuth(user, password)
	}
	trust := &tls.Config{InsecureSkipVerify: *insecure, MinVersion: tls.VersionTLS12}
	if *ca != "" {
		pem, err := c.ReadFile(*ca)
		if err != nil {
			return c.Fail(name, err)
		}
		trust.RootCAs = x509.NewCertPool()
		if !trust.RootCAs.AppendCertsFromPEM(pem) {
			return c.Fail(name, fmt.Errorf("%s: found no certificate: expected PEM", *ca))
		}
	}
	client := &http.Client{Timeout: limit, Transport: &http.Transport{TLSClientConfig: trust, DisableKeepAlives: true}}
	until := time.Now().Add(*wait)
	for {
		says, err := scrape(client, request)
		if err == nil {
			fmt.Fprintln(c.Out, says)
			return command.OK
		}
		if time.Until(until) <= 0 {
			return c.Fault(name, err)
		}
		select {
		case <-ctx.Done():
			return c.Fault(name, errors.Join(err, ctx.Err()))
		case <-time.After(between):
		}
	}
}

// line returns what a file holds, without the end of its line.
func (c Command) line(file string) (string, error) {
	text, err := c.ReadFile(file)
	return strings.TrimRight(string(text), "\r\n"), err
}

// scrape returns a sentence about the page, or why it has no data.
func scrape(client *http.Client, request *http.Request) (string, error) {
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", request.URL, response.Status)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(io.LimitReader(response.Body, largest))
	if err != nil {
		return "", fmt.Errorf("%s: %w", request.URL, err)
	}
	series, entities := 0, map[string]bool{}
	for family, f := range families {
		series += len(f.Metric)
		if !strings.HasPrefix(family, "DCGM_FI_") {
			continue
		}
		for _, m := range f.Metric {
			if id := identity(m); id != "" {
				entities[id] = true
			}
		}
	}
	const collected = "dcgm_exporter_collect_success"
	if f := families[collected]; f != nil && (len(f.Metric) == 0 || f.Metric[0].GetGauge().GetValue()+f.Metric[0].GetUntyped().GetValue() != 1) {
		return "", fmt.Errorf("%s: %s is not 1: the last collection failed; dcgm-exporter doctor says why", request.URL, collected)
	}
	if len(entities) == 0 {
		return "", fmt.Errorf("%s: %d series, and none of a GPU: dcgm-exporter doctor says why", request.URL, series)
	}
	return fmt.Sprintf("%s: %d series of %d families, %d GPUs and instances", request.URL, series, len(families), len(entities)), nil
}

// identity returns what distinguishes a GPU or an instance from others.
func identity(m *dto.Metric) string {
	var gpu, instance string
	for _, l := range m.Label {
		switch l.GetName() {
		case "UUID", "uuid":
			gpu = l.GetValue()
		case "GPU_I_ID":
			instance = l.GetValue()
		}
	}
	if gpu == "" {
		return ""
	}
	return gpu + "/" + instance
}
