// Draws the node from /metrics, once per collection interval. It needs nothing from outside, and writes
// text as text: a label's value never becomes markup.
"use strict";

const PERIOD = Math.max(1000, Number(document.body.dataset.interval)); // ms between two requests
const KEPT = 15 * 60; // seconds of history that a sparkline shows
const history = new Map(); // busy ratios by device, since the page was opened
const meanings = new Map(); // texts of XIDs by code, since the page was opened
let codes = { xids: {}, reasons: {}, unavailable: {} }; // texts that explain codes, from landing/codes.json
let known = null; // the last node
let polled = -Infinity; // when /metrics was last requested, in ms of performance.now()
let timer; // of the next request

const MIB = 1 << 20;
// QUANTITIES are the families of each quantity in both vocabularies, and the factors to base units. The
// first that has a value counts: the engine's activity says what an instance does too, the driver's
// utilization is of GPUs alone.
const QUANTITIES = {
  busy: { DCGM_FI_PROF_GR_ENGINE_ACTIVE: 1, DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO: 1, DCGM_FI_DEV_GPU_UTIL: 0.01, DCGM_FI_DEV_GPU_UTIL_RATIO: 1 },
  used: { DCGM_FI_DEV_FB_USED: MIB, DCGM_FI_DEV_FB_USED_BYTES: 1 },
  free: { DCGM_FI_DEV_FB_FREE: MIB, DCGM_FI_DEV_FB_FREE_BYTES: 1 },
  reserved: { DCGM_FI_DEV_FB_RESERVED: MIB, DCGM_FI_DEV_FB_RESERVED_BYTES: 1 },
  total: { DCGM_FI_DEV_FB_TOTAL: MIB, DCGM_FI_DEV_FB_CAPACITY_BYTES: 1 },
  power: { DCGM_FI_DEV_POWER_USAGE: 1, DCGM_FI_DEV_BOARD_POWER_WATTS: 1 },
  temperature: { DCGM_FI_DEV_GPU_TEMP: 1, DCGM_FI_DEV_GPU_TEMP_CELSIUS: 1 },
  memoryTemperature: { DCGM_FI_DEV_MEMORY_TEMP: 1, DCGM_FI_DEV_MEMORY_TEMP_CELSIUS: 1 },
  clock: { DCGM_FI_DEV_SM_CLOCK: 1e6, DCGM_FI_DEV_SM_CLOCK_HERTZ: 1 },
  reasons: { DCGM_FI_DEV_CLOCKS_EVENT_REASONS: 1, DCGM_FI_DEV_CLOCK_THROTTLE_REASONS: 1 },
  xid: { DCGM_FI_DEV_XID_ERRORS: 1, DCGM_FI_DEV_XID_ERROR: 1 },
};
// THROTTLES are the bits of clock event reasons that slow work down. A busy GPU at a limit in LIMITS is normal, as in the
// alerts; any other reason is a fault.
const THROTTLES = { power_cap: 0x4, hw_slowdown: 0x8, sw_thermal: 0x20, hw_thermal: 0x40, hw_power_brake: 0x80 };
const LIMITS = { power_cap: "its power limit", sw_thermal: "the driver's temperature limit" };
// HOT and MEMORY_HOT are the temperatures above which GPUHot and GPUMemoryHot fire, in °C.
const HOT = 87, MEMORY_HOT = 95;
// SEVERITIES are those of XIDs, the most severe first, with the style of each.
const SEVERITIES = { critical: "down", warning: "warned", info: "plain", "": "plain" };
// why explains a value of the label reason.
const why = (reason) => codes.unavailable[reason] || "the log has the text";
const KINDS = { gpu: "GPU", GPU_I_ID: "instance", nvswitch: "NVSwitch", nvlink: "NVLink", cpu: "CPU", cpucore: "CPU core", connectx: "ConnectX" };
const WANTED = new Set([...Object.values(QUANTITIES).flatMap(Object.keys),
  "dcgm_exporter_build_info", "dcgm_exporter_source_info", "dcgm_exporter_collect_success", "dcgm_exporter_collect_unavailable",
  "dcgm_exporter_collect_last_success_timestamp_seconds", "dcgm_exporter_entity_up", "dcgm_exporter_sample_age_seconds", "dcgm_exporter_gpu_verdict",
  "dcgm_exporter_field_unavailable", "dcgm_pod_gpu_info", "dcgm_pod_gpu_utilization_ratio", "dcgm_pod_gpu_memory_used_bytes",
  "DCGM_EXP_CLOCK_EVENTS_COUNT", "DCGM_EXP_XID_ERRORS_TOTAL", "DCGM_EXP_XID_LAST_SEEN_TIMESTAMP_SECONDS", "DCGM_EXP_GPU_PAIR_INFO"]);

