// Draws the node from node.json, every few seconds. It needs nothing from outside, and writes text as
// text: a name from the node never becomes markup.
"use strict";

const PERIOD = 5000; // ms between two requests
const KEPT = 15 * 60; // seconds of history that a sparkline shows
const history = load();
let known = null; // the last document

function load() {
  try {
    return new Map(JSON.parse(sessionStorage.getItem("busy") || "[]"));
  } catch {
    return new Map();
  }
}

function save() {
  try {
    sessionStorage.setItem("busy", JSON.stringify([...history]));
  } catch { /* a browser that keeps nothing still draws */ }
}

// el makes an element; children are elements and texts.
function el(name, attributes, ...children) {
  const e = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) e.setAttribute(key, value);
  e.append(...children.filter((c) => c !== null && c !== undefined && c !== ""));
  return e;
}

function svg(name, attributes, ...children) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
  e.append(...children);
  return e;
}

const has = (v) => v !== undefined && v !== null;
const round = (v, digits) => v.toLocaleString("en-US", { maximumFractionDigits: digits });
const percent = (v) => round(v * 100, v > 0 && v < 0.1 ? 1 : 0) + "\u00a0%";
const watts = (v) => round(v, 0) + "\u00a0W";
const celsius = (v) => round(v, 0) + "\u00a0°C";

function bytes(v) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (v >= 1024 && i < units.length - 1) { v /= 1024; i++; }
  return round(v, v < 10 && i > 0 ? 1 : 0) + "\u00a0" + units[i];
}

function ago(seconds) {
  if (seconds < 90) return round(Math.max(seconds, 0), 0) + " s ago";
  if (seconds < 5400) return round(seconds / 60, 0) + " min ago";
  if (seconds < 172800) return round(seconds / 3600, 0) + " h ago";
  return round(seconds / 86400, 0) + " days ago";
}

const unknown = () => el("span", { class: "none", title: "Not collected, or not counted for this device" }, "–");

function bar(ratio) {
  const width = Math.max(0, Math.min(1, ratio)) * 100;
  return svg("svg", { class: "bar", viewBox: "0 0 100 6", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { class: "rail", width: 100, height: 6 }), svg("rect", { class: "fill", width, height: 6 }));
}

function spark(points, now) {
  if (points.length < 2) return null;
  const from = Math.max(now - KEPT, points[0][0]);
  const span = Math.max(now - from, 1);
  const line = points.map(([t, v]) => ((t - from) / span * 100).toFixed(2) + "," + (20 - v * 18).toFixed(2)).join(" ");
  const minutes = Math.max(1, Math.round(span / 60));
  return svg("svg", { class: "spark", viewBox: "0 0 100 22", preserveAspectRatio: "none", role: "img", "aria-label": "busy over the last " + minutes + " min" },
    svg("polyline", { points: line }));
}

const key = (e) => e.uuid + "/" + e.name;

function remember(node) {
  const now = Date.parse(node.time) / 1000;
  const present = new Set();
  for (const e of node.entities) {
    present.add(key(e));
    if (!has(e.busyRatio)) continue;
    const points = history.get(key(e)) || [];
    if (points.length && points[points.length - 1][0] >= now) continue;
    points.push([now, e.busyRatio]);
    while (points[0][0] < now - KEPT) points.shift();
    history.set(key(e), points);
  }
  for (const k of [...history.keys()]) if (!present.has(k)) history.delete(k);
  save();
}

function sum(list, of) {
  const values = list.map(of).filter(has);
  return values.length ? values.reduce((a, b) => a + b, 0) : null;
}

function tile(title, value, more) {
  return el("div", {}, el("dt", {}, title), el("dd", {}, value, more ? el("small", {}, more) : null));
}

function drawTiles(node) {
  const gpus = node.entities.filter((e) => e.kind === "GPU");
  const up = gpus.filter((e) => !e.problem);
  const tiles = [tile("GPUs read", up.length + " of " + gpus.length, instancesOf(node))];
  // What is cut by MIG is busy, and has memory, by its instances.
  const leaves = node.entities.filter((e) => !e.problem && (e.kind === "GPU" ? !e.instances : e.kind === "GPU instance"));
  const busy = leaves.map((e) => e.busyRatio).filter(has);
  if (busy.length) tiles.push(tile("Busy, mean", percent(busy.reduce((a, b) => a + b, 0) / busy.length)));
  const used = sum(leaves, (e) => e.memoryUsedBytes), total = sum(leaves, (e) => e.memoryTotalBytes);
  if (has(used)) tiles.push(tile("Memory used", bytes(used), has(total) ? "of " + bytes(total) : ""));
  const power = sum(up, (e) => e.powerWatts);
  if (has(power)) tiles.push(tile("Power", watts(power)));
  const hot = up.filter((e) => has(e.temperatureCelsius)).sort((a, b) => b.temperatureCelsius - a.temperatureCelsius)[0];
  if (hot) tiles.push(tile("Hottest", celsius(hot.temperatureCelsius), hot.name));
  if (node.entities.some((e) => e.owners)) {
    const owned = leaves.filter((e) => e.owners);
    const idle = owned.filter((e) => has(e.busyRatio) && e.busyRatio < 0.01);
    tiles.push(tile("Assigned", owned.length + " of " + leaves.length, idle.length ? idle.length + " of them idle now" : ""));
  }
  document.getElementById("tiles").replaceChildren(...tiles);
}

