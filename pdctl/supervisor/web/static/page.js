// The page: asks for what changed, draws it, and remembers what a reader has opened. What engines, logs and
// people wrote is set as text, never as markup.
import { clock, plot, short } from "./plot.js";

const RANGES = [["15m", 900], ["1h", 3600], ["6h", 21600], ["24h", 86400], ["7d", 604800], ["30d", 2592000]];
const OPENED = 4; // cells that are drawn without being asked for
const STATES = { serving: "good", suspect: "warn", acting: "warn", settling: "warn", "cannot be judged": "warn" };
const LEAVING = ["draining", "drained", "stopping"];
const state = { seconds: 3600, open: new Map(), now: null, history: new Map(), book: null, busy: false, again: false };
const $ = id => document.getElementById(id);

function h(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") made.className = value; else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter(child => child !== null && child !== undefined && child !== ""));
  return made;
}

function age(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 120) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  return seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

function table(heads, rows) {
  if (!rows.length) return h("p", { class: "soft" }, "none");
  const line = row => h("tr", {}, row.map((cell, i) => {
    const parts = [cell].flat().filter(part => part !== null && part !== undefined && part !== "");
    return h("td", { "data-of": heads[i], class: heads[i] === "request" ? "id" : null }, parts.length ? h("div", {}, parts) : "");
  }));
  return h("table", {}, h("thead", {}, h("tr", {}, heads.map(head => h("th", {}, head)))), h("tbody", {}, rows.map(line)));
}

// A <details> that stays as its reader left it, however often it is drawn anew.
function folded(key, open, kind, title, ...body) {
  const made = h("details", { class: kind, open: state.open.get(key) ?? open, "data-key": key },
    h("summary", {}, title), ...body);
  made.addEventListener("toggle", () => {
    if (state.open.get(key) === made.open) return;
    const drawn = state.open.has(key) ? state.open.get(key) : open;
    state.open.set(key, made.open);
    if (made.open && !drawn && key.startsWith("cell:")) refresh();
  });
  return made;
}

async function ask(path) {
  const answer = await fetch(path, { signal: AbortSignal.timeout(15000) });
  if (!answer.ok) throw new Error(answer.status === 401 ? "not allowed: open /?token=… once" : `${path}: ${answer.status}`);
  return answer.json();
}

function engineState(e) {
  if (!e.answers) return ["bad", e.why || "no answer"];
  if (LEAVING.includes(e.status)) return ["warn", e.status];
  return e.ready ? ["good", "ready"] : ["warn", e.why || e.status || "not ready"];
}

function cellState(cell) {
  if (cell.state && cell.state !== "unknown") return [STATES[cell.state] ?? "bad", cell.state];
  const kinds = cell.engines.map(e => engineState(e)[0]);
  if (kinds.includes("bad")) return ["bad", "an engine does not answer"];
  return kinds.includes("warn") ? ["warn", "not all is ready"] : ["good", "ready"];
}

function pages(p) {
  if (!p) return "";
  const [free, held, quarantined, total] = p;
  const share = Math.round(100 * held / total);
  const bar = h("span", { class: "bar", title: `${held} of ${total} pages held, ${free} free` }, h("i"));
  bar.firstChild.style.width = `${share}%`;
  return h("span", {}, bar, `${share} %${quarantined ? `, ${quarantined} quarantined` : ""}`);
}

function engines(cell) {
  const heads = ["engine", "role", "state", "queues", "oldest", "KV", "links", "life"];
  return table(heads, cell.engines.map(e => {
    const [kind, words] = engineState(e);
    const queues = Object.entries(e.queues).filter(([, [depth]]) => depth).map(([name, [depth]]) => `${name} ${depth}`);
    const lost = e.links.filter(([, linked]) => !linked).map(([peer, , why]) => `${peer}: ${why || "not linked"}`);
    const stuck = e.oldest.filter(leg => leg.stage_age_s > 15).map(leg => `${leg.id} ${leg.stage} ${age(leg.stage_age_s)}`);
    return [e.name, e.role, h("span", { class: kind }, words), [queues.join(", ") || (e.answers ? "empty" : ""),
      ...stuck.slice(0, 2).map(text => h("div", { class: "warn" }, text))], age(e.oldest_s), pages(e.pages),
      lost.length ? h("span", { class: "bad" }, lost.join("; ")) : e.links.length ? `${e.links.length} linked` : "",
      [e.incarnation.slice(0, 8), e.started_at ? h("div", { class: "soft" }, `since ${clock(e.started_at, true)}`) : ""]];
  }));
}

