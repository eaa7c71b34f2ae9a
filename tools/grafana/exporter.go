//go:build generate

package main

import (
	sdk "github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// own returns a selector of a metric about the exporter itself, with more matchers if there are any.
func own(metric string, more ...string) string {
	selector := "dcgm_exporter_" + metric + "{" + ofNode
	for _, m := range more {
		selector += ", " + m
	}
	return selector + "}"
}

// exporter returns the dashboard about the exporters themselves.
func exporter() board {
	return board{
		file: "exporter", title: "GPU exporters", from: "now-6h",
		about: "Exporters without data and the reasons, collection times, fields that are not served, versions and " +
			"configuration.",
		variables: []sdk.VariableModel{nodeVariable()},
		rows: []row{
			{"Now", exporterNow()},
			{"Missing data", exporterMissing()},
			{"Collection", exporterCollection()},
			{"Scrapes and resources", exporterScrapes()},
		},
	}
}

// These queries return exporters that have a problem.
var (
	notReloaded   = own("config_last_reload_successful") + " == 0"
	onFallback    = own("source_fallback") + " == 1"
	ownersUnknown = own("attribution_success") + " == 0"
)

func exporterNow() []sdk.Panel {
	return []sdk.Panel{
		number("Exporters", "exporter/Versions",
			"Exporters that answer scrapes.",
			count, plain(), orZero("count("+own("build_info")+")")),
		number("Not scraped", "fleet/Nodes without data",
			"Exporters that answered within the last six hours but do not answer now.",
			count, badAboveZero(), orZero("count("+unscraped+")")),
		number("Without data", "exporter/Without data",
			"Exporters that have no GPU data.",
			count, badAboveZero(), orZero("count("+own("collect_success")+" == 0)")),
		number("Reload failed", "exporter/Problems",
			"Exporters that rejected their new configuration. They keep the previous one.",
			count, badAboveZero(), orZero("count("+notReloaded+")")),
		number("Owners unknown", "exporter/Problems",
			"Exporters whose kubelet, API server, container runtime or job folder does not answer.",
			count, badAboveZero(), orZero("count(min by (instance) ("+ownersUnknown+"))")),
		number("On the fallback", "exporter/Problems",
			"Exporters that use NVML because DCGM is unavailable.",
			count, steps("green", 1.0, "orange"), orZero("count("+onFallback+")")),
	}
}

func exporterMissing() []sdk.Panel {
	const library = "source, driver, library"
	versions := own("build_info") + " * on (instance) group_left (" + library + ") max by (instance, " + library +
		") (" +
		own("source_info") + ")"
	since := "(time() - max by (instance) (" + own("collect_last_success_timestamp_seconds") + ") > 0)" +
		" and on (instance) " + own("collect_success") + " == 0"
	problem := func(what, by, query string) string {
		return relabel("max by ("+by+") ("+query+")", `"problem", "`+what+`", "", ""`)
	}
	problems := problem("configuration rejected", "instance", notReloaded) +
		" or " + problem("owners unknown", "instance, attributor", ownersUnknown) +
		" or " + problem("DCGM unavailable, NVML is used", "instance", onFallback)
	return []sdk.Panel{
		grid("Without data",
			"Reason, and time since the last data.",
			"-Since", []string{"hostname"},
			to("node", label("instance", "Instance", 0), "instance"), label("reason", "Reason", 130),
			value("Here", "max by (instance, reason) ("+own("collect_unavailable")+")", "", 0),
			value("Since", since, seconds, 120)),
		grid("Problems",
			"Exporters with an outdated configuration, with unknown owners, or without DCGM.",
			"Instance", nil,
			to("node", label("instance", "Instance", 0), "instance"), label("problem", "Problem", 260),
			label("attributor", "Attributor", 130),
			value("Here", "("+problems+")", "", 0)),
		grid("Attribution",
			"Attribution data that is missing, with the reason.",
			"", nil,
			label("what", "What", 0), label("reason", "Reason", 150),
			digits(0, value("Exporters", "count by (what, reason) ("+own("attribution_unavailable")+")", count, 100))),
		grid("Versions",
			"Exporters by version, driver and source.",
			"-Exporters", nil,
			label("version", "Version", 0), label("source", "Source", 90), label("driver", "Driver", 130),
			label("library", "Library", 130),
			digits(0, value("Exporters", "count by (version, source, driver, library) ("+versions+")", count, 100))),
		wide(24, grid("Not served, by field",
			"Configured fields that are not served, with the reason and the number of GPUs, "+
				"instances or nodes affected.",
			"-Affected", nil,
			label("field", "Field", 0), label("reason", "Reason", 130),
			digits(0, value("Affected", "count by (field, reason) ("+own("field_unavailable")+")", count, 90)))),
	}
}

func exporterCollection() []sdk.Panel {
	rate := func(by, metric string) string {
		return "sum by (" + by + ") (rate(" + own(metric) + "[$__rate_interval]))"
	}
	return []sdk.Panel{
		graph("Cycle",
			"Duration of a cycle. The ten slowest exporters.",
			seconds, line{"topk(10, max by (instance) (" + own("collect_duration_seconds") + "))", "{{instance}}"}),
		graph("Oldest sample",
			"Age of the oldest sample of a GPU or MIG instance. The ten oldest.",
			seconds, line{"topk(10, max by (instance) (" + own("sample_age_seconds", `UUID!=""`) + "))",
				"{{instance}}"}),
		graph("Failures",
			"Collection failures per second, by stage and reason.",
			perSecond, line{rate("stage, reason", "collect_failures_total"), "{{stage}}: {{reason}}"}),
		graph("Dropped",
			"Dropped samples, duplicates and labels per second.",
			perSecond,
			line{rate("reason", "samples_dropped_total"), "samples: {{reason}}"},
			line{"sum(rate(" + own("duplicate_samples_dropped_total") + "[$__rate_interval]))", "duplicates"},
			line{"sum(rate(" + own("labels_dropped_total") + "[$__rate_interval]))", "labels"}),
		graph("Attribution",
			"Duration of attribution. The ten slowest exporters.",
			seconds, line{"topk(10, max by (instance, attributor) (" + own("attribution_duration_seconds") + "))",
				"{{instance}} {{attributor}}"}),
		graph("Sessions",
			"Sessions opened in ten minutes, by cause. A new session means that the driver, "+
				"the host engine or MIG changed.",
			count, line{"sum by (cause) (increase(" + own("sessions_total") + "[10m]))", "{{cause}}"}),
	}
}

func exporterScrapes() []sdk.Panel {
	top := func(query string) string {
		return "topk(10, max by (instance) (" + query + " and on (job, instance) " + own("build_info") + "))"
	}
	return []sdk.Panel{
		graph("Scrape",
			"Duration of a scrape. The ten slowest exporters.",
			seconds, line{top("scrape_duration_seconds{" + ofNode + "}"), "{{instance}}"}),
		graph("Samples of a scrape",
			"The ten largest pages.",
			count, line{top("scrape_samples_scraped{" + ofNode + "}"), "{{instance}}"}),
		graph("Memory",
			"Resident memory of the process. The ten largest exporters.",
			inBytes, line{top("process_resident_memory_bytes{" + ofNode + "}"), "{{instance}}"}),
		graph("CPU",
			"CPU cores that the process uses. The ten busiest exporters.",
			count, line{top("rate(process_cpu_seconds_total{" + ofNode + "}[$__rate_interval])"), "{{instance}}"}),
	}
}