function instancesOf(node) {
  const n = node.entities.filter((e) => e.kind === "GPU instance").length;
  return n ? n + " MIG instances" : "";
}

function stateOf(e, now) {
  if (e.problem) return [el("span", { class: "down" }, e.problem.reason), el("span", { class: "sub" }, e.problem.text)];
  const parts = [];
  if (e.throttle && e.throttle.length) parts.push(el("span", { class: "warned" }, "throttled"), el("span", { class: "sub" }, e.throttle.join(", ")));
  else parts.push(el("span", { class: "up" }, "up"));
  if (e.oldestSample && now - e.oldestSample > 60) parts.push(el("span", { class: "sub" }, "oldest sample " + ago(now - e.oldestSample)));
  return parts;
}

function ownersOf(e) {
  if (!e.owners) return [unknownOwner(e)];
  const items = e.owners.map((o) => {
    const name = o.pod ? (o.namespace ? o.namespace + "/" : "") + o.pod : o.job ? "job " + o.job : (o.containers || []).join(", ");
    const part = [];
    if (o.pod && o.containers) part.push(o.containers.join(", "));
    if (o.replicas > 1) part.push(o.replicas + " replicas");
    if (has(o.busyRatio)) part.push(percent(o.busyRatio));
    if (has(o.memoryUsedBytes)) part.push(bytes(o.memoryUsedBytes));
    return el("li", {}, name, part.length ? el("span", { class: "sub" }, part.join(" · ")) : null);
  });
  const list = el("ul", {}, ...items);
  if (e.sharing === "none") return [list];
  const many = e.replicas ? e.sharing + ", " + e.replicas + " replicas" : e.sharing;
  return [el("span", { class: "sub" }, many), list];
}

function unknownOwner(e) {
  return el("span", { class: "none" }, e.instances ? "see its instances" : "none known");
}

function cell(label, ...children) {
  return el("td", { "data-label": label }, ...children);
}

function row(e, node, now) {
  const memory = has(e.memoryUsedBytes)
    ? [bytes(e.memoryUsedBytes), has(e.memoryTotalBytes) ? el("span", { class: "sub" }, "of " + bytes(e.memoryTotalBytes)) : null,
      e.memoryTotalBytes > 0 ? bar(e.memoryUsedBytes / e.memoryTotalBytes) : null]
    : [unknown()];
  const busy = has(e.busyRatio) ? [percent(e.busyRatio), bar(e.busyRatio), spark(history.get(key(e)) || [], now)]
    : [e.instances ? el("span", { class: "none" }, "see its instances") : unknown()];
  const xid = (node.xids || []).find((x) => x.entity === e.name);
  const detail = [e.kind === "GPU" ? e.model : e.profile, e.kind === "GPU" ? e.pciBusID : e.migUUID].filter(Boolean).join(" · ");
  return el("tr", e.kind === "GPU" ? {} : { class: "instance" },
    el("th", { scope: "row", title: e.uuid || "" }, e.name, el("span", { class: "sub" }, detail)),
    cell("State", ...stateOf(e, now)),
    cell("Busy", ...busy),
    cell("Memory", ...memory),
    cell("Power", has(e.powerWatts) ? watts(e.powerWatts) : unknown()),
    cell("Temperature", has(e.temperatureCelsius) ? celsius(e.temperatureCelsius) : unknown(),
      has(e.memoryTemperatureCelsius) && e.memoryTemperatureCelsius > 0 ? el("span", { class: "sub" }, "memory " + celsius(e.memoryTemperatureCelsius)) : null),
    cell("SM clock", has(e.smClockHertz) ? round(e.smClockHertz / 1e6, 0) + "\u00a0MHz" : unknown()),
    cell("Last XID", xid ? el("span", { class: "warned" }, String(xid.xid)) : el("span", { class: "none" }, "none"),
      xid ? el("span", { class: "sub" }, xid.text) : null),
    cell("Owners", ...ownersOf(e)));
}

function fill(id, elements) {
  document.getElementById(id).replaceChildren(...elements);
}

function show(id, visible) {
  document.getElementById(id).hidden = !visible;
}