const PLOTS = [
  { title: "In queues", unit: "", lines: [["waiting", "waiting"], ["running", "running"]] },
  { title: "Oldest wait", unit: " s", lines: [["oldest", "oldest"]] },
  { title: "Tokens", unit: "/s", lines: [["prefill_rate", "prefill"], ["decode_rate", "decode"]] },
  { title: "KV held, fullest engine", unit: " %", lines: [["kv", "held"]], most: 100, times: 100 },
];

function plots(history, name, marks) {
  const points = history?.series[name] ?? [];
  return PLOTS.map(each => {
    const lines = each.lines.map(([column, label]) => [history?.columns.indexOf(column) ?? -1, label]);
    const scaled = each.times ? points.map(([at, v]) => [at, v.map(x => x === null ? null : x * each.times)]) : points;
    return plot({ ...each, lines }, scaled, history ?? { begin: 0, end: 1 }, marks);
  });
}

function marksOf(cell, history) {
  const book = state.book ?? { incidents: [], actions: [] };
  const names = new Set(cell?.engines.map(e => e.name));
  const mine = book.incidents.filter(i => !cell || i.cell === cell.name || i.cell === "");
  const ids = new Set(mine.map(i => i.id));
  return [
    ...(history?.lives ?? []).filter(l => !cell || names.has(l.engine)).map(l => [l.at, "life", `${l.engine} started`]),
    ...mine.map(i => [i.opened, "incident", `incident ${i.id}: ${i.summary}`]),
    ...book.actions.filter(a => ids.has(a.incident)).map(a => [a.at, "action", `${a.action} ${a.target}: ${a.outcome}`]),
  ];
}

function shownCells() {
  const cells = state.now?.cells ?? [];
  const wanted = cells.map((cell, i) => [cell, state.open.get(`cell:${cell.name}`) ?? (i < OPENED || cellState(cell)[0] !== "good")]);
  return wanted.filter(([, open]) => open).map(([cell]) => cell).slice(0, 16);
}

function drawCells() {
  const shown = new Set(shownCells().map(c => c.name));
  $("cells").replaceChildren(...state.now.cells.map(cell => {
    const [kind, words] = cellState(cell), open = shown.has(cell.name);
    const title = [`${cell.name} `, h("span", { class: kind }, words), h("span", { class: "soft" }, `, ${cell.engines.length} engines, ${cell.waiting} waiting`)];
    if (!open) return folded(`cell:${cell.name}`, false, kind, title);
    const history = state.history.get("cell");
    return folded(`cell:${cell.name}`, true, kind, title, engines(cell),
      h("div", { class: "plots" }, plots(history, cell.name, marksOf(cell, history))));
  }));
}

function side(leg) {
  if (!leg) return "";
  const at = leg.leg ? `${leg.leg.stage} ${age(leg.leg.stage_age_s)}${leg.leg.waits_on ? `, waits on ${leg.leg.waits_on}` : ""}` : leg.status;
  return [leg.engine, h("div", { class: "soft" }, at)];
}

function drawRequests() {
  const r = state.now.router;
  if (!r) { $("ledger").textContent = "The fleet file names no router."; $("requests").replaceChildren(); return; }
  const held = r.held ? `, ${r.held} held` : "", admission = r.admission && r.admission !== "open" ? `, admission ${r.admission} for ${age(r.hold_age_s)}` : "";
  $("ledger").textContent = !r.answers ? `${r.name}: ${r.why}` : r.size === null ? `${r.name} lists no requests${admission}`
    : `${r.name} counts ${r.size} requests${held}${r.size ? `, the oldest for ${age(r.oldest_s)}` : ""}${admission}`;
  $("ledger").className = r.answers ? "soft" : "bad";
  const heads = ["request", "at the router", "age", "prefill", "decode", "tokens"];
  $("requests").replaceChildren(table(heads, r.requests.map(q => [q.id, `${q.stage} ${age(q.stage_age_s)}`, age(q.age_s), side(q.prefill), side(q.decode), `${q.tokens}`])));
}

