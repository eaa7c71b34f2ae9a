package command

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	promconfig "github.com/prometheus/common/config"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// localPage is the URL of a local exporter: the default of verdict, and the example in messages.
const localPage = "http://127.0.0.1:9400/metrics"

// probe scrapes a running exporter, for "helm test", container health checks, and machines without curl.
func probe(ctx context.Context, p *Process) int {
	flags := flag.NewFlagSet("probe", flag.ContinueOnError)
	wait := flags.Duration("wait", 0, "")
	client, url, code := p.endpoint(flags, "")
	if client == nil {
		return code
	}
	for until := time.Now().Add(*wait); ; {
		said, err := scrape(ctx, client, url)
		if err == nil {
			fmt.Fprintln(p.Out, said)
			return OK
		}
		if time.Until(until) <= 0 || ctx.Err() != nil {
			return p.fail(Faulty, err)
		}
		time.Sleep(500 * time.Millisecond)
	}
}

// endpoint parses the arguments of a subcommand that reads the page of a running exporter, and returns a client for it.
// The address is the argument, or otherwise if there is none. If otherwise is empty, the argument is required. If
// client is nil, the caller returns code.
func (p *Process) endpoint(flags *flag.FlagSet, otherwise string) (client *http.Client, url string, code int) {
	flags.SetOutput(io.Discard)
	var options promconfig.HTTPClientConfig
	ca, credentials := flags.String("ca-file", "", ""), flags.String("credentials", "", "")
	flags.BoolVar(&options.TLSConfig.InsecureSkipVerify, "insecure", false, "")
	if err := flags.Parse(p.Args); err != nil {
		return nil, "", p.fail(Unable, err)
	}
	url = cmp.Or(flags.Arg(0), otherwise)
	switch {
	case url == "" || flags.NArg() > 1:
		return nil, "", p.fail(Unable, fmt.Errorf("expected one URL, such as %s, not %q", localPage, flags.Args()))
	case !strings.HasPrefix(url, "http://") && !strings.HasPrefix(url, "https://"):
		return nil, "", p.fail(Unable, fmt.Errorf("%q is not an http:// or https:// URL, such as %s", url, localPage))
	}
	var failed error
	read := func(file string) string {
		text, err := p.ReadFile(file)
		failed = errors.Join(failed, err)
		return strings.TrimRight(string(text), "\r\n")
	}
	if *ca != "" {
		options.TLSConfig.CA = read(*ca)
	}
	if *credentials != "" {
		user, password := read(path.Join(*credentials, "username")), read(path.Join(*credentials, "password"))
		options.BasicAuth = &promconfig.BasicAuth{Username: user, Password: promconfig.Secret(password)}
	}
	client, err := promconfig.NewClientFromConfig(options, p.name)
	if err = errors.Join(failed, err); err != nil {
		return nil, "", p.fail(Unable, err)
	}
	client.Timeout = 10 * time.Second
	return client, url, OK
}

func families(ctx context.Context, client *http.Client, url string) (map[string]*dto.MetricFamily, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, response.Status)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	list, err := parser.TextToMetricFamilies(io.LimitReader(response.Body, 256<<20))
	switch {
	case err == nil:
		return list, nil
	case strings.HasPrefix(response.Header.Get("Content-Type"), "text/html"):
		return nil, fmt.Errorf("%s is an HTML page, not metrics; check the host, port and path (/metrics)", url)
	}
	return nil, fmt.Errorf("%s: %w", url, err)
}

// scrape returns a summary of the page, or an error that says why it has no data.
func scrape(ctx context.Context, client *http.Client, url string) (string, error) {
	families, err := families(ctx, client, url)
	if err != nil {
		return "", err
	}
	series, ofFields := 0, 0
	for family, f := range families {
		series += len(f.Metric)
		if strings.HasPrefix(family, "DCGM_FI_") {
			ofFields += len(f.Metric)
		}
	}
	const collected = "dcgm_exporter_collect_success"
	if f := families[collected]; f != nil && valueOf(f.Metric[0]) != 1 {
		return "", fmt.Errorf("%s: %s is not 1: the last collection failed; run dcgm-exporter doctor", url, collected)
	}
	if ofFields == 0 {
		return "", fmt.Errorf("%s: %d series, but none of a DCGM field; run dcgm-exporter doctor", url, series)
	}
	return fmt.Sprintf("%s: %d series in %d families, %d series of DCGM fields",
		url, series, len(families), ofFields), nil
}

// valueOf returns the value of a gauge, or of a series without a type.
func valueOf(m *dto.Metric) float64 { return m.GetGauge().GetValue() + m.GetUntyped().GetValue() }
