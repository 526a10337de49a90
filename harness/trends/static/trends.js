// Draws one series over commits. Everything that comes from records is set as text, never as markup: the pages' content
// security policy asks for trusted types, so that a browser that knows them makes no string into markup.
"use strict";
(() => {
  const at = id => document.getElementById(id);
  // The one policy that the pages allow. It makes the addresses of data, and no markup.
  const make_address = { createScriptURL: anchor => `data/${encodeURIComponent(anchor)}.js` };
  const addresses = window.trustedTypes ? trustedTypes.createPolicy("fmha", make_address) : make_address;
  const known = new Map();
  const waiting = new Map();
  let index = null, plot = null, shown = null, cursor = -1;

  function make(tag, text, name) {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    if (name) element.className = name;
    return element;
  }
  function link(place) {
    const [sha] = index.commits[place];
    const a = make("a");
    a.href = `commit/${encodeURIComponent(sha)}.html`;
    a.append(make("code", sha.slice(0, 12)));
    return a;
  }
  function number(value) {
    if (value === null || value === undefined) return "-";
    return Number.isInteger(value) ? value.toLocaleString("en") : value.toPrecision(3);
  }
  const spread = ranges => {
    const places = [];
    for (let i = 0; i < ranges.length; i += 2) for (let at = ranges[i]; at <= ranges[i + 1]; at++) places.push(at);
    return places;
  };
  const unrolled = runs => runs.flatMap(item => Array.isArray(item) ? Array(item[1]).fill(item[0]) : [item]);

  window.fmhaIndex = data => {
    index = data;
    find();
    addEventListener("hashchange", open);
    at("find").addEventListener("input", find);
    at("subject").addEventListener("change", () => go(at("subject").value, at("figure").value));
    at("figure").addEventListener("change", () => go(at("subject").value, at("figure").value));
    at("chart").addEventListener("keydown", key);
    new ResizeObserver(() => plot && plot.setSize(size())).observe(at("chart"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => shown && draw(...shown));
    open();
  };
  window.fmhaSubject = data => {
    known.set(data.name, data.series.map(([figure, line, places, values, steps]) =>
      ({ figure, line, places: spread(places), values: unrolled(values), steps })));
    const then = waiting.get(data.name);
    waiting.delete(data.name);
    if (then) then();
  };

  function find() {
    const words = at("find").value.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = at("subject").value;
    const fitting = index.subjects.filter(([name]) => words.every(word => name.toLowerCase().includes(word)));
    at("subject").replaceChildren(...fitting.map(([name, anchor]) => {
      const option = make("option", name);
      option.value = anchor;
      return option;
    }));
    at("subject").value = chosen;
  }
  function go(anchor, figure) {
    location.hash = `${anchor}/${figure}`;
  }
  function open() {
    const [anchor, figure] = decodeURIComponent(location.hash.slice(1)).split("/");
    const entry = index.subjects.find(item => item[1] === anchor) || index.subjects.find(item => item[0] === index.first[0]);
    if (!entry) { at("said").textContent = "There is no series yet."; return; }
    const wanted = figure || index.first[1];
    if (known.has(entry[0])) { draw(entry, wanted); return; }
    waiting.set(entry[0], () => draw(entry, wanted));
    const script = make("script");
    script.src = addresses.createScriptURL(entry[1]);
    script.onerror = () => { at("said").textContent = `${entry[0]}: its data cannot be loaded.`; };
    document.head.append(script);
  }

  const size = () => ({ width: Math.max(at("chart").clientWidth, 240), height: 352 });
  const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function draw(entry, wanted) {
    const series = known.get(entry[0]);
    const figures = [...new Set(series.map(item => item.figure))];
    const figure = figures.includes(wanted) ? wanted : figures[0];
    shown = [entry, figure];
    const [label, logarithmic] = index.figures[figure];
    if (![...at("subject").options].some(option => option.value === entry[1])) { at("find").value = ""; find(); }
    at("subject").value = entry[1];
    at("figure").replaceChildren(...figures.map(name => {
      const option = make("option", index.figures[name][0]);
      option.value = name;
      return option;
    }));
    at("figure").value = figure;
    at("title").textContent = `${label}: ${entry[0]}`;
    document.title = `${label} of ${entry[0]} - fmha`;

    const mine = series.filter(item => item.figure === figure);
    const places = [...new Set(mine.flatMap(item => item.places))].sort((a, b) => a - b);
    const row = new Map(places.map((place, i) => [place, i]));
    const positive = mine.flatMap(item => item.values).filter(value => value > 0);
    const least = positive.reduce((a, b) => Math.min(a, b), Infinity) / 2;
    const columns = mine.map(item => {
      const column = Array(places.length).fill(null);
      item.places.forEach((place, i) => {
        const value = item.values[i];
        column[row.get(place)] = logarithmic && value !== null && !(value > 0) ? least : value;
      });
      return column;
    });
    const raw = mine.map(item => new Map(item.places.map((place, i) => [place, item.values[i]])));
    lines(mine);
    if (plot) plot.destroy();
    const stroke = colour("--soft"), grid = { stroke: colour("--line"), width: 1 };
    const name = i => index.commits[i] ? index.commits[i][3] || index.commits[i][0].slice(0, 7) : "";
    plot = new uPlot({
      ...size(),
      scales: { x: { time: false }, y: logarithmic && positive.length ? { distr: 3 } : {} },
      axes: [
        { stroke, grid, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000], values: (_, ticks) => ticks.map(name) },
        { stroke, grid, size: 68, values: (_, ticks) => ticks.map(tick => tick === null ? "" : Math.abs(tick) >= 1e4 || (tick && Math.abs(tick) < 1e-2) ? tick.toExponential(0) : String(tick)) },
      ],
      series: [{}, ...mine.map(item => ({
        label: String(item.line), stroke: colour(`--l${item.line % 6}`), width: 1.5, spanGaps: true,
        points: { show: places.length < 120, size: 5 },
      }))],
      legend: { show: false },
      cursor: { drag: { x: true, y: false } },
      hooks: {
        draw: [self => marks(self, mine)],
        setCursor: [self => { if (self.cursor.idx !== null && self.cursor.idx !== undefined) say(places[self.cursor.idx], mine, raw); }],
      },
    }, [places, ...columns], at("chart"));
    plot.over.addEventListener("click", () => { if (cursor >= 0) location.href = link(cursor).href; });
    plot.places = places;
    tables(mine, places, raw);
    at("said").textContent = `Commits: ${places.length}. Steps: ${mine.reduce((sum, item) => sum + item.steps.length, 0)}.`;
    cursor = -1;
  }
  function lines(mine) {
    at("lines").replaceChildren(...mine.map(item => {
      const entry = make("li");
      entry.append(make("b", "", `l${item.line % 6}`), index.lines[item.line]);
      return entry;
    }));
  }
  function marks(self, mine) {
    const context = self.ctx, { top, height, left, width } = self.bbox;
    context.save();
    context.lineWidth = devicePixelRatio * 2;
    const mark = (place, style, dash) => {
      const x = self.valToPos(place, "x", true);
      if (x < left || x > left + width) return;
      context.strokeStyle = style;
      context.setLineDash(dash);
      context.beginPath();
      context.moveTo(x, top);
      context.lineTo(x, top + height);
      context.stroke();
    };
    for (const [place] of index.baselines) mark(place, colour("--soft"), [2, 6]);
    for (const item of mine) for (const [place, , , worse] of item.steps) mark(place, colour(worse ? "--bad" : "--good"), [8, 4]);
    context.restore();
  }
  function say(place, mine, raw) {
    cursor = place;
    const [sha, subject, when, tags] = index.commits[place];
    const values = mine.map((item, i) => raw[i].has(place) ? `${index.lines[item.line]} ${number(raw[i].get(place))}` : "").filter(Boolean);
    const why = index.baselines.filter(item => item[0] === place).map(item => `baseline ${item[1]}: ${item[2]}`);
    at("said").textContent = [`${sha.slice(0, 12)} ${tags} ${when} ${subject}`, ...values, ...why].join("; ");
  }
  function key(event) {
    if (!plot || !plot.places.length) return;
    const places = plot.places, last = places.length - 1, now = places.indexOf(cursor);
    const to = { ArrowLeft: now < 0 ? last : Math.max(now - 1, 0), ArrowRight: now < 0 ? 0 : Math.min(now + 1, last), Home: 0, End: last }[event.key];
    if (event.key === "Enter" && cursor >= 0) location.href = link(cursor).href;
    if (to === undefined) return;
    event.preventDefault();
    plot.setCursor({ left: plot.valToPos(places[to], "x"), top: plot.over.clientHeight / 2 });
  }
  function cell(content, name) {
    const element = make("td", undefined, name);
    element.append(content);
    return element;
  }
  function head(place) {
    const element = make("th");
    element.scope = "row";
    element.append(link(place));
    return element;
  }
  function tables(mine, places, raw) {
    // A step may be of any commit since the one before it that was run on that line.
    const unrun = (item, place) => place - item.places[item.places.indexOf(place) - 1] - 1;
    const subject = (item, place) => index.commits[place][1] + (unrun(item, place) > 0 ? ` (or of the ${unrun(item, place)} before it, not run on this line)` : "");
    const steps = mine.flatMap(item => item.steps.map(step => [item, ...step])).sort((a, b) => b[1] - a[1]);
    at("steps").replaceChildren(...steps.map(([item, place, before, after, worse, sure]) => {
      const row = make("tr");
      row.append(head(place), cell(subject(item, place), "left"), cell(index.lines[item.line], "left"),
        cell(number(before)), cell(number(after), worse ? "fail" : "PASS"), cell(sure, "left"));
      return row;
    }));
    const values = at("values"), box = values.closest("details");
    const fill = () => values.replaceChildren(...[...places].reverse().map(place => {
      const row = make("tr");
      row.append(head(place), cell(index.commits[place][1], "left"), cell(mine.map((item, i) =>
        raw[i].has(place) ? `${index.lines[item.line]} ${number(raw[i].get(place))}` : "").filter(Boolean).join("; "), "left"));
      return row;
    }));
    values.replaceChildren();
    box.ontoggle = () => box.open && fill();
    if (box.open) fill();
  }
})();
