//go:build generate

package main

import (
	sdk "github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// exporter is the dashboard of the exporters themselves.
func exporter() board {
	own := func(metric, more string) string {
		if more != "" {
			more = ", " + more
		}
		return "dcgm_exporter_" + metric + "{" + ofNode + more + "}"
	}
	const perInstance = "{{instance}}"
	return board{
		file: "exporter", title: "GPU exporters", from: "now-6h",
		about:     "The exporters: which have data, which do not and why, how long they take, what they could not serve, and their versions and configurations.",
		variables: []sdk.VariableModel{nodeVariable()},
		rows: []row{
			{"Now", []sdk.Panel{
				listed("exporter/Versions", number("Exporters", "That answer scrapes.", count, plain(), orZero("count("+own("build_info", "")+")"))),
				listed("fleet/Nodes without data", number("Not scraped", "Exporters that answered within the last six hours and do not answer now.", count, badAboveZero(), orZero("count("+unscraped+")"))),
				listed("exporter/Without data", number("Without data", "Exporters that have no data of their GPUs.", count, badAboveZero(), orZero("count("+own("collect_success", "")+" == 0)"))),
				number("Reload failed", "Exporters whose configuration could not be read; the old one goes on.", count, badAboveZero(), orZero("count("+own("config_last_reload_successful", "")+" == 0)")),
				listed("exporter/Attribution", number("Owners not known", "Exporters that have no answer from the kubelet, the API server, the runtime or a job file.", count, badAboveZero(), orZero("count(min by (instance) ("+own("attribution_success", "")+") == 0)"))),
				number("On the fallback", "Exporters for which NVML stands in for DCGM.", count, steps("green", 1.0, "orange"), orZero("count("+own("source_fallback", "")+" == 1)")),
			}},
			{"What is missing", []sdk.Panel{
				grid("Without data", "The reason, and for how long.", "-Since", []string{"hostname"},
					to("node", label("instance", "Instance", 0), "instance"), label("reason", "Reason", 130),
					value("Here", "max by (instance, reason) ("+own("collect_unavailable", "")+")", "", 0),
					value("Since", "(time() - max by (instance) ("+own("collect_last_success_timestamp_seconds", "")+") > 0) and on (instance) "+own("collect_success", "")+" == 0", seconds, 120)),
				grid("Not served, by field", "Fields that counters files name and machines do not give: on how many GPUs, instances or nodes.", "-Places", nil,
					label("field", "Field", 0), label("reason", "Reason", 130),
					digits(0, value("Places", "count by (field, reason) ("+own("field_unavailable", "")+")", count, 90))),
				grid("Attribution", "What is not known of owners, and why.", "", nil,
					label("what", "What", 0), label("reason", "Reason", 150),
					digits(0, value("Exporters", "count by (what, reason) ("+own("attribution_unavailable", "")+")", count, 100))),
				grid("Versions", "Exporters by version, driver and source.", "-Exporters", nil,
					label("version", "Version", 0), label("source", "Source", 90), label("driver", "Driver", 130), label("library", "Library", 130),
					digits(0, value("Exporters", "count by (version, source, driver, library) ("+own("build_info", "")+" * on (instance) group_left (source, driver, library) max by (instance, source, driver, library) ("+own("source_info", "")+"))", count, 100))),
			}},
			{"Collection", []sdk.Panel{
				graph("Cycle", "How long a collection took. The ten slowest.", seconds, line{"topk(10, max by (instance) (" + own("collect_duration_seconds", "") + "))", perInstance}),
				graph("Oldest sample", "Age of the oldest sample of a GPU or instance. The ten oldest.", seconds, line{"topk(10, max by (instance) (" + own("sample_age_seconds", `UUID!=""`) + "))", perInstance}),
				graph("Failures", "Failed stages of cycles per second, by stage and reason.", perSecond, line{"sum by (stage, reason) (rate(" + own("collect_failures_total", "") + "[$__rate_interval]))", "{{stage}}: {{reason}}"}),
				graph("Dropped", "Samples, duplicates and labels that were left out, per second.", perSecond,
					line{"sum by (reason) (rate(" + own("samples_dropped_total", "") + "[$__rate_interval]))", "samples: {{reason}}"},
					line{"sum(rate(" + own("duplicate_samples_dropped_total", "") + "[$__rate_interval]))", "duplicates"},
					line{"sum(rate(" + own("labels_dropped_total", "") + "[$__rate_interval]))", "labels"}),
				graph("Attribution", "How long the answers about owners took. The ten slowest.", seconds, line{"topk(10, max by (instance, attributor) (" + own("attribution_duration_seconds", "") + "))", "{{instance}} {{attributor}}"}),
				graph("Sessions", "Sessions opened at the source over ten minutes, by cause. More than none: the driver, the engine or MIG changed.", count,
					line{"sum by (cause) (increase(" + own("sessions_total", "") + "[10m]))", "{{cause}}"}),
			}},
			{"Scrapes and resources", []sdk.Panel{
				graph("Scrape", "How long a scrape took. The ten slowest.", seconds, line{"topk(10, max by (instance) (scrape_duration_seconds{" + ofNode + "} and on (job, instance) " + own("build_info", "") + "))", perInstance}),
				graph("Samples of a scrape", "The ten largest pages.", count, line{"topk(10, max by (instance) (scrape_samples_scraped{" + ofNode + "} and on (job, instance) " + own("build_info", "") + "))", perInstance}),
				graph("Memory", "Resident memory of the process. The ten largest.", inBytes, line{"topk(10, max by (instance) (process_resident_memory_bytes{" + ofNode + "} and on (job, instance) " + own("build_info", "") + "))", perInstance}),
				graph("CPU", "Cores that the process uses. The ten busiest.", count, line{"topk(10, max by (instance) (rate(process_cpu_seconds_total{" + ofNode + "}[$__rate_interval]) and on (job, instance) " + own("build_info", "") + "))", perInstance}),
			}},
		},
	}
}