function when(at) { return h("time", { datetime: new Date(at * 1000).toISOString() }, new Date(at * 1000).toLocaleString([], { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit" })); }

function drawIncidents() {
  const actions = state.book.actions;
  const list = state.book.incidents.map(i => {
    const kind = i.closed === null ? "bad" : "good";
    const title = [`${i.id} `, h("span", { class: kind }, i.closed === null ? i.state : "closed"),
      h("span", {}, ` ${i.cell || "fleet"}: ${i.summary} `), h("span", { class: "soft" }, i.codes.join(" "))];
    const lines = i.timeline.map(m => h("li", {}, when(m.at), `${m.what}: ${m.text}`));
    const done = actions.filter(a => a.incident === i.id).map(a => h("li", {}, when(a.at), `${a.action} ${a.target}: ${a.outcome}${a.detail ? `, ${a.detail}` : ""}`));
    const evidence = i.readable ? h("p", {}, h("a", { href: `evidence/${i.id}` }, "evidence: what it was judged by"))
      : i.evidence ? h("p", { class: "soft" }, `evidence: ${i.evidence}`) : "";
    const span = i.closed === null ? `open for ${age(Date.now() / 1000 - i.opened)}` : `closed after ${age(i.closed - i.opened)}`;
    return folded(`incident:${i.id}`, i.closed === null, kind, title, h("p", { class: "soft" }, `${i.subject}, ${span}`),
      h("ol", {}, lines), done.length ? h("p", {}, "Done:") : "", h("ol", {}, done), evidence);
  });
  $("incidents").replaceChildren(...(list.length ? list : [h("p", { class: "soft" }, "none")]));
  // What is wrong now stands on top: on a phone the list itself is far below.
  const open = state.book.incidents.filter(i => i.closed === null);
  $("open").replaceChildren(...open.map(i => h("a", { class: "bad", href: "#incidents" }, `incident ${i.id}, ${i.cell || "fleet"}: ${i.state}: ${i.summary}`)));
  $("open").hidden = !open.length;
  const heads = ["at", "action", "target", "outcome", "detail", "incident"];
  $("actions").replaceChildren(table(heads, actions.slice(0, 50).map(a =>
    [when(a.at), a.action, a.target, a.outcome, a.detail, a.incident === null ? "" : `${a.incident}`])));
}

function drawHosts() {
  const heads = ["host", "state", "asked", "units"];
  $("hosts").replaceChildren(table(heads, state.now.hosts.map(host => {
    const odd = Object.entries(host.units).filter(([, [now]]) => now !== "active").map(([name, [now, why]]) => `${name} ${now}${why ? ` (${why})` : ""}`);
    return [host.name, h("span", { class: host.reachable ? "good" : "bad" }, host.reachable ? "reachable" : host.why || "unreachable"),
      `${age(host.age_s)} ago`, odd.join(", ") || `${Object.keys(host.units).length} active`];
  })));
}

function drawHead() {
  const n = state.now, s = n.supervisor;
  $("fleet").textContent = n.fleet;
  document.title = `${n.fleet}: pdctl`;
  const good = n.cells.filter(cell => cellState(cell)[0] === "good").length;
  const doing = [s.acts && `acting: ${s.acts}`, s.paused && `paused: ${s.paused}`, s.waits && `waits: ${s.waits}`, s.mode && `mode ${s.mode}`];
  const looked = n.at === null ? "no look yet" : `${good} of ${n.cells.length} cells well, looked ${age(n.age_s)} ago`;
  $("summary").textContent = [looked, ...doing.filter(Boolean)].join("; ");
  alarm([n.unwell && `The supervisor is unwell: ${n.unwell}.`, ...n.troubles]);
}

function alarm(lines) {
  const said = lines.filter(Boolean).join("\n");
  if ($("alarm").textContent !== said) $("alarm").textContent = said;
  $("alarm").hidden = !said;
}

function draw() {
  drawHead();
  const whole = state.history.get("fleet");
  $("whole").replaceChildren(...plots(whole, state.now.fleet, marksOf(null, whole)));
  drawCells(); drawRequests(); drawIncidents(); drawHosts();
  document.body.dataset.drawn = state.now.version;
}

// One refresh at a time; what comes meanwhile makes one more.
async function refresh() {
  if (state.busy) { state.again = true; return; }
  state.busy = true;
  try {
    state.now = await ask("api/now");
    const names = shownCells().map(cell => encodeURIComponent(cell.name)).join(",");
    const [fleet, cell, book] = await Promise.all([ask(`api/history?kind=fleet&seconds=${state.seconds}`),
      names ? ask(`api/history?kind=cell&names=${names}&seconds=${state.seconds}`) : null, ask("api/incidents")]);
    state.history.set("fleet", fleet); state.history.set("cell", cell); state.book = book;
    draw();
  } catch (error) {
    alarm([`The supervisor does not answer (${error.message}). What is below is old.`]);
  }
  state.busy = false;
  if (state.again) { state.again = false; refresh(); }
}

function ranges() {
  $("ranges").replaceChildren(...RANGES.map(([name, seconds]) => {
    const button = h("button", { type: "button", "aria-pressed": `${seconds === state.seconds}` }, name);
    button.addEventListener("click", () => { state.seconds = seconds; ranges(); refresh(); });
    return button;
  }));
}

// Told of changes while the stream lives; asks by itself while it does not.
function listen() {
  const stream = new EventSource("api/events");
  let told = 0;
  stream.onmessage = () => { told = Date.now(); if (!document.hidden) refresh(); };
  stream.onerror = () => { if (!document.hidden) refresh(); };
  setInterval(() => { if (!document.hidden && Date.now() - told > 10000) refresh(); }, 5000);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
}

ranges();
refresh();
listen();