// parse reads the Prometheus text format and returns the finite samples of the wanted families by name.
// A sample is {get: label → value or undefined, value}.
function parse(text) {
  const families = new Map();
  const pair = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)",?/y;
  for (const line of text.split("\n")) {
    const end = line.search(/[{ ]/);
    const name = line.slice(0, end);
    if (!WANTED.has(name)) continue;
    const labels = new Map();
    let at = end;
    if (line[at] === "{") {
      pair.lastIndex = ++at;
      for (let m; (m = pair.exec(line));) {
        labels.set(m[1], m[2].replace(/\\(.)/g, (_, c) => (c === "n" ? "\n" : c)));
        at = pair.lastIndex;
      }
      if (line[at++] !== "}") continue;
    }
    const value = Number(line.slice(at).trim().split(" ")[0]);
    if (!Number.isFinite(value)) continue;
    if (!families.has(name)) families.set(name, []);
    families.get(name).push({ get: (label) => labels.get(label), value });
  }
  return families;
}

// nodeOf makes the node of the samples. now is the exporter's time in Unix seconds.
function nodeOf(families, now) {
  const of = (name) => families.get(name) || [];
  const devices = new Map();
  // deviceOf returns the GPU or GPU instance of a sample; undefined for samples of anything else.
  const deviceOf = (s) => {
    const gpu = s.get("gpu"), instance = s.get("GPU_I_ID");
    if (!gpu || s.get("nvlink")) return undefined;
    const name = placeOf(s);
    let d = devices.get(name);
    if (!d) devices.set(name, (d = { name, gpu, instance, owners: [], throttle: [], instances: 0 }));
    d.uuid ||= s.get("UUID") || s.get("uuid");
    d.model ||= s.get("modelName");
    d.bus ||= s.get("pci_bus_id");
    d.profile ||= s.get("GPU_I_PROFILE");
    return d;
  };
  const node = { others: new Map(), xids: [], missing: [], pairs: [] };

  for (const s of of("dcgm_exporter_entity_up")) {
    const d = deviceOf(s), reason = s.value === 1 ? "" : s.get("reason") || "error";
    if (d) {
      d.down = reason;
      continue;
    }
    const kind = KINDS[Object.keys(KINDS).findLast((l) => s.get(l))];
    if (!kind) continue;
    if (!node.others.has(kind)) node.others.set(kind, { up: 0, down: [] });
    const others = node.others.get(kind);
    if (!reason) others.up++;
    else others.down.push({ name: placeOf(s), reason, gpu: s.get("gpu") });
  }
  for (const s of of("dcgm_exporter_gpu_verdict")) {
    const d = deviceOf(s);
    if (d) Object.assign(d, { verdict: s.get("verdict"), verdictReason: s.get("reason") });
    node.host ||= s.get("hostname") || s.get("Hostname");
  }
  for (const [quantity, names] of Object.entries(QUANTITIES)) {
    for (const [name, factor] of Object.entries(names)) {
      for (const s of of(name)) {
        const d = deviceOf(s);
        if (!d) continue;
        node.host ||= s.get("hostname") || s.get("Hostname");
        if (!has(d[quantity]) && !s.get("vgpu")) d[quantity] = s.value * factor;
        if (quantity === "xid" && s.value > 0) {
          xidOf(node, d, s.value);
          meanings.set(s.value, s.get("err_msg"));
        }
        ownerOf(d, s);
      }
    }
  }
  for (const s of of("dcgm_exporter_sample_age_seconds")) {
    const d = deviceOf(s);
    if (d) d.age = s.value;
  }
  for (const s of of("DCGM_EXP_CLOCK_EVENTS_COUNT")) {
    const d = deviceOf(s), event = s.get("clock_event");
    if (d && !has(d.reasons) && s.value > 0 && Object.hasOwn(THROTTLES, event) && !d.throttle.includes(event)) d.throttle.push(event);
  }
  for (const s of of("dcgm_pod_gpu_info")) {
    const d = deviceOf(s);
    if (!d) continue;
    ownerOf(d, s);
    d.sharing = s.get("sharing");
    d.replicas = s.get("replicas");
  }
  for (const [name, quantity] of [["dcgm_pod_gpu_utilization_ratio", "busy"], ["dcgm_pod_gpu_memory_used_bytes", "used"]]) {
    for (const s of of(name)) {
      const d = deviceOf(s), owner = d && ownerOf(d, s);
      if (owner) owner[quantity] = (owner[quantity] || 0) + s.value;
    }
  }
  for (const [name, quantity] of [["DCGM_EXP_XID_ERRORS_TOTAL", "count"], ["dcgm_pod_gpu_xid_last_seen_timestamp_seconds", "seen"], ["DCGM_EXP_XID_LAST_SEEN_TIMESTAMP_SECONDS", "seen"]]) {
    for (const s of of(name)) {
      const d = deviceOf(s), code = Number(s.get("xid"));
      if (!d || !(code > 0) || !(s.value > 0)) continue;
      const x = xidOf(node, d, code);
      if (quantity === "count") x.count = (x.count || 0) + s.value;
      else if (!(x.seen >= s.value)) Object.assign(x, { seen: s.value, pod: nameOf(s) });
    }
  }
  for (const x of node.xids) {
    const known = Object.hasOwn(codes.xids, x.code) ? codes.xids[x.code] : { text: "", severity: "warning" };
    x.text = meanings.get(x.code) || known.text;
    x.severity = known.severity;
  }
  const rank = (x) => Object.keys(SEVERITIES).indexOf(x.severity);
  node.xids.sort((a, b) => rank(a) - rank(b) || (b.seen || 0) - (a.seen || 0));
  for (const s of of("dcgm_exporter_field_unavailable")) {
    const field = s.get("field"), reason = s.get("reason"), place = placeOf(s);
    let u = node.missing.find((m) => m.field === field && m.reason === reason && !m.where === !place);
    if (!u) node.missing.push((u = { field, reason, where: place ? [] : null }));
    if (place) u.where.push(place);
  }
  for (const s of of("DCGM_EXP_GPU_PAIR_INFO")) node.pairs.push({ a: s.get("gpu"), b: s.get("peer_gpu"), path: s.get("path"), nvlinks: Number(s.get("nvlinks")) });

  node.devices = [...devices.values()].sort((a, b) => a.gpu - b.gpu || (has(a.instance) ? a.instance : -1) - (has(b.instance) ? b.instance : -1));
  for (const d of node.devices) {
    if (d.instance && devices.has("GPU " + d.gpu)) devices.get("GPU " + d.gpu).instances++;
    if (has(d.used) && has(d.free)) d.total ??= d.used + d.free + (d.reserved || 0);
    if (has(d.reasons)) d.throttle = Object.keys(THROTTLES).filter((event) => d.reasons & THROTTLES[event]);
  }
  const [build] = of("dcgm_exporter_build_info"), [source] = of("dcgm_exporter_source_info"), [read] = of("dcgm_exporter_collect_last_success_timestamp_seconds");
  node.exporter = build && build.get("version");
  if (source) for (const label of ["source", "driver", "library"]) node[label] = source.get(label);
  node.time = read ? read.value : now;
  node.age = Math.max(0, now - node.time);
  node.problem = of("dcgm_exporter_collect_success").some((s) => s.value === 0) ? (of("dcgm_exporter_collect_unavailable").map((s) => s.get("reason"))[0] || "error") : "";
  return node;
}

