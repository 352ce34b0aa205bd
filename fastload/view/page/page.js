// The page of `fastload view`. Texts of the dataset are set as text, never as HTML. In a static report all answers are in #archive.
"use strict";

const $ = (id) => document.getElementById(id);
const archive = $("archive") && JSON.parse($("archive").textContent);
const number = new Intl.NumberFormat("en-US");
let about = null;

// Elements.

function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key === "class") made.className = value;
    else if (key in made) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children.filter((each) => each !== null && each !== undefined));
  return made;
}

function drawn(name, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// Requests.

function query(values) {
  const kept = Object.entries(values).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return kept.length ? "?" + new URLSearchParams(kept) : "";
}

async function answer(path, signal) {
  const response = await fetch(path, { signal });
  if (!response.ok) throw new Error((await response.text()) || `the server answered ${response.status}`);
  return response;
}

async function get(path, signal) {
  if (!archive) return (await answer(path, signal)).json();
  const found = archive[path];
  if (!found) throw new Error("this is not in the report");
  if (found.error) throw new Error(found.error);
  return found;
}

const blobs = new Map(); // path: address of a picture, the last used last
const BLOBS_MOST = 1500;

async function pictureAddress(path, signal) {
  if (archive) return get(path);
  let address = blobs.get(path);
  if (!address) address = URL.createObjectURL(await (await answer(path, signal)).blob());
  blobs.delete(path);
  blobs.set(path, address);
  if (blobs.size > BLOBS_MOST) {
    const [oldest, gone] = blobs.entries().next().value;
    blobs.delete(oldest);
    URL.revokeObjectURL(gone);
  }
  return address;
}

function complaint(error) {
  return element("p", { class: "error", textContent: error.message });
}

// The addresses of views: #/samples?where=..., #/sample/12?where=...

function route() {
  const [path, search = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [view = "", index = ""] = path.split("/");
  return { view: $(view) && $(view).classList.contains("view") ? view : "samples", index, values: new URLSearchParams(search) };
}

const hash = (view, values = {}) => `#/${view}${query(values)}`;
let where = "";

// The sheet. It has as many cells as are seen. A browser bounds the height of an element, so that a long sheet scrolls by a shorter one:
// small moves are moves of the sheet, jumps are in proportion, and after a rest the bar is put where the sheet is.

const HEIGHT_MOST = 8e6;
const BLOCK = 200;
const BLOCKS_MOST = 60;
const REQUESTS_MOST = 6;
const CAPTION = 20;
const GAP = 8;

class Sheet {
  constructor() {
    this.scroller = $("scroller");
    this.layer = $("cells");
    this.cells = new Map();
    this.top = 0;
    this.last = 0;
    this.total = 0;
    this.ratio = 1;
    this.started = 0;
    this.running = 0;
    this.waiting = [];
    this.forget();
    this.scroller.addEventListener("scroll", () => this.scrolled(), { passive: true });
    new ResizeObserver(() => this.layout()).observe(this.scroller);
  }

  forget() {
    this.blocks = new Map();
    this.pending = new Set();
    for (const position of [...this.cells.keys()]) this.remove(position);
  }

  show(first) {
    this.forget();
    this.total = first.total;
    if (first.rows.length) this.blocks.set(0, first.rows);
    this.top = 0;
    this.layout();
  }

  get room() {
    return Math.max(0, this.tall - this.seen);
  }

  layout() {
    const wide = this.layer.clientWidth;
    this.seen = this.layer.clientHeight;
    if (!wide || !this.seen) return;
    const first = Math.round(this.top / (this.step || 1)) * (this.columns || 1);
    this.side = Number($("side").value);
    this.columns = Math.max(1, Math.floor((wide - GAP) / (this.side + GAP)));
    this.across = (wide - GAP) / this.columns;
    const step = this.side + CAPTION + GAP;
    if (step !== this.step || this.columns !== this.before) this.top = Math.floor(first / this.columns) * step;
    this.step = step;
    this.before = this.columns;
    this.tall = Math.ceil(this.total / this.columns) * this.step + GAP;
    const bar = Math.min(this.tall, HEIGHT_MOST);
    $("spacer").style.height = `${Math.max(0, bar - this.seen)}px`;
    this.ratio = bar > this.seen ? this.room / (bar - this.seen) : 1;
    this.top = Math.min(this.top, this.room);
    for (const position of [...this.cells.keys()]) this.remove(position);
    this.settle();
    this.render();
  }

  scrolled() {
    const now = this.scroller.scrollTop;
    const move = now - this.last;
    this.last = now;
    if (!move) return;
    this.jumps ||= Math.abs(move) > 1.5 * this.seen; // and all moves until the next rest: a browser ends a jump in small steps
    if (this.ratio <= 1 || this.jumps) this.top = now * this.ratio;
    else {
      this.top += move;
      if (now <= 0 && this.top < 4 * this.ratio) this.top = 0;
      if (this.scroller.scrollHeight - this.seen - now <= 1 && this.room - this.top < 4 * this.ratio) this.top = this.room;
    }
    this.top = Math.max(0, Math.min(this.top, this.room));
    clearTimeout(this.resting);
    this.resting = setTimeout(() => this.settle(), 150);
    this.render();
  }

  settle() {
    this.jumps = false;
    this.scroller.scrollTop = this.top / this.ratio;
    this.last = this.scroller.scrollTop;
  }

  render() {
    const first = Math.max(0, Math.floor(this.top / this.step) - 1) * this.columns;
    const end = Math.min(this.total, Math.ceil((this.top + this.seen) / this.step + 1) * this.columns);
    for (const position of [...this.cells.keys()]) if (position < first || position >= end) this.remove(position);
    for (let position = first; position < end; position++) {
      const cell = this.cells.get(position) || this.add(position);
      const x = GAP + (position % this.columns) * this.across;
      const y = GAP + Math.floor(position / this.columns) * this.step - this.top;
      cell.link.style.transform = `translate(${Math.round(x)}px, ${Math.round(y)}px)`;
    }
    if (!this.loading) this.loading = setTimeout(() => this.load(), 50);
  }

  add(position) {
    const frame = element("div", { class: "frame" });
    frame.style.height = `${this.side}px`;
    const caption = element("span", { class: "caption" });
    const link = element("a", { class: "cell" }, frame, caption);
    link.style.width = `${this.across - GAP}px`;
    this.layer.append(link);
    const cell = { link, frame, caption, abort: new AbortController(), row: null, asked: false };
    this.cells.set(position, cell);
    this.fill(position, cell);
    return cell;
  }

  remove(position) {
    const cell = this.cells.get(position);
    cell.abort.abort();
    cell.link.remove();
    this.cells.delete(position);
  }

  fill(position, cell) {
    const block = this.blocks.get(Math.floor(position / BLOCK));
    if (cell.row || !block || !block[position % BLOCK]) return;
    cell.row = block[position % BLOCK];
    const [index, label, width, height] = cell.row;
    cell.caption.append(element("b", { textContent: number.format(index) }), label ? ` ${label}` : "");
    cell.link.href = hash(`sample/${index}`, { where });
    cell.link.title = `sample ${index}${label ? `, ${label}` : ""}, ${width} x ${height}`;
  }

  load() {
    this.loading = null;
    this.waiting = [];
    for (const [position, cell] of this.cells) {
      const block = Math.floor(position / BLOCK);
      if (!this.blocks.has(block)) this.loadBlock(block);
      else if (cell.row && !cell.asked) this.waiting.push(cell);
    }
    this.next();
  }

  async loadBlock(block) {
    if (this.pending.has(block)) return;
    this.pending.add(block);
    const blocks = this.blocks;
    try {
      const found = await get(`rows${query({ where, start: block * BLOCK, count: BLOCK })}`);
      if (blocks !== this.blocks) return;
      blocks.set(block, found.rows);
      if (blocks.size > BLOCKS_MOST) blocks.delete(blocks.keys().next().value);
      for (const [position, cell] of this.cells) this.fill(position, cell);
      this.load();
    } catch (error) {
      if (blocks === this.blocks) told(error);
    } finally {
      this.pending.delete(block);
    }
  }

  next() {
    while (this.running < REQUESTS_MOST && this.waiting.length) {
      const cell = this.waiting.shift();
      if (cell.abort.signal.aborted || cell.asked) continue;
      cell.asked = true;
      this.running++;
      this.started++;
      this.picture(cell).finally(() => {
        this.running--;
        this.next();
      });
    }
  }

  async picture(cell) {
    const [index, label, width, height] = cell.row;
    try {
      const address = await pictureAddress(`picture/${index}.png?side=${sideFor(this.side)}`, cell.abort.signal);
      if (cell.abort.signal.aborted) return;
      const image = element("img", { alt: `sample ${index}${label ? `, ${label}` : ""}`, class: Math.max(width, height) < this.side ? "coarse" : "" });
      image.src = address;
      if (width >= height) image.style.width = `${Math.min(this.side, 4 * width)}px`;
      else image.style.height = `${Math.min(this.side, 4 * height)}px`;
      cell.frame.classList.add("checked");
      cell.frame.append(about.marked ? this.marked(image, cell) : image);
    } catch (error) {
      if (!cell.abort.signal.aborted) cell.frame.append(complaint(error));
    }
  }

  // A thumbnail in a frame of its size, over which its boxes, masks and the rest are drawn once they are there.
  marked(image, cell) {
    const [index, , width, height] = cell.row;
    const made = element("span", { class: "marked" }, image);
    made.style.aspectRatio = `${width} / ${height}`;
    for (const side of ["width", "height"]) [made.style[side], image.style[side]] = [image.style[side], ""];
    const path = archive ? `sample/${index}` : `layers/${index}?side=${sideFor(this.side)}`;
    get(path, cell.abort.signal).then(
      (found) => made.append(...overlays(found.layers, width, height, 380 / this.side)),
      () => {}, // the picture has the complaint of a bad sample, or there is nothing to draw
    );
    return made;
  }
}

function sideFor(side) {
  const wanted = side * (window.devicePixelRatio || 1);
  return about.sides.find((each) => each >= wanted) || about.sides[about.sides.length - 1];
}

let sheet = null;

function told(error) {
  $("found").replaceChildren(element("span", { class: "error", textContent: error.message }));
}

async function search(condition) {
  where = condition;
  $("where").value = archive ? about.where : condition;
  $("found").textContent = condition ? "searching ..." : "";
  try {
    const first = await get(`rows${query({ where, start: 0, count: BLOCK })}`);
    if (condition !== where) return;
    sheet.show(first);
    const all = number.format(about.samples);
    if (archive) $("found").textContent = `${number.format(first.total)} of ${all} samples${about.where ? `, of those where ${about.where}` : ""}`;
    else $("found").textContent = condition ? `${number.format(first.total)} of ${all} samples` : `${all} samples`;
  } catch (error) {
    if (condition !== where) return;
    sheet.show({ total: 0, rows: [] });
    told(error);
  }
}

// A picture with its layers.

function stage(path, width, height, layers, marks = 1) {
  const made = element("div", { class: "stage" });
  made.style.aspectRatio = `${width} / ${height}`;
  const image = element("img", { alt: "", class: width < 256 && height < 256 ? "coarse" : "" });
  made.append(image);
  pictureAddress(path).then((address) => (image.src = address), (error) => image.replaceWith(complaint(error)));
  made.append(...overlays(layers, width, height, marks));
  return made;
}

function overlays(layers, width, height, marks) {
  return layers.map((layer) => {
    const over = layerOf(layer, width, height, marks);
    over.dataset.layer = layer.name;
    if (hiddenLayers.has(layer.name)) over.setAttribute("hidden", "");
    return over;
  });
}

function colour(row) {
  return about.colours[row % about.colours.length];
}

function layerOf(layer, width, height, marks) {
  if (layer.form === "picture") {
    const image = element("img", { alt: layer.name, class: "over" });
    pictureAddress(layer.picture).then((address) => (image.src = address), (error) => image.replaceWith(complaint(error)));
    return image;
  }
  const made = drawn("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none" });
  const size = Math.max(width, height) * marks; // that of points and letters
  if (layer.form === "points") {
    layer.points.forEach((points, row) => points.forEach(([x, y, seen], at) => {
      if (seen === 0) return;
      const point = drawn("circle", { cx: x, cy: y, r: size / 130, fill: colour(row), class: seen === 1 ? "hollow" : "" });
      point.append(drawn("title", {}, layer.names[at] || `point ${at}`));
      made.append(point);
    }));
    return made;
  }
  layer.shapes.forEach((lines, row) => {
    for (const line of lines) {
      const points = line.map(([x, y]) => `${x},${y}`).join(" ");
      made.append(drawn("polygon", { points, stroke: colour(row), fill: colour(row) }));
    }
    if (layer.texts[row] && lines.length) {
      const [x, y] = lines[0][0];
      const text = drawn("text", { x: x + size / 200, y: y + size / 32, "font-size": size / 36, "stroke-width": size / 220 });
      text.textContent = layer.texts[row];
      made.append(text);
    }
  });
  return made;
}

const hiddenLayers = new Set(); // names of the layers that the user has switched off

function switches(layers, redraw) {
  const seen = new Map(layers.map((layer) => [layer.name, layer]));
  return [...seen.values()].map((layer) => {
    const box = element("input", { type: "checkbox", checked: !hiddenLayers.has(layer.name) });
    box.addEventListener("change", () => {
      if (box.checked) hiddenLayers.delete(layer.name);
      else hiddenLayers.add(layer.name);
      redraw();
    });
    const count = layer.count === null ? "" : ` (${number.format(layer.count)})`;
    return element("label", {}, box, ` ${layer.name}${count}`);
  });
}

function applyLayers() {
  for (const each of document.querySelectorAll("[data-layer]")) each.toggleAttribute("hidden", hiddenLayers.has(each.dataset.layer));
}

// One sample.

let neighbours = { before: null, after: null };

async function showSample(index) {
  const page = $("sample");
  page.replaceChildren(element("p", { class: "faint", textContent: "loading ..." }));
  neighbours = { before: null, after: null };
  const here = location.hash;
  const back = element("a", { href: hash("samples", { where }), textContent: "All samples" });
  let found;
  try {
    found = await get(`sample/${index}${query({ where })}`);
  } catch (error) {
    if (location.hash === here) page.replaceChildren(element("p", { class: "bar-line" }, back), complaint(error));
    return;
  }
  if (location.hash !== here) return;
  neighbours = found;
  const step = (to, text) => (to === null ? element("span", { class: "faint", textContent: text }) : element("a", { href: hash(`sample/${to}`, { where }), textContent: text }));
  const title = element("h2", { textContent: `Sample ${number.format(found.index)}${found.label ? `: ${found.label}` : ""}` });
  const images = element("div");
  found.images.forEach((image, at) => {
    const side = about.sides[about.sides.length - 1];
    const made = stage(`${image.picture}side=${side}`, image.width, image.height, at ? [] : found.layers);
    made.style.width = `min(100%, calc(72vh * ${image.width / image.height}), ${8 * image.width}px)`;
    images.append(element("figure", {}, made, element("figcaption", { textContent: `${image.name}, ${image.width} x ${image.height}` })));
  });
  const fields = element("dl");
  for (const field of found.fields) {
    fields.append(element("dt", { textContent: field.name }), element("dd", {}, element("pre", { textContent: field.text }), element("small", { textContent: field.kind })));
  }
  const facts = element("dl");
  for (const [what, text] of found.facts) facts.append(element("dt", { textContent: what }), element("dd", {}, element("pre", { textContent: text })));
  const line = element("div", { class: "bar-line" }, back, step(found.before, "← before"), step(found.after, "after →"), ...switches(found.layers, applyLayers));
  const draws = element("section", { id: "draws" });
  page.replaceChildren(
    line,
    title,
    element("div", { class: "columns" }, images, element("div", {}, element("h3", { textContent: "Fields" }), fields, element("h2", { textContent: "Record" }), facts)),
    draws,
  );
  showDraws(draws, index);
}

// The draws of the transform.

const drawn_at = { seed: null, epoch: null };

function showDraws(section, index) {
  const seed = element("input", { type: "number", min: 0, value: drawn_at.seed ?? about.seed, disabled: Boolean(archive) });
  const epoch = element("input", { type: "number", min: 0, value: drawn_at.epoch ?? about.epoch, disabled: Boolean(archive) });
  const pictures = element("div", { class: "draws" });
  const steps = element("p", { class: "faint" });
  const count = Math.min(about.draws || 8, about.epochs_most);
  let asked = 0;
  async function redraw() {
    const now = ++asked;
    drawn_at.seed = seed.value;
    drawn_at.epoch = epoch.value;
    try {
      const found = await get(`draws/${index}${query({ seed: seed.value, epoch: epoch.value, count })}`);
      if (now !== asked) return;
      steps.textContent = `${found.steps.join(", ") || "no steps"}${found.note ? ` - ${found.note}` : ""}`;
      pictures.replaceChildren(...found.draws.map(drawFigure));
    } catch (error) {
      if (now === asked) pictures.replaceChildren(complaint(error));
    }
  }
  seed.addEventListener("change", redraw);
  epoch.addEventListener("change", redraw);
  const turn = (by) => () => {
    epoch.value = Math.max(0, Number(epoch.value) + by);
    redraw();
  };
  const buttons = archive ? [] : [element("button", { type: "button", textContent: "← epochs", onclick: turn(-count) }), element("button", { type: "button", textContent: "epochs →", onclick: turn(count) })];
  section.replaceChildren(
    element("h2", { textContent: "What the model sees" }),
    element("div", { class: "bar-line" }, element("label", {}, "seed ", seed), element("label", {}, "first epoch ", epoch), ...buttons),
    steps,
    pictures,
  );
  redraw();
}

function drawFigure(draw) {
  const caption = element("figcaption", { textContent: `epoch ${draw.epoch}` });
  if (draw.error) return element("figure", {}, complaint({ message: draw.error }), caption);
  const stages = draw.pictures.map((each) => stage(each.path, each.width, each.height, each.layers, 2.5));
  const [first] = draw.pictures;
  caption.append(`, ${first.width} x ${first.height}${first.note ? `, ${first.note}` : ""}`);
  return element("figure", {}, ...stages, caption);
}

// Facts.

const quoted = (name) => `"${name.replaceAll('"', '""')}"`;

function conditionOf(name, least, most) {
  if (!name || least === null || archive) return "";
  return most === null ? `${quoted(name)} = ${least}` : `${quoted(name)} >= ${least} and ${quoted(name)} < ${most}`;
}

function barButton(condition, title, ...children) {
  const made = element("button", { type: "button", title, disabled: !condition }, ...children);
  if (condition) made.addEventListener("click", () => (location.hash = hash("samples", { where: condition })));
  return made;
}

function listChart(title, bars) {
  const most = Math.max(...bars.map(([, count]) => count), 1);
  const rows = bars.map(([text, count, condition]) => {
    const fill = element("span", { class: "fill" });
    fill.style.width = `${(100 * count) / most}%`;
    const name = element("span", { class: "name", textContent: text });
    return barButton(condition, "", name, element("span", { class: "track" }, fill), element("span", { class: "count", textContent: number.format(count) }));
  });
  return element("section", { class: "chart" }, element("h3", { textContent: title }), element("div", { class: "list" }, ...rows));
}

function barChart(chart) {
  const most = Math.max(...chart.bars.map(([, count]) => count), 1);
  const bars = chart.bars.map(([text, count, least, end]) => {
    const bar = element("span");
    bar.style.height = `${(100 * count) / most}%`;
    return barButton(conditionOf(chart.name, least, end), `${text}: ${number.format(count)}`, bar);
  });
  const last = chart.bars[chart.bars.length - 1][0];
  const ends = element("div", { class: "ends" }, element("span", { textContent: chart.bars[0][0] }), element("span", { textContent: `up to ${number.format(most)}` }), element("span", { textContent: last }));
  return element("section", { class: "chart" }, element("h3", { textContent: chart.title }), element("div", { class: "bars" }, ...bars), ends);
}

async function showFacts() {
  const page = $("facts");
  if (page.dataset.shown) return;
  page.replaceChildren(element("p", { class: "faint", textContent: "reading columns ..." }));
  try {
    const found = await get("facts");
    const charts = [];
    if (found.classes.length) {
      const title = `classes${found.classes_left ? `, the most common; ${number.format(found.classes_left)} more` : ""}`;
      charts.push(listChart(title, found.classes.map(([name, label, count]) => [name, count, conditionOf(about.label, label, null)])));
    }
    for (const { field, classes, left } of found.objects) {
      const title = `classes of objects (${field})${left ? `, the most common; ${number.format(left)} more` : ""}`;
      const condition = (label) => (archive ? "" : `${label} in ${quoted(field)}`);
      charts.push(listChart(title, classes.map(([name, label, count]) => [name, count, condition(label)])));
    }
    for (const chart of found.charts) {
      if (chart.bars.every(([, , least]) => least === null)) charts.push(listChart(chart.title, chart.bars.map(([text, count]) => [text, count, ""])));
      else charts.push(barChart(chart));
    }
    const fields = element("dl");
    for (const [name, kind] of about.fields) fields.append(element("dt", { textContent: name }), element("dd", { textContent: kind }));
    page.replaceChildren(
      element("p", { class: "faint", textContent: found.sampled ? `Of a part: ${found.sampled}.` : "Of all samples." }),
      element("div", { class: "charts" }, ...charts, element("section", { class: "chart" }, element("h3", { textContent: "fields" }), fields)),
    );
    page.dataset.shown = "yes";
  } catch (error) {
    page.replaceChildren(complaint(error));
  }
}

// Bad samples.

let checking = null; // {at}: where a check is; it goes on when the page is left

async function showBad() {
  const list = element("ul", { class: "rows" });
  const none = element("p", { class: "faint" });
  const meter = element("progress", { max: about.samples || 1, value: 0, hidden: true });
  const button = element("button", { type: "button", textContent: "Check all samples", hidden: Boolean(archive) });
  const refresh = async () => {
    const { bad } = await get("bad");
    list.replaceChildren(...bad.map(([index, text]) => element("li", {}, element("a", { href: hash(`sample/${index}`), textContent: `sample ${number.format(index)}` }), `: ${text}`)));
    none.textContent = bad.length ? "" : checking && checking.done ? "All samples can be read and decoded." : "No bad sample was met so far.";
  };
  const check = async () => {
    if (checking && !checking.done) {
      checking.stopped = true;
      return;
    }
    const mine = (checking = { at: checking && checking.stopped ? checking.at : 0 });
    while (mine.at < about.samples && !mine.stopped) {
      mine.at = (await get(`check?start=${mine.at}`)).next;
      step();
      await refresh();
    }
    mine.done = true;
    step();
    await refresh();
  };
  const step = () => {
    const now = checking && !checking.done ? "Stop" : checking && checking.stopped ? "Go on" : "Check all samples";
    button.textContent = now;
    meter.hidden = !checking;
    meter.value = checking ? checking.at : 0;
  };
  const failed = (error) => none.replaceChildren(complaint(error));
  button.addEventListener("click", () => {
    check().catch(failed);
    step();
  });
  $("bad").replaceChildren(element("div", { class: "bar-line" }, button, meter), none, list);
  step();
  await refresh().catch(failed);
}

// The whole.

let sheetOf = null; // the condition whose samples the sheet shows

function show() {
  const { view, index, values } = route();
  for (const each of document.querySelectorAll(".view")) each.hidden = each.id !== view;
  for (const link of document.querySelectorAll("nav a")) {
    const current = link.dataset.view === (view === "sample" ? "samples" : view);
    if (current) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const condition = archive ? "" : values.get("where") || "";
  if ((view === "samples" || view === "sample") && condition !== sheetOf) {
    sheetOf = condition;
    search(condition);
  }
  document.querySelector('nav a[data-view="samples"]').href = hash("samples", { where });
  if (view === "samples") sheet.layout();
  if (view === "sample") showSample(index);
  if (view === "facts") showFacts();
  if (view === "bad") showBad();
}

async function start() {
  about = await get("dataset");
  document.title = `${about.path} - fastload view`;
  $("path").textContent = about.path;
  const shards = `${number.format(about.shards)} shard${about.shards === 1 ? "" : "s"}`;
  $("summary").textContent = `${number.format(about.samples)} samples in ${shards}${about.version > 1 ? `, version ${about.version}` : ""}`;
  $("where").placeholder = `SQL condition: ${about.example}`;
  sheet = new Sheet();
  $("search").addEventListener("submit", (event) => {
    event.preventDefault();
    const wanted = hash("samples", { where: $("where").value.trim() });
    if (location.hash === wanted) search($("where").value.trim());
    else location.hash = wanted;
  });
  if (archive) for (const each of document.querySelectorAll("#search input, #search button")) each.disabled = true;
  $("side").addEventListener("change", () => sheet.layout());
  window.addEventListener("hashchange", show);
  window.addEventListener("keydown", (event) => {
    if (route().view !== "sample" || event.target.closest("input, select, pre") || event.altKey || event.ctrlKey || event.metaKey) return;
    const to = event.key === "ArrowLeft" ? neighbours.before : event.key === "ArrowRight" ? neighbours.after : null;
    if (to !== null) location.hash = hash(`sample/${to}`, { where });
  });
  if (!location.hash && about.where && !archive) location.replace(hash("samples", { where: about.where }));
  show();
}

start().catch((error) => document.body.prepend(complaint(error)));
