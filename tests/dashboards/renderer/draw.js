// Draws a dashboard of grafana/ with the answers of a Prometheus: as much of Grafana as the dashboards use.
"use strict";

const colors = ["#73BF69", "#F2CC0C", "#5794F2", "#FF9830", "#F2495C", "#B877D9", "#8AB8FF", "#96D98D", "#FFB357", "#CA95E5",
  "#37872D", "#E0B400", "#1F60C4", "#FA6400", "#C4162A", "#8F3BB8", "#C0D8FF", "#C8F2C2", "#FFCB7D", "#FF7383"];
const named = { green: "#73BF69", red: "#F2495C", orange: "#FF9830", blue: "#5794F2", text: "#ccccdc", yellow: "#F2CC0C" };
const cell = 30, gap = 6, lookback = 150; // pixels of a grid unit's height; seconds over which a line goes on

const el = (name, attributes = {}, ...children) => {
  const svg = ["svg", "path", "line", "text", "rect", "g", "title"].includes(name);
  const e = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  e.append(...children);
  return e;
};

function scaled(v, base, units, digits) {
  let i = 0;
  const sign = v < 0 ? -1 : 1;
  let a = Math.abs(v);
  while (a >= base && i < units.length - 1) { a /= base; i++; }
  if (digits === undefined && a > 0 && a < 0.01) return (sign * a).toPrecision(2) + units[i];
  const d = digits ?? (a >= 100 || a === Math.round(a) ? 0 : a >= 10 ? 1 : 2);
  return (sign * a).toFixed(d) + units[i];
}

function format(v, unit, decimals) {
  if (v === null || v === undefined || Number.isNaN(v)) return "";
  switch (unit) {
    case "percentunit": return (v * 100).toFixed(decimals ?? (Math.abs(v) < 0.1 && v !== 0 ? 1 : 0)) + " %";
    case "watt": return scaled(v, 1000, [" W", " kW", " MW"], decimals);
    case "joule": return scaled(v, 1000, [" J", " kJ", " MJ", " GJ", " TJ"], decimals);
    case "hertz": return scaled(v, 1000, [" Hz", " kHz", " MHz", " GHz"], decimals);
    case "bytes": return scaled(v, 1024, [" B", " KiB", " MiB", " GiB", " TiB"], decimals);
    case "Bps": return scaled(v, 1000, [" B/s", " kB/s", " MB/s", " GB/s", " TB/s"], decimals);
    case "celsius": return v.toFixed(decimals ?? 0) + " °C";
    case "cps": return scaled(v, 1000, [" c/s", " kc/s"], decimals);
    case "dateTimeAsIso": return new Date(v).toISOString().replace("T", " ").slice(0, 19);
    case "s": {
      const a = Math.abs(v), d = decimals ?? (a === 0 ? 0 : 1);
      if (a !== 0 && a < 1) return (v * 1000).toFixed(d) + " ms";
      for (const [s, n] of [[86400 * 7, " weeks"], [86400, " days"], [3600, " hours"], [60, " mins"]]) if (a >= s) return (v / s).toFixed(d) + n;
      return v.toFixed(d) + " s";
    }
    default: return scaled(v, 1000, ["", " K", " Mil"], decimals ?? (Math.abs(v) === Math.round(Math.abs(v)) ? 0 : undefined));
  }
}

function threshold(defaults, v) {
  let color = named.text;
  for (const s of defaults.thresholds?.steps ?? []) if (s.value === null || v >= s.value) color = named[s.color] ?? s.color;
  return color;
}

const legendOf = (format, metric) => format.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, l) => metric[l] ?? "").replace(/\s+/g, " ").trim();

function stat(panel, box, answer) {
  const d = panel.fieldConfig.defaults;
  const v = answer[0]?.length ? Number(answer[0][0].value[1]) : null;
  const e = el("div", { class: "value" }, v === null ? d.noValue ?? "No data" : format(v, d.unit, d.decimals));
  e.style.color = v === null ? "#7b7d88" : threshold(d, v);
  box.append(e);
}

// merge joins the rows of several answers by the labels that all of them have.
function merge(panel, answer) {
  const answers = answer.map((a) => a.map((x) => ({ labels: x.metric, v: Number(x.value[1]) })));
  let keys = null;
  for (const a of answers) {
    if (!a.length) continue;
    const names = new Set(a.flatMap((x) => Object.keys(x.labels)));
    keys = keys === null ? [...names] : keys.filter((k) => names.has(k));
  }
  const rows = [], byKey = new Map();
  answers.forEach((a, i) => {
    const field = answers.length > 1 ? "Value #" + panel.targets[i].refId : "Value";
    for (const x of a) {
      const key = JSON.stringify(keys.map((k) => x.labels[k] ?? ""));
      const list = byKey.get(key) ?? [];
      let row = list.find((r) => !(field in r) && Object.entries(x.labels).every(([k, v]) => !(k in r) || r[k] === v));
      if (!row) { row = {}; list.push(row); rows.push(row); byKey.set(key, list); }
      Object.assign(row, x.labels, { [field]: x.v });
    }
  });
  return rows;
}