// placeOf returns the name of the device of a sample; "" for a sample of the node.
function placeOf(s) {
  return Object.keys(KINDS).filter((l) => s.get(l)).map((l) => KINDS[l] + " " + s.get(l)).join(" / ");
}

function xidOf(node, device, code) {
  let x = node.xids.find((y) => y.device === device.name && y.code === code);
  if (!x) node.xids.push((x = { device: device.name, code }));
  return x;
}

// nameOf returns the pod, job or container that a sample names, in either namespace of labels; "" for
// none.
function nameOf(s) {
  const pod = s.get("pod") || s.get("pod_name"), namespace = s.get("namespace") || s.get("pod_namespace"), job = s.get("hpc_job");
  if (pod) return (namespace ? namespace + "/" : "") + pod;
  return job ? "job " + job : s.get("container") || s.get("container_name") || "";
}

// ownerOf returns the owner of a device that a sample names, a pod once; undefined for none.
function ownerOf(device, s) {
  const name = nameOf(s), container = s.get("container") || s.get("container_name");
  if (!name) return undefined;
  let o = device.owners.find((p) => p.name === name);
  if (!o) device.owners.push((o = { name, containers: [] }));
  if (container && container !== name && !o.containers.includes(container)) o.containers.push(container);
  return o;
}