function drawXIDs(node, now) {
  const items = (node.xids || []).map((x) => el("li", {},
    x.entity + ": XID " + x.xid + ", " + x.text,
    has(x.lastSeen) && x.lastSeen ? ", " + ago(now - x.lastSeen) : "",
    x.count ? ", " + round(x.count, 0) + (x.count === 1 ? " time" : " times") : "",
    x.pod ? ", used by " + x.pod : ""));
  fill("xid-list", items);
  show("xids", items.length > 0);
}

function drawOthers(node) {
  const items = [];
  for (const o of node.others || []) {
    items.push(el("li", {}, o.kind + ": " + o.up + " up" + (o.down ? ", " + o.down.length + " not read" : "")));
    for (const d of o.down || []) items.push(el("li", {}, el("span", { class: "down" }, d.name + ": " + d.problem.reason), " ", d.problem.text));
  }
  fill("other-list", items);
  show("others", items.length > 0);
}

function drawMatrix(node) {
  const gpus = [...new Set(node.entities.filter((e) => e.kind === "GPU").map((e) => e.gpu))];
  const words = new Map();
  for (const p of node.pairs || []) {
    const word = p.nvlinks ? "NV" + p.nvlinks : p.path || "";
    words.set(p.a + "-" + p.b, word).set(p.b + "-" + p.a, word);
  }
  if (words.size) {
    const head = el("thead", {}, el("tr", {}, el("td", {}), ...gpus.map((g) => el("th", { scope: "col" }, "GPU " + g))));
    const body = el("tbody", {}, ...gpus.map((a) => el("tr", {}, el("th", { scope: "row" }, "GPU " + a),
      ...gpus.map((b) => el("td", {}, a === b ? "X" : words.get(a + "-" + b) || "N/A")))));
    fill("matrix", [head, body]);
  }
  show("topology", words.size > 0 || gpus.length > 1);
  show("topology-hint", words.size > 0);
  show("topology-off", words.size === 0);
  document.getElementById("matrix").parentElement.hidden = words.size === 0;
}

function drawMissing(node) {
  const rows = (node.unavailable || []).map((u) => el("tr", {}, el("th", { scope: "row" }, u.field), el("td", {}, u.reason), el("td", {}, u.entities ? u.entities.join(", ") : "all")));
  fill("missing-rows", rows);
  show("missing", rows.length > 0);
}

function banner(kind, text) {
  return el("p", { class: "banner " + kind }, text);
}

function drawBanners(answer, problem) {
  const list = [];
  const node = answer && answer.node;
  if (problem) list.push(banner("bad", problem));
  else if (!answer) list.push(banner("", "Waiting for the first collection."));
  if (node) {
    if (node.simulated) list.push(banner("warn", "Simulated node: no value on this page is of real hardware."));
    if (node.problem) {
      list.push(banner("bad", "No data (" + node.problem.reason + "): " + node.problem.text));
    } else if (answer.stale) list.push(banner("bad", "The collection is late: this is what was read " + ago(answer.ageSeconds) + "."));
    const lost = node.entities.filter((e) => e.problem && e.kind === "GPU");
    if (lost.length) list.push(banner("bad", lost.map((e) => e.name + " is not read: " + e.problem.reason).join("; ") + "."));
  }
  const box = document.getElementById("banners");
  const was = box.textContent;
  const next = el("div", {}, ...list);
  if (next.textContent !== was) box.replaceChildren(...list); // a screen reader reads changes alone
}

function draw(answer) {
  const node = answer.node;
  const now = Date.parse(node.time) / 1000 + answer.ageSeconds;
  remember(node);
  document.title = (node.host || "dcgm-exporter") + ": GPUs";
  document.getElementById("host").textContent = node.host || "dcgm-exporter";
  document.getElementById("about").textContent = [
    node.source && "source " + node.source, node.driver && "driver " + node.driver, node.library && "library " + node.library,
    node.engine && "engine " + node.engine, node.exporter && "dcgm-exporter " + node.exporter, "read " + ago(answer.ageSeconds),
  ].filter(Boolean).join(" · ");
  drawTiles(node);
  fill("rows", node.entities.map((e) => row(e, node, now)));
  show("gpus", node.entities.length > 0);
  drawXIDs(node, now);
  drawOthers(node);
  drawMatrix(node);
  drawMissing(node);
}

async function refresh() {
  let problem = "";
  try {
    const response = await fetch("node.json", { cache: "no-store", signal: AbortSignal.timeout(PERIOD) });
    if (response.status === 200) {
      known = await response.json();
      known.node.entities ||= [];
    } else if (response.status !== 503) problem = "The exporter answers " + response.status + " " + response.statusText + ".";
  } catch {
    problem = "The exporter does not answer; this is what it said last.";
  }
  drawBanners(known, problem);
  if (known) draw(known);
  document.documentElement.dataset.drawn = known ? "yes" : "no";
}

async function run() {
  for (;;) {
    if (!document.hidden) await refresh();
    await new Promise((done) => setTimeout(done, PERIOD));
  }
}

document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
run();
