// A time series as SVG: one or two lines over one axis, gaps where nothing is known, a value under the pointer.

const NS = "http://www.w3.org/2000/svg";
const W = 320, H = 120, LEFT = 34, TOP = 6, BOTTOM = 16;

function svg(tag, attributes, text) {
  const made = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// The next of 1, 2, 5 times a power of ten: an axis that people can read.
function nice(most) {
  if (!(most > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 5, 10].map(step => step * power).find(step => step >= most * 0.999);
}

export function clock(at, long) {
  const moment = new Date(at * 1000);
  return long
    ? moment.toLocaleString([], { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" })
    : moment.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
}

export function short(value) {
  if (value === null || value === undefined) return "–";
  if (Math.abs(value) >= 1e6) return `${+(value / 1e6).toPrecision(3)}M`;
  if (Math.abs(value) >= 1e3) return `${+(value / 1e3).toPrecision(3)}k`;
  return `${+value.toPrecision(3)}`;
}

// Pieces of a line between the gaps; a hole of several steps is a gap too: nobody looked then.
function pieces(points, index, step) {
  const found = [];
  let last = null, run = [];
  for (const [at, values] of points) {
    const value = values[index];
    if (value === null || (last !== null && at - last > 4 * step)) {
      if (run.length) found.push(run);
      run = [];
    }
    if (value !== null) run.push([at, value]);
    last = at;
  }
  if (run.length) found.push(run);
  return found;
}

function typicalStep(points) {
  const steps = points.slice(1).map(([at], i) => at - points[i][0]).sort((a, b) => a - b);
  return Math.max(1, steps[Math.floor(steps.length / 2)] ?? 1, 5);
}

// plot: {title, unit, lines: [[index, name]...], most?}; history: {begin, end}; marks: [[at, class, words]...]
export function plot({ title, unit, lines, most }, points, { begin, end }, marks) {
  const figure = document.createElement("figure");
  const caption = document.createElement("figcaption"), name = document.createElement("span");
  const output = document.createElement("output");
  name.textContent = title;
  caption.append(name, output);
  const top = most ?? nice(Math.max(0, ...points.flatMap(([, v]) => lines.map(([i]) => v[i] ?? 0))));
  const x = at => LEFT + (W - LEFT) * Math.min(1, Math.max(0, (at - begin) / (end - begin)));
  const y = value => TOP + (H - TOP - BOTTOM) * (1 - Math.min(1, value / top));
  const picture = svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img" });
  picture.setAttribute("aria-label", `${title} over time`);
  for (const share of [0, 0.5, 1]) {
    const at = y(top * share);
    picture.append(svg("line", { class: "grid", x1: LEFT, x2: W, y1: at, y2: at }));
    picture.append(svg("text", { x: LEFT - 4, y: at + 3, "text-anchor": "end" }, short(top * share)));
  }
  const long = end - begin > 86400;
  for (const [share, anchor] of [[0, "start"], [0.5, "middle"], [1, "end"]]) {
    const at = begin + (end - begin) * share;
    picture.append(svg("text", { x: x(at), y: H - 3, "text-anchor": anchor }, clock(at, long)));
  }
  for (const [at, kind, words] of marks) {
    if (at < begin || at > end) continue;
    const line = svg("line", { class: `mark ${kind}`, x1: x(at), x2: x(at), y1: TOP, y2: H - BOTTOM });
    line.append(svg("title", {}, words));
    picture.append(line);
  }
  const step = typicalStep(points);
  lines.forEach(([index], number) => {
    for (const run of pieces(points, index, step)) {
      const path = run.length > 1 ? run : [run[0], [run[0][0] + step / 2, run[0][1]]];
      const d = path.map(([at, v], i) => `${i ? "L" : "M"}${x(at).toFixed(1)},${y(v).toFixed(1)}`).join("");
      picture.append(svg("path", { class: `line l${number}`, d }));
    }
  });
  follow(picture, output, points, { begin, end, long }, lines, unit);
  figure.append(caption, picture);
  return figure;
}

// Shows the newest values, or those under the pointer.
function follow(picture, output, points, { begin, end, long }, lines, unit) {
  const cursor = svg("line", { class: "cursor", y1: TOP, y2: H - BOTTOM, visibility: "hidden" });
  picture.append(cursor);
  const say = (point, at) => {
    output.replaceChildren();
    if (!point) { output.textContent = "no data"; return; }
    lines.forEach(([index, name], number) => {
      const part = document.createElement("span");
      part.className = `k${number}`;
      const label = lines.length > 1 ? `${name} ` : "";
      part.textContent = `${label}${short(point[1][index])}${point[1][index] === null ? "" : unit} `;
      output.append(part);
    });
    if (at) output.append(clock(point[0], long));
  };
  const newest = points[points.length - 1];
  say(newest, false);
  picture.addEventListener("pointermove", event => {
    const box = picture.getBoundingClientRect();
    const share = ((event.clientX - box.left) / box.width * W - LEFT) / (W - LEFT);
    const wanted = begin + (end - begin) * share;
    const near = points.reduce((a, b) => a && Math.abs(a[0] - wanted) <= Math.abs(b[0] - wanted) ? a : b, null);
    if (!near) return;
    const at = LEFT + (W - LEFT) * (near[0] - begin) / (end - begin);
    cursor.setAttribute("x1", at); cursor.setAttribute("x2", at);
    cursor.setAttribute("visibility", "visible");
    say(near, true);
  });
  picture.addEventListener("pointerleave", () => { cursor.setAttribute("visibility", "hidden"); say(newest, false); });
}