// remember adds the busy ratios of a node to the history.
function remember(node) {
  for (const d of node.devices) {
    if (!has(d.busy)) continue;
    const points = history.get(d.name) || [];
    if (points.length && points[points.length - 1][0] >= node.time) continue;
    points.push([node.time, d.busy]);
    while (points[0][0] < node.time - KEPT) points.shift();
    history.set(d.name, points);
  }
  for (const name of [...history.keys()]) if (!node.devices.some((d) => d.name === name)) history.delete(name);
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

function sum(list, of) {
  const values = list.map(of).filter(has);
  return values.length ? values.reduce((a, b) => a + b, 0) : null;
}

function tile(title, value, more) {
  return el("div", {}, el("dt", {}, title), el("dd", {}, value, more ? el("small", {}, more) : null));
}

function drawTiles(node) {
  const gpus = node.devices.filter((d) => !d.instance);
  const up = gpus.filter((d) => !d.down);
  const tiles = [tile("GPUs read", up.length + " of " + gpus.length, instancesOf(node))];
  // A GPU that is partitioned by MIG is busy, and has memory, by its instances.
  const leaves = node.devices.filter((d) => !d.down && !d.instances);
  const busy = leaves.map((d) => d.busy).filter(has);
  if (busy.length) tiles.push(tile("Busy, mean", percent(busy.reduce((a, b) => a + b, 0) / busy.length)));
  const used = sum(leaves, (d) => d.used), total = sum(leaves, (d) => d.total);
  if (has(used)) tiles.push(tile("Memory used", bytes(used), has(total) ? "of " + bytes(total) : ""));
  const power = sum(up, (d) => d.power);
  if (has(power)) tiles.push(tile("Power", watts(power)));
  const hot = up.filter((d) => has(d.temperature)).sort((a, b) => b.temperature - a.temperature)[0];
  if (hot) tiles.push(tile("Hottest", celsius(hot.temperature), hot.name));
  if (node.devices.some((d) => d.owners.length)) {
    const owned = leaves.filter((d) => d.owners.length);
    const idle = owned.filter((d) => has(d.busy) && d.busy < 0.01);
    tiles.push(tile("Assigned", owned.length + " of " + leaves.length, idle.length ? idle.length + " of them idle now" : ""));
  }
  document.getElementById("tiles").replaceChildren(...tiles);
}

function instancesOf(node) {
  const n = node.devices.filter((d) => d.instance).length;
  return n ? n + " MIG instances" : "";
}

// verdictOf returns the verdict on a device in words; "" if it is ok, or if there is none.
function verdictOf(d) {
  if (!d.verdict || d.verdict === "ok") return "";
  const text = Object.hasOwn(codes.reasons, d.verdictReason) ? codes.reasons[d.verdictReason] : d.verdictReason;
  return text ? d.verdict + ": " + text : d.verdict;
}

const isUrgent = (d) => d.verdict === "drain" || d.verdict === "replace";

function stateOf(d) {
  const events = d.down ? [] : d.throttle; // those of a lost GPU are from before the loss
  const faults = events.filter((event) => !Object.hasOwn(LIMITS, event));
  const limits = events.filter((event) => Object.hasOwn(LIMITS, event)).map((event) => LIMITS[event]);
  const sub = (text) => el("span", { class: "sub" }, text);
  let parts;
  if (d.down) parts = [el("span", { class: "down" }, d.down), sub(why(d.down))];
  else if (isUrgent(d)) parts = [el("span", { class: "down" }, d.verdict)];
  else if (d.verdict === "watch") parts = [el("span", { class: "warned" }, "watch")];
  else if (faults.length) parts = [el("span", { class: "warned" }, "throttled")];
  else parts = [el("span", { class: "up" }, "up")];
  if (verdictOf(d)) parts.push(sub(verdictOf(d)));
  if (faults.length) parts.push(sub("throttled by " + faults.join(", ")));
  else if (limits.length) parts.push(sub("at " + limits.join(" and ")));
  if (!d.down && d.age > 60) parts.push(sub("oldest sample " + ago(d.age)));
  return parts;
}

function ownersOf(d) {
  if (!d.owners.length) return [el("span", { class: "none" }, d.instances ? "see its instances" : "none known")];
  const list = el("ul", {}, ...d.owners.map((o) => {
    const part = [...o.containers];
    if (has(o.busy)) part.push(percent(o.busy));
    if (has(o.used)) part.push(bytes(o.used));
    return el("li", {}, o.name, part.length ? el("span", { class: "sub" }, part.join(" · ")) : null);
  }));
  if (!d.sharing || d.sharing === "none" || d.sharing === "mig") return [list];
  return [el("span", { class: "sub" }, d.replicas ? d.sharing + ", " + d.replicas + " replicas" : d.sharing), list];
}

// cell makes a cell of the table of devices. A phone hides it if it has nothing to say.
function cell(label, ...children) {
  const empty = children.every((c) => !c || (c.className === "none"));
  return el("td", empty ? { "data-label": label, class: "empty" } : { "data-label": label }, ...children);
}

// degrees returns a temperature, marked if it is above a limit.
function degrees(v, limit) {
  return v > limit ? el("span", { class: "warned" }, celsius(v)) : celsius(v);
}

function row(d, node) {
  const memory = has(d.used)
    ? [bytes(d.used), has(d.total) ? el("span", { class: "sub" }, "of " + bytes(d.total)) : null, d.total > 0 ? bar(d.used / d.total) : null]
    : [unknown()];
  const busy = has(d.busy) ? [percent(d.busy), bar(d.busy), spark(history.get(d.name) || [], node.time)]
    : [d.instances ? el("span", { class: "none" }, "see its instances") : unknown()];
  const xid = node.xids.find((x) => x.device === d.name);
  const detail = (d.instance ? [d.profile] : [d.model, d.bus]).filter(Boolean).join(" · ") || d.uuid;
  return el("tr", d.instance ? { class: "instance" } : {},
    el("th", { scope: "row", title: d.uuid || "" }, d.name, el("span", { class: "sub" }, detail)),
    cell("State", ...stateOf(d)),
    cell("Busy", ...busy),
    cell("Memory", ...memory),
    cell("Power", has(d.power) ? watts(d.power) : unknown()),
    cell("Temperature", has(d.temperature) ? degrees(d.temperature, HOT) : unknown(),
      d.memoryTemperature > 0 ? el("span", { class: "sub" }, "memory ", degrees(d.memoryTemperature, MEMORY_HOT)) : null),
    cell("SM clock", has(d.clock) ? round(d.clock / 1e6, 0) + "\u00a0MHz" : unknown()),
    cell("Worst XID", xid ? el("span", { class: SEVERITIES[xid.severity] }, String(xid.code)) : el("span", { class: "none" }, "none"),
      xid && xid.text ? el("span", { class: "sub" }, xid.text) : null),
    cell("Owners", ...ownersOf(d)));
}

function fill(id, elements) {
  document.getElementById(id).replaceChildren(...elements);
}

function show(id, visible) {
  document.getElementById(id).hidden = !visible;
}

function drawXIDs(node) {
  const items = node.xids.map((x) => el("li", {},
    el("span", { class: SEVERITIES[x.severity] }, x.severity ? x.severity + ": " : ""),
    x.device + ": XID " + x.code + (x.text ? ", " + x.text : ""),
    x.seen ? ", " + ago(node.time + node.age - x.seen) : "",
    x.count ? ", " + round(x.count, 0) + (x.count === 1 ? " time" : " times") : "",
    x.pod ? ", used by " + x.pod : ""));
  fill("xid-list", items);
  show("xids", items.length > 0);
}

// drawOthers lists links, switches and so on. The links of a GPU that is not read are only counted.
function drawOthers(node) {
  const items = [], lost = new Set(node.devices.filter((d) => d.down && !d.instance).map((d) => d.gpu));
  for (const [kind, o] of node.others) {
    items.push(el("li", {}, kind + ": " + o.up + " up" + (o.down.length ? ", " + o.down.length + " not read" : "")));
    for (const gpu of lost) {
      const n = o.down.filter((d) => d.gpu === gpu).length;
      if (n) items.push(el("li", {}, kind + ": " + n + " of GPU " + gpu + ", which is not read"));
    }
    for (const d of o.down.filter((d) => !lost.has(d.gpu))) {
      items.push(el("li", {}, el("span", { class: "down" }, d.name + ": " + d.reason), " ", why(d.reason)));
    }
  }
  fill("other-list", items);
  show("others", items.length > 0);
}

function drawMatrix(node) {
  const gpus = [...new Set(node.devices.map((d) => d.gpu))];
  const words = new Map();
  for (const p of node.pairs) {
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
  const rows = node.missing.map((u) => el("tr", {}, el("th", { scope: "row" }, u.field), el("td", {}, u.reason), el("td", {}, u.where ? u.where.join(", ") : "all")));
  fill("missing-rows", rows);
  show("missing", rows.length > 0);
}

function banner(kind, text) {
  return el("p", { class: "banner " + kind }, text);
}

function drawBanners(node, problem) {
  const list = [];
  if (problem) list.push(banner("bad", problem));
  else if (!node) list.push(banner("", "Waiting for the first collection."));
  if (node) {
    if (node.source === "sim") list.push(banner("warn", "Simulated node: no value on this page comes from real hardware."));
    if (node.problem) list.push(banner("bad", "No data (" + node.problem + "): " + why(node.problem) + "."));
    for (const d of node.devices.filter(isUrgent)) list.push(banner("bad", d.name + ": " + verdictOf(d) + "."));
    const lost = node.devices.filter((d) => d.down && !d.instance && !isUrgent(d));
    if (lost.length) list.push(banner("bad", lost.map((d) => d.name + " is not read: " + d.down).join("; ") + "."));
  }
  const box = document.getElementById("banners");
  if (list.map((b) => b.textContent).join("") !== box.textContent) box.replaceChildren(...list); // a screen reader reads changes alone
}

function draw(node) {
  document.title = (node.host || "dcgm-exporter") + ": GPUs";
  document.getElementById("host").textContent = node.host || "dcgm-exporter";
  document.getElementById("about").textContent = [
    node.source && "source " + node.source, node.driver && "driver " + node.driver, node.library && "library " + node.library,
    node.exporter && "dcgm-exporter " + node.exporter, "read " + ago(node.age),
  ].filter(Boolean).join(" · ");
  drawTiles(node);
  fill("rows", node.devices.map((d) => row(d, node)));
  show("gpus", node.devices.length > 0);
  drawXIDs(node);
  drawOthers(node);
  drawMatrix(node);
  drawMissing(node);
}

async function refresh() {
  let problem = "";
  polled = performance.now();
  try {
    if (!Object.keys(codes.xids).length) codes = await (await fetch("landing/codes.json")).json();
    const response = await fetch("metrics", { cache: "no-store", signal: AbortSignal.timeout(Math.max(PERIOD, 10000)) });
    if (response.status === 200) {
      const date = Date.parse(response.headers.get("Date")) || Date.now(); // the exporter's clock
      known = nodeOf(parse(await response.text()), date / 1000);
      remember(known);
    } else if (response.status !== 503) problem = "The exporter answers " + response.status + " " + response.statusText + ".";
  } catch {
    problem = "The exporter does not answer; showing its last values.";
  }
  drawBanners(known, problem);
  if (known) draw(known);
  document.documentElement.dataset.drawn = known ? "yes" : "no";
}

// poll requests /metrics once per period while the page is seen.
async function poll() {
  if (document.hidden) return; // until visibilitychange
  if (performance.now() - polled >= PERIOD) await refresh();
  clearTimeout(timer);
  timer = setTimeout(poll, polled + PERIOD - performance.now());
}

document.addEventListener("visibilitychange", poll);
poll();