function table(panel, box, answer) {
  const organize = panel.transformations.find((t) => t.id === "organize").options;
  const overrides = {};
  for (const o of panel.fieldConfig.overrides) {
    overrides[o.matcher.options] = Object.fromEntries(o.properties.map((p) => [p.id, p.value]));
  }
  const columns = Object.entries(organize.indexByName).sort((a, b) => a[1] - b[1])
    .map(([source]) => ({ source, title: organize.renameByName[source], ...overrides[organize.renameByName[source]] }));
  const rows = merge(panel, answer);
  const sort = panel.options.sortBy?.[0];
  const by = columns.find((c) => c.title === sort?.displayName);
  if (by) {
    const of = (r) => r[by.source] ?? "";
    rows.sort((a, b) => (typeof of(a) === "number" || typeof of(b) === "number" ? (of(a) || 0) - (of(b) || 0)
      : String(of(a)).localeCompare(String(of(b)), undefined, { numeric: true })) * (sort.desc ? -1 : 1));
  }
  if (!rows.length) { box.append(el("div", { class: "none" }, "No data")); return; }
  const t = el("table"), head = el("tr");
  for (const c of columns) {
    const th = el("th", {}, c.title);
    if (c["custom.width"]) th.style.width = c["custom.width"] - 12 + "px";
    if (c.unit) th.className = "num";
    head.append(th);
  }
  t.append(head);
  const fit = Math.floor((box.clientHeight - 26 - 24) / 22);
  for (const r of rows.slice(0, fit)) {
    const tr = el("tr");
    for (const c of columns) {
      const v = r[c.source];
      tr.append(el("td", { class: (c.unit ? "num" : "") + (c.links ? " link" : "") }, c.unit ? format(v, c.unit, c.decimals) : v ?? ""));
    }
    t.append(tr);
  }
  box.append(t);
  if (rows.length > fit) box.append(el("div", { class: "more" }, `${fit} of ${rows.length} rows`));
}

function ticks(min, max, n) {
  const raw = (max - min) / n || 1, p = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * p).find((s) => s >= raw);
  const all = [];
  for (let v = Math.ceil(min / step) * step; v <= max + step * 1e-9; v += step) all.push(Math.abs(v) < step * 1e-9 ? 0 : v);
  return all;
}

function seriesOf(panel, answer) {
  const all = [];
  answer.forEach((a, i) => a.forEach((x) => all.push({
    name: legendOf(panel.targets[i].legendFormat ?? "", x.metric) || JSON.stringify(x.metric),
    points: x.values.map(([t, v]) => [t, Number(v)]).filter(([, v]) => !Number.isNaN(v)),
  })));
  return all;
}

const clock = (t, span) => new Date(t * 1000).toISOString().slice(11, span < 600 ? 19 : 16);

function timeAxis(svg, data, left, right, top, bottom) {
  const span = data.to - data.from;
  const step = [15, 30, 60, 300, 600, 900, 1800, 3600, 7200, 14400].find((s) => span / s <= (right - left) / 70);
  const x = (t) => left + ((t - data.from) / span) * (right - left);
  for (let t = Math.ceil(data.from / step) * step; t <= data.to; t += step) {
    svg.append(el("line", { x1: x(t), x2: x(t), y1: top, y2: bottom, stroke: "#25282e" }));
    if (x(t) < right - 14) svg.append(el("text", { x: x(t), y: bottom + 13, "text-anchor": "middle" }, clock(t, span)));
  }
  return x;
}

function marks(svg, data, x, top, bottom) {
  for (const m of data.annotations) {
    svg.append(el("line", { x1: x(m.time), x2: x(m.time), y1: top, y2: bottom, stroke: named[m.color], "stroke-dasharray": "3 3", "stroke-width": 1 }));
    svg.append(el("path", { d: `M${x(m.time) - 4} ${bottom + 4}h8l-4 -5z`, fill: named[m.color] }));
  }
}

function graph(panel, box, answer, data) {
  const d = panel.fieldConfig.defaults, series = seriesOf(panel, answer);
  if (!series.length) { box.append(el("div", { class: "none" }, "No data")); return; }
  const W = box.clientWidth, H = box.clientHeight, legend = Math.min(330, Math.round(W * 0.54));
  const left = 58, right = W - legend - 12, top = 30, bottom = H - 22;
  const stack = d.custom.stacking?.mode === "normal";
  series.forEach((s, i) => { s.color = colors[i % colors.length]; s.last = s.points.at(-1)?.[1]; s.max = Math.max(...s.points.map((p) => p[1])); });
  const sort = panel.options.legend.sortBy;
  const inLegend = sort ? [...series].sort((a, b) => (panel.options.legend.sortDesc ? -1 : 1) * ((sort === "Max" ? a.max - b.max : (a.last ?? 0) - (b.last ?? 0)) || 0)) : series;
  const sums = new Map();
  if (stack) {
    for (const s of series) s.points = s.points.map(([t, v]) => { const low = sums.get(t) ?? 0; sums.set(t, low + v); return [t, low + v, low]; });
  }
  const values = series.flatMap((s) => s.points.map((p) => p[1]));
  let min = d.min ?? Math.min(...values), max = d.max ?? Math.max(...values);
  if (max <= min) max = min + 1;
  if (d.max === undefined) { const room = (max - min) * 0.05; max += room; if (d.min === undefined) min -= room; }
  const svg = el("svg", { width: W, height: H });
  const x = timeAxis(svg, data, left, right, top, bottom);
  const y = (v) => bottom - ((v - min) / (max - min)) * (bottom - top);
  const axis = d.unit === "bytes" ? ticks(min / 2 ** 30, max / 2 ** 30, 5).map((v) => v * 2 ** 30) : ticks(min, max, 5);
  for (const v of axis) {
    svg.append(el("line", { x1: left, x2: right, y1: y(v), y2: y(v), stroke: "#2a2d34" }));
    svg.append(el("text", { x: left - 5, y: y(v) + 3, "text-anchor": "end" }, format(v, d.unit)));
  }
  for (const s of series) {
    let path = "", parts = [], run = [];
    for (const p of s.points) {
      if (run.length && p[0] - run.at(-1)[0] > Math.max(lookback, data.step * 2.5)) { parts.push(run); run = []; }
      run.push(p);
    }
    parts.push(run);
    for (const r of parts) {
      if (!r.length) continue;
      const line = r.map(([t, v], i) => (i ? "L" : "M") + x(t).toFixed(1) + " " + y(v).toFixed(1)).join("");
      path += line + (r.length === 1 ? "h1.5" : "");
      if (stack) svg.append(el("path", { d: line + r.toReversed().map(([t, , low]) => `L${x(t).toFixed(1)} ${y(low).toFixed(1)}`).join("") + "Z", fill: s.color, opacity: 0.4 }));
    }
    svg.append(el("path", { d: path, fill: "none", stroke: s.color, "stroke-width": 1.3 }));
  }
  marks(svg, data, x, top, bottom);
  box.append(svg);
  const list = el("div", { class: "legend" });
  list.style.width = legend + "px";
  list.append(el("div", {}, el("b"), el("em", {}, "Last"), el("em", {}, "Max")));
  const fit = Math.floor((H - 32) / 15.5) - 1;
  const shown = inLegend.length > fit ? inLegend.slice(0, fit - 1) : inLegend;
  for (const s of shown) {
    const i = el("i");
    i.style.background = s.color;
    list.append(el("div", { class: "name" }, i, el("b", {}, s.name), el("em", {}, format(s.last, d.unit)), el("em", {}, format(s.max, d.unit))));
  }
  if (shown.length < series.length) list.append(el("div", {}, el("b", {}, `and ${series.length - shown.length} more`)));
  box.append(list);
}

function timeline(panel, box, answer, data) {
  const series = seriesOf(panel, answer), W = box.clientWidth, H = box.clientHeight;
  if (!series.length) { box.append(el("div", { class: "none" }, "No data")); return; }
  const left = 430, right = W - 12, top = 30, bottom = H - 22, lane = Math.min(26, (bottom - top) / series.length);
  const svg = el("svg", { width: W, height: H });
  const x = timeAxis(svg, data, left, right, top, bottom);
  series.forEach((s, i) => {
    svg.append(el("text", { x: left - 8, y: top + lane * (i + 0.5) + 3.5, "text-anchor": "end" }, s.name));
    for (const [t, v] of s.points) {
      svg.append(el("rect", { x: x(t), y: top + lane * (i + 0.15), width: Math.max(2, x(t + data.step) - x(t)) + 0.5, height: lane * 0.7, fill: threshold(panel.fieldConfig.defaults, v) }));
    }
  });
  marks(svg, data, x, top, bottom);
  box.append(svg);
}

const kinds = { stat, table, timeseries: graph, "state-timeline": timeline };

fetch("data.json").then((r) => r.json()).then((data) => {
  const header = document.querySelector("header"), main = document.querySelector("main");
  header.append(el("h1", {}, data.dashboard.title));
  for (const [name, text] of data.variables) header.append(el("span", {}, name + ": " + text));
  const unit = (document.body.clientWidth - 2 * gap) / 24;
  let bottom = 0;
  for (const p of data.dashboard.panels) {
    const g = p.gridPos, box = el("section", { class: p.type });
    Object.assign(box.style, { left: gap + g.x * unit + "px", top: g.y * cell + "px", width: g.w * unit - gap + "px", height: g.h * cell - gap + "px" });
    bottom = Math.max(bottom, (g.y + g.h) * cell);
    main.append(box);
    if (p.type === "row") { box.append(p.title); continue; }
    box.append(el("h2", {}, p.title));
    kinds[p.type](p, box, data.answers[p.id], data);
  }
  main.style.height = bottom + "px";
  document.documentElement.dataset.height = Math.ceil(header.getBoundingClientRect().height + bottom);
  document.documentElement.dataset.drawn = "yes";
});
